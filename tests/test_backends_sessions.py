"""What every backend's session promises, on real runtimes and real models.

A runtime that is not installed in this environment is skipped here and tested where it is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeperf.backends import open_backend
from edgeperf.backends.base import (
    BackendMissingError,
    ModelError,
    Session,
    SessionOptions,
)

Load = Callable[..., Session]

FLOAT_MODELS = (
    "vww/models/vww_96_f32",
    "ic_cifar10/models/resnet8_f32",
    "ad_toycar/models/ad01_f32",
    "pm_ai4i/models/ai4i_mlp_f32",
)
INT8_MODELS = (
    "kws_speech_commands/models/dscnn_int8",
    "vww/models/vww_96_int8",
    "imagenet_cls/models/mobilenet_v2_10_224_u8",
)
#: Every runtime on every kind of file that it takes.
PAIRS = (
    ("tflite", ".tflite"),
    ("onnxruntime", ".onnx"),
    ("openvino", ".tflite"),
    ("openvino", ".onnx"),
)


def is_here(name: str) -> bool:
    """Whether the runtime of a backend is installed."""
    try:
        open_backend(name).version()
    except BackendMissingError:
        return False
    return True


def need(name: str) -> None:
    """Skip unless the runtime is here."""
    if not is_here(name):
        pytest.skip(f"{name} is not installed in this environment")


@pytest.fixture
def load(models_dir: Path) -> Load:
    """Return a function that loads a shared model, closed after the test by the collector."""

    def load(backend: str, model: str, **options: Any) -> Session:
        need(backend)
        return open_backend(backend).load(models_dir / model, SessionOptions(**options))

    return load


def samples(session: Session, slots: int, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return random blocks for a session."""
    rng = np.random.default_rng(seed)
    blocks = []
    for spec in session.inputs:
        shape = (slots, *spec.sample_shape)
        if spec.dtype.startswith("float"):
            blocks.append(rng.standard_normal(shape).astype(spec.dtype))
        else:
            blocks.append(rng.integers(0, 100, shape).astype(spec.dtype))
    return blocks


def answers(session: Session, blocks: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Return a copy of the first output for every slot."""
    session.bind(blocks)
    copies = []
    for slot in range(len(blocks[0])):
        session.infer(slot)
        copies.append(np.array(session.results[0]))
    return copies


def python(
    code: str, *arguments: str, path: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter, with folders in front of its path."""
    places = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("model", FLOAT_MODELS)
def test_float_models_agree_across_runtimes(model: str, load: Load) -> None:
    """The same float model gives the same answers to 1e-4, whoever computes them.

    Relative to the largest value: an autoencoder's outputs are not probabilities.
    """
    seen: dict[str, list[np.ndarray[Any, Any]]] = {}
    for backend, ending in PAIRS:
        if is_here(backend):
            session = load(backend, model + ending)
            seen[backend + ending] = answers(session, samples(session, 4))
            session.close()
    if len(seen) < 2:
        pytest.skip("one runtime has nothing to agree with")
    first = next(iter(seen.values()))
    for name, given in seen.items():
        for expected, got in zip(first, given, strict=True):
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(got / scale, expected / scale, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("model", INT8_MODELS)
def test_quantisation_is_the_files_own_in_every_runtime(model: str, load: Load) -> None:
    """ONNX hides it behind a node and OpenVINO drops it; it is found all the same."""
    found = []
    for backend, ending in PAIRS:
        if is_here(backend):
            session = load(backend, model + ending)
            ends = (*session.inputs, *session.outputs)
            found.append([(spec.dtype, spec.quantisation) for spec in ends])
            session.close()
    assert found
    assert all(one == found[0] for one in found)
    assert all(quantisation is not None for _, quantisation in found[0])


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_results_stay_the_same_objects_and_follow_the_slot(
    backend: str, ending: str, load: Load
) -> None:
    """``results`` is taken once and read for ever; each slot has its own answer."""
    session = load(backend, f"vww/models/vww_96_f32{ending}")
    kept = session.results
    blocks = samples(session, 3)
    copies = answers(session, blocks)
    assert all(now is before for now, before in zip(session.results, kept, strict=True))
    assert not np.array_equal(copies[0], copies[1])
    session.infer(0)
    np.testing.assert_array_equal(kept[0], copies[0])


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_the_block_is_read_at_the_query_not_before(backend: str, ending: str, load: Load) -> None:
    """A slot that is loaded anew gives a new answer: nothing was copied in ``bind``."""
    session = load(backend, f"vww/models/vww_96_f32{ending}")
    blocks = samples(session, 2)
    first, second = answers(session, blocks)
    blocks[0][0] = blocks[0][1]
    session.infer(0)
    np.testing.assert_array_equal(session.results[0], second)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_a_session_describes_itself(backend: str, ending: str, load: Load) -> None:
    """Shapes are settled, names are the file's, and the info says what ran."""
    session = load(backend, f"kws_speech_commands/models/dscnn_int8{ending}")
    info = session.info()
    assert session.inputs[0].name == "input_1"
    assert session.inputs[0].shape == (1, 49, 10, 1)
    assert session.outputs[0].shape == (1, 12)
    assert session.results[0].shape == (1, 12)
    assert info.backend == backend
    assert info.version[0].isdigit()
    assert info.threads == 1
    assert info.device == "CPU"
    assert info.precision in {"int8", "mixed"}
    assert info.input_copy == ("runtime" if backend == "tflite" else "none")


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_several_inputs_and_outputs(backend: str, ending: str, load: Load) -> None:
    """A decoder step: five inputs of mixed types, whose caches have no batch axis of 1."""
    name = "decoder_step_fp16" if ending == ".tflite" else "decoder_step_f32"
    session = load(backend, f"mt_en_de/models/{name}{ending}")
    assert [spec.dtype for spec in session.inputs] == ["int32", "int32", *["float32"] * 3]
    blocks = [np.zeros((2, *spec.sample_shape), spec.dtype) for spec in session.inputs]
    blocks[0][1] = 7
    first, second = answers(session, blocks)
    assert len(session.results) == 2
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_a_block_that_does_not_fit_is_refused(backend: str, ending: str, load: Load) -> None:
    """Wrong shape, type or layout is caught before an address is handed out."""
    session = load(backend, f"vww/models/vww_96_f32{ending}")
    good = samples(session, 2)[0]
    bad = (good[:, :, :50], good.astype("float64"), good[..., ::-1])
    for block in bad:
        with pytest.raises(ModelError, match=r"'input_1'"):
            session.bind([block])
    with pytest.raises(ModelError, match="1 inputs, got 2 blocks"):
        session.bind([good, good])


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_closing_twice_does_no_harm(backend: str, ending: str, load: Load) -> None:
    """A worker closes in ``finally``, whatever happened before; kept answers stay readable."""
    session = load(backend, f"vww/models/vww_96_f32{ending}")
    copies = answers(session, samples(session, 1))
    kept = session.results[0]
    session.close()
    session.close()
    np.testing.assert_array_equal(kept, copies[0])


THREADS = """
import json, os, sys
os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[3].split(",")})
from pathlib import Path
import numpy as np
from edgeperf.backends import open_backend
from edgeperf.backends.base import SessionOptions
def threads():
    seen = {}
    for task in os.listdir("/proc/self/task"):
        ran_ns = int(open(f"/proc/self/task/{task}/schedstat").read().split()[0])
        for line in open(f"/proc/self/task/{task}/status"):
            if line.startswith("Cpus_allowed_list:"):
                seen[task] = (line.split()[1], ran_ns)
    return seen
options = SessionOptions(threads=int(sys.argv[4]))
session = open_backend(sys.argv[1]).load(Path(sys.argv[2]), options)
session.bind([np.zeros((1, *spec.sample_shape), spec.dtype) for spec in session.inputs])
for _ in range(int(sys.argv[5])):  # a second thread may wait for its turn
    before = threads()
    for _ in range(40):
        session.infer(0)
    after = threads()
    gained = {task: ran - before.get(task, ("", 0))[1] for task, (_, ran) in after.items()}
    busy = sum(gain > max(gained.values()) / 50 for gain in gained.values())
    if busy == options.threads:
        break
print(json.dumps({"cores": sorted({cores for cores, _ in after.values()}), "busy": busy}))
"""


def threads_of(backend: str, model: Path, cores: str, threads: int, rounds: int) -> dict[str, Any]:
    """Infer in a pinned process; return the affinities seen and how many threads worked."""
    done = python(THREADS, backend, str(model), cores, str(threads), str(rounds))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
@pytest.mark.parametrize("threads", [1, 2])
def test_no_thread_leaves_the_workers_cores(
    backend: str, ending: str, threads: int, models_dir: Path
) -> None:
    """Pinned to one core, every thread of every runtime stays there."""
    need(backend)
    core = str(min(os.sched_getaffinity(0)))
    model = models_dir / f"imagenet_cls/models/mobilenet_v1_05_160_u8{ending}"
    assert threads_of(backend, model, core, threads, 1)["cores"] == [core]


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_as_many_threads_work_as_were_asked(backend: str, ending: str, models_dir: Path) -> None:
    """One means one; two means that a second one does a share of the work."""
    need(backend)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")
    both = ",".join(map(str, cores[:2]))
    model = models_dir / f"imagenet_cls/models/mobilenet_v1_05_160_u8{ending}"
    busy = [threads_of(backend, model, both, count, 100)["busy"] for count in (1, 2)]
    assert busy == [1, 2]


QUIET = """
import sys, threading
def watch(event, args):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        print(event, args)
sys.addaudithook(watch)
from pathlib import Path
import numpy as np
from edgeperf.backends import open_backend
from edgeperf.backends.base import SessionOptions
session = open_backend(sys.argv[1]).load(Path(sys.argv[2]), SessionOptions())
session.bind([np.zeros((1, *spec.sample_shape), spec.dtype) for spec in session.inputs])
session.infer(0)
session.info()
session.close()
if threading.active_count() > 1:
    print(threading.enumerate())
"""


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_a_session_is_silent_and_tells_nobody(
    backend: str, ending: str, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No banner, no telemetry (two of the runtimes have one), no trace in the home folder.

    Telemetry keeps still where it believes to be in a CI job, hence the variable.
    """
    need(backend)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = models_dir / f"vww/models/vww_96_int8{ending}"
    done = python(QUIET, backend, str(model))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
