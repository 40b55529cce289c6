"""A run spec from the wire: the same structure, but nothing in it may name a file.

On the command line ``model``, ``data``, ``meter`` and a backend's options may be paths.
On the wire they are names only: a model by sha256 (or a catalogue name beside its sha256),
its parts by sha256, ``data`` and ``meter`` names that the board's own file gives a meaning.
"""

import hashlib
import re
from typing import Any

import msgspec

from edgeperf.agent.messages.decoding import canonical
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.spec import RunSpec, SpecError, spec_from_mapping

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Runtimes name inputs with slashes and colons: ``model/input:0``.
_INPUT = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}")
_OPTION = re.compile(r"[A-Za-z0-9_.,:=+ -]{0,80}")
#: Endings of things that a runtime would load as code or read as a file.
_FILE = re.compile(
    r"\.(so(\.\d+)*|dll|dylib|py|pyc|sh|exe|bin|xml|onnx|tflite|json|toml|npz|npy)\b", re.IGNORECASE
)


def wire_spec(raw: dict[str, Any]) -> RunSpec:
    """Check a spec that came over the wire.

    Raises:
        MessageError: It is no spec, or a field names a file, a library or a device.
    """
    try:
        spec = spec_from_mapping(raw)
    except SpecError as error:
        raise MessageError(Code.SPEC, str(error)) from error
    if not _DIGEST.fullmatch(spec.model):
        _plain("model", spec.model)
    for field in ("backend", "task", "data", "meter"):
        if (value := getattr(spec, field)) is not None:
            _plain(field, value)
    if spec.inputs_file is not None:
        raise MessageError(Code.SPEC, "inputs_file: not allowed on the wire; it names a file")
    _check_tables(spec)
    return spec


def _check_tables(spec: RunSpec) -> None:
    for name, value in spec.parts.items():
        _plain("parts", name)
        if not _DIGEST.fullmatch(value):
            raise MessageError(Code.SPEC, f"parts.{name}: {value[:80]!r} is no sha256:DIGEST")
    for name in spec.shapes:
        if not _INPUT.fullmatch(name):
            raise MessageError(Code.SPEC, f"shapes: {name[:80]!r} is no plain input name")
    for name, value in spec.options.items():
        _plain("options", name)
        if not _OPTION.fullmatch(value) or _FILE.search(value):
            raise MessageError(Code.SPEC, f"options.{name}: {value[:80]!r} may name a file")


def spec_to_wire(spec: RunSpec) -> dict[str, Any]:
    """Return *spec* as the data of a command, fields at their default left out.

    Raises:
        MessageError: A field names a file.
    """
    document = msgspec.to_builtins(spec, str_keys=True)
    defaults = msgspec.to_builtins(RunSpec(model=spec.model), str_keys=True)
    changed = {name: value for name, value in document.items() if value != defaults[name]}
    changed["model"] = spec.model
    wire_spec(changed)
    return changed


def spec_sha256(raw: dict[str, Any]) -> str:
    """Return the identity of a spec: sha256 of its canonical JSON, defaults left out.

    Left out, not filled in: a version that knows one field more gives the same digest.

    Raises:
        MessageError: It is no spec.
    """
    return hashlib.sha256(canonical(spec_to_wire(wire_spec(raw)))).hexdigest()


def _plain(field: str, value: str) -> None:
    if not _WORD.fullmatch(value) or _FILE.search(value):
        raise MessageError(
            Code.SPEC, f"{field}: {value[:80]!r} is not a plain name; the wire names no file"
        )
