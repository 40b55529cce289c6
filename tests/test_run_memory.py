"""Inputs are in memory once, however many workers read them.

Counted is what the kernel gave to all processes of a run together: private and file
pages by their proportional share, shared blocks by what they occupy. The same run on
eight inputs is the zero.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgeperf.agent.events import Phase

if TYPE_CHECKING:
    from conftest import Product, Running

pytestmark = pytest.mark.slow

COUNT, FEW = 1024, 8
MODELS = {
    "uint8": ("mobilenet_v2_10_224_u8.tflite", (224, 224, 3)),
    "float32": ("efficientnet_lite0_f32.onnx", (3, 224, 224)),
}


def proportional_bytes(pid: int) -> tuple[int, int]:
    """Return what a process has of memory: its own and files' pages, and shared ones."""
    own = shared = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Pss_Anon", "Pss_File"):
            own += int(value.split()[0]) * 1024
        elif name == "Pss_Shmem":
            shared += int(value.split()[0]) * 1024
    return own, shared


def blocks_bytes(pids: list[int]) -> int:
    """Return what all shared blocks of a run occupy, mapped just now or not."""
    found: dict[int, int] = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(descriptor.readlink()).startswith("/memfd:"):
                    status = descriptor.stat()
                    found[status.st_ino] = status.st_blocks * 512
            except OSError:  # closed meanwhile
                continue
    return sum(found.values())


def run_bytes(running: "Running") -> int:
    """Return the memory of a run at this moment."""
    pids = list(running.processes())
    own = shared = 0
    for pid in pids:
        try:
            own_of, shared_of = proportional_bytes(pid)
        except OSError:  # it ended meanwhile
            continue
        own, shared = own + own_of, shared + shared_of
    try:
        return own + max(shared, blocks_bytes(pids))
    except OSError:
        return 0


def peaks(running: "Running") -> dict[Phase, int]:
    """Return the most memory that a run had in each of its phases."""
    found: dict[Phase, int] = {}
    while running.process.poll() is None:
        time.sleep(0.1)
        phase = running.phase
        if phase is not None:
            found[phase] = max(found.get(phase, 0), run_bytes(running))
    assert running.finish().code in (0, 1)
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("dtype", MODELS)
def test_two_workers_share_one_copy_of_the_inputs(
    product: "Product", models_dir: Path, dtype: str
) -> None:
    """1,024 inputs of 224x224x3 cost their size once, and 15 % for everything else."""
    model, shape = MODELS[dtype]
    file = models_dir / "imagenet_cls" / "models" / model
    found = {}
    for count in (FEW, COUNT):
        inputs = np.zeros((count, *shape), dtype)
        np.savez(product.folder / f"{count}.npz", input=inputs)
        del inputs
        arguments = ("--inputs", f"{count}.npz", "--scenario", "Offline", "--workers", "2")
        found[count] = peaks(product.start(str(file), *arguments, "--preset", "smoke"))
    size = COUNT * np.dtype(dtype).itemsize * 224 * 224 * 3
    more = found[COUNT][Phase.PERFORMANCE] - found[FEW][Phase.PERFORMANCE]
    assert 0.8 * size < more <= 1.15 * size
    peak = max(found[COUNT].values()) - max(found[FEW].values())
    assert peak <= 1.15 * size
