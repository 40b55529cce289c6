"""From a campaign to its cells: which runs, on which board, in which order."""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from edgeperf import InputError
from edgeperf.agent.messages import ModelRef, RunStart, new_id, run_start, spec_to_wire
from edgeperf.agent.spec import Preset, RunSpec, Scenario, SpecError, check_asked, spec_from_mapping
from edgeperf.coordinator.campaign.file import Campaign, Order, Skip, field_error
from edgeperf.coordinator.store.campaigns import Cell

#: More cells than that are a mistake in the file.
MOST_CELLS = 20_000
_MATRIX = ("model", "backend", "scenario", "preset")


class _Combination(NamedTuple):
    model: str
    backend: str | None
    scenario: Scenario
    preset: Preset


class Planner:
    """Makes the cells of one campaign.

    Args:
        campaign: As :func:`~edgeperf.coordinator.campaign.file.parse_campaign` read it.
        source: The text of the file, for errors.
        where: Its name, for errors.
    """

    def __init__(self, campaign: Campaign, *, source: str, where: str) -> None:
        self._campaign = campaign
        self._source = source
        self._where = where

    def boards(self, find: Callable[[str], list[str]]) -> list[str]:
        """Return the boards that the file names, each once.

        Args:
            find: Turns a name or ``label:NAME`` into boards, or raises an InputError.

        Raises:
            CampaignError: A name or label is unknown.
        """
        targets = enumerate(self._campaign.boards)
        every = [board for index, target in targets for board in self._find(find, index, target)]
        return list(dict.fromkeys(every))

    def cells(self, boards: list[str], models: Mapping[str, ModelRef]) -> list[Cell]:
        """Return every cell, each board's in its order.

        Args:
            boards: The boards, by name.
            models: Entry of ``models`` -> the file it stands for; others are names of the
                boards' own catalogue.

        Raises:
            CampaignError: A combination makes no sense, nothing is left, or far too much.
        """
        starts = {combination: self._start(combination, models) for combination in self._matrix()}
        cells = []
        for board in boards:
            mine = [c for c in starts if not self._is_skipped(board, c)]
            if len(mine) * self._campaign.repeats * len(boards) > MOST_CELLS:
                raise self._wrong("repeats", f"more than {MOST_CELLS} runs in all")
            cells += [
                Cell(device=board, start=msgspec.structs.replace(starts[c], run=new_id()))
                for c in self._ordered(mine)
            ]
        if not cells:
            raise self._wrong("skip", "it leaves no run at all")
        return cells

    def _find(self, find: Callable[[str], list[str]], index: int, target: str) -> list[str]:
        try:
            return find(target)
        except InputError as error:
            raise self._wrong(f"boards[{index}]", str(error)) from error

    def _matrix(self) -> Iterator[_Combination]:
        asked = self._campaign
        backends: tuple[str | None, ...] = asked.backends or (None,)
        product = itertools.product(asked.models, backends, asked.scenarios, asked.presets)
        return itertools.starmap(_Combination, product)

    def _ordered(self, combinations: list[_Combination]) -> list[_Combination]:
        repeats = self._campaign.repeats
        if self._campaign.order is Order.GROUPED:
            return [c for c in combinations for _ in range(repeats)]
        rounds = [list(combinations) for _ in range(repeats)]
        if self._campaign.order is Order.SHUFFLED:
            chance = random.Random(self._campaign.seed)  # noqa: S311 - an order, no secret
            for one in rounds:
                chance.shuffle(one)
        return list(itertools.chain.from_iterable(rounds))

    def _is_skipped(self, board: str, combination: _Combination) -> bool:
        return any(_matches(skip, board, combination) for skip in self._campaign.skip)

    def _start(self, combination: _Combination, models: Mapping[str, ModelRef]) -> RunStart:
        model = models.get(combination.model)
        asked = self._campaign
        cool = asked.cool_down
        try:
            spec = spec_to_wire(self._spec(combination, model))
        except InputError as error:
            raise self._blame(combination, str(error)) from error
        return run_start(
            spec,
            run=new_id(),
            model=model,
            timeout_s=asked.timeout_s,
            files=asked.files,
            **({"cool_to_c": cool.to_c, "cool_timeout_s": cool.timeout_s} if cool else {}),
        )

    def _spec(self, combination: _Combination, model: ModelRef | None) -> RunSpec:
        given: dict[str, Any] = dict(self._campaign.run)
        given |= self._campaign.scenario.get(combination.scenario, {})
        for name in _MATRIX:
            if name in given:
                raise SpecError(f"{name}: comes from the lists at the top of the file")
        given["model"] = combination.model if model is None else f"sha256:{model.sha256}"
        given["scenario"] = combination.scenario.value
        given["preset"] = combination.preset.value
        if combination.backend is not None:
            given["backend"] = combination.backend
        spec = spec_from_mapping(given)
        check_asked(spec)
        return spec

    def _blame(self, combination: _Combination, problem: str) -> Exception:
        """Name the line that a spec's error comes from: a field of ``run``, or a list."""
        said = re.sub(r"^(run )?spec: | - at `.*`$", "", problem)
        for table in (f"scenario.{combination.scenario.value}", "run"):
            fields = (
                self._campaign.run
                if table == "run"
                else self._campaign.scenario.get(combination.scenario, {})
            )
            for field in fields:
                if field in problem:
                    return self._wrong(f"{table}.{field}", said)
        guilty = next((name for name in _MATRIX if f"{name}:" in problem), "run")
        return self._wrong(f"{guilty}s" if guilty in _MATRIX else guilty, said)

    def _wrong(self, field: str, problem: str) -> Exception:
        return field_error(field, problem, source=self._source, where=self._where)


def _matches(skip: Skip, board: str, combination: _Combination) -> bool:
    wanted = (skip.board, skip.model, skip.backend, skip.scenario, skip.preset)
    return all(
        want is None or want == have
        for want, have in zip(wanted, (board, *combination), strict=True)
    )
