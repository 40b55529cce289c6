"""Puts simulated sensors of a board into a folder that looks like ``/sys``."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from edgeperf.power.simulate.bench import Bench, Device, FaultKind
from edgeperf.power.simulate.server import PtyServer

#: How often the files are renewed.
REFRESH_S = 0.01


class TreeDevice(Protocol):
    """A sensor that is files."""

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return path below the root -> content."""
        ...


def write_tree(root: Path, files: Mapping[str, str]) -> None:
    """Write what is new of *files* below *root*, so that a reader never sees half a file.

    A content that starts with ``#!`` becomes a program.
    """
    for name, content in files.items():
        path = root / name
        if path.is_file() and path.read_text() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + "~")
        fresh.write_text(content)
        fresh.chmod(0o755 if content.startswith("#!") else 0o644)
        fresh.replace(path)


class TreeServer(PtyServer):
    """Keeps a folder of files up to date; an unplugged sensor is a folder that vanishes.

    Args:
        device: The sensor.
        bench: Its load and faults.
        link: The folder; it is made and removed.

    Attributes:
        port: What a meter spec says after the colon, ``,root=FOLDER``.
    """

    def __init__(self, device: Device, bench: Bench, link: Path) -> None:
        super().__init__(device, bench, link)
        self.port = str(getattr(device, "spec", ",root={}")).format(link)

    def _plug(self) -> None:
        self._write()
        self._master = 0  # marks it as plugged in

    def _unplug(self) -> None:
        shutil.rmtree(self._link, ignore_errors=True)
        self._master = -1

    def _turn(self, now_s: float, nap_s: float) -> None:
        if self._bench.fault(FaultKind.STALL, now_s) is None:
            self._write()
        time.sleep(min(nap_s, REFRESH_S))

    def _write(self) -> None:
        sensor: TreeDevice = self._device  # type: ignore[assignment]  # a device of files
        write_tree(self._link, sensor.files(time.monotonic()))
