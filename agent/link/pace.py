"""How often something may happen, however often it is asked for."""

import time


class Pace:
    """Allows each key once in *every_s* seconds, and counts what it held back.

    Args:
        every_s: Seconds between two.
        most_keys: More keys than this are forgotten, oldest first.
    """

    def __init__(self, every_s: float, *, most_keys: int = 1000) -> None:
        self._every_s = every_s
        self._most_keys = most_keys
        self._last: dict[str, tuple[float, int]] = {}

    def allows(self, key: str) -> int:
        """Return 0 for "not now", else how many were asked for since the last time."""
        now_s = time.monotonic()
        at_s, held = self._last.get(key, (float("-inf"), 0))
        if now_s - at_s < self._every_s:
            self._last[key] = (at_s, held + 1)
            return 0
        self._last.pop(key, None)
        self._last[key] = (now_s, 0)
        if len(self._last) > self._most_keys:
            del self._last[next(iter(self._last))]
        return held + 1
