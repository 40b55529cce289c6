"""NVML: the counter and the power, and what is said where there is no card."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, State
from edgeperf.power.nvml import NvmlDecoder

Vector = Callable[[str], dict[str, Any]]

#: A library with the functions of NVML that the driver calls: one card at 20 W.
LIBRARY = r"""
#include <stdio.h>
#include <time.h>
static unsigned long long ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = CARDS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = d; return i < CARDS ? 0 : 2; }
int nvmlDeviceGetHandleByUUID(const char *u, void **d) { *d = d; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { snprintf(s, n, "NVIDIA T4"); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { snprintf(s, n, "GPU-1"); return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "550.1"); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj) {
    *mj = ms() * 20;
    return ENERGY;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 20000; return POWER; }
"""
#: Reads the card and prints what it found.
SCRIPT = """
import json, sys
from edgeperf import EdgeperfError, InputError
from edgeperf.power import make_source
source = make_source(sys.argv[1])
try:
    source.open()
    identity = source.identify()
    decoder = source.decoder(source.header())
    parts = [decoder.feed(source.read()[0]) for _ in range(3)]
    print(json.dumps([identity.model, identity.details["reads"], float(parts[2].power_w[0])]))
except (EdgeperfError, InputError) as error:
    print(json.dumps(str(error)))
source.close()
"""


def test_vector(vector: Vector, decode: Any) -> None:
    """Millijoules become joules, and their difference a power."""
    before, after = vector("nvml_counter")["text"].split(" mJ")[0].split(" -> ")
    samples = decode("nvml", f"energy_mj {before}\n".encode(), f"energy_mj {after}\n".encode())
    assert samples.energy_j[1] - samples.energy_j[0] == pytest.approx(2.5)
    assert samples.power_w[1] == pytest.approx(250)  # in 10 ms


def test_counter_that_goes_back(decode: Any) -> None:
    """A driver that was reloaded starts at 0: a gap, never negative joules."""
    samples = decode("nvml", b"energy_mj 5000\n", b"energy_mj 20\n", b"energy_mj 40\n")
    assert samples.state.tolist() == [State.OK, State.GAP, State.OK, State.OK]


def test_power(decode: Any) -> None:
    """A card that does not count says milliwatts."""
    assert decode("nvml", b"power_mw 20500\n").power_w == pytest.approx([20.5])


@given(st.binary(max_size=40) | st.integers(-9, 9**20).map(b"energy_mj %d\n".__mod__))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and what comes out of it is finite or not OK."""
    samples = NvmlDecoder().feed(Chunk(1, data))
    known = zip(samples.power_w[samples.ok], samples.energy_j[samples.ok], strict=True)
    assert all(math.isfinite(watts) or math.isfinite(joules) for watts, joules in known)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bindings it says which package to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MeterInputError, match=r"nvidia-ml-py is missing; run `pip install"):
        make_source("nvml").open()


def test_wrong_spec() -> None:
    """A card is a number or a UUID."""
    with pytest.raises(MeterInputError, match="not a number or UUID"):
        make_source("nvml:first")


@pytest.mark.parametrize(
    ("spec", "defines", "found"),
    [
        ("nvml", {}, ["NVIDIA T4", "energy counter", pytest.approx(20, rel=0.9)]),
        ("nvml:GPU-1", {"ENERGY": 3}, ["NVIDIA T4", "power, 1 s average", pytest.approx(20)]),
        ("nvml", {"ENERGY": 3, "POWER": 3}, "Not Supported.; on a Jetson use ina3221"),
        ("nvml", {"CARDS": 2}, "2 cards; say which, such as nvml:0"),
        ("nvml:5", {}, "no such card"),
        ("nvml", None, "no NVIDIA driver answers .*; on a Jetson use ina3221"),
    ],
)
def test_library(spec: str, defines: dict[str, int] | None, found: Any, tmp_path: Path) -> None:
    """The real bindings on a library that answers like NVML, and on none."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    compiler = shutil.which("cc")
    if defines is not None:
        if compiler is None:
            pytest.skip("no C compiler")
        (tmp_path / "nvml.c").write_text(LIBRARY)
        values = {"CARDS": 1, "ENERGY": 0, "POWER": 0, **defines}
        flags = [f"-D{name}={value}" for name, value in values.items()]
        target = ["-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1")]
        subprocess.run([compiler, *flags, *target, str(tmp_path / "nvml.c")], check=True)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, spec],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    answer = json.loads(run.stdout)
    if isinstance(found, str):
        assert re.search(found, answer)
    else:
        assert answer == found
