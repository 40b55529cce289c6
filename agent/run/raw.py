"""Raw data of a test, kept beside its figures, also of a test that did not end."""

from pathlib import Path

import msgspec
import numpy as np

from edgeperf.agent.run.measure import Measurement


def keep_predictions(test: Measurement, folder: Path) -> None:
    """Write what the model answered, if it answered, into *folder*."""
    if test.answers is not None:
        np.savez(folder / "predictions.npz", predictions=test.answers.predictions)


def keep_latencies(test: Measurement, folder: Path, *, each: bool) -> None:
    """Write every raw time and the board's condition into *folder*.

    Args:
        test: The performance test.
        folder: The result directory.
        each: Whether every query has a latency of its own; Offline's samples have not.
    """
    times = {"start_ns": test.start_ns, "end_ns": test.end_ns}
    if each:
        times["latency_ns"] = test.end_ns - test.start_ns
    np.savez(folder / "latencies.npz", **times)  # type: ignore[arg-type]
    (folder / "conditions.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(test.series), indent=1)
    )
