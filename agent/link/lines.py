"""What a run prints, passed on in small portions, and never while a test is timed."""

from pathlib import Path

from edgeperf.agent.messages import RunLog

_PORTION_BYTES = 32_768
_MOST_LINES, _LINE_CHARACTERS = 100, 500


class LineReader:
    """Reads on in a file that grows.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def take(self, *, at_end: bool = False) -> RunLog | None:
        """Return the lines that are new, None when there are none.

        Of more than a portion, only the last lines are kept and the others counted.

        Args:
            at_end: Nothing more will come: a last line without an end counts too.
        """
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                new = stream.read(_PORTION_BYTES * 64)
        except OSError:
            return None
        if not at_end:
            new = new[: new.rfind(b"\n") + 1]
        self._offset += len(new)
        lines = printable_lines(new)
        if not lines:
            return None
        kept = lines[-_MOST_LINES:]
        while sum(map(len, kept)) > _PORTION_BYTES:
            kept = kept[len(kept) // 2 :]
        return RunLog(lines=tuple(kept), dropped=len(lines) - len(kept))


def printable_lines(raw: bytes) -> list[str]:
    """Return the lines in *raw* that say something, cut and without control characters."""
    text = raw.decode("utf-8", "replace").replace("\r", "\n")
    lines = ("".join(c for c in line if c.isprintable() or c == "\t") for line in text.splitlines())
    return [line[:_LINE_CHARACTERS] for line in lines if line.strip()]
