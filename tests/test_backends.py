"""The registry of backends, the files they take, and the line each bad one gets.

A runtime that is not installed in this environment is skipped here and tested where it is.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeperf import EdgeperfError, InputError
from edgeperf.backends import BACKENDS, backend_for, backend_names, open_backend
from edgeperf.backends.base import (
    BackendMissingError,
    ModelError,
    SessionOptions,
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


# The registry


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_opens_without_its_runtime(name: str) -> None:
    """A backend's own module needs no runtime, and carries the name it is registered by."""
    backend = open_backend(name)
    assert backend.name == name
    assert all(ending.startswith(".") for ending in backend.formats)


def test_listing_backends_imports_no_runtime() -> None:
    """``edgeperf backends`` must be quick and must not start thread pools."""
    done = python(
        "import sys\n"
        "from edgeperf import EdgeperfError\n"
        "from edgeperf.backends import *\n"
        "from edgeperf.backends import backend_names, open_backend\n"
        "for name in backend_names():\n"
        "    try: open_backend(name).version()\n"
        "    except EdgeperfError: pass\n"
        "roots = {m.partition('.')[0] for m in sys.modules}\n"
        "print(sorted(roots & {'onnxruntime', 'openvino', 'ai_edge_litert', 'tflite_runtime',"
        " 'tensorflow'}))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_an_unknown_name_lists_the_known_ones() -> None:
    """The message answers the next question."""
    with pytest.raises(InputError, match=r"no backend 'tpu'; known: tflite, onnxruntime, .*null"):
        open_backend("tpu")


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install two packages with an entry point each: one sound, one broken."""
    (tmp_path / "acme_rt.py").write_text(
        "class Acme:\n"
        "    name = 'acme'\n"
        "    formats = ('.acme',)\n"
        "    def version(self): return 'acme-rt', '1.2'\n"
    )
    info = tmp_path / "acme_rt-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rt\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[edgeperf.backends]\nacme = acme_rt:Acme\nbroken = acme_rt:Missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_third_party_joins_by_entry_point(third_party: Path) -> None:
    """It is listed after our own, opens by name, and takes its own files."""
    assert backend_names()[: len(BACKENDS)] == tuple(BACKENDS)
    assert {"acme", "broken"} <= set(backend_names())
    assert open_backend("acme").version() == ("acme-rt", "1.2")
    model = third_party / "model.acme"
    model.write_bytes(b"anything")
    assert backend_for(model) == "acme"


def test_a_broken_third_party_says_which_and_why(third_party: Path) -> None:
    """Its exception becomes one line; the other backends are not touched by it."""
    assert third_party.is_dir()
    with pytest.raises(BackendMissingError, match=r"'broken', from acme_rt:Missing, .*Missing"):
        open_backend("broken")


# Which backend fits a file


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        ("vww/models/vww_96_f32.tflite", "tflite"),
        ("vww/models/vww_96_f32.onnx", "onnxruntime"),
    ],
)
def test_the_file_decides_the_backend(models_dir: Path, model: str, backend: str) -> None:
    """Each format has one backend that fits it best."""
    need(backend)
    assert backend_for(models_dir / model) == backend


def test_ir_goes_to_openvino(tmp_path: Path) -> None:
    """OpenVINO's own format can go nowhere else."""
    need("openvino")
    (tmp_path / "net.xml").write_text('<?xml version="1.0"?><net/>')
    assert backend_for(tmp_path / "net.xml") == "openvino"


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
def test_content_decides_where_the_ending_says_nothing(
    backend: str, ending: str, models_dir: Path, tmp_path: Path
) -> None:
    """A model stored under its hash is still a model, also to a runtime that goes by names."""
    need(backend)
    stored = tmp_path / "0a1b2c"
    stored.write_bytes((models_dir / f"vww/models/vww_96_f32{ending}").read_bytes())
    if backend != "openvino":
        assert backend_for(stored) == backend
    open_backend(backend).load(stored, SessionOptions()).close()


def test_another_runtime_is_named_but_never_taken_in_silence(models_dir: Path) -> None:
    """A number from another runtime is another number."""
    need("openvino")
    done = python(
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from pathlib import Path\n"
        "from edgeperf.backends import backend_for\n"
        "from edgeperf.backends.base import BackendMissingError\n"
        "try: backend_for(Path(sys.argv[1]))\n"
        "except BackendMissingError as error: print(error)",
        str(models_dir / "vww/models/vww_96_f32.onnx"),
    )
    assert "pip install 'edgeperf[onnxruntime]'" in done.stdout, done.stderr
    assert "--backend openvino" in done.stdout


@pytest.mark.parametrize("name", ["tflite", "onnxruntime", "openvino"])
def test_a_missing_runtime_says_so_and_how_to_install_it(name: str, models_dir: Path) -> None:
    """Absent is told apart from broken, both by ``version`` and by ``load``."""
    done = python(
        "import sys\n"
        "for root in ('ai_edge_litert', 'tflite_runtime', 'tensorflow', 'onnxruntime',"
        " 'openvino'): sys.modules[root] = None\n"
        "from pathlib import Path\n"
        "from edgeperf.backends import open_backend\n"
        "from edgeperf.backends.base import BackendMissingError, SessionOptions\n"
        "backend = open_backend(sys.argv[1])\n"
        "load = lambda: backend.load(Path(sys.argv[2]), SessionOptions())\n"
        "for call in (backend.version, load):\n"
        "    try: call()\n"
        "    except BackendMissingError as error: print(error)",
        name,
        str(models_dir / f"vww/models/vww_96_f32{open_backend(name).formats[-1]}"),
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert all(f"pip install 'edgeperf[{name}]'" in line for line in lines)


def test_a_broken_runtime_gives_its_own_reason(tmp_path: Path, models_dir: Path) -> None:
    """An installed runtime that does not load is not called missing."""
    broken = tmp_path / "onnxruntime"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libgomp.so.1: cannot open')")
    done = python(
        "import sys\n"
        "from pathlib import Path\n"
        "from edgeperf.backends import open_backend\n"
        "from edgeperf.backends.base import BackendMissingError, SessionOptions\n"
        "try: open_backend('onnxruntime').load(Path(sys.argv[1]), SessionOptions())\n"
        "except BackendMissingError as error: print(error)",
        str(models_dir / "vww/models/vww_96_f32.onnx"),
        path=[tmp_path],
    )
    assert "installed but does not load: libgomp.so.1" in done.stdout, done.stderr


def test_a_runtime_built_for_another_numpy_says_so(tmp_path: Path, models_dir: Path) -> None:
    """The commonest breakage of tflite-runtime names its cure."""
    broken = tmp_path / "onnxruntime"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('numpy.core.multiarray failed')")
    done = python(
        "import sys\n"
        "from pathlib import Path\n"
        "from edgeperf.backends import open_backend\n"
        "from edgeperf.backends.base import BackendMissingError, SessionOptions\n"
        "try: open_backend('onnxruntime').load(Path(sys.argv[1]), SessionOptions())\n"
        "except BackendMissingError as error: print(error)",
        str(models_dir / "vww/models/vww_96_f32.onnx"),
        path=[tmp_path],
    )
    assert "pip install 'numpy<2'" in done.stdout, done.stderr


# Bad files, in every backend


@pytest.mark.parametrize("name", ["tflite", "onnxruntime", "openvino"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        (b"", "empty file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "damaged, or another kind of file"),
    ],
)
def test_a_bad_file_is_one_line(
    name: str, content: bytes | None, problem: str, tmp_path: Path
) -> None:
    """Missing, empty and foreign files are told apart before a runtime sees them."""
    need(name)
    model = tmp_path / f"model{open_backend(name).formats[-1]}"
    if content is not None:
        model.write_bytes(content)
    with pytest.raises(ModelError, match=problem) as caught:
        open_backend(name).load(model, SessionOptions())
    assert str(model) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tflite", "onnxruntime", "openvino"])
def test_a_folder_is_no_model(name: str, tmp_path: Path) -> None:
    """A SavedModel folder, say."""
    need(name)
    with pytest.raises(ModelError, match="not a file"):
        open_backend(name).load(tmp_path, SessionOptions())


def test_the_wrong_backend_names_the_right_one(models_dir: Path) -> None:
    """``.onnx`` given to TFLite says who takes it."""
    need("tflite")
    with pytest.raises(ModelError, match=r"takes \.tflite, not \.onnx; use --backend onnxruntime"):
        open_backend("tflite").load(models_dir / "vww/models/vww_96_f32.onnx", SessionOptions())


def test_a_wrong_ending_is_not_believed(models_dir: Path, tmp_path: Path) -> None:
    """The content decides, and the message says what it is."""
    need("tflite")
    renamed = tmp_path / "model.tflite"
    renamed.write_bytes((models_dir / "vww/models/vww_96_f32.onnx").read_bytes())
    with pytest.raises(ModelError, match=r"its content is ONNX, not TFLite"):
        open_backend("tflite").load(renamed, SessionOptions())


@pytest.mark.parametrize(("backend", "ending"), PAIRS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.999])
def test_a_truncated_file_is_refused(
    backend: str, ending: str, share: float, models_dir: Path, tmp_path: Path
) -> None:
    """Half a download must not end the process in the runtime's parser."""
    need(backend)
    whole = (models_dir / f"ic_cifar10/models/resnet8_int8{ending}").read_bytes()
    model = tmp_path / f"half{ending}"
    model.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError, match="damaged"):
        open_backend(backend).load(model, SessionOptions())


@pytest.mark.parametrize("name", BACKENDS)
def test_an_unknown_option_lists_the_known_ones(name: str, models_dir: Path) -> None:
    """A misspelt option never runs with the default."""
    need(name)
    ending = open_backend(name).formats[-1:] or (".onnx",)
    model = models_dir / f"vww/models/vww_96_f32{ending[0]}"
    with pytest.raises(InputError, match=f"backend '{name}' has no such option; it has: "):
        open_backend(name).load(model, SessionOptions(options={"presicion": "f16"}))


# The null backend


def test_null_takes_anything_and_does_nothing() -> None:
    """The floor of the harness needs no file."""
    session = open_backend("null").load(Path("whatever"), SessionOptions())
    session.bind([np.zeros((4, 1, 1), np.float32)])
    session.infer(3)
    assert session.results[0].shape == (1, 1)
    assert session.info().runtime == "edgeperf"


def test_null_can_look_like_another_model() -> None:
    """Its input has the shape and type that the harness shall carry."""
    options = SessionOptions(options={"input_shape": "1,224,224,3", "dtype": "uint8"})
    session = open_backend("null").load(Path("x"), options)
    assert session.inputs[0].shape == (1, 224, 224, 3)
    assert session.inputs[0].dtype == "uint8"


@pytest.mark.parametrize("shape", ["", "1,x", "0,2", "-1,3", "1;2"])
def test_null_refuses_a_shape_that_is_none(shape: str) -> None:
    """A bad value is a bad value here too."""
    with pytest.raises(InputError, match="input_shape"):
        open_backend("null").load(Path("x"), SessionOptions(options={"input_shape": shape}))


def test_every_refusal_is_ours() -> None:
    """Whatever goes wrong in loading, the command line gets an error it can print."""
    for name in BACKENDS:
        if name != "null":
            with pytest.raises(EdgeperfError):
                open_backend(name).load(Path("/nowhere/model.onnx"), SessionOptions())
