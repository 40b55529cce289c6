"""One condition of a frozen spec laid beside this board, and the refusal that follows."""

from collections.abc import Sequence
from typing import NamedTuple

from edgeperf import InputError
from edgeperf.agent.result import Difference

#: Conditions that make other numbers: a run is refused without them, unless allowed.
MATTERS = (
    *("run", "model", "weights", "part", "task", "data", "execution"),
    *("edgeperf-version", "runtime", "runtime-version", "loadgen-version", "numpy-version"),
    *("python-version", "board", "cpu", "cores", "memory", "arch"),
    *("governor", "clock", "fan", "boost", "power-mode", "meter"),
)
#: Conditions that hardly do: what differs is noted in the result.
NOTED = (
    *("kernel", "os", "libc", "python-patch", "packages", "microcode", "l4t", "jetpack"),
    *("virtualisation", "hostname"),
)
#: What ``--allow`` takes.
NAMES = (*MATTERS, *NOTED)


class Finding(NamedTuple):
    """One condition.

    Attributes:
        name: As in ``--allow``; ``digest`` for the file itself.
        where: What is compared, and where.
        expected: What the spec says.
        found: What is here.
        advice: What to do about a difference.
        cannot: Whether nothing could run with this difference, allowed or not.
    """

    name: str
    where: str
    expected: str
    found: str
    advice: str = ""
    cannot: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it is as the spec says."""
        return self.expected == self.found

    @property
    def matters(self) -> bool:
        """Whether a difference refuses the run."""
        return self.name not in NOTED

    def line(self) -> str:
        """Say in one line what, where, expected, found, and what to do."""
        text = f"{self.name}: {self.where}: expected {self.expected}, found {self.found}"
        return f"{text}; {self.advice}" if self.advice else text

    def difference(self) -> Difference:
        """Return it for the record."""
        return Difference(
            name=self.name,
            where=self.where,
            matters=self.matters,
            expected=self.expected,
            found=self.found,
        )


class NotHeldError(InputError):
    """This board does not hold a frozen spec.

    Attributes:
        lines: Each condition in one line.
    """

    def __init__(self, where: str, refused: Sequence[Finding]) -> None:
        names = list(dict.fromkeys(finding.name for finding in refused))
        never = {finding.name for finding in refused if finding.cannot}
        ways = " ".join(f"--allow {name}" for name in names if name not in never)
        advice = (
            f"set right what the lines say ({', '.join(sorted(never))} cannot be allowed)"
            if never
            else f"set them right, or run all the same and have it recorded: {ways}"
        )
        count = f"{len(refused)} condition{'s' if len(refused) > 1 else ''}"
        super().__init__(f"spec {where}: {count} not held here: {', '.join(names)}; {advice}")
        self.lines = [finding.line() for finding in refused]


def refusals(findings: Sequence[Finding], allowed: Sequence[str]) -> list[Finding]:
    """Return the findings that refuse a run."""
    return [
        finding
        for finding in findings
        if not finding.is_held
        and finding.matters
        and (finding.cannot or finding.name not in allowed)
    ]
