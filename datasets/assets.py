"""Where the catalogue's files are: bundled, in the cache, in a mirror, or upstream.

A file counts only if its sha256 is the catalogue's, wherever it lies; it is used in
place and never copied. What does not match is passed over, and named if nothing else
is found. Mirrors (``EDGEPERF_MIRROR``) are for labs without internet, and for files
that have no public address.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from edgeperf import InputError
from edgeperf.datasets.catalogue import Asset
from edgeperf.datasets.download import Progress, download

BUNDLED = Path(__file__).with_name("bundled")
CHUNK_BYTES = 1 << 20


class AssetError(InputError):
    """A file of the catalogue is nowhere, or what is there is not that file."""


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look for files.

    Attributes:
        cache: Downloads go here, named by their sha256; None when there is no such place.
        mirrors: The user's own folders, searched in this order, never written to.
    """

    cache: Path | None
    mirrors: tuple[Path, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Places":
        """Read ``EDGEPERF_CACHE``, ``XDG_CACHE_HOME`` and ``EDGEPERF_MIRROR``."""
        mirrors = environment.get("EDGEPERF_MIRROR", "").split(os.pathsep)
        return cls(
            cache=_cache(environment),
            mirrors=tuple(Path(mirror).expanduser() for mirror in mirrors if mirror),
        )


def _cache(environment: Mapping[str, str]) -> Path | None:
    if chosen := environment.get("EDGEPERF_CACHE"):
        return Path(chosen)
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # the XDG specification: a relative path counts as unset
        return base / "edgeperf"
    try:
        return Path.home() / ".cache" / "edgeperf"
    except RuntimeError:  # a service account without a home
        return None


def resolve(
    asset: Asset, *, places: Places | None = None, progress: Progress | None = None
) -> Path:
    """Find *asset*, downloading it if it must be.

    Args:
        asset: The file or folder.
        places: Where to look; None reads the environment.
        progress: Told how far a download is.

    Returns:
        Its path; the content has been checked.

    Raises:
        AssetError: It is nowhere, or only with another content.
        DownloadError: It is only upstream, and the download failed.
    """
    places = places or Places.from_environment(os.environ)
    problems = []
    for path in filter(_is_there, _candidates(asset, places)):
        problem = _problem(path, asset)
        if problem is None:
            return path
        problems.append(problem)
    if asset.url is not None and places.cache is not None:
        return download(asset, _cached(asset, places.cache), progress=progress)
    if problems:
        raise AssetError(problems[0])
    raise AssetError(_nowhere(asset, places))


def digest(path: Path) -> tuple[str, int]:
    """Return sha256 and size in bytes of a file or a folder.

    A folder's sha256 is that of the text which ``sha256sum`` prints for all its files:
    one line ``<sha256>  <path>`` each, sorted by path, hidden files left out.

    Raises:
        OSError: It cannot be read.
    """
    if path.is_dir():
        return _folder_digest(path)
    sha256, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
            size_bytes += len(chunk)
    return sha256.hexdigest(), size_bytes


def _folder_digest(folder: Path) -> tuple[str, int]:
    sha256, size_bytes = hashlib.sha256(), 0
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(files, key=PurePosixPath.as_posix):
        if not any(part.startswith(".") for part in name.parts):
            file_sha256, file_bytes = digest(files[name])
            sha256.update(f"{file_sha256}  {name.as_posix()}\n".encode())
            size_bytes += file_bytes
    return sha256.hexdigest(), size_bytes


def _candidates(asset: Asset, places: Places) -> Iterator[Path]:
    yield BUNDLED / asset.name
    if places.cache is not None:
        yield _cached(asset, places.cache)
    for mirror in places.mirrors:
        yield mirror / asset.path
        yield mirror / asset.name
        yield _cached(asset, mirror)  # so that a copied cache is a mirror


def _cached(asset: Asset, cache: Path) -> Path:
    """Return where *asset* lies in a cache; runtimes go by the ending, so it stays."""
    return cache / f"{asset.sha256}{PurePosixPath(asset.path).suffix}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder that may not be searched: reading it will say so
        return True


def _problem(path: Path, asset: Asset) -> str | None:
    """Say what keeps *path* from being *asset*."""
    if path.is_dir() != asset.folder:
        return f"{path}: expected a {'folder' if asset.folder else 'file'}"
    try:
        found, size_bytes = digest(path)
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror or error}"
    if found == asset.sha256:
        return None
    return (
        f"{path}: not the file that the catalogue means: expected sha256 {asset.sha256} "
        f"({asset.size_bytes} bytes), found {found} ({size_bytes} bytes); replace it"
    )


def _nowhere(asset: Asset, places: Places) -> str:
    mirrors = [
        f"{mirror}" if mirror.is_dir() else f"{mirror} (no such folder)"
        for mirror in places.mirrors
    ]
    looked = f"not in EDGEPERF_MIRROR ({', '.join(mirrors)})" if mirrors else "not here"
    advice = "set EDGEPERF_CACHE to download it" if asset.url else "it has no public address"
    return (
        f"{asset.path} ({asset.size_bytes} bytes, sha256 {asset.sha256}): {looked}, and {advice}; "
        "put it into a folder named by EDGEPERF_MIRROR"
    )
