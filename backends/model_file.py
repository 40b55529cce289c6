"""Which kind of model a file holds, decided before a runtime sees it.

A runtime given the wrong or a damaged file answers with pages of C++, or with a
segmentation fault. What can be told cheaply is told here, in one line. The content
decides; the ending is a hint for people (a stored model may be named by its hash).
"""

from pathlib import Path

from edgeperf.backends.base import ModelError

#: Ending -> which backends take it, best first.
FORMATS: dict[str, tuple[str, ...]] = {
    ".tflite": ("tflite", "openvino"),
    ".onnx": ("onnxruntime", "openvino"),
    ".xml": ("openvino",),
}

_WORDS = {".tflite": "TFLite", ".onnx": "ONNX", ".xml": "OpenVINO IR"}


def model_format(model: Path) -> str:
    """Return the ending of the format that *model* is in, whatever it is called.

    Raises:
        ModelError: It is missing, not a file, empty, or of no known format.
    """
    head = _head(model)
    found = _sniff(head)
    ending = model.suffix.lower()
    if found is None:
        if ending in FORMATS:
            raise ModelError(
                f"{model}: not {_WORDS[ending]}: it starts with {head[:8]!r}; "
                "damaged, or another kind of file"
            )
        raise ModelError(
            f"{model}: not a model that any backend takes; expected {', '.join(FORMATS)}"
        )
    if ending in FORMATS and ending != found:
        raise ModelError(
            f"{model}: its content is {_WORDS[found]}, not {_WORDS[ending]}: rename it to {found}"
        )
    return found


def check_format(model: Path, backend: str, formats: tuple[str, ...]) -> str:
    """Return the format of *model*, which *backend* takes.

    Raises:
        ModelError: As :func:`model_format`, or *backend* takes other formats.
    """
    found = model_format(model)
    if found not in formats:
        others = " or ".join(f"--backend {name}" for name in FORMATS[found])
        raise ModelError(
            f"{model}: backend {backend!r} takes {', '.join(formats)}, not {found}; use {others}"
        )
    if found == ".xml" and not model.with_suffix(".bin").is_file():
        raise ModelError(
            f"{model}: its weights, {model.with_suffix('.bin').name}, are not beside it"
        )
    return found


def _head(model: Path) -> bytes:
    if not model.exists():
        raise ModelError(f"{model}: no such file")
    if not model.is_file():
        raise ModelError(f"{model}: not a file; expected {', '.join(FORMATS)}")
    try:
        with model.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise ModelError(f"{model}: cannot be read: {error.strerror}") from error
    if not head:
        raise ModelError(f"{model}: empty file")
    return head


def _sniff(head: bytes) -> str | None:
    if head[4:8] == b"TFL3":
        return ".tflite"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"<?xml", b"<net")):
        return ".xml"
    # A ModelProto begins with its ir_version (field 1, a small number), or, written by
    # something unusual, with its producer or its graph.
    if head[0] == 0x08 and 0 < head[1] < 0x40:  # noqa: PLR2004 - protobuf tag and version
        return ".onnx"
    return ".onnx" if head[0] in {0x12, 0x3A, 0x42} else None
