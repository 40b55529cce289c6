"""What the benchmark's parent tells a contestant, and what it hears: one JSON a line."""

import msgspec


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Attributes:
        do: ``bare``, ``plain``, ``follow``, or a scenario of MLPerf's.
        seconds: How long at the least.
        queries: How many queries at the least.
        latency_ns: What one query is expected to take.
        qps: Rate to offer (Server), or expected samples per second (Offline).
        folder: Where LoadGen writes its logs.
    """

    do: str
    seconds: float = 1.0
    queries: int = 1
    latency_ns: float = 0.0
    qps: float = 0.0
    folder: str = ""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement found.

    Attributes:
        p50_ns: Latency of a query, by LoadGen's clock (bare loops: by their own).
        p90_ns: Likewise.
        p99_ns: Likewise.
        sps: Samples per second.
        samples: Samples answered.
        error: LoadGen's first error line, empty without one.
    """

    p50_ns: float = 0.0
    p90_ns: float = 0.0
    p99_ns: float = 0.0
    sps: float = 0.0
    samples: int = 0
    error: str = ""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A contestant is ready.

    Attributes:
        pids: All its processes.
    """

    pids: tuple[int, ...]
