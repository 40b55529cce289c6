"""Reading a pack without unpacking it: every byte is accounted for, or it is refused.

Every byte of the archive, that is, once it is unzipped: gzip's own header and the way in
which it was compressed say nothing and are not looked at.
"""

import gzip
import hashlib
import re
import tarfile
import zlib
from pathlib import Path

import msgspec

from edgeperf.agent.freeze.document import frozen_from_json
from edgeperf.agent.pack.archive import MANIFEST, README
from edgeperf.agent.pack.entries import Entry, entries
from edgeperf.agent.pack.evidence import SPEC, PackError, check_names, sha256_of
from edgeperf.agent.result import Result, result_from_json
from edgeperf.agent.result.files import RESULT

#: More than a result or a spec has bytes, and than all texts of a pack that are kept in memory.
_MOST_TEXT, _MOST_TEXTS = 4 << 20, 64 << 20
#: More than the files of any shelf of boards: of each, name and digest are kept.
_MOST_FILES = 100_000
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_DAMAGED = (OSError, EOFError, zlib.error, tarfile.TarError, UnicodeDecodeError, ValueError)


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A pack that is whole.

    Attributes:
        results: The results in it, by id.
        files: How many files.
        manifest_sha256: Stands for the whole content.
    """

    results: dict[str, Result]
    files: int
    manifest_sha256: str


def verify(path: Path) -> Verified:
    """Check a pack.

    Raises:
        PackError: It is damaged, a file is missing, altered, or not accounted for.
    """
    try:
        digests, texts = _read(path)
    except PackError as error:
        raise PackError(f"pack {path}: {error}") from error
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or error
        raise PackError(f"pack {path}: cannot be read as a pack: {reason}") from error
    if MANIFEST not in texts:
        raise PackError(f"pack {path}: has no {MANIFEST}; it is no evidence pack")
    _check_manifest(path, digests, texts[MANIFEST])
    results = {}
    for name in sorted(texts):
        if name.endswith(f"/{RESULT}"):
            result = _check_result(path, name, digests, texts)
            results[result.id] = result
    _check_all_belong(path, digests, results)
    return Verified(results=results, files=len(digests), manifest_sha256=sha256_of(texts[MANIFEST]))


def _read(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the digest of every file, and the texts that say what belongs together."""
    digests: dict[str, str] = {}
    texts: dict[str, bytes] = {}
    left = _MOST_TEXTS
    with gzip.open(path, "rb") as zipped:
        for entry in entries(zipped):
            name = entry.name
            if name in digests:
                raise PackError(f"holds {name} twice")
            if len(digests) >= _MOST_FILES:
                raise PackError(f"holds more than {_MOST_FILES} files")
            is_text = name.count("/") < 2 and name.endswith((MANIFEST, RESULT, SPEC))  # noqa: PLR2004
            if is_text:
                left -= entry.size
                if left < 0 or (entry.size > _MOST_TEXT and name != MANIFEST):
                    raise PackError(f"{name} is far too large")
            digests[name], text = _digest(entry, keep=is_text)
            if is_text:
                texts[name] = text
    return digests, texts


def _digest(entry: Entry, *, keep: bool) -> tuple[str, bytes]:
    sha256, kept = hashlib.sha256(), bytearray()
    for chunk in entry.chunks():
        sha256.update(chunk)
        if keep:
            kept += chunk
    return sha256.hexdigest(), bytes(kept)


def _check_manifest(path: Path, digests: dict[str, str], manifest: bytes) -> None:
    listed: dict[str, str] = {}
    for line in manifest.decode(errors="replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is None or not line.isprintable():
            raise PackError(f"pack {path}: {MANIFEST}: cannot read {line[:80]!r}")
        listed[found[2]] = found[1]
    there = {name: sha256 for name, sha256 in digests.items() if name != MANIFEST}
    for words, names in (
        ("missing", listed.keys() - there.keys()),
        (f"not in {MANIFEST}", there.keys() - listed.keys()),
        ("altered", {name for name in listed.keys() & there.keys() if listed[name] != there[name]}),
    ):
        if names:
            first, more = min(names), len(names) - 1
            rest = f" (and {more} more)" if more else ""
            raise PackError(f"pack {path}: {first}{rest}: {words}; get the pack again")


def _check_result(
    path: Path, name: str, digests: dict[str, str], texts: dict[str, bytes]
) -> Result:
    """Check that a result has its own files, and the spec that follows from it."""
    where = f"pack {path}: {name}"
    result = result_from_json(texts[name], where=where)
    check_names(result, where)
    if name != f"{result.id}/{RESULT}":
        raise PackError(f"{where}: is the result {result.id}")
    for file, listed in sorted(result.files.items()):
        if digests.get(f"{result.id}/{file}") != listed.sha256:
            raise PackError(f"{where}: its {file} is missing or not the one that it lists")
    if (raw := texts.get(f"{result.id}/{SPEC}")) is not None:
        _check_spec(f"pack {path}: {result.id}/{SPEC}", raw, result)
    return result


def _check_spec(where: str, raw: bytes, result: Result) -> None:
    """Check that a spec is intact and of its result; another version may have frozen more."""
    file = frozen_from_json(raw, where=where)
    spec = file.spec
    same = (spec.origin.result, spec.model.sha256, spec.data) == (
        result.id,
        result.model.sha256,
        result.data,
    )
    if not same or not file.is_intact:
        raise PackError(f"{where}: is not the spec that was frozen from its result")


def _check_all_belong(path: Path, digests: dict[str, str], results: dict[str, Result]) -> None:
    own = {MANIFEST, README}
    for result in results.values():
        own |= {f"{result.id}/{name}" for name in (RESULT, SPEC, *result.files)}
    if strangers := sorted(digests.keys() - own):
        raise PackError(f"pack {path}: {strangers[0]}: belongs to no result in it")
    if not results:
        raise PackError(f"pack {path}: holds no result")
