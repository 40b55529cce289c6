"""Whether a test fits: LoadGen makes all its queries before the first is issued.

An 80 µs model for MLPerf's 600 s needs 4.8 GB of them. That is known after calibration,
so it is refused then, in one line that says what fits, and not by the OOM killer.
"""

from edgeperf import InputError
from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.loadgen import Hints
from edgeperf.agent.run.shared import CAPACITY

#: Bytes that LoadGen keeps per query it makes ahead (measured: 317 to 332; Server 400),
#: and for each further sample of a query.
BYTES_PER_QUERY = 330
BYTES_PER_SERVER_QUERY = 420
BYTES_PER_FURTHER_SAMPLE = 70
#: Offline, per sample: LoadGen's own 126 to 500, and the lists that Python is handed.
BYTES_PER_OFFLINE_SAMPLE = 600
#: Our own times of each query: the workers' pages, the supervisor's copies, the sorting.
BYTES_PER_ANSWER = 64
#: LoadGen generates twice the queries that the hint promises.
AHEAD = 2
_RULES_DURATION_MS = 600_000
_OFFLINE_SLACK = 1.1
#: Of the free memory: what LoadGen's queries may take.
MEMORY_SHARE = 0.7
#: Of what would just fit: what is offered, since the next calibration finds a bit else.
_FITS_SURELY = 0.95


def _duration_ns(plan: LoadPlan) -> float:
    return (plan.min_duration_ms or _RULES_DURATION_MS) * 1e6


def _bytes_per_query(plan: LoadPlan) -> int:
    if plan.scenario == "Server":
        return BYTES_PER_SERVER_QUERY
    if plan.scenario == "Offline":
        return BYTES_PER_OFFLINE_SAMPLE
    further = plan.samples_per_query - 1 if plan.scenario == "MultiStream" else 0
    return BYTES_PER_QUERY + BYTES_PER_FURTHER_SAMPLE * further


def needed_hint_ns(plan: LoadPlan, available_bytes: int) -> float:
    """Return the shortest latency hint whose queries fit the memory."""
    room = max(1.0, available_bytes * MEMORY_SHARE)
    each = AHEAD * _bytes_per_query(plan) + BYTES_PER_ANSWER
    return 1.001 * _duration_ns(plan) * each / room  # not just so that rounding refuses it


def server_fits_ms(target_qps: float, available_bytes: int) -> int:
    """Return for how long Server fits the memory at a rate, whole milliseconds."""
    each = BYTES_PER_SERVER_QUERY + BYTES_PER_ANSWER
    queries = min(available_bytes * MEMORY_SHARE / each, float(CAPACITY))
    return int(queries / target_qps * 1e3)


def _by_duration(plan: LoadPlan, hints: Hints) -> float:
    """Return how many queries (Offline: samples) LoadGen makes to fill the duration."""
    seconds = _duration_ns(plan) / 1e9
    if plan.scenario == "Server":
        return hints.target_qps * seconds
    if plan.scenario == "Offline":
        return _OFFLINE_SLACK * hints.target_qps * seconds
    return AHEAD * seconds * 1e9 / hints.latency_ns


def check_size(plan: LoadPlan, found: Calibration, hints: Hints, available_bytes: int) -> None:
    """Refuse a test that would not fit.

    Raises:
        InputError: Its queries need more memory than is free, or are more than one test
            keeps the times of.
    """
    made = max(_by_duration(plan, hints), float(plan.min_query_count or 0))
    answered = made if plan.scenario in ("Server", "Offline") else made / AHEAD
    needed = made * _bytes_per_query(plan) + answered * BYTES_PER_ANSWER
    room = available_bytes * MEMORY_SHARE
    if needed <= room and answered <= CAPACITY:
        return
    what = "samples" if plan.scenario == "Offline" else "queries"
    if needed > room:
        why = (
            f"LoadGen makes {made:,.0f} {what} before it starts, {needed / 1e9:.1f} GB, and"
            f" {room / 1e9:.2f} of the {available_bytes / 1e9:.2f} GB free may be used"
        )
    else:
        why = f"a run has {answered:,.0f} {what}, and one test keeps the times of {CAPACITY:,}"
    fits = _FITS_SURELY * made * min(room / needed, CAPACITY / answered)
    raise InputError(
        f"{plan.scenario} for {_duration_ns(plan) / 1e9:g} s, with"
        f" {found.latency_ns / 1e3:.3g} µs as found here: {why}; {_fitting(plan, hints, fits)} fits"
    )


def _fitting(plan: LoadPlan, hints: Hints, most: float) -> str:
    """Return options with which LoadGen makes at most so many queries."""
    by_duration, options = _by_duration(plan, hints), []
    if by_duration > most:
        seconds = _duration_ns(plan) / 1e9 * most / by_duration
        options.append(f"--min-duration {seconds:.3g}")
    if (plan.min_query_count or 0) > most:
        options.append(f"--min-queries {int(most)}")
    return " ".join(options)
