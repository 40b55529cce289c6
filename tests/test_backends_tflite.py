"""TFLite models in whichever of the three packages is installed here."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeperf import InputError
from edgeperf.backends import open_backend
from edgeperf.backends.base import BackendError, BackendMissingError, ModelError, SessionOptions
from edgeperf.backends.tflite import TfliteSession, find_calls
from edgeperf.backends.tflite_runtimes import PACKAGES, choose, open_interpreter

KWS = "kws_speech_commands/models/dscnn_int8.tflite"
VWW = "vww/models/vww_96_f32.tflite"
SSD = "coco_detection/models/ssd_mobilenet_v1_coco_u8.tflite"


@pytest.fixture(autouse=True)
def package() -> str:
    """Return the package that runs here; skip where there is none."""
    try:
        return open_backend("tflite").version()[0]
    except BackendMissingError as error:
        pytest.skip(str(error))


def load(path: Path, **options: Any) -> TfliteSession:
    """Load a model."""
    return TfliteSession(path, SessionOptions(**options))


def patched(source: Path, target: Path, old: bytes, new: bytes) -> Path:
    """Write a copy of a model in which every *old* is *new*."""
    content = source.read_bytes()
    assert old in content
    assert len(old) == len(new)
    target.write_bytes(content.replace(old, new))
    return target


def test_the_package_that_ran_is_on_record(models_dir: Path, package: str) -> None:
    """Name and version are those of the distribution, and a slow one carries a warning."""
    session = load(models_dir / KWS)
    info = session.info()
    assert (info.runtime, info.version) == open_backend("tflite").version()
    assert info.options["runtime"] == package
    slow = "tflite-runtime is 8 to 14 times slower than ai-edge-litert on int8 models"
    assert any(slow in note for note in info.notes) == (package == "tflite-runtime")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_asked_for_is_never_replaced(name: str) -> None:
    """It runs, or the error names it."""
    try:
        assert choose(name)[0] == name
    except BackendMissingError as error:
        assert name in str(error)  # noqa: PT017 - either answer is right


def test_xnnpack_can_be_turned_off(models_dir: Path) -> None:
    """A float model goes to XNNPACK by default, and stays with plain kernels if asked."""
    for setting, delegates in (("auto", ("XNNPACK",)), ("on", ("XNNPACK",)), ("off", ())):
        info = load(models_dir / VWW, options={"xnnpack": setting}).info()
        assert info.delegates == delegates
        assert info.options["xnnpack"] == setting


def test_threads_are_on_record(models_dir: Path) -> None:
    """As asked of the runtime."""
    assert load(models_dir / VWW, threads=2).info().threads == 2


class PublicOnly:
    """A real interpreter without its private attribute, as a later release may be."""

    def __init__(self, interpreter: Any) -> None:
        self.set_tensor = interpreter.set_tensor
        self.get_tensor = interpreter.get_tensor
        self.invoke = interpreter.invoke


def test_public_methods_do_where_the_native_ones_are_gone(models_dir: Path, package: str) -> None:
    """The slower way gives the same answer."""
    options = {"runtime": package, "xnnpack": "auto", "delegate": "", "delegate_options": ""}
    answers = []
    for wrap in (lambda it: it, PublicOnly):
        interpreter = open_interpreter(package, models_dir / KWS, 1, options)
        interpreter.allocate_tensors()
        calls = find_calls(wrap(interpreter))
        assert (calls.view is None) == (wrap is PublicOnly)
        calls.set(
            int(interpreter.get_input_details()[0]["index"]), np.full((1, 49, 10, 1), 5, np.int8)
        )
        calls.invoke()
        answers.append(calls.get(int(interpreter.get_output_details()[0]["index"])).copy())
    np.testing.assert_array_equal(answers[0], answers[1])


def test_an_output_of_fixed_shape_is_not_copied(models_dir: Path) -> None:
    """It is a view of the interpreter's own memory; one of unknown shape is a copy."""
    fixed = load(models_dir / KWS)
    assert not fixed.results[0].flags.owndata
    growing = load(models_dir / SSD)
    assert [result.shape for result in growing.results] == [(1, 10, 4), (1, 10), (1, 10), (1,)]
    block = np.zeros((2, 1, 300, 300, 3), np.uint8)
    block[1] = 200
    growing.bind([block])
    kept = growing.results
    growing.infer(0)
    first = [np.array(value) for value in kept]
    growing.infer(1)
    second = [np.array(value) for value in kept]
    growing.infer(0)
    for now, before in zip(kept, first, strict=True):
        np.testing.assert_array_equal(now, before)
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_operator_that_is_missing_is_named(models_dir: Path, tmp_path: Path) -> None:
    """One line with the operator, and the option that could supply it."""
    model = patched(
        models_dir / SSD,
        tmp_path / "custom.tflite",
        b"TFLite_Detection_PostProcess\0",
        b"Acme_Detection_PostProcess__\0",
    )
    with pytest.raises(ModelError, match="has no operator Acme_Detection_PostProcess__") as caught:
        load(model)
    assert "\n" not in str(caught.value)


def test_a_free_axis_needs_a_size(models_dir: Path, tmp_path: Path) -> None:
    """The message shows the option to give; with it, the model runs."""
    model = patched(
        models_dir / KWS,
        tmp_path / "free.tflite",
        struct.pack("<5i", 4, -1, 49, 10, 1),
        struct.pack("<5i", 4, -1, -1, 10, 1),
    )
    with pytest.raises(ModelError, match=r"'input_1' has free axes, \?,\?,10,1: .*input_1=1,64,10"):
        load(model)
    session = load(model, shapes={"input_1": (1, 49, 10, 1)})
    assert session.inputs[0].shape == (1, 49, 10, 1)
    assert session.outputs[0].shape == (1, 12)


def test_a_fixed_batch_is_refused(models_dir: Path, tmp_path: Path) -> None:
    """A query is one sample."""
    half = patched(
        models_dir / KWS,
        tmp_path / "half.tflite",
        struct.pack("<5i", 4, -1, 49, 10, 1),
        struct.pack("<5i", 4, 8, 49, 10, 1),
    )
    model = patched(
        half,
        tmp_path / "batch.tflite",
        struct.pack("<3i", 2, -1, 12),
        struct.pack("<3i", 2, 8, 12),
    )
    with pytest.raises(ModelError, match=r"fixed batch of 8, 8,49,10,1: expected a batch of 1"):
        load(model)


def test_inferring_an_unbound_slot_is_no_crash(models_dir: Path) -> None:
    """Python's own error is a bug's, not a user's."""
    with pytest.raises(BackendError, match="no samples are bound"):
        load(models_dir / KWS).infer(0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delegate": "/nowhere/libacme.so"}, "delegate=/nowhere/libacme.so: does not load"),
        ({"delegate_options": "a:b"}, "delegate_options: means nothing without delegate"),
        ({"delegate": "x.so", "delegate_options": "a"}, "delegate_options: 'a' is not KEY:VALUE"),
        ({"xnnpack": "yes"}, "xnnpack=yes: expected one of auto, on, off"),
        ({"runtime": "tvm"}, "runtime=tvm: expected one of auto, ai-edge-litert"),
    ],
)
def test_a_bad_option_is_one_line(options: dict[str, str], problem: str, models_dir: Path) -> None:
    """Each says which option, what it was, and what it could be."""
    with pytest.raises(InputError, match=problem) as caught:
        load(models_dir / KWS, options=options)
    assert "\n" not in str(caught.value)


#: An external delegate as a vendor ships it: it writes down the options it was given, and
#: claims no operator. Layout of ``TfLiteDelegate``: TensorFlow Lite ``c/common.h``.
DELEGATE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct delegate {
  void *data;
  int (*prepare)(void *context, struct delegate *self);
  int (*from_handle)(void *, struct delegate *, int, void *);
  int (*to_handle)(void *, struct delegate *, int, void *);
  void (*free_handle)(void *, struct delegate *, int *);
  int64_t flags;
  void *opaque_builder;
};
static int prepare(void *context, struct delegate *self) { return 0; }
struct delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                               void (*complain)(const char *)) {
  const char *path = NULL;
  for (size_t i = 0; i < count; ++i) {
    if (!strcmp(keys[i], "log")) path = values[i];
    if (!strcmp(keys[i], "fail")) { complain("no such accelerator"); return NULL; }
  }
  FILE *log = path ? fopen(path, "w") : NULL;
  for (size_t i = 0; log && i < count; ++i) fprintf(log, "%s=%s\n", keys[i], values[i]);
  if (log) fclose(log);
  struct delegate *made = calloc(1, sizeof *made);
  made->prepare = prepare;
  return made;
}
void tflite_plugin_destroy_delegate(struct delegate *made) { free(made); }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Compile the delegate."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build a delegate with")
    (tmp_path / "acme.c").write_text(DELEGATE)
    built = tmp_path / "libacme.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(built), str(tmp_path / "acme.c")]
    subprocess.run(command, check=True, capture_output=True)
    return built


def test_an_external_delegate_is_loaded_with_its_options(
    library: Path, models_dir: Path, tmp_path: Path
) -> None:
    """The options reach it, the run records it, and that it took nothing is no secret."""
    log = tmp_path / "seen.txt"
    settings = f"log:{log};device:usb:0"
    options = {"delegate": str(library), "delegate_options": settings}
    session = load(models_dir / VWW, options=options)
    info = session.info()
    assert sorted(log.read_text().split()) == ["device=usb:0", f"log={log}"]
    assert info.delegates == (str(library), "XNNPACK")
    assert info.device == "CPU"
    assert info.options["delegate_options"] == settings
    assert any("took no part of the model" in note for note in info.notes)


def test_a_delegate_that_refuses_is_quoted(library: Path, models_dir: Path) -> None:
    """The vendor's own complaint is in the line."""
    options = {"delegate": str(library), "delegate_options": "fail:1"}
    with pytest.raises(InputError, match=r"libacme\.so: does not load: .*no such accelerator"):
        load(models_dir / VWW, options=options)


def test_a_library_that_is_no_delegate_is_refused(models_dir: Path, tmp_path: Path) -> None:
    """A file that is no library at all, and a library of something else."""
    (tmp_path / "fake.so").write_bytes(b"not a library")
    with pytest.raises(InputError, match=r"fake\.so: does not load"):
        load(models_dir / KWS, options={"delegate": str(tmp_path / "fake.so")})
    with pytest.raises(InputError, match="not a TFLite delegate: it has no tflite_plugin_create"):
        load(models_dir / KWS, options={"delegate": "libc.so.6"})
