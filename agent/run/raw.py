"""Raw data of a test, kept beside its figures, also of a test that did not end."""

from pathlib import Path

import msgspec
import numpy as np

from edgeperf.agent.result.files import ANSWERS, LATENCIES, LATENCY_NS, PREDICTIONS
from edgeperf.agent.run.measure import Measurement


def keep_predictions(test: Measurement, folder: Path) -> None:
    """Write what the model answered, if it answered, into *folder*."""
    if test.answers is not None:
        np.savez(folder / PREDICTIONS, **{ANSWERS: test.answers.predictions})  # type: ignore[arg-type]


def keep_latencies(test: Measurement, folder: Path, *, each: bool) -> None:
    """Write every raw time and the board's condition into *folder*.

    Args:
        test: The performance test.
        folder: The result directory.
        each: Whether every query has a latency of its own; Offline's samples have not.
    """
    times = {"start_ns": test.start_ns, "end_ns": test.end_ns}
    if each:
        times[LATENCY_NS] = test.end_ns - test.start_ns
    np.savez(folder / LATENCIES, **times)  # type: ignore[arg-type]
    (folder / "conditions.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(test.series), indent=1)
    )
