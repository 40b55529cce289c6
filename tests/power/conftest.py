"""Bench of the meter tests: vectors, simulated meters on ptys, reading a source for a while."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from edgeperf.power import meter_class
from edgeperf.power.base import Chunk, Decoder, Source, SourceInfo
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.server import PtyServer, open_simulated
from edgeperf.power.simulate.waveform import Waveform
from edgeperf.power.window import look

# A deadline of milliseconds says more of the machine than of the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

VECTORS = json.loads(Path(__file__).with_name("meter-vectors.json").read_text())
Simulate = Callable[..., PtyServer]


@pytest.fixture(scope="session")
def vector() -> Callable[[str], dict[str, Any]]:
    """Return a function from a vector's name to the vector; ``raw`` holds its bytes."""

    def find(name: str) -> dict[str, Any]:
        (found,) = [v for v in VECTORS if v["name"] == name]
        text = found.get("text")
        raw = text.encode("latin-1") if text is not None else bytes.fromhex(found["hex"])
        return {**found, "raw": raw}

    return find


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Simulate]:
    """Return a function that starts a simulated meter: ``simulate("tc66", "sine:6,2,1")``.

    ``faults`` is a sequence of ``stall@1+2``, with seconds since the call; other keywords
    go to the device.
    """
    with ExitStack() as stack:

        def start(
            kind: str,
            waveform: str = "constant:6",
            *,
            voltage_v: float = 5.0,
            faults: tuple[str, ...] = (),
            **device: Any,
        ) -> PtyServer:
            link = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
            server = open_simulated(
                kind, link, waveform, voltage_v=voltage_v, faults=faults, **device
            )
            return stack.enter_context(server)

        yield start


@pytest.fixture(scope="session")
def decode() -> Callable[..., Samples]:
    """Return a function that decodes pieces of bytes as chunks that came 10 ms apart."""

    def run(kind: str, *parts: bytes, header: dict[str, Any] | None = None) -> Samples:
        decoder = meter_class(kind).decoder(header or {})
        chunks = [Chunk((i + 1) * 10_000_000, part) for i, part in enumerate(parts)]
        return Samples.concatenate([decoder.feed(chunk) for chunk in chunks])

    return run


@pytest.fixture(scope="session")
def energy_of() -> Callable[..., tuple[float, float, float]]:
    """Return a function that polls a meter for 26 s of simulated time and looks at 20 s of them.

    It takes a decoder, the meter's info, a function from seconds to the reply of that moment
    and the waveform; it returns energy seen, true energy and coverage.
    """

    def run(
        decoder: Decoder,
        info: SourceInfo,
        exchange: Callable[[float], bytes],
        waveform: Waveform,
        *,
        poll_s: float,
    ) -> tuple[float, float, float]:
        parts = []
        for i in range(round(26 / poll_s)):
            t_ns = round((1000 + i * poll_s) * 1e9)
            parts.append(decoder.feed(Chunk(t_ns, exchange(t_ns * 1e-9), sent_ns=t_ns)))
        begin_ns, end_ns = 1003_000_000_000, 1023_000_000_000
        seen = look(Samples.concatenate(parts), info, begin_ns, end_ns)
        return seen.energy_j, waveform.energy_j(begin_ns * 1e-9, end_ns * 1e-9), seen.coverage

    return run


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """Return a file that nobody may read, for a user whom permissions concern."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "usbtmc9"
        path.write_text("1")
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)


@pytest.fixture(scope="session")
def read_samples() -> Callable[[Source, int], tuple[Samples, list[str]]]:
    """Return a function that reads a source until it gave so many usable samples.

    However busy the machine is, they come; after a minute they do not.
    """

    def run(source: Source, count: int) -> tuple[Samples, list[str]]:
        source.open()
        try:
            source.identify()
            source.start()
            decoder = source.decoder(source.header())
            parts, faults, good = [], [], 0
            deadline_s = time.monotonic() + 60
            while good < count and time.monotonic() < deadline_s:
                for chunk in source.read():
                    faults += [chunk.fault] if chunk.fault else []
                    parts.append(decoder.feed(chunk))
                    good += int(parts[-1].ok.sum())
            source.stop()
        finally:
            source.close()
        return Samples.concatenate(parts), faults + list(decoder.faults)

    return run


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drivers wait long for a reply: a simulated meter on a busy machine is slow."""
    for where in ("modbus.PATIENCE_S", "korad.PATIENCE_S", "lpm01a.REPLY_S"):
        monkeypatch.setattr(f"edgeperf.power.{where}", 20.0)
    for where in ("instrument.Instrument", "wt310.Wt310"):
        monkeypatch.setattr(f"edgeperf.power.{where}.patience_s", 20.0)


@pytest.fixture(scope="session")
def record() -> Callable[[Source, float], tuple[Samples, list[str]]]:
    """Return a function that reads a source for some seconds: samples, and faults seen."""

    def run(source: Source, seconds: float) -> tuple[Samples, list[str]]:
        source.open()
        try:
            source.identify()
            source.start()
            decoder = source.decoder(source.header())
            parts, faults = [], []
            deadline_s = time.monotonic() + seconds
            while time.monotonic() < deadline_s:
                for chunk in source.read():
                    faults += [chunk.fault] if chunk.fault else []
                    parts.append(decoder.feed(chunk))
            source.stop()
        finally:
            source.close()
        return Samples.concatenate(parts), faults + list(decoder.faults)

    return run
