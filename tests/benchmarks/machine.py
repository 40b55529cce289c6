"""The machine, in the words that a reader of the tables needs."""

import datetime as dt
import os
from importlib import metadata

from edgeperf import __version__
from edgeperf.agent.board import describe_board, usable_cores


def machine() -> dict[str, str]:
    """Return what the board is, what runs on it and how busy it is."""
    board = describe_board()
    one, five, _ = os.getloadavg()
    known = {
        "machine": board.model,
        "processor": board.cpu_model,
        "cores": f"{len(usable_cores())} of {os.cpu_count()} usable",
        "memory": f"{(board.memory_bytes or 0) / 1e9:.1f} GB",
        "virtual": ", ".join(board.virtualisation),
        "system": f"{board.os_release}, Linux {board.kernel}, {board.libc}",
        "python": board.python,
        "LoadGen": metadata.version("mlcommons-loadgen"),
        "edgeperf": __version__,
        "begun": f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "load average at the start": f"{one:.1f}, {five:.1f} (1 and 5 minutes)",
    }
    return {name: value for name, value in known.items() if value}
