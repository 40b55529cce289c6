"""Text in arrays: UTF-8, ended by a zero byte, so that it fits blocks of fixed size."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def put_text(text: str, out: NDArray[Any]) -> None:
    """Write *text* into *out*, whatever its type; what does not fit is cut at a character."""
    raw = text.encode()[: out.size].decode(errors="ignore").encode()
    flat = out.reshape(-1)
    flat[: len(raw)] = np.frombuffer(raw, np.uint8)
    flat[len(raw) :] = 0


def get_text(array: NDArray[Any]) -> str:
    """Return the text in *array*."""
    raw: bytes = array.reshape(-1).astype(np.uint8).tobytes()
    return raw.partition(b"\0")[0].decode(errors="replace")
