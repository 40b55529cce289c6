"""SPEC PTDaemon as a meter: the power that MLPerf's rules accept.

MLPerf wants two runs: a **ranging** run with automatic ranges, which finds the highest volts
and amperes, and a **testing** run at fixed ranges. ``phase=ranging`` is the first,
``phase=testing`` with ``volts=`` and ``amps=`` the second;
:class:`~edgeperf.power.ptd_session.PtdSession` does both and writes the logs.

The trap: a sample's time is wall time of another machine, so it only tells samples' distances;
when they were taken on our clock follows from when they came.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterError,
    MeterInputError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.polled import Polled
from edgeperf.power.ptd_client import PtdClient, parse_uncertainty, parse_watts
from edgeperf.power.ptd_log import UNKNOWN, parse_sample
from edgeperf.power.samples import ReadingDecoder

#: The analyzer settles so long after its ranges were set.
SETTLE_S = 10.0
#: MLPerf's limit of a sample's uncertainty.
MOST_UNCERTAIN = 0.01
#: Polls between two looks at PTDaemon's own sums.
SUMS_EVERY = 20
NAN = float("nan")


class PtdDecoder(ReadingDecoder):
    """Lines of samples to readings; PTDaemon's sums are only checked."""

    def __init__(self) -> None:
        super().__init__()
        self._last_ns = -1
        self._errors = 0

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the readings of the lines of one reply."""
        for line in chunk.data.decode("latin-1").splitlines():
            if line.startswith(("Watts,", "Uncertainty,")):
                self._check_sums(line)
            elif line.strip():
                yield from self._sample(line, chunk.t_ns)

    def _check_sums(self, line: str) -> None:
        if (watts := parse_watts(line)) and watts.errors > self._errors:
            self._errors = watts.errors
            self.refuse("samples that PTDaemon calls errors")
        if (parse_uncertainty(line) or 0.0) > MOST_UNCERTAIN:
            self.refuse("uncertainty above 1 %")

    def _sample(self, line: str, t_ns: int) -> Iterator[Reading]:
        sample = parse_sample(line)
        if sample is None:
            self.refuse("lines that are no sample")
            return
        last_ns, self._last_ns = self._last_ns, sample.time_ns
        if sample.time_ns == last_ns:
            self.refuse("samples that came twice")
            return
        if sample.time_ns < last_ns:
            self.refuse("PTDaemon's clock went back")
            yield Reading(t_ns, state=State.GAP)
        if not sample.usable:
            self.refuse("samples over range or without data")
        elif sample.power_w < 0:
            self.refuse("negative power (leads reversed?)")
        yield Reading(
            t_ns,
            sample.power_w,
            NAN if sample.voltage_v == UNKNOWN else sample.voltage_v,
            NAN if sample.current_a == UNKNOWN else sample.current_a,
            tick_ns=sample.time_ns,
            state=State.OK if sample.usable else State.INVALID,
        )


class PtDaemon(Polled):
    """A PTDaemon, somewhere on the network."""

    kind: ClassVar[str] = "ptdaemon"
    period_s = 0.5

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            phase: ``ranging`` or ``testing``.
            volts: Fixed voltage range of the testing run, as the ranging run found it.
            amps: Fixed current range of the testing run, likewise.
            session: Name of the session, which marks the samples.
            settle: Seconds to wait after setting the ranges.
            boundary: Where the analyzer sits.
        """

        phase: Annotated[str, msgspec.Meta(pattern="^(ranging|testing)$")] = "testing"
        volts: Annotated[float, msgspec.Meta(ge=0, le=2000)] = 0.0
        amps: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
        session: Annotated[str, msgspec.Meta(pattern=r"^[\w.:-]{0,80}$")] = ""
        settle: Annotated[float, msgspec.Meta(ge=0, le=120)] = SETTLE_S
        boundary: Boundary = Boundary.WALL

    def __init__(self, port: str, options: Options) -> None:
        if not port:
            raise MeterInputError(
                "meter ptdaemon: no host; expected ptdaemon:HOST:8888, where PTDaemon runs"
            )
        self.port = port
        self._options = options
        self._client: PtdClient | None = None
        self._polls = 0
        session = options.session or re.sub(r"\W", "-", time.strftime("%Y-%m-%d_%H-%M-%S"))
        self.mark = f"{session}_{options.phase}"

    @property
    def client(self) -> PtdClient:
        """The open connection.

        Raises:
            MeterError: It is not open.
        """
        if self._client is None:
            raise MeterError(self.port, "is not open")
        return self._client

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: MLPerf's limit of 1 % per sample."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.MEAN,
            rate_hz=1.0,
            bandwidth_hz=0.5,
            gain=MOST_UNCERTAIN,
            resolution_w=1e-6,
            edge_s=0.1,
            max_power_w=30_000.0,
            stale_after_s=10.0,
            silent_after_s=2.0,
            notes=("One sample a second, as MLPerf's power rules are carried out.",),
        )

    def open(self) -> None:
        """Connect.

        Raises:
            MeterInputError: There is no such host.
            MeterError: Nothing listens there.
        """
        self._client = PtdClient(self.port)

    def identify(self) -> Identity:
        """Ask who is there.

        Raises:
            MeterReplyError: It is no PTDaemon; says what was seen.
        """
        return self.client.identify()

    def start(self) -> None:
        """Set the ranges, let the analyzer settle, begin.

        Raises:
            MeterInputError: A testing run without fixed ranges.
            MeterReplyError: PTDaemon refused.
        """
        options = self._options
        ranging = options.phase == "ranging"
        if not ranging and not (options.volts and options.amps):
            raise MeterInputError(
                f"meter ptdaemon:{self.port}: fixed ranges missing: add volts= and amps= as a "
                "ranging run found them; `edgeperf ptdaemon` does both runs"
            )
        fixed = (None, None) if ranging else (options.volts, options.amps)
        self.client.set_ranges(*fixed)
        time.sleep(options.settle)
        self.client.go(self.mark)

    def ask(self) -> bytes:
        """Fetch the samples that are new and, now and then, PTDaemon's own sums."""
        lines = self.client.unread()
        self._polls += 1
        if self._polls % SUMS_EVERY == 0:
            lines += [self.client.ask("Watts"), self.client.ask("Uncertainty")]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")

    def read(self) -> list[Chunk]:
        """Wait until the next question is due, ask it, return what is new."""
        return [chunk for chunk in super().read() if chunk.data or chunk.fault]

    def flush(self) -> None:
        """Throw away what a bad exchange left."""
        self.client.drain()

    def header(self) -> Mapping[str, Any]:
        """Return the mark, which ``spl.txt`` wants; the decoder needs nothing."""
        return {"mark": self.mark}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> PtdDecoder:
        """Make a decoder of samples."""
        del header
        return PtdDecoder()

    def stop(self) -> None:
        """End the measurement and give the analyzer its ranges back."""
        if self._client is not None:
            with contextlib.suppress(MeterError):
                self._client.stop()
                self._client.restore_ranges()

    def close(self) -> None:
        """Close the connection. Calling it twice does no harm."""
        if self._client is not None:
            self._client.close()
            self._client = None
