"""Writing a pack: the same results give the same bytes, whoever packs them, whenever.

So entries are sorted, owners and times are left out, and gzip's own time is zero. The
bytes are those of one zlib; another one may compress otherwise, but the manifest is the same.
"""

import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from edgeperf.agent.pack.evidence import Evidence, PackError, sha256_of

FOLDER = "edgeperf-pack"
MANIFEST, README = "MANIFEST", "README.txt"
_LEVEL = 6


def write_pack(evidence: Sequence[Evidence], output: Path) -> str:
    """Write the archive.

    Args:
        evidence: The results; one of each id.
        output: Where to; not there yet.

    Returns:
        sha256 of the manifest, which stands for the whole content.

    Raises:
        PackError: It cannot be written, or two results have the same id.
    """
    ids = [one.result.id for one in evidence]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise PackError(f"result {twice[0]}: given twice; name each result once")
    texts, files = _entries(evidence)
    readme = readme_text(evidence).encode()
    manifest = manifest_text(
        {README: sha256_of(readme)}
        | {name: sha256_of(raw) for name, raw in texts.items()}
        | {name: sha256 for name, (_, sha256) in files.items()}
    ).encode()
    if output.exists():
        raise PackError(f"{output}: is there already; give another --output")
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as stream:
            _write(stream, {README: readme, MANIFEST: manifest}, texts, files)
            stream.flush()
            os.fsync(stream.fileno())
        part.rename(output)
    except OSError as error:
        where = error.filename or output
        raise PackError(f"{where}: {error.strerror or error}; nothing was packed") from error
    finally:
        part.unlink(missing_ok=True)
    return sha256_of(manifest)


def _entries(
    evidence: Sequence[Evidence],
) -> tuple[dict[str, bytes], dict[str, tuple[Path, str]]]:
    texts, files = {}, {}
    for one in evidence:
        for name, raw in one.texts().items():
            texts[f"{one.result.id}/{name}"] = raw
        for name, listed in one.result.files.items():
            files[f"{one.result.id}/{name}"] = (one.folder / name, listed.sha256)
    return texts, files


def _write(
    stream: io.BufferedWriter,
    head: dict[str, bytes],
    texts: dict[str, bytes],
    files: dict[str, tuple[Path, str]],
) -> None:
    with (
        gzip.GzipFile("", "wb", _LEVEL, stream, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, raw in head.items():
            archive.addfile(entry_of(name, len(raw)), io.BytesIO(raw))
        for name in sorted([*texts, *files]):
            if name in texts:
                archive.addfile(entry_of(name, len(texts[name])), io.BytesIO(texts[name]))
                continue
            path = files[name][0]
            with path.open("rb") as source:
                archive.addfile(entry_of(name, os.fstat(source.fileno()).st_size), source)


def entry_of(name: str, size: int) -> tarfile.TarInfo:
    """Return the header of a file of the pack: no owner, no time."""
    entry = tarfile.TarInfo(f"{FOLDER}/{name}")
    entry.size, entry.mode, entry.mtime = size, 0o644, 0
    return entry


def manifest_text(digests: dict[str, str]) -> str:
    """Return the manifest as ``sha256sum`` reads it, sorted by name."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(digests.items()))


def readme_text(evidence: Sequence[Evidence]) -> str:
    """Return what a reader of the archive must know."""
    lines = [
        "Evidence of edgeperf runs: results, the specs that repeat them, raw data and logs.",
        "",
        "To check it:   edgeperf pack --verify FILE.tar.gz",
        f"or, unpacked:  cd {FOLDER} && sha256sum -c {MANIFEST}",
        "That shows that nothing was altered since it was packed; who packed it, it does not",
        "show: compare the digest of MANIFEST with the one that you were told.",
        "",
        "No samples are in it: spec.json and result.json name them by digest and number.",
        "To repeat a run: edgeperf run --spec spec.json",
        "",
    ]
    for one in sorted(evidence, key=lambda each: each.result.id):
        lines.append(f"{one.result.id}/: {one.result.verdict.status.value}")
        digest = "none, from an older edgeperf" if one.spec is None else one.spec.digest
        lines.append(f"  spec {digest}")
        if one.result.repeat is not None:
            lines.append(f"  was held to the spec {one.result.repeat.digest}")
    return "\n".join(lines) + "\n"
