"""Keeping a runtime's own chatter off standard error while it loads.

Runtimes write banners from C++ straight to file descriptor 2, where they would land in
the middle of a progress bar. What they say is kept: it often holds the only readable
reason of a failure (which operator, which library).
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import TextIO


class Chatter:
    """What was written to standard error."""

    text: str = ""


@contextlib.contextmanager
def quiet_stderr() -> Iterator[Chatter]:
    """Collect what is written to file descriptor 2; for loading only, never around a query.

    A crash inside the block loses the text; the exit status of the process remains.
    """
    heard = Chatter()
    try:
        saved = os.dup(2)
    except OSError:  # started without standard error
        yield heard
        return
    with tempfile.TemporaryFile("w+", errors="replace") as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield heard
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            heard.text = _text(sink)


def _text(sink: TextIO) -> str:
    sink.seek(0)
    return sink.read()
