"""Tables of ``edgeperf fleet`` on a terminal."""

import io
import re
import sys

import pytest

from edgeperf.agent.cli.fleet_tables import print_runs

RUN = {
    "run": "20261129T153424Z-digits-tflite-346e34",
    "board": "pi5-01",
    "model": "digits",
    "backend": "tflite",
    "scenario": "SingleStream",
    "preset": "smoke",
    "state": "succeeded",
    "verdict": "SUSPECT",
    "headline_value": 22_530.0,
    "headline_unit": "ns",
    "created": "2026-11-29T15:34:24Z",
}
SENT = RUN | {"model": f"sha256:{'c0ffee' * 11}", "board": "jetson-orin-3"}


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_what_became_of_a_run_is_shown_at_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is named by its digest takes no place from verdict and headline."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", terminal)
    print_runs([RUN, SENT])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    for word in ("pi5-01", "jetson-orin-3", "succeeded", "SUSPECT", "22.53 µs", "sha256:"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= columns
    assert ("created" in shown) == (columns == 200)
    assert ("left out in this width: created" in capsys.readouterr().err) == (columns < 200)
