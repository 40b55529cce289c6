"""SentencePiece: from text to a model's tokens and back. An extra, loaded where it is used."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from edgeperf.datasets.base import DatasetError


class Tokenizer:
    """A SentencePiece model.

    Attributes:
        start: Token that begins a text.
        stop: Token that ends it.
        pad: Token that fills up.
    """

    def __init__(self, path: Path) -> None:
        """Load the model.

        Raises:
            DatasetError: SentencePiece is not installed, or the file is no model of it.
        """
        if find_spec("sentencepiece") is None:
            raise DatasetError(
                f"tokenizer {path}: needs sentencepiece; pip install 'edgeperf[metrics]'"
            )
        try:
            processor = import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError, TypeError) as error:
            raise DatasetError(
                f"tokenizer {path}: cannot be read as a SentencePiece model: {error}"
            ) from error
        self.start = max(0, int(processor.bos_id()))
        self.stop = int(processor.eos_id())
        self.pad = max(0, int(processor.pad_id()))
        self._encode = processor.encode
        self._decode = processor.decode

    def encode(self, text: str) -> list[int]:
        """Return the tokens of *text*, without start and stop."""
        tokens: list[int] = self._encode(text)
        return tokens

    def decode(self, tokens: list[int]) -> str:
        """Return the text of *tokens*."""
        text: str = self._decode(tokens)
        return text
