"""What a repeat needs to know of a run: its data, and which frozen spec it was held to."""

import msgspec


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The samples, by content.

    Attributes:
        sha256: Of the text that ``sha256sum`` prints for all files, sorted by path; of the
            file itself where it is one. None for inputs made from a seed.
        size_bytes: Their size together.
        samples: Samples in the library.
    """

    sha256: str | None
    size_bytes: int
    samples: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of a frozen spec that was not as written there.

    Attributes:
        name: As in ``--allow``.
        where: What was compared.
        matters: Whether the run was refused without ``--allow``; else it is a note.
        expected: What the spec says.
        found: What was here.
    """

    name: str
    where: str
    matters: bool
    expected: str
    found: str


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen spec that a run was held to.

    Attributes:
        digest: Of the spec. Results with the same digest, and no difference that matters,
            are of the same conditions.
        origin: Id of the result that it was frozen from.
        differs: What was not held.
    """

    digest: str
    origin: str
    differs: tuple[Difference, ...] = ()
