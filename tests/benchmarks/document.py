"""docs/performance.md: tables and chart go between two marks, the words around them stay."""

from pathlib import Path

from edgeperf import InputError

BEGIN, END = "<!-- make bench writes what follows -->", "<!-- make bench wrote this far -->"


def document(path: Path, tables: str, chart: str) -> None:
    """Put the tables into the document at *path*, and the chart beside it, as SVG.

    Raises:
        InputError: The document is not there, or has not both marks.
    """
    try:
        before, begun, rest = path.read_text().partition(BEGIN)
        _, ended, after = rest.partition(END)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not begun or not ended:
        raise InputError(f"{path}: has no place for the tables: expected {BEGIN} and {END}")
    drawn = path.with_suffix(".svg")
    drawn.write_text(chart)
    picture = f"![Each harness beside bare loops, by model]({drawn.name})"
    path.write_text(f"{before}{BEGIN}\n\n{picture}\n\n{tables}\n{END}{after}")
