"""BERT's tokens, each with the place in the text that it came from.

Since every token knows its characters, an answer is cut out of the text as it stands; no
guessing which words a row of pieces might have been.

Source: Devlin et al., BERT, and its ``vocab.txt`` format: words split at blanks and
punctuation, lower case without accents, then the longest pieces that the vocabulary has.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.lines import lines_of

UNKNOWN, CLS, SEP = "[UNK]", "[CLS]", "[SEP]"
_LONGEST_WORD = 200
_CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2FA1F), (0xF900, 0xFAFF))


class Piece(msgspec.Struct, frozen=True):
    """One token, and begin and end of the characters that it stands for."""

    token: int
    begin: int
    end: int


class WordPiece:
    """A vocabulary and the rule that goes with it.

    Attributes:
        cls: Token that begins a sequence.
        sep: Token that ends each part of it.
    """

    def __init__(self, path: Path) -> None:
        """Read ``vocab.txt``, one piece a line.

        Raises:
            DatasetError: It cannot be read, or lacks one of BERT's own tokens.
        """
        try:
            pieces = lines_of(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"vocabulary {path}: cannot be read: {error}") from error
        self._tokens = {piece: number for number, piece in enumerate(pieces)}
        missing = [name for name in (UNKNOWN, CLS, SEP) if name not in self._tokens]
        if missing:
            raise DatasetError(f"vocabulary {path}: has no {missing[0]}; expected BERT's vocab.txt")
        self.cls, self.sep = self._tokens[CLS], self._tokens[SEP]

    def pieces(self, text: str) -> list[Piece]:
        """Return the pieces of *text*."""
        return [piece for word in _words(text) for piece in self._split(word)]

    def _split(self, word: Sequence[tuple[str, int]]) -> Iterator[Piece]:
        """Yield the longest pieces from the left, or "unknown" for the whole word."""
        letters = "".join(letter for letter, _ in word)
        found: list[Piece] = []
        start = 0
        while start < len(letters):
            for end in range(len(letters), start, -1):
                token = self._tokens.get(("##" if start else "") + letters[start:end])
                if token is not None:
                    break
            else:
                found = []
                break
            found.append(Piece(token, word[start][1], word[end - 1][1] + 1))
            start = end
        if not found or len(letters) > _LONGEST_WORD:
            yield Piece(self._tokens[UNKNOWN], word[0][1], word[-1][1] + 1)
        else:
            yield from found


def _words(text: str) -> Iterator[list[tuple[str, int]]]:
    """Yield words as letters, in lower case without accents, each with its place."""
    word: list[tuple[str, int]] = []
    for place, character in enumerate(text):
        if _is_dropped(character):
            continue
        alone = _stands_alone(character)
        if (character.isspace() or alone) and word:
            yield word
            word = []
        if character.isspace():
            continue
        letters = unicodedata.normalize("NFD", character.lower())
        plain = [(letter, place) for letter in letters if unicodedata.category(letter) != "Mn"]
        if alone:
            yield plain or [(character, place)]
        else:
            word += plain
    if word:
        yield word


def _is_dropped(character: str) -> bool:
    control = unicodedata.category(character).startswith("C") and character not in "\t\n\r"
    return control or character in "\0\ufffd"


def _stands_alone(character: str) -> bool:
    code = ord(character)
    if any(low <= code <= high for low, high in _CJK):
        return True
    symbol = 33 <= code <= 126 and not character.isalnum()  # noqa: PLR2004 - printable ASCII
    return symbol or unicodedata.category(character).startswith("P")
