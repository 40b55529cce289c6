"""Base of meters that read rails of the board: finding them, and what they are worth."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from edgeperf.power.base import Chunk, Identity, MeterInputError, MeterReplyError, State
from edgeperf.power.rails import Rail, RailDecoder, named_files
from edgeperf.power.sysfs import FileMeter

#: Rails that are the whole board's or module's input: the others are parts of them.
TOTAL = re.compile(r"VDD_IN|POM_5V_IN|VIN|(.*\W)?total(\W.*)?", re.IGNORECASE)


class RailMeter(FileMeter):
    """Reads one rail or the sum of several.

    Attributes:
        rails: What is read; set when opened.
        skipped: What cannot be read, such as channels that are disabled.
    """

    def __init__(self, port: str, root: str, rate_hz: float) -> None:
        super().__init__(port, root)
        self.period_s = 1 / rate_hz
        self.rails: list[Rail] = []
        self.skipped: list[Rail] = []
        self._wanted = port
        self._header: list[dict[str, list[Any]]] = []
        self._volts: list[float] = []
        self._amps: list[float] = []

    @abstractmethod
    def all_rails(self) -> list[Rail]:
        """Return every rail that there is, also what cannot be read."""

    @abstractmethod
    def choose(self, rails: list[Rail], wanted: str) -> list[Rail]:
        """Return which of the readable *rails* are meant by *wanted*.

        Raises:
            MeterInputError: None, or not clear which; lists what there is.
        """

    def open(self) -> None:
        """Find the rails, and see whether they may be read.

        Raises:
            MeterInputError: There are none, or it is not clear which.
            MeterError: They may not be read.
        """
        found = self.all_rails()
        self.skipped = [rail for rail in found if rail.problem]
        self._refuse_skipped()
        self.rails = self.choose([rail for rail in found if not rail.problem], self._wanted)
        self.files, self._header = named_files(self.rails)
        self.check_permission()

    def _refuse_skipped(self) -> None:
        for name in self._wanted.split("+"):
            for rail in self.skipped:
                if rail.called(name):
                    raise MeterInputError(
                        f"meter {self.kind}:{self._wanted}: {rail.name} cannot be read "
                        f"({rail.problem}); is its channel disabled?"
                    )

    def identify(self) -> Identity:
        """Read once.

        Raises:
            MeterReplyError: The rails do not read as they should.
        """
        data = self.ask()
        samples = RailDecoder(self._header).feed(Chunk(1, data))
        if len(samples) != 1 or samples.state[0] != State.OK:
            raise MeterReplyError(self.port, f"reads no power (saw {data[:60]!r})")
        self._note(data)
        details = {"rails": "+".join(rail.label for rail in self.rails)}
        if self.skipped:
            details["skipped"] = ", ".join(f"{one.name} ({one.problem})" for one in self.skipped)
        chips = {f"{rail.chip} at {rail.address}" for rail in self.rails}
        return Identity(model=", ".join(sorted(chips)), details=details)

    def _note(self, data: bytes) -> None:
        """Keep the voltage and current of each rail, which its error limits depend on."""
        values = dict(line.split() for line in data.decode("latin-1").splitlines())

        def of(rail: dict[str, list[Any]], quantity: str) -> float:
            name, unit = rail.get(quantity, ("", math.nan))
            return float(values.get(name, "nan")) * unit

        self._volts = [of(rail, "voltage") for rail in self._header]
        self._amps = [of(rail, "current") for rail in self._header]

    def power_limit_w(self, limit_v: float, limits_a: list[float]) -> float:
        """Turn limits of voltage and current into one of the summed power, at what was read.

        Args:
            limit_v: Of every rail's voltage.
            limits_a: Of each rail's current.
        """
        readings = zip(self._volts, self._amps, limits_a, strict=False)
        return sum(abs(volts) * limit_a + abs(amps) * limit_v for volts, amps, limit_a in readings)

    def header(self) -> Mapping[str, Any]:
        """Return what the names in a reading mean."""
        return {"rails": self._header}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> RailDecoder:
        """Make a decoder of readings."""
        return RailDecoder(list(header.get("rails", ())))


def named_rails(rails: list[Rail], wanted: str, where: str) -> list[Rail]:
    """Return the rails that a spec names, joined by ``+``.

    Args:
        rails: What there is.
        wanted: ``LABEL``, ``CHIP/LABEL`` or ``ADDRESS/LABEL``, several joined by ``+``.
        where: Begin of the error message.

    Raises:
        MeterInputError: One is unknown, ambiguous or named twice, or a total is added to
            its parts.
    """
    chosen: list[Rail] = []
    whole = any(rail.called(wanted) for rail in rails)  # a label may hold a plus: "+12V"
    for name in [wanted] if whole else wanted.split("+"):
        found = [rail for rail in rails if rail.called(name)]
        if len(found) != 1:
            problem = f"{len(found)} rails are called {name!r}" if found else f"no rail {name!r}"
            known = ", ".join(
                f"{rail.address}/{rail.label}" if found else rail.name for rail in found or rails
            )
            raise MeterInputError(f"{where}: {problem}; there is {known or 'none at all'}")
        chosen += found
    labels = [rail.label for rail in chosen]
    if len({id(rail) for rail in chosen}) < len(chosen):
        raise MeterInputError(f"{where}: a rail is named twice; name each once")
    total = next((label for label in labels if TOTAL.fullmatch(label)), "")
    if len(chosen) > 1 and total:
        raise MeterInputError(
            f"{where}: {total} already includes the other rails; name {total} alone"
        )
    return chosen
