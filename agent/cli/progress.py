"""What a person sees while a run goes on: a bar on a terminal, a line a phase elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from edgeperf.agent.cli.console import say
from edgeperf.agent.events import Event, Noticed, Phase, Progress
from edgeperf.agent.run.plan import Plan

_SAYS = {
    Phase.PREPARE: "loading model and samples",
    Phase.COOLING: "cooling down",
    Phase.ACCURACY: "accuracy test",
    Phase.CALIBRATE: "calibrating",
    Phase.IDLE_BEFORE: "idle power before",
    Phase.PERFORMANCE: "performance test",
    Phase.IDLE_AFTER: "idle power after",
    Phase.REPORT: "writing the result",
}


@contextmanager
def shown(plan: Plan) -> Iterator[Callable[[Event], None]]:
    """Show a run's progress on standard error; yields what to call with each event."""
    console = Console(stderr=True)
    what = f"{plan.model.name} on {plan.sut.backend}, {plan.spec.scenario.value}"
    if not console.is_terminal:
        yield _Lines(what)
        return
    columns = (
        TextColumn("{task.description:26}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[left]}"),
    )
    with Bar(*columns, console=console, transient=True, refresh_per_second=2) as bar:
        console.print(f"edgeperf: {what}")
        yield _Bar(bar)


class _Lines:
    def __init__(self, what: str) -> None:
        self._phase: Phase | None = None
        say(what)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Noticed):
            say(event.text)
        if isinstance(event, Progress) and event.phase is not self._phase:
            self._phase = event.phase
            say(_SAYS[event.phase])


class _Bar:
    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._phase: Phase | None = None
        self._task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Noticed):
            self._bar.console.print(f"edgeperf: {event.text}", markup=False)
        if not isinstance(event, Progress):
            return
        if event.phase is not self._phase or self._task is None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._phase = event.phase
            self._task = self._bar.add_task(_SAYS[event.phase], total=100.0, left="")
        left = "" if event.eta_s is None else f"{_clock(event.eta_s)} left"
        self._bar.update(self._task, completed=event.percent, left=left)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
