"""Where other threads leave things for the service's one thread.

Bounded: under a flood the newest messages are dropped, and whoever meant one sends it again.
"""

import collections
import contextlib
import os
from typing import Generic, TypeVar

T = TypeVar("T")

#: Messages from the wire are at most 96 KiB: this is 25 MB at the very worst.
MOST = 256


class Inbox(Generic[T]):
    """A queue with a file descriptor that is readable while something is in it.

    Args:
        droppable: What may be dropped; everything else always gets in.
    """

    def __init__(self, droppable: type) -> None:
        self._droppable = droppable
        self._items: collections.deque[T] = collections.deque()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.dropped = 0

    def fileno(self) -> int:
        """Return what to select for reading."""
        return self._read

    def put(self, item: T) -> None:
        """Leave *item*; from any thread, and from a signal handler."""
        if len(self._items) >= MOST and isinstance(item, self._droppable):
            self.dropped += 1
            return
        self._items.append(item)
        try:
            os.write(self._write, b"\0")
        except OSError:  # full, so it is awake; or closed, so nobody listens
            return

    def take(self) -> list[T]:
        """Return everything that is in it."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65_536)
        items: list[T] = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def close(self) -> None:
        """Release the descriptors."""
        os.close(self._read)
        os.close(self._write)
