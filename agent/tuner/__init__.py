"""Holding clocks, governor and fan for as long as a run lasts.

Only root may set them, and a run shall not be root. So a tiny service of its own sets
them for it: it knows three knobs and three verbs, stores what it finds before it changes
anything, and restores it when the run lets go, dies, or the service itself had died. Others
import from here; the service is ``python -m edgeperf.agent.tuner``.
"""

from edgeperf.agent.tuner.client import SOCKET, Hold, hold, look_up, problem_of
from edgeperf.agent.tuner.wire import NO_WISH, Report, Setting, Wish

__all__ = [
    "NO_WISH",
    "SOCKET",
    "Hold",
    "Report",
    "Setting",
    "Wish",
    "hold",
    "look_up",
    "problem_of",
]
