"""SQuAD's file: texts, questions about them, and right answers."""

from pathlib import Path

import msgspec

from edgeperf.datasets.base import DatasetError


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a text, and its right answers."""

    question: str
    context: str
    answers: tuple[str, ...]


class _Answer(msgspec.Struct):
    text: str


class _Asked(msgspec.Struct):
    question: str
    answers: tuple[_Answer, ...]


class _Paragraph(msgspec.Struct):
    context: str
    qas: tuple[_Asked, ...]


class _Article(msgspec.Struct):
    paragraphs: tuple[_Paragraph, ...]


class _File(msgspec.Struct):
    data: tuple[_Article, ...]


def read_questions(path: Path) -> tuple[Question, ...]:
    """Read SQuAD's file.

    Raises:
        DatasetError: It is missing or damaged, or a question has no answer.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: not SQuAD's format: {error}") from error
    questions = tuple(
        Question(
            question=asked.question,
            context=paragraph.context,
            answers=tuple(answer.text for answer in asked.answers),
        )
        for article in file.data
        for paragraph in article.paragraphs
        for asked in paragraph.qas
    )
    if not questions:
        raise DatasetError(f"{path}: asks no question")
    for question in questions:
        if not question.answers:
            raise DatasetError(f"{path}: question {question.question!r} has no answer")
    return questions
