"""A frozen spec: everything that a repeat of a run must hold, as one JSON file with a digest.

The digest is over the canonical form of the whole file but ``digest`` itself and
``origin``, which says where it came from: so two results of the same conditions freeze
into the same digest. The canonical form is that of the parsed JSON, not of our
structures: white space and the order of keys do not count, a value that was changed does.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.agent.result import Data, ModelPart
from edgeperf.agent.spec import RunSpec, SpecError

FORMAT_VERSION = 1
#: Larger than any frozen spec; a file that is larger is something else.
MAX_BYTES = 1 << 20
_EXPECTED = "expected a spec, such as edgeperf spec freeze makes of a result"
#: Fields that the digest does not cover.
_OUTSIDE = ("digest", "origin")
#: Whole numbers up to here are the same as a float and as an integer.
_EXACT = 2**53


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a frozen spec."""


class Origin(_Part, frozen=True, kw_only=True):
    """The result that was frozen: for people, outside the digest."""

    result: str
    created: str
    status: str
    hostname: str | None = None


class FrozenModel(_Part, frozen=True, kw_only=True):
    """The model file; ``parts`` and ``companions`` as in the result."""

    name: str
    file: str
    sha256: str
    size_bytes: int
    parts: tuple[ModelPart, ...] = ()
    companions: tuple[ModelPart, ...] = ()


class FrozenTask(_Part, frozen=True, kw_only=True):
    """The task, and sha256 of its file where that is the user's own."""

    name: str | None
    file_sha256: str | None = None


class Software(_Part, frozen=True, kw_only=True):
    """Versions of everything that takes part."""

    edgeperf: str
    runtime: str
    runtime_version: str
    python: str
    packages: dict[str, str]
    os: str | None
    kernel: str | None
    kernel_build: str | None
    libc: str | None


class Execution(_Part, frozen=True, kw_only=True):
    """What really ran, as runtime and workers told: not what was asked, which is in ``run``.

    ``scheduling`` (``fifo`` or ``normal``) and ``memory_locked`` are what each worker of the
    performance test got, the leader first; None where nobody recorded it.
    """

    device: str
    precision: str
    delegates: tuple[str, ...]
    options: dict[str, str]
    input_copy: str
    batch: int
    scheduling: tuple[str, ...] | None = None
    memory_locked: tuple[bool, ...] | None = None


class Machine(_Part, frozen=True, kw_only=True):
    """The board; what it does not tell is None."""

    model: str | None
    revision: str | None
    cpu: str | None
    cores: int
    arch: str
    pointer_bits: int
    memory_bytes: int | None
    microcode: str | None
    l4t: str | None
    jetpack: str | None
    power_mode: str | None
    boost: bool | None
    virtualisation: tuple[str, ...]


class Clock(_Part, frozen=True, kw_only=True):
    """Cores that share a clock, who decides it, and between which limits, while it ran."""

    cores: tuple[int, ...]
    governor: str | None
    min_hz: int | None
    max_hz: int | None
    hardware_max_hz: int | None


class FrozenSpec(_Part, frozen=True, kw_only=True):
    """Everything that a repeat must hold.

    Attributes:
        frozen_spec: Version of this format.
        digest: ``sha256:`` and the digest of the rest; see the module.
        origin: Where it came from.
        run: What to do, with everything chosen that was left open: backend, precision,
            cores, workers, batch, Server's rate.
        model: The file under test.
        task: How answers are judged.
        data: The samples.
        software: Versions.
        execution: What really ran.
        workers: Cores of each worker, the leader first.
        machine: The board.
        clocks: Its clocks.
    """

    frozen_spec: int = FORMAT_VERSION
    digest: str = ""
    origin: Origin
    run: RunSpec
    model: FrozenModel
    task: FrozenTask
    data: Data
    software: Software
    execution: Execution
    workers: tuple[tuple[int, ...], ...]
    machine: Machine
    clocks: tuple[Clock, ...]


def canonical(document: object) -> bytes:
    """Return the one spelling of parsed JSON: sorted keys, no white space, UTF-8.

    A whole number is spelled the same whether it was written ``60`` or ``60.0``: tools that
    print JSON anew change that.

    Raises:
        ValueError: It is not what JSON can carry.
    """
    text = json.dumps(
        _plain(document),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    return text.encode()


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def digest_of(document: dict[str, Any]) -> str:
    """Return the digest of the content of a parsed frozen spec.

    Raises:
        ValueError: It is not what JSON can carry.
    """
    content = {name: value for name, value in document.items() if name not in _OUTSIDE}
    return f"sha256:{hashlib.sha256(canonical(content)).hexdigest()}"


def sealed(spec: FrozenSpec) -> FrozenSpec:
    """Return *spec* with its digest."""
    document = msgspec.to_builtins(spec, str_keys=True)
    return msgspec.structs.replace(spec, digest=digest_of(document))


def frozen_to_json(spec: FrozenSpec) -> bytes:
    """Return the text of the file, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"


class FrozenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen spec as it was read.

    Attributes:
        where: For messages.
        spec: What it says.
        found_digest: Of what it says; unlike ``spec.digest`` where it was edited.
    """

    where: str
    spec: FrozenSpec
    found_digest: str

    @property
    def is_intact(self) -> bool:
        """Whether it is as it was frozen."""
        return self.spec.digest == self.found_digest


def read_file(path: Path, what: str = "spec") -> bytes:
    """Read a spec file.

    Args:
        path: The file.
        what: What the user called it by, for messages.

    Raises:
        SpecError: It cannot be read, or is far too large.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{what} {path}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise SpecError(f"{what} {path}: more than {MAX_BYTES} bytes; no spec is so large")
    return raw


def check_is_spec(raw: bytes, where: str) -> None:
    """Refuse a file that is no spec of any kind, before it is read as one.

    Raises:
        SpecError: It is empty, cut short, no JSON, or a result; the message says what to do.
    """
    if not raw.strip():
        raise SpecError(f"{where}: is empty; {_EXPECTED}")
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SpecError(f"{where}: no JSON, or cut short ({error}); {_EXPECTED}") from error
    if not isinstance(document, dict):
        raise SpecError(f"{where}: is no JSON object; {_EXPECTED}")
    if "verdict" in document and "format_version" in document:
        raise SpecError(f"{where}: is a result; freeze it with edgeperf spec freeze, and give that")


def is_frozen(raw: bytes) -> bool:
    """Say whether *raw* is meant as a frozen spec, rather than a plain one."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return isinstance(document, dict) and ("frozen_spec" in document or "origin" in document)


def frozen_from_json(raw: bytes, *, where: str) -> FrozenFile:
    """Read a frozen spec, edited or not.

    Raises:
        SpecError: It is none, or its format is newer than this edgeperf.
    """
    try:
        document = msgspec.json.decode(raw, type=dict[str, Any])
        _check_version(document, where)
        spec = msgspec.json.decode(raw, type=FrozenSpec)
        return FrozenFile(where=where, spec=spec, found_digest=digest_of(document))
    except (msgspec.DecodeError, RecursionError, UnicodeError, ValueError) as error:
        raise SpecError(f"{where}: not a frozen spec: {error}") from error


def _check_version(document: dict[str, Any], where: str) -> None:
    version = document.get("frozen_spec")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise SpecError(
            f"{where}: format {version} is newer than this edgeperf reads ({FORMAT_VERSION});"
            " upgrade edgeperf"
        )
    if version != FORMAT_VERSION:
        raise SpecError(
            f"{where}: not a frozen spec: frozen_spec is {version!r}, expected {FORMAT_VERSION};"
            " make one with edgeperf spec freeze"
        )
