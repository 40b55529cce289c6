"""A PZEM-017 with an external shunt."""

from edgeperf.power.modbus import READ_HOLDING, READ_INPUT
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.modbus import LatchedPower, ModbusSlave, words


class Pzem017Device(ModbusSlave):
    """The meter.

    Args:
        bench: What it measures.
        address: Modbus address.
        shunt_code: What the meter is set for: 0 is 100 A, 1 is 50 A, 2 is 200 A, 3 is 300 A.
            Negative is a PZEM-003, which has no such register.
        stray: Bytes before each reply, as hexadecimal.
        echo: Whether the line echoes.
    """

    def __init__(
        self,
        bench: Bench,
        *,
        address: int = 1,
        shunt_code: int = 0,
        stray: str = "",
        echo: bool = False,
    ) -> None:
        super().__init__(self, address, stray=bytes.fromhex(stray), echo=echo)
        self._bench = bench
        self._power = LatchedPower(bench)
        self._holding = [30_000, 700, address, *([shunt_code] if shunt_code >= 0 else [])]

    def registers(self, function: int, now_s: float) -> list[int]:
        """Return the input or the holding registers."""
        if function == READ_HOLDING:
            return self._holding
        if function != READ_INPUT:
            return []
        power_w, energy_j = self._power.at(now_s)
        volts = self._bench.voltage_v
        return [
            round(volts * 100),
            round(power_w / volts * 100),
            *words(power_w * 10),
            *words(energy_j // 3600),
            0,
            0,
        ]
