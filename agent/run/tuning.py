"""What a run asks of the tuner, and what it means for the verdict how that went."""

from collections.abc import Iterator

from edgeperf.agent.result import Reason, Severity
from edgeperf.agent.spec import RunSpec
from edgeperf.agent.tuner import Report, Setting, Wish


def wish_of(spec: RunSpec) -> Wish:
    """Return how *spec* wants the board to be held."""
    return Wish(governor=spec.governor, clock_hz=spec.clock_hz, fan=spec.fan)


def tuning_reasons(report: Report) -> Iterator[Reason]:
    """Say what this board does not have, and judge what it has but did not hold."""
    for text in report.missing:
        yield Reason(code="knob-missing", severity=Severity.NOTE, text=f"not here: {text}")
    loose = [setting for setting in report.settings if not setting.is_held]
    if loose:
        why = f" ({report.problem})" if report.problem else ""
        text = f"not held as asked: {'; '.join(map(_words, loose))}{why}"
        yield Reason(code="not-held", severity=Severity.SUSPECT, text=text)
    if report.restored is False:
        text = "not everything could be put back as it was; the tuner will try again"
        yield Reason(code="not-restored", severity=Severity.NOTE, text=text)


def _words(setting: Setting) -> str:
    text = f"{setting.knob} of {setting.where} is {setting.now or 'unknown'}, not {setting.wanted}"
    return f"{text}: {setting.problem}" if setting.problem else text
