"""How long each phase of a run takes."""

import time


class PhaseTimer:
    """Measures one phase; a context manager.

    Args:
        phases_ns: Gets its time, nanoseconds.
        name: Of the phase.
    """

    def __init__(self, phases_ns: dict[str, int], name: str) -> None:
        self._phases_ns = phases_ns
        self._name = name

    def __enter__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self._phases_ns[self._name] = time.monotonic_ns() - self._began_ns
