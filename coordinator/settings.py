"""What a coordinator was told to be, checked once."""

import os
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.messages import is_name
from edgeperf.coordinator.broker import LOOPBACK

BROKER_PORT, HTTP_PORT = 1884, 8484
#: Ten thousand results of a board, or a thousand with all their raw data.
BOARD_SPACE_GIB = 20.0
#: ``broker`` for "Mosquitto if it is installed, else the one that pip installed".
AUTO, MOSQUITTO, EMBEDDED = "auto", "mosquitto", "embedded"


class SettingsError(InputError):
    """An option of the coordinator cannot be used; the message names it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``edgeperf coordinator`` can be told.

    Attributes:
        data: Its directory.
        fleet: Name of the fleet; part of every topic.
        listen: Address for boards; loopback unless asked, anything else speaks TLS.
        broker: ``auto``, ``mosquitto``, ``embedded``, or the URL of one that runs.
        broker_port: Of a child broker; 0 takes a free one.
        http_port: 0 takes a free one.
        store: PostgreSQL URL; None is SQLite in ``data``.
        keys: Folder of the keys; None is ``keys`` in ``data``. Coordinators that share a
            fleet share it.
        blobs: Folder of artefacts and models; None is ``blobs`` in ``data``.
        board_space_gib: What each board may fill of the disk with files.
        packages: Folder of wheels to serve as an index; None is ``packages`` in ``data``.
        mtls: Ask boards for a certificate at a child Mosquitto.
        broker_password: At a broker by URL.
        broker_ca: CA of a broker by URL.
        broker_cert: Our certificate there, with ``broker_key``.
        credentials: File with a line ``BOARD USER PASSWORD`` for each board, for a broker
            by URL.
    """

    data: Path
    fleet: str = "default"
    listen: str = LOOPBACK
    broker: str = AUTO
    broker_port: int = BROKER_PORT
    http_port: int = HTTP_PORT
    store: str | None = None
    keys: Path | None = None
    blobs: Path | None = None
    board_space_gib: float = BOARD_SPACE_GIB
    packages: Path | None = None
    mtls: bool = False
    broker_password: str | None = None
    broker_ca: Path | None = None
    broker_cert: Path | None = None
    broker_key: Path | None = None
    credentials: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what could not work, before anything starts."""
        if not is_name(self.fleet):
            raise SettingsError(f"--fleet {self.fleet[:60]!r}: a name is 1 to 40 of a-z, 0-9 and -")
        if self.broker not in {AUTO, MOSQUITTO, EMBEDDED} and "://" not in self.broker:
            raise SettingsError(
                f"--broker {self.broker!r}: expected auto, mosquitto, embedded or a URL"
                " such as mqtts://HOST"
            )
        if self.broker == EMBEDDED and self.is_open:
            raise SettingsError(
                f"--listen {self.listen}: the embedded broker cannot keep boards apart, so it"
                " serves this machine only; apt install mosquitto, or name a broker by URL"
            )
        if self.mtls and not self.is_open:
            raise SettingsError("--mtls: means nothing on loopback; give --listen as well")

    @property
    def is_open(self) -> bool:
        """Whether machines other than this one may connect."""
        return self.listen not in {LOOPBACK, "localhost", "::1"}

    @property
    def joins_by_url(self) -> bool:
        """Whether the broker is somebody else's."""
        return "://" in self.broker


def read_credentials(path: Path) -> dict[str, tuple[str, str]]:
    """Read the boards' users and passwords at a broker that is not ours.

    Raises:
        SettingsError: The file cannot be read or a line is wrong; the message names it.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--board-credentials {path}: {error}") from error
    found = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or not is_name(words[0]):  # noqa: PLR2004 - as the message says
            raise SettingsError(f"{path}:{number}: expected BOARD USER PASSWORD")
        found[words[0]] = (words[1], words[2])
    return found


def read_secret(path: Path, *, option: str) -> str:
    """Read a password from the first line of a file.

    Raises:
        SettingsError: It cannot be read, or others can read it too.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{option} {path}: {error}") from error
    if mode & 0o077 and os.geteuid() == path.stat().st_uid:
        raise SettingsError(f"{option} {path}: others can read it; chmod 600 {path}")
    return text.splitlines()[0] if text else ""
