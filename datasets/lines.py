"""The lines of a text file whose line numbers mean something: tokens, sentences."""


def lines_of(text: str) -> list[str]:
    """Return the lines of *text*, each ended by a line feed, the last perhaps not.

    Unlike ``str.splitlines``, which ends a line at U+0085 and U+2028 as well: vocabularies
    have these as tokens, sentences hold them, and all that follows would move up by one.
    """
    return text.removesuffix("\n").split("\n") if text else []
