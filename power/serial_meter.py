"""Base of meters on a serial port: owns the port, does nothing else."""

from typing import ClassVar

from edgeperf.power.base import MeterError
from edgeperf.power.discover import find_port
from edgeperf.power.ports import SerialPort


class SerialMeter:
    """A meter behind one serial port; start and stop do nothing unless overridden.

    Attributes:
        kind: Name in :data:`edgeperf.power.METERS`.
        port: Device path.
    """

    kind: ClassVar[str]
    baud: int = 9600
    stopbits: int = 1

    def __init__(self, port: str) -> None:
        self.port = port
        self._line: SerialPort | None = None

    @property
    def line(self) -> SerialPort:
        """The open port.

        Raises:
            MeterError: It is not open.
        """
        if self._line is None:
            raise MeterError(self.port, "is not open")
        return self._line

    def open(self) -> None:
        """Claim the port, leaving DTR alone; without a port, the only one that looks right."""
        self.port = self.port or find_port(self.kind)
        self._line = SerialPort(self.port, self.baud, stopbits=self.stopbits)

    def start(self) -> None:
        """Do nothing: the meter measures all the time."""

    def stop(self) -> None:
        """Do nothing: the meter measures all the time."""

    def close(self) -> None:
        """Let go of the port. Calling it twice does no harm."""
        if self._line is not None:
            self._line.close()
            self._line = None
