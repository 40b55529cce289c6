"""Waveforms from files, in the length that the model takes."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError


def require_soundfile() -> None:
    """Make sure that audio can be read.

    Raises:
        DatasetError: soundfile is not installed.
    """
    if find_spec("soundfile") is None:
        raise DatasetError("a task on audio needs soundfile; pip install 'edgeperf[metrics]'")


def read_waveform(path: Path, sample_rate: int, length: int) -> NDArray[np.float32]:
    """Return one channel of a recording, -1 to 1, filled up with silence or cut.

    Args:
        path: WAV, FLAC or whatever libsndfile reads.
        sample_rate: What it must have, Hz.
        length: How many samples are wanted.

    Raises:
        DatasetError: It cannot be read, or has another rate.
    """
    soundfile = import_module("soundfile")
    try:
        waveform, rate = soundfile.read(path, dtype="float32", always_2d=True, frames=length)
    except (OSError, RuntimeError) as error:
        raise DatasetError(f"{path}: cannot be read as audio: {error}") from error
    if rate != sample_rate:
        raise DatasetError(
            f"{path}: has {rate} samples a second, the task {sample_rate}; resample it, or set"
            " [input] sample_rate"
        )
    filled = np.zeros(length, np.float32)
    filled[: len(waveform)] = waveform.mean(axis=1)
    return filled


def duration(path: Path) -> int:
    """Return how many samples a recording has.

    Raises:
        DatasetError: It cannot be read.
    """
    soundfile = import_module("soundfile")
    try:
        return int(soundfile.info(path).frames)
    except (OSError, RuntimeError) as error:
        raise DatasetError(f"{path}: cannot be read as audio: {error}") from error
