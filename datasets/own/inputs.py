"""Writing samples in the model's own input types, as a task file says."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.encoding import Encoder, Meaning, one_input
from edgeperf.datasets.own.arrays import read_npy
from edgeperf.datasets.own.audio import read_waveform, require_soundfile
from edgeperf.datasets.own.images import ImageMaker
from edgeperf.datasets.own.recipes import InputRecipe
from edgeperf.datasets.own.source import Source
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: Writes sample *index* into one array per model input.
Writer = Callable[[int, Sequence[Array]], None]

_BYTES = ("int8", "uint8")
_FLOATS = ("float16", "float32", "float64")


def image_size(recipe: InputRecipe, spec: TensorSpec) -> tuple[int, int]:
    """Return height and width of the model's input, whichever way its axes lie.

    Raises:
        DatasetError: It takes no such image.
    """
    channels = recipe.channels
    shape = spec.sample_shape
    match shape:
        case (_, height, width, last) if last == channels and recipe.layout != "NCHW":
            size = height, width
        case (_, first, height, width) if first == channels and recipe.layout != "NHWC":
            size = height, width
        case (_, height, width) if channels == 1:
            size = height, width
        case _:
            raise DatasetError(
                f"input {spec.name!r} is {list(spec.shape)}, and the task makes"
                f" {recipe.layout or 'NHWC or NCHW'} {recipe.colour} images of {channels} channels:"
                " set [input] colour or layout, or kind"
            )
    if recipe.size is not None and recipe.size != size:
        raise DatasetError(
            f"input {spec.name!r} is {list(spec.shape)}, and the task's [input] size is"
            f" {list(recipe.size)}: leave it out, or give --input {spec.name}=..."
        )
    return size


class PixelEncoder:
    """Pixels as the model's numbers: each of the 256 levels is worked out once."""

    def __init__(self, recipe: InputRecipe, spec: TensorSpec, size: tuple[int, int]) -> None:
        """Check that the model takes such numbers.

        Raises:
            DatasetError: It does not.
        """
        spec, meaning = _meaning(recipe, spec)
        encoder = Encoder("of your own", [spec], (*size, recipe.channels), meaning)
        levels = np.repeat(np.arange(256.0)[:, None], recipe.channels, axis=1)
        self._table = encoder.encode(levels)
        self._channels_first = spec.sample_shape[-3:] != (*size, recipe.channels)

    def write(self, pixels: Array, out: Array) -> None:
        """Encode *pixels*, height, width, channels, into *out*."""
        encoded = np.stack(
            [column[pixels[..., place]] for place, column in enumerate(self._table.T)],
            axis=0 if self._channels_first else -1,
        )
        out[...] = encoded.reshape(out.shape)


def _meaning(recipe: InputRecipe, spec: TensorSpec) -> tuple[TensorSpec, Meaning]:
    """Return the input as it is to be fed, and what the stored numbers stand for."""
    told = None
    if recipe.scale is not None:
        shift = 128 if spec.dtype == "uint8" else 0
        told = Quantisation(scale=recipe.scale, zero_point=recipe.zero_point - shift)
    if spec.dtype in _BYTES and recipe.bytes == "pixels":
        bare = msgspec.structs.replace(spec, quantisation=None)
        return bare, Meaning(int8=Quantisation(scale=1.0, zero_point=-128))
    if spec.dtype in _BYTES and spec.quantisation is None and told is None:
        raise DatasetError(
            f"input {spec.name!r} is {spec.dtype} and does not tell its scale: set [input]"
            ' bytes = "pixels", or scale and zero_point'
        )
    return spec, Meaning(offset=recipe.mean, divisor=recipe.std, int8=told)


def image_writer(recipe: InputRecipe, source: Source, inputs: Sequence[TensorSpec]) -> Writer:
    """Return what writes images, from files or from memory.

    Raises:
        DatasetError: The model takes no such images, or there are none.
    """
    spec = one_input("of your own", inputs)
    size = image_size(recipe, spec)
    maker, encoder = ImageMaker(recipe, size), PixelEncoder(recipe, spec, size)
    if source.paths:
        paths = source.paths
        return lambda index, out: encoder.write(maker.decode(paths[index]), out[0])
    images = _only_array(source)
    maker.convert(images[0], source.name(0))

    def write(index: int, out: Sequence[Array]) -> None:
        encoder.write(maker.convert(images[index], source.name(index)), out[0])

    return write


def _only_array(source: Source) -> Array:
    if list(source.arrays) != [""]:
        names = ", ".join(map(repr, source.arrays))
        raise DatasetError(f"{source.where}: holds {names}; expected one array of samples")
    return source.arrays[""]


def array_writer(recipe: InputRecipe, source: Source, inputs: Sequence[TensorSpec]) -> Writer:
    """Return what writes numbers as they are, or scaled and quantised.

    Raises:
        DatasetError: Arrays and inputs do not fit.
    """
    if source.arrays and "" not in source.arrays:
        return _many_inputs(recipe, source, inputs)
    spec = one_input("of your own", inputs)
    if source.paths:
        paths = source.paths
        first = _Converter(recipe, spec, read_npy(paths[0]), str(paths[0]))

        def write_file(index: int, out: Sequence[Array]) -> None:
            first.write(read_npy(paths[index]), out[0], str(paths[index]))

        return write_file
    samples = _only_array(source)
    converter = _Converter(recipe, spec, samples[0], source.name(0))
    return lambda index, out: converter.write(samples[index], out[0], source.name(index))


def _many_inputs(recipe: InputRecipe, source: Source, inputs: Sequence[TensorSpec]) -> Writer:
    names = [spec.name for spec in inputs]
    if sorted(names) != sorted(source.arrays):
        raise DatasetError(
            f"{source.where}: holds {', '.join(map(repr, source.arrays))}; expected one array for"
            f" each input: {', '.join(map(repr, names))}"
        )
    converters = [
        _Converter(recipe, spec, source.arrays[spec.name][0], source.name(0)) for spec in inputs
    ]

    def write(index: int, out: Sequence[Array]) -> None:
        for name, converter, target in zip(names, converters, out, strict=True):
            converter.write(source.arrays[name][index], target, source.name(index))

    return write


def audio_writer(recipe: InputRecipe, source: Source, inputs: Sequence[TensorSpec]) -> Writer:
    """Return what writes waveforms.

    Raises:
        DatasetError: The model takes no waveform, or there are no files.
    """
    require_soundfile()
    spec = one_input("of your own", inputs)
    if not source.paths:
        raise DatasetError(f'{source.where}: holds no recordings; for numbers set kind = "array"')
    paths, rate, length = source.paths, recipe.sample_rate, spec.sample_size
    silence = np.zeros(length, np.float32)
    converter = _Converter(recipe, spec, silence.reshape(spec.sample_shape[1:]), source.name(0))

    def write(index: int, out: Sequence[Array]) -> None:
        waveform = read_waveform(paths[index], rate, length)
        converter.write(waveform.reshape(spec.sample_shape[1:]), out[0], source.name(index))

    return write


class _Converter:
    """Numbers of one shape and type as one input of the model."""

    def __init__(self, recipe: InputRecipe, spec: TensorSpec, sample: Array, where: str) -> None:
        self._shape, self._dtype = sample.shape, sample.dtype
        self._where = where
        if sample.dtype.kind not in "fiub":
            raise DatasetError(f"{where} is {sample.dtype}; expected numbers")
        self._order = axis_order(sample.shape, spec, where)
        plain = recipe.mean == (0.0,) and recipe.std == (1.0,)
        self._encode: Callable[[Array], Array] | None = None
        if not plain or (sample.dtype != spec.dtype and spec.dtype in (*_BYTES, *_FLOATS)):
            self._encode = self._encoding(recipe, spec)

    def _encoding(self, recipe: InputRecipe, spec: TensorSpec) -> Callable[[Array], Array]:
        """Return what scales and quantises a sample in the model's own shape."""
        spec, meaning = _meaning(recipe, spec)
        encode = Encoder("of your own", [spec], spec.sample_shape, meaning).encode
        one_each = max(len(recipe.mean), len(recipe.std))
        if one_each == 1:
            return encode
        axes = [axis for axis in (-1, -3) if spec.sample_shape[axis:][:1] == (one_each,)]
        if not axes or {len(recipe.mean), len(recipe.std)} - {1, one_each}:
            raise DatasetError(
                f"input {spec.name!r} is {list(spec.shape)}, and [input] mean and std have"
                f" {len(recipe.mean)} and {len(recipe.std)} numbers; expected one, or one for"
                " each channel"
            )
        return lambda sample: np.moveaxis(encode(np.moveaxis(sample, axes[0], -1)), -1, axes[0])

    def write(self, sample: NDArray[Any], out: Array, where: str) -> None:
        if sample.shape != self._shape or sample.dtype != self._dtype:
            raise DatasetError(
                f"{where} is {list(sample.shape)} {sample.dtype}, and {self._where}"
                f" {list(self._shape)} {self._dtype}; expected the same for all"
            )
        if self._order is not None:
            sample = sample.transpose(self._order)
        sample = sample.reshape(out.shape)
        out[...] = sample if self._encode is None else self._encode(sample)


def axis_order(shape: tuple[int, ...], spec: TensorSpec, where: str) -> tuple[int, ...] | None:
    """Return how the axes of a sample must be turned for the model; None where they need not.

    Axes of 1 do not count, and a plain row of numbers is the model's in its order. Channels
    are moved from the front to the end or back; every other order is refused, because numbers
    poured into another shape are no sample any more.

    Raises:
        DatasetError: The sample does not fit.
    """
    given, taken = _longer_axes(shape), _longer_axes(spec.sample_shape)
    if given == taken or (prod(given) == prod(taken) and min(len(given), len(taken)) <= 1):
        return None
    axes = range(len(shape))
    for order in ((*axes[1:], *axes[:1]), (*axes[-1:], *axes[:-1])):
        if len(given) == len(shape) and tuple(shape[axis] for axis in order) == taken:
            return order
    raise DatasetError(
        f"{where} is {list(shape)}, and input {spec.name!r} {list(spec.shape)}: expected the same"
        " axes in the same order (channels may be first or last)"
    )


def _longer_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in shape if axis != 1)


def writer_for(recipe: InputRecipe, source: Source, inputs: Sequence[TensorSpec]) -> Writer:
    """Return what writes the samples of *source* for a model with these *inputs*.

    Raises:
        DatasetError: They do not fit.
    """
    if recipe.kind == "image":
        return image_writer(recipe, source, inputs)
    if recipe.kind == "audio":
        return audio_writer(recipe, source, inputs)
    return array_writer(recipe, source, inputs)
