"""What the bare loop showed, before LoadGen asks."""

import msgspec


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the SUT is.

    Attributes:
        latency_ns: Median of one query; Server and Offline: of one sample on one worker.
        throughput_sps: Samples per second of the whole team.
        fast_ns: SingleStream and MultiStream: what the fastest tenth of queries took at most.
    """

    latency_ns: float
    throughput_sps: float
    fast_ns: float | None = None
