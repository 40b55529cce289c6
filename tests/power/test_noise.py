"""Ports behind which there is only noise: every meter says so in bounded time."""

import random
import time
from pathlib import Path

import pytest

from edgeperf.power import make_source
from edgeperf.power.base import MeterReplyError
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.server import PtyServer
from edgeperf.power.simulate.waveform import parse_waveform


class Noise:
    """A device at a wrong baud: random bytes without end."""

    tick_s = 0.01
    queue_bytes = 4096

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # noise, not secrets

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer with more of it."""
        del data, now_s
        return self._random.randbytes(50)

    def stream(self, now_s: float) -> list[bytes]:
        """Send some."""
        del now_s
        return [self._random.randbytes(30)]


@pytest.mark.parametrize("kind", ["pzem004t", "pzem017", "wt310", "scpi", "korad", "lpm01a"])
def test_noise(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identifying noise ends with one line that shows some of it, or says that none counts."""
    monkeypatch.setattr("edgeperf.power.instrument.Instrument.patience_s", 0.3)
    monkeypatch.setattr("edgeperf.power.wt310.Wt310.patience_s", 0.3)
    monkeypatch.setattr("edgeperf.power.lpm01a.REPLY_S", 0.3)
    bench = Bench(parse_waveform("constant:6"))
    with PtyServer(Noise(7), bench, tmp_path / "port") as server:
        source = make_source(f"{kind}:{server.port}")
        source.open()
        begin_s = time.monotonic()
        with pytest.raises(MeterReplyError, match=r"\(saw ") as caught:
            source.identify()
        assert time.monotonic() - begin_s < 30  # it ends at all, however busy the machine is
        assert "\n" not in str(caught.value)
        source.close()
