"""The coordinator's data directory: where each file is, and how secrets are written.

::

    coordinator.db        the store, unless it is PostgreSQL
    lock                  held while a coordinator runs here
    admin.token           what ``edgeperf fleet`` shows at the HTTP interface
    endpoint.json         where that interface is, while a coordinator runs
    keys/                 signing key, board secret, CA and server certificate
    broker/               the child broker's config, passwords, ACL, log and queue
    blobs/                artefacts and models by sha256
    packages/             wheels that boards may install from, if somebody put some there

Nobody but the owner may read it: a file is made with mode 0600 before it has content.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from edgeperf import EdgeperfError, InputError


class DataDirectoryError(InputError):
    """The data directory cannot be used; the message names it."""


class AlreadyRunningError(EdgeperfError):
    """Another coordinator works in this data directory."""


def default_directory() -> Path:
    """Return where a coordinator keeps its data when nobody says: XDG's data directory."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "edgeperf" / "coordinator"


class DataDirectory:
    """The paths of one data directory; :meth:`prepare` makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "coordinator.db"
        self.lock = root / "lock"
        self.admin_token = root / "admin.token"
        self.endpoint = root / "endpoint.json"
        self.keys = root / "keys"
        self.broker = root / "broker"
        self.blobs = root / "blobs"
        self.packages = root / "packages"

    def prepare(self) -> None:
        """Make the directory and what is missing in it.

        Raises:
            DataDirectoryError: It cannot be made or written.
        """
        try:
            for folder in (self.root, self.keys, self.broker, self.blobs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.admin_token.exists():
                write_private(self.admin_token, secrets.token_urlsafe(32).encode() + b"\n")
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {self.root}: {error.strerror}; name a directory that you may"
                " write with --data"
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory alone; the kernel lets go when the process dies.

        Raises:
            AlreadyRunningError: Another coordinator holds it.
        """
        with self.lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise AlreadyRunningError(
                    f"data directory {self.root}: another coordinator is running in it;"
                    " stop that one or name another with --data"
                ) from error
            yield


def write_private(path: Path, content: bytes) -> None:
    """Replace *path* as a whole, readable by its owner only, durable when this returns."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames in *path* survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
