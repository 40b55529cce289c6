"""NVML: the energy counter, or else the power, of an NVIDIA graphics card.

Since Volta a card counts millijoules; that is what is read. Older ones say a power that is an
average of about one second, so a window of seconds mixes in what was before it.

The traps: on a Jetson NVML answers "Not Supported", its meter is ``ina3221``; and the card is
a part of the system, its fans and its memory included, the host not.

Source:
    NVML API reference; "Part-time Power Measurements", arXiv 2312.02741: 25 % duty, +-5 %.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    NAN,
    Boundary,
    Chunk,
    Identity,
    MeterError,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.polled import Polled
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.sysfs import number_lines


class NvmlDecoder(ReadingDecoder):
    """Readings (``energy_mj`` or ``power_mw``) to samples."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[int, int] | None = None  # moment and counter

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the counter with the mean power since the one before, or the power."""
        if chunk.fault:
            return
        values = number_lines(chunk.data)
        if values is None or set(values) not in ({"energy_mj"}, {"power_mw"}):
            self.refuse("readings that are incomplete")
            return
        if "power_mw" in values:
            yield Reading(chunk.middle_ns, values["power_mw"] * 1e-3)
            return
        yield from self._counted(chunk.middle_ns, values["energy_mj"])

    def _counted(self, t_ns: int, energy_mj: int) -> Iterator[Reading]:
        last, self._last = self._last, (t_ns, energy_mj)
        if energy_mj < 0 or (last is not None and energy_mj < last[1]):
            self.refuse("counter went back")
            yield Reading(t_ns, state=State.GAP)
            last = None
        span_s = (t_ns - last[0]) * 1e-9 if last else 0.0
        power_w = (energy_mj - last[1]) * 1e-3 / span_s if last and span_s > 0 else NAN
        yield Reading(t_ns, power_w, energy_j=energy_mj * 1e-3)


class Nvml(Polled):
    """One card."""

    kind: ClassVar[str] = "nvml"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            rate: Readings per second.
        """

        rate: Annotated[float, msgspec.Meta(gt=0, le=50)] = 10.0

    def __init__(self, port: str, options: Options) -> None:
        if not re.fullmatch(r"|[0-9]{1,3}|(GPU|MIG)-[\w-]{1,80}", port):
            raise MeterInputError(f"meter nvml:{port}: not a number or UUID; see `nvidia-smi -L`")
        self.port = f"nvml:{port}" if port else "nvml"
        self.period_s = 1 / options.rate
        self._wanted = port
        self._counter = True
        self._nvml: Any = None
        self._card: Any = None

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.ENERGY if self._counter else Quantity.POWER,
            boundary=Boundary.PARTIAL,
            method=Method.COUNTER if self._counter else Method.HOLD,
            rate_hz=1 / self.period_s,
            bandwidth_hz=None if self._counter else 0.5,
            gain=0.05,
            offset_w=0.0 if self._counter else 5.0,
            resolution_w=0.001,
            resolution_j=0.001,
            edge_s=0.1 if self._counter else 0.6,
            max_power_w=3000.0,
            notes=("Only the graphics card is measured, not its host.",),
        )

    def open(self) -> None:
        """Load NVML and find the card.

        Raises:
            MeterInputError: The package is missing, or there is no such card.
            MeterError: No driver answers.
        """
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise MeterInputError(
                "meter nvml: the package nvidia-ml-py is missing; run `pip install edgeperf[nvml]`"
            ) from error
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._nvml = None
            raise MeterError(
                self.port, f"no NVIDIA driver answers ({error}); on a Jetson use ina3221"
            ) from error
        self._card = self._find()

    def _find(self) -> Any:
        nvml = self._nvml
        try:
            if self._wanted[:4] in ("GPU-", "MIG-"):
                return nvml.nvmlDeviceGetHandleByUUID(self._wanted)
            count = nvml.nvmlDeviceGetCount()
            if not self._wanted and count > 1:
                raise MeterInputError(
                    f"meter nvml: {count} cards; say which, such as nvml:0, see `nvidia-smi -L`"
                )
            return nvml.nvmlDeviceGetHandleByIndex(int(self._wanted or 0))
        except nvml.NVMLError as error:
            raise MeterInputError(
                f"meter {self.port}: no such card ({error}); see `nvidia-smi -L`"
            ) from error

    def identify(self) -> Identity:
        """Ask for its name, and whether it counts energy or only says a power.

        Raises:
            MeterReplyError: It does neither.
        """
        self._counter = True
        try:
            self.ask()
        except MeterReplyError:
            self._counter = False
            self.ask()
        nvml = self._nvml
        return Identity(
            model=_text(nvml.nvmlDeviceGetName(self._card)),
            serial=_text(nvml.nvmlDeviceGetUUID(self._card)),
            firmware=_text(nvml.nvmlSystemGetDriverVersion()),
            details={"reads": "energy counter" if self._counter else "power, 1 s average"},
        )

    def start(self) -> None:
        """Do nothing: the card measures all the time."""

    def ask(self) -> bytes:
        """Read the counter, or the power."""
        nvml = self._nvml
        if nvml is None:
            raise MeterError(self.port, "is not open")
        try:
            if self._counter:
                return b"energy_mj %d\n" % nvml.nvmlDeviceGetTotalEnergyConsumption(self._card)
            return b"power_mw %d\n" % nvml.nvmlDeviceGetPowerUsage(self._card)
        except nvml.NVMLError as error:
            raise MeterReplyError(
                self.port, f"the card does not say its power ({error}); on a Jetson use ina3221"
            ) from error

    def header(self) -> Mapping[str, Any]:
        """Return nothing: the readings say all."""
        return {}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> NvmlDecoder:
        """Make a decoder of readings."""
        del header
        return NvmlDecoder()

    def stop(self) -> None:
        """Do nothing: the card measures all the time."""

    def close(self) -> None:
        """Let go of NVML. Calling it twice does no harm."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                return


def _text(value: Any) -> str:
    """Return text; older bindings give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
