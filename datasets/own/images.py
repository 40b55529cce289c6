"""From a photograph to pixels at the model's size, and back to the photograph's own places.

Pillow decodes. Its filters look at every pixel when they shrink; OpenCV's ``linear`` does
not, and MLPerf's reference was measured with that: so both are here.
"""

from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.own.recipes import InputRecipe
from edgeperf.datasets.own.resample import resampled
from edgeperf.datasets.tensors import TensorSpec

Pixels = NDArray[np.uint8]
Size = tuple[int, int]

_PILLOW = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "box": "BOX", "nearest": "NEAREST"}


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a photograph lies in the model's input: ``input = photograph * scale + start``.

    Attributes:
        scale: Down and across.
        start: Top and left, pixels of the input.
    """

    scale: tuple[float, float]
    start: tuple[int, int]


#: Changed whenever the same recipe comes to give other numbers.
VERSION = 2


def recipe_of(recipe: InputRecipe, inputs: Sequence[TensorSpec]) -> bytes:
    """Return everything that decides how a file becomes an input, decoders included."""
    versions = [
        metadata.version(name)
        for name in ("pillow", "soundfile")
        if find_spec({"pillow": "PIL"}.get(name, name)) is not None
    ]
    return msgspec.json.encode([VERSION, recipe, inputs, versions])


def pillow(why: str) -> Any:
    """Return the module ``PIL.Image``.

    Raises:
        DatasetError: Pillow is not installed; *why* says what needs it.
    """
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise DatasetError(
            f"{why} needs Pillow to decode images: {error}; pip install 'edgeperf[metrics]'"
        ) from error


class ImageMaker:
    """Makes pixels of the model's size out of whatever image it is given."""

    def __init__(self, recipe: InputRecipe, size: Size) -> None:
        """Take the recipe and height and width of the model's input.

        Raises:
            DatasetError: Pillow is not installed, or the recipe does not give that size.
        """
        side = recipe.shorter_side
        if recipe.resize == "shorter_side" and side is not None and side < max(size):
            raise DatasetError(
                f"[input] shorter_side = {side} is less than the model's input of"
                f" {size[0]}x{size[1]}: nothing could be cut out"
            )
        self._recipe = recipe
        self._size = size
        self._image = pillow("a task on images")

    def decode(self, path: Path) -> Array:
        """Return the pixels of an image file, height first, channels in the recipe's order.

        Raises:
            DatasetError: It cannot be decoded.
        """
        image = self._image
        try:
            with image.open(path) as opened:
                photograph = opened.convert("L" if self._recipe.channels == 1 else "RGB")
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise DatasetError(
                f"{path}: cannot be decoded as an image: {error}; replace it, or take it off the"
                " list"
            ) from error
        return self._make(photograph, str(path))

    def convert(self, pixels: Array, where: str) -> Array:
        """Return the same of pixels in memory, red first or one channel.

        Raises:
            DatasetError: They are no image.
        """
        if pixels.ndim == 3 and pixels.shape[-1] == 1:  # noqa: PLR2004 - height, width, channels
            pixels = pixels[..., 0]
        grey = pixels.ndim == 2  # noqa: PLR2004
        if pixels.dtype != np.uint8 or not (grey or pixels.shape[2:] == (3,)):
            raise DatasetError(
                f"{where} is {list(pixels.shape)} {pixels.dtype}; expected an image: (height,"
                ' width, 3) or (height, width) uint8; for other numbers set [input] kind = "array"'
            )
        opened = self._image.fromarray(pixels)
        return self._make(opened.convert("L" if self._recipe.channels == 1 else "RGB"), where)

    def _make(self, photograph: Any, where: str) -> Array:
        recipe = self._recipe
        if recipe.resize == "shorter_side":
            fitted = self._middle(photograph)
        elif recipe.crop is not None:
            fitted = self._cropped(photograph, recipe.crop)
        elif recipe.resize == "letterbox":
            fitted = self._letterboxed(photograph)
        elif recipe.resize == "none":
            fitted = self._as_it_is(photograph, where)
        else:
            fitted = self._resize(photograph, self._size)
        if recipe.channels == 1:
            return fitted.reshape(*fitted.shape[:2], 1)
        return fitted[..., ::-1] if recipe.colour == "BGR" else fitted

    def _resize(self, photograph: Any, size: Size) -> Pixels:
        name = self._recipe.filter
        if name in ("linear", "area"):
            return resampled(np.asarray(photograph), size, name)
        method = getattr(self._image.Resampling, _PILLOW[name])
        return np.asarray(photograph.resize(size[::-1], method))

    def _cropped(self, photograph: Any, share: float) -> Pixels:
        width, height = photograph.size
        side = round(share * min(width, height))
        left, top = (width - side) // 2, (height - side) // 2
        box = (left, top, left + side, top + side)
        name = self._recipe.filter
        if name in ("linear", "area"):
            return resampled(np.asarray(photograph.crop(box)), self._size, name)
        # One step, not crop and then resize: at the edges the two differ by a grey level.
        method = getattr(self._image.Resampling, _PILLOW[name])
        return np.asarray(photograph.resize(self._size[::-1], method, box=box))

    def _middle(self, photograph: Any) -> Pixels:
        """Resize to the shorter side, then cut the middle (MLPerf's reference, in whole pixels)."""
        width, height = photograph.size
        side = self._recipe.shorter_side or int(min(self._size) / (self._recipe.crop or 1))
        shorter = min(width, height)
        size = (side * height // shorter, side * width // shorter)
        resized = self._resize(photograph, size)
        top, left = ((had - want) // 2 for had, want in zip(size, self._size, strict=True))
        return resized[top : top + self._size[0], left : left + self._size[1]]

    def _letterboxed(self, photograph: Any) -> Pixels:
        width, height = photograph.size
        inner, start = _letterbox((height, width), self._size, self._recipe.pad_at)
        channels = () if self._recipe.channels == 1 else (3,)
        canvas = np.full((*self._size, *channels), self._recipe.pad, np.uint8)
        resized = self._resize(photograph, inner)
        canvas[start[0] : start[0] + inner[0], start[1] : start[1] + inner[1]] = resized
        return canvas

    def _as_it_is(self, photograph: Any, where: str) -> Pixels:
        width, height = photograph.size
        if (height, width) != self._size:
            raise DatasetError(
                f"{where} is {height}x{width}, the model's input {self._size[0]}x{self._size[1]}:"
                " set [input] resize"
            )
        return np.asarray(photograph)


def _letterbox(size: Size, target: Size, pad_at: str) -> tuple[Size, Size]:
    """Return the size of the photograph in the letterbox, and where it begins."""
    scale = min(target[0] / size[0], target[1] / size[1])
    # YOLOX, which pads at the end, cuts to whole pixels; YOLO v5 to v11 round.
    half = 0.0 if pad_at == "top-left" else 0.5
    inner = (max(1, int(size[0] * scale + half)), max(1, int(size[1] * scale + half)))
    if pad_at == "top-left":
        return inner, (0, 0)
    return inner, ((target[0] - inner[0]) // 2, (target[1] - inner[1]) // 2)


def placement(recipe: InputRecipe, size: Size, target: Size) -> Placement:
    """Return where a photograph of *size* (height, width) lies in an input of size *target*."""
    if recipe.resize != "letterbox":
        return Placement(scale=(target[0] / size[0], target[1] / size[1]), start=(0, 0))
    _, start = _letterbox(size, target, recipe.pad_at)
    scale = min(target[0] / size[0], target[1] / size[1])
    return Placement(scale=(scale, scale), start=start)
