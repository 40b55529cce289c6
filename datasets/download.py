"""Downloads: one file over https, checked while it is written, there whole or not at all.

The file appears under its name only after its size and sha256 proved right and its
bytes are on the disk, so a pulled plug or a full disk leaves nothing to be mistaken for
a model.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import urlopen

from edgeperf import EdgeperfError
from edgeperf.datasets.catalogue import Asset

#: Called with bytes received and bytes expected.
Progress = Callable[[int, int], None]

CHUNK_BYTES = 1 << 16
#: The longest silence of the other side, seconds.
TIMEOUT_S = 30.0


class DownloadError(EdgeperfError):
    """A file could not be fetched; the message says which, from where, and why."""


def download(
    asset: Asset, target: Path, *, progress: Progress | None = None, timeout_s: float = TIMEOUT_S
) -> Path:
    """Fetch *asset* from its URL into *target*.

    Args:
        asset: What to fetch; its URL is not None.
        target: Where it goes; the folder is made.
        progress: Told how far it is, after each chunk.
        timeout_s: The longest silence of the other side, seconds.

    Returns:
        *target*.

    Raises:
        DownloadError: The network, the server or the disk failed, or what came is not
            the file. Nothing is left behind.
    """
    url = asset.url or ""
    try:
        if urlsplit(url).scheme != "https":
            raise DownloadError(f"{asset.name}: {url!r} is not an https address")
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            urlopen(url, timeout=timeout_s) as reply,  # noqa: S310 - https was just checked
            _unfinished(target) as part,
        ):
            _receive(asset, reply, part, progress or _silent)
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).replace(target)
    except (OSError, HTTPException) as error:
        raise DownloadError(
            f"{asset.name}: could not be fetched from {url}: {error}; put the file into a "
            "folder named by EDGEPERF_MIRROR, or try again with a network"
        ) from error
    return target


@contextmanager
def _unfinished(target: Path) -> Iterator[IO[bytes]]:
    """Open a file beside *target* that is gone afterwards, unless it was renamed."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".download-", delete=False) as part:
        try:
            yield part
        finally:
            Path(part.name).unlink(missing_ok=True)


def _silent(_done: int, _total: int) -> None:
    """Report nothing."""


def _receive(asset: Asset, reply: IO[bytes], part: IO[bytes], progress: Progress) -> None:
    """Copy *reply* into *part*, refusing more or other bytes than the asset's."""
    sha256, done = hashlib.sha256(), 0
    while chunk := reply.read(CHUNK_BYTES):
        done += len(chunk)
        if done > asset.size_bytes:
            raise DownloadError(
                f"{asset.url}: sends more than the {asset.size_bytes} bytes expected"
            )
        sha256.update(chunk)
        part.write(chunk)
        progress(done, asset.size_bytes)
    if sha256.hexdigest() != asset.sha256:
        raise DownloadError(
            f"{asset.url}: not the file that the catalogue means: expected sha256 {asset.sha256} "
            f"({asset.size_bytes} bytes), found {sha256.hexdigest()} ({done} bytes)"
        )
