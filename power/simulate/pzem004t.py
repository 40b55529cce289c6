"""A PZEM-004T v3 on a mains line, its load a small switching supply."""

from edgeperf.power.modbus import READ_INPUT
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.modbus import LatchedPower, ModbusSlave, words

POWER_FACTOR = 0.6  # of a small switching supply


class Pzem004tDevice(ModbusSlave):
    """The meter.

    Args:
        bench: What it measures; its voltage is the mains.
        address: Modbus address.
        mains_v: Mains voltage.
        stray: Bytes before each reply, as hexadecimal.
        echo: Whether the line echoes.
    """

    def __init__(
        self,
        bench: Bench,
        *,
        address: int = 1,
        mains_v: float = 230.0,
        stray: str = "",
        echo: bool = False,
    ) -> None:
        super().__init__(self, address, stray=bytes.fromhex(stray), echo=echo)
        self._power = LatchedPower(bench)
        self._mains_v = mains_v

    def registers(self, function: int, now_s: float) -> list[int]:
        """Return the input registers."""
        if function != READ_INPUT:
            return []
        power_w, energy_j = self._power.at(now_s)
        current_ma = power_w / self._mains_v / POWER_FACTOR * 1000
        return [
            round(self._mains_v * 10),
            *words(current_ma),
            *words(power_w * 10),
            *words(energy_j // 3600),
            500,
            round(POWER_FACTOR * 100),
            0,
        ]
