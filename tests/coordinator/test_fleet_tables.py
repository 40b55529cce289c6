"""Tables of ``edgeperf fleet`` on a terminal."""

import io
import re
import sys

import pytest

from edgeperf.agent.cli.fleet_tables import board_facts, print_runs, print_table

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


def test_facts_of_a_board_are_words_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    """No JSON, no bare count of bytes; what a board does not have or do is left out."""
    described = {
        "policy": {"max_memory_bytes": 4_000_000_000, "max_temperature_c": 80.0, "hours": None},
        "board": {
            "memory_bytes": 8_243_699_712,
            "cores": [
                {"core": 0, "online": True, "max_frequency_hz": 2_400_000_000, "isolated": False},
                {"core": 1, "online": True, "max_frequency_hz": None, "isolated": True},
            ],
            "virtualisation": ["container: docker"],
        },
    }
    known = dict.fromkeys(("reason", "since", "seen", "run", "queued", "unsent"))
    print_table(
        board_facts(
            {"name": "pi", "state": "online", "labels": [], "description": described} | known
        )
    )
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "policy max memory 4 GB, max temperature 80 °C" in shown
    assert "memory 8.244 GB" in shown
    both = "core 0, online yes, max frequency 2400 MHz; core 1, online yes, isolated yes"
    assert f"cores {both}" in shown
    assert "virtualisation container: docker" in shown
