"""A run from plan to result directory: accuracy first, then performance, then the verdict."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edgeperf import __version__
from edgeperf.agent.board import describe_board
from edgeperf.agent.events import Event, Noticed, Phase, Progress
from edgeperf.agent.result import (
    Accuracy,
    Data,
    Performance,
    Reason,
    Repeat,
    Result,
    Severity,
    Verdict,
)
from edgeperf.agent.run.diagnosis import likely_cause
from edgeperf.agent.run.directory import ResultDirectory
from edgeperf.agent.run.energy import Metering, metered
from edgeperf.agent.run.facts import escaped_threads, model_of, sut_of
from edgeperf.agent.run.figures import due_ns, performance, with_tokens
from edgeperf.agent.run.jobs import Calibrated, Done, Prepared, Ready
from edgeperf.agent.run.judge import judge_answers, no_dataset
from edgeperf.agent.run.loadgen_log import DetailLog, LogError
from edgeperf.agent.run.measure import Measurement, Progressed, measure
from edgeperf.agent.run.memory import new_block
from edgeperf.agent.run.phases import PhaseTimer
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.preparation import PrepareError, prepare
from edgeperf.agent.run.provenance import data_of, packages
from edgeperf.agent.run.raw import keep_latencies, keep_predictions
from edgeperf.agent.run.repeat import Repeating, repeat_reasons
from edgeperf.agent.run.task_copy import keep_task
from edgeperf.agent.run.tuning import tuning_reasons, wish_of
from edgeperf.agent.run.verdict import (
    accuracy_reasons,
    affinity_reasons,
    board_reasons,
    clock_reasons,
    data_reasons,
    is_comparable,
    length_reasons,
    performance_reasons,
    sample_reasons,
    verdict,
)
from edgeperf.agent.spec import Scenario
from edgeperf.agent.tuner import NO_WISH, Report, hold
from edgeperf.power.result import PowerResult

Listener = Callable[[Event], None]


def execute(
    plan: Plan, output: Path, listen: Listener, repeating: Repeating | None = None
) -> tuple[Result, Path]:
    """Run *plan* and write its result directory.

    Args:
        plan: From :func:`~edgeperf.agent.run.plan.make_plan`.
        output: Folder that gets the result directory.
        listen: Told about progress.
        repeating: Holds the run to a frozen spec.

    Returns:
        The result and where it is.

    Raises:
        EdgeperfError: The run could not start, or its result could not be written;
            nothing is left behind.
    """
    with ResultDirectory(output, plan.id) as directory, directory.disk_errors():
        run = _Run(plan, directory.path, listen, repeating)
        run.hold_and_go()
        result = run.result()
        listen(Progress(phase=Phase.REPORT, percent=0.0))
        result = msgspec.structs.replace(result, files=directory.digest())
        return result, directory.finish(result)


class _Run:
    def __init__(
        self, plan: Plan, path: Path, listen: Listener, repeating: Repeating | None
    ) -> None:
        self._plan = plan
        self._repeating = repeating
        self._repeat: Repeat | None = None
        self._data: Data | None = None
        self._path = path
        self._listen = listen
        self._phases_ns: dict[str, int] = {}
        self._prepared: Prepared | None = None
        self._accuracy = Accuracy(measured=False, why_not="the run did not get there")
        self._accuracy_test: Measurement | None = None
        self._performance_test: Measurement | None = None
        self._performance: Performance | None = None
        self._power: PowerResult | None = None
        self._reasons: list[Reason] = []
        self._tuning: Report | None = None

    def hold_and_go(self) -> None:
        """Do all phases with the board held as the spec asks."""
        wish = wish_of(self._plan.spec)
        if wish == NO_WISH:
            self.go()
            return
        with hold(wish) as held:
            self.go()
        self._tuning = held.report
        self._reasons += tuning_reasons(held.report)

    def go(self) -> None:
        """Do all phases; what goes wrong once a clock runs becomes a reason."""
        # Polling must not disturb the cores under test.
        os.sched_setaffinity(0, self._plan.layout.housekeeping)
        inputs = new_block("inputs")
        try:
            with self._phase(Phase.PREPARE):
                log = self._path / "prepare.log"
                self._prepared = prepare(self._plan, log, inputs, self._preparing)
                if self._repeating is not None:
                    self._repeat = self._repeating.settle(self._prepared)
                self._data = data_of(self._plan, samples=self._prepared.library_size)
                self._reasons += sample_reasons(self._prepared.notes)
                keep_task(self._plan, self._prepared, self._path)
            self._test_accuracy(self._prepared, inputs)
            if self._may_perform():
                with metered(self._plan, self._path, self._noticed) as meter:
                    self._perform(self._prepared, inputs, meter)
        finally:
            os.close(inputs)

    def _phase(self, phase: Phase) -> PhaseTimer:
        self._listen(Progress(phase=phase, percent=0.0))
        return PhaseTimer(self._phases_ns, phase.value)

    def _preparing(self, percent: float) -> None:
        self._listen(Progress(phase=Phase.PREPARE, percent=percent))

    def _progress(self, phase: Phase, later_s: float, meter: Metering | None = None) -> Progressed:
        def progressed(percent: float, left_s: float | None, temperature_c: float | None) -> None:
            if meter is not None:
                meter.look()
            eta_s = None if left_s is None else left_s + later_s
            self._listen(
                Progress(phase=phase, percent=percent, eta_s=eta_s, temperature_c=temperature_c)
            )

        return progressed

    def _test_accuracy(self, prepared: Prepared, inputs: int) -> None:
        plan = self._plan
        if prepared.prediction_shape is None:
            self._accuracy = Accuracy(measured=False, why_not=no_dataset(plan.model))
        elif not plan.spec.accuracy:
            self._accuracy = Accuracy(measured=False, why_not="switched off with --no-accuracy")
        else:
            load = plan.load_plan(self._path / "accuracy", accuracy=True)
            told = self._progress(Phase.ACCURACY, (load.min_duration_ms or 600_000) / 1e3)
            with self._phase(Phase.ACCURACY):
                test = measure(plan, prepared, load, inputs=inputs, progressed=told)
            self._accuracy_test = test
            self._accuracy = judge_answers(plan, test, prepared, self._reasons)
            if self._accuracy.measured:
                log = self._path / "prepare.log"
                self._reasons += likely_cause(plan, prepared, self._reasons, log)
            keep_predictions(test, self._path)
            return
        if not prepared.first_answer_finite:
            self._reasons.append(
                Reason(
                    code="answers-not-finite",
                    severity=Severity.INVALID,
                    text="the model answers NaN or infinity",
                )
            )

    def _may_perform(self) -> bool:
        blocked = self._accuracy.passed is False or any(
            reason.severity is Severity.INVALID for reason in self._reasons
        )
        return self._plan.spec.ungated or not blocked

    def _perform(self, prepared: Prepared, inputs: int, meter: Metering | None) -> None:
        if meter is not None:
            meter.rest(Phase.IDLE_BEFORE, self._rested)
        with self._phase(Phase.PERFORMANCE):
            test = self._test_performance(prepared, inputs, meter)
        if meter is None:
            return
        if test.done is None:
            self._reasons += meter.keep_trace()
            return
        meter.rest(Phase.IDLE_AFTER, self._rested)
        self._power, doubts = meter.energy(test.done)
        self._reasons += doubts

    def _rested(self, phase: Phase, percent: float) -> None:
        self._listen(Progress(phase=phase, percent=percent))

    def _noticed(self, text: str) -> None:
        self._listen(Noticed(text=text))

    def _test_performance(
        self, prepared: Prepared, inputs: int, meter: Metering | None
    ) -> Measurement:
        plan = self._plan
        load = plan.load_plan(self._path / "performance", accuracy=False)
        test = measure(
            plan,
            prepared,
            load,
            inputs=inputs,
            progressed=self._progress(Phase.PERFORMANCE, 0.0, meter),
            started=self._started,
        )
        self._performance_test = test
        if test.problem is not None:
            self._reasons.append(test.problem)
        if test.done is not None and test.calibrated is not None:
            self._judge_speed(test, test.calibrated, test.done)
        keep_latencies(test, self._path, each=plan.spec.scenario is not Scenario.OFFLINE)
        return test

    def _started(self, workers: Sequence[Ready]) -> None:
        if self._repeating is not None:
            self._repeat = self._repeating.started(workers)

    def _judge_speed(self, test: Measurement, calibrated: Calibrated, done: Done) -> None:
        try:
            log = DetailLog(test.directory / "mlperf_log_detail.txt", "performance")
        except LogError as error:
            self._reasons.append(
                Reason(code="loadgen-log", severity=Severity.INVALID, text=f"LoadGen: {error}")
            )
            return
        scenario = self._plan.spec.scenario.value
        test.start_ns = due_ns(scenario, test.start_ns, calibrated, log)
        self._performance = performance(
            self._plan, calibrated, done, start_ns=test.start_ns, end_ns=test.end_ns, log=log
        )

    def result(self) -> Result:
        """Return the result of what was done."""
        plan, prepared = self._plan, self._prepared
        if prepared is None:
            raise PrepareError(f"{plan.model.path}: never described")
        test = self._performance_test or self._accuracy_test
        conditions = None if test is None else test.conditions
        return Result(
            id=plan.id,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            edgeperf=__version__,
            verdict=self._verdict(),
            spec=msgspec.to_builtins(plan.spec),
            model=model_of(plan, prepared),
            task=plan.task,
            sut=None if test is None else sut_of(plan, prepared, test),
            accuracy=self._accuracy,
            performance=with_tokens(self._performance, self._accuracy),
            board=msgspec.to_builtins(describe_board(), str_keys=True),
            conditions=None
            if conditions is None
            else msgspec.to_builtins(conditions, str_keys=True),
            power=None if self._power is None else msgspec.to_builtins(self._power),
            tuning=None if self._tuning is None else msgspec.to_builtins(self._tuning),
            phases_ns=self._phases_ns,
            files={},
            data=self._data,
            packages=packages(),
            repeat=self._repeat,
        )

    def _verdict(self) -> Verdict:
        reasons = [
            *self._reasons,
            *accuracy_reasons(self._accuracy),
            *data_reasons(self._plan.spec, self._accuracy),
            *performance_reasons(self._performance),
            *length_reasons(self._plan.spec),
            *repeat_reasons(self._repeat),
        ]
        if self._accuracy_test is not None:
            reasons += clock_reasons(self._accuracy_test.conditions)
        if (test := self._performance_test) is not None:
            reasons += board_reasons(test.conditions, test="performance test")
            reasons += affinity_reasons(escaped_threads(self._plan.layout, test))
        if self._plan.spec.ungated and self._accuracy.passed is False:
            text = "performance is shown although the accuracy gate was missed (--ungated)"
            reasons.append(Reason(code="ungated", severity=Severity.INVALID, text=text))
        return verdict(reasons, comparable=is_comparable(self._plan.spec, self._accuracy))
