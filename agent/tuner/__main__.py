"""``python -m edgeperf.agent.tuner``: the root service; systemd gives it its socket."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from edgeperf.agent.tuner.holder import Holder
from edgeperf.agent.tuner.server import Tuner, listen


def main(argv: Sequence[str] | None = None) -> int:
    """Serve, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m edgeperf.agent.tuner", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder for what to restore")
    parser.add_argument("--group", default="edgeperf", help="whose members may hold the board")
    parser.add_argument("--idle", type=float, metavar="S", help="end after so long without clients")
    parser.add_argument("--socket", type=Path, help="listen here, not on systemd's socket")
    parser.add_argument("--root", type=Path, default=Path("/"), help="root of the file tree")
    given = parser.parse_args(argv)
    holder = Holder(given.root, given.state / "to-restore.json")
    with listen(given.socket) as listener:
        Tuner(holder, listener, group=given.group, idle_s=given.idle).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
