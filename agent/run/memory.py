"""Memory that the processes of one run share, and the events that wake them.

Everything is an anonymous kernel object passed down by file descriptor (``memfd``,
``eventfd``, ``pipe``): none has a name, so nothing is left behind however a run ends,
SIGKILL included. That is why not ``multiprocessing.shared_memory``, whose segments stay
in ``/dev/shm`` when their owner is killed.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

#: Offsets inside a block start on a page, so that runtimes may map tensors in place.
PAGE = mmap.PAGESIZE


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One array inside a block.

    Attributes:
        name: What it is called.
        shape: Its shape.
        dtype: numpy's name of its type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes that it needs."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def new_block(name: str) -> int:
    """Return the descriptor of a new, empty block that children inherit."""
    descriptor = os.memfd_create(f"edgeperf-{name}", 0)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - the os module's own signature
    return descriptor


def map_fields(descriptor: int, fields: Sequence[Field]) -> dict[str, NDArray[Any]]:
    """Map *fields*, one after another, from the block behind *descriptor*.

    Every process that maps the same list sees the same arrays. The block grows to what
    is needed; pages cost memory only once written to.
    """
    ends = []
    size = 0
    for field in fields:
        size += -(-field.size_bytes // PAGE) * PAGE
        ends.append(size)
    if os.fstat(descriptor).st_size < size:
        os.ftruncate(descriptor, size)
    if not size:
        return {field.name: np.empty(field.shape, field.dtype) for field in fields}
    view = mmap.mmap(descriptor, size)
    arrays = {}
    for field, start in zip(fields, [0, *ends], strict=False):
        flat = np.frombuffer(view, np.dtype(field.dtype), _count(field), start)
        arrays[field.name] = flat.reshape(field.shape)
    return arrays


def _count(field: Field) -> int:
    return int(np.prod(field.shape, dtype=np.int64))


def new_event() -> int:
    """Return the descriptor of a counting event, at 0, that children inherit.

    Each write of 1 lets one read through, in whichever order they come, so no wake-up
    can be lost.
    """
    descriptor = os.eventfd(0, os.EFD_SEMAPHORE)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - the os module's own signature
    return descriptor


def new_pipe(size_bytes: int) -> tuple[int, int]:
    """Return reading and writing end of a pipe that holds *size_bytes* if it may."""
    ends = os.pipe()
    for end in ends:
        os.set_inheritable(end, True)  # noqa: FBT003 - the os module's own signature
    with contextlib.suppress(OSError):  # an unprivileged user's quota; the default then
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, size_bytes)
    return ends
