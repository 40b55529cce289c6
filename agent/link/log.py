"""The service's log: plain lines on stderr, where systemd's journal takes them.

The same line again within a minute is counted, not printed: a forged message in a loop
must not fill a disk.
"""

import sys
import time

_QUIET_S = 60.0
_MOST_LINES = 200
_seen: dict[str, tuple[float, int]] = {}


def note(line: str) -> None:
    """Print *line*."""
    sys.stderr.write(f"edgeperf agent: {line}\n")
    sys.stderr.flush()


def warn(line: str) -> None:
    """Print *line* unless it was printed within the last minute."""
    now_s = time.monotonic()
    printed_s, hidden = _seen.get(line, (float("-inf"), 0))
    if now_s - printed_s < _QUIET_S:
        _seen[line] = (printed_s, hidden + 1)
        return
    if len(_seen) > _MOST_LINES:
        _seen.clear()
    _seen[line] = (now_s, 0)
    note(f"{line} ({hidden} more like this)" if hidden else line)
