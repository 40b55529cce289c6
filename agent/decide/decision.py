"""The decision as plain data: what was asked, and the arenas ranked and placed."""

from typing import TYPE_CHECKING

import msgspec

from edgeperf.agent.decide.configurations import Arena
from edgeperf.agent.decide.constraints import Limit
from edgeperf.agent.decide.judge import Judged, Outcome
from edgeperf.agent.decide.names import Asked
from edgeperf.agent.decide.pareto import Place
from edgeperf.agent.decide.sources import Unread

if TYPE_CHECKING:
    from edgeperf.datasets.metrics.ranking import Costs


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the results, as it was written.

    Attributes:
        constraints: Each ``NAME OP VALUE[UNIT]``.
        prefer: The figure that ranks; None takes the first serving figure asked, else the
            scenario's own.
        over: Figures of the Pareto set; empty takes those of the constraints.
        across: Parts of an arena that are compared across.
        costs: What wrong answers cost.
        accept_suspect: Whether SUSPECT runs count.
    """

    constraints: tuple[str, ...] = ()
    prefer: str | None = None
    over: tuple[str, ...] = ()
    across: tuple[str, ...] = ()
    costs: "Costs | None" = None
    accept_suspect: bool = False


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with its number.

    Attributes:
        number: Its number in the whole decision.
        judged: What becomes of it.
        place: In the Pareto set; None where its runs are not believed.
        dominators: Numbers of those that dominate it.
        settings: What tells it from others of the same model, runtime, precision and board.
    """

    number: int
    judged: Judged
    place: Place | None
    dominators: tuple[int, ...]
    settings: tuple[str, ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One arena, decided.

    Attributes:
        arena: What is common to it.
        candidates: Best first.
        prefer: What ranks them.
        why_prefer: Where that comes from.
        over: Figures of its Pareto set.
        notes: What to know before choosing, one sentence each.
    """

    arena: Arena
    candidates: tuple[Candidate, ...]
    prefer: Asked
    why_prefer: str
    over: tuple[Asked, ...]
    notes: tuple[str, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        wish: What was asked.
        limits: The constraints, understood.
        groups: Arenas, the largest first.
        unread: What was found and is no result.
        runs: How many results there are.
        twice: How many were named more than once.
    """

    wish: Wish
    limits: tuple[Limit, ...]
    groups: tuple[Group, ...]
    unread: tuple[Unread, ...]
    runs: int
    twice: int

    @property
    def common_notes(self) -> tuple[str, ...]:
        """What is to be known of every group."""
        first, *rest = [group.notes for group in self.groups] or [()]
        return tuple(note for note in first if all(note in notes for notes in rest))

    def own_notes(self, group: Group) -> tuple[str, ...]:
        """Return what is to be known of *group* alone."""
        return tuple(note for note in group.notes if note not in self.common_notes)

    def count(self, outcome: Outcome) -> int:
        """Return how many configurations came out so."""
        return sum(
            candidate.judged.outcome is outcome
            for group in self.groups
            for candidate in group.candidates
        )
