"""Leader and followers, real processes, answer every sample exactly once.

What they answer is counted in a shared block, a row per worker, so that a sample that
nobody took, or two took, shows.
"""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from team_jobs import load_plan, worker_job

import edgeperf
from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.memory import Field, new_block
from edgeperf.agent.run.shared import MAX_CHUNKS, MAX_SHARE, Shared
from edgeperf.agent.run.team import LAST, Member, Team, unpack_answers
from edgeperf.agent.run.wiring import Wiring, wired
from edgeperf.backends.base import Session

LIBRARY = 500
#: Bytes of one query in a pipe.
RECORD = len(LAST)
#: A follower as the product has it, but for what it does with a sample.
FOLLOWER = """
import sys
from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.jobs import decode_job
from edgeperf.agent.run.team import Member, Shared, follow

job = decode_job(sys.stdin.buffer.readline())
shared, session = Shared(job), load_session(job.sut)
counts = shared.inputs[0][job.index]

def answer(index):
    session.infer(0)
    counts[index] += 1

follow(job, shared, Member(job, shared, answer))
"""


class Crew:
    """A team of which it is known who answered what.

    Attributes:
        team: The leader's view.
        counts: How often each worker answered each sample, shape ``(workers, samples)``.
        answers: Reading end of the pipe of queries that followers have answered.
    """

    def __init__(self, job: WorkerJob) -> None:
        shared = Shared(job)
        self.counts: NDArray[Any] = shared.inputs[0]
        self._session: Session = load_session(job.sut)
        self._member = Member(job, shared, self._answer)
        self.team = Team(job, shared, self._member)
        self.answers = job.wiring.answers[0]

    def _answer(self, index: int) -> None:
        self._session.infer(0)
        self.counts[0][index] += 1

    def share(self, indices: list[int], *, freely: bool = False) -> None:
        """Answer *indices* as one MultiStream query and check that it was done."""
        self.counts[:] = 0
        (self.team.share_freely if freely else self.team.share)(indices)
        self.check(indices)

    def take(self, indices: NDArray[np.int32], chunk: int) -> None:
        """Answer *indices* as one Offline query and check that it was done."""
        self.counts[:] = 0
        stretches: list[tuple[int, int]] = []
        self.team.take_all(indices, chunk, lambda begin, end: stretches.append((begin, end)))
        self.check(indices.tolist())
        ends = [0, *(end for _, end in stretches)]
        assert [begin for begin, _ in stretches] == ends[:-1]
        assert ends[-1] == len(indices)

    def serve(self, indices: list[int]) -> None:
        """Answer *indices* as so many Server queries and check that it was done."""
        self.counts[:] = 0
        self.team.serve()
        here: list[bytes] = []
        leader = threading.Thread(target=self._member.serve, args=(here.append,))
        leader.start()
        for number, index in enumerate(indices):
            self.team.issue(1_000 + number, index, number)
        there = b""
        while len(here) * RECORD + len(there) < len(indices) * RECORD:
            if select.select([self.answers], [], [], 0.01)[0]:
                there += os.read(self.answers, 1 << 16)
        self.team.end_service(servers=1)
        leader.join()
        found = sorted(unpack_answers(b"".join(here) + there), key=lambda record: record[2])
        asked = [(1_000 + number, index, number) for number, index in enumerate(indices)]
        assert found == asked
        self.check(indices)

    def check(self, indices: list[int]) -> None:
        """Check that each index was answered as often as it was asked for, by anybody."""
        expected = np.bincount(np.array(indices, np.int64), minlength=LIBRARY)
        np.testing.assert_array_equal(self.counts.sum(axis=0), expected)


def job_for(index: int, *, workers: int, wiring: Wiring) -> WorkerJob:
    """Return the job of one process of the team."""
    field = Field(name="counts", shape=(workers, LIBRARY), dtype="int64")
    return worker_job(
        index=index,
        workers=workers,
        load=load_plan(scenario="Offline"),
        library_size=LIBRARY,
        fields=(field,),
        wiring=wiring,
    )


@contextmanager
def crew_of(workers: int) -> Iterator[Crew]:
    """Start a team, this process leading, and send it home afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(Path(edgeperf.__path__[0]).parent)}
    inputs = new_block("counts")
    with wired(inputs, workers - 1) as wiring:
        followers = []
        for index in range(1, workers):
            job = job_for(index, workers=workers, wiring=wiring)
            follower = subprocess.Popen(
                [sys.executable, "-c", FOLLOWER],
                stdin=subprocess.PIPE,
                pass_fds=wiring.descriptors(),
                env=environment,
            )
            assert follower.stdin is not None
            with follower.stdin as stdin:
                stdin.write(msgspec.json.encode(job) + b"\n")
            followers.append(follower)
        crew = Crew(job_for(0, workers=workers, wiring=wiring))
        try:
            yield crew
            crew.team.stop()
            assert [follower.wait(20) for follower in followers] == [0] * len(followers)
        finally:
            for follower in followers:
                follower.kill()
                follower.wait()
    os.close(inputs)


@pytest.fixture(scope="module", params=[1, 2, 4])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    """Return teams of several sizes."""
    with crew_of(request.param) as team:
        yield team


INDICES = st.lists(st.integers(0, LIBRARY - 1), max_size=60)
quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(indices=INDICES)
def test_shared_query_is_answered_once(crew: Crew, indices: list[int]) -> None:
    """Each sample of a MultiStream query, however many, is answered by exactly one worker."""
    crew.share(indices)
    crew.share(indices, freely=True)


@quick
@given(count=st.integers(0, 3000), chunk=st.integers(1, 400), seed=st.integers(0, 99))
def test_chunks_are_taken_once(crew: Crew, count: int, chunk: int, seed: int) -> None:
    """Each sample of an Offline query is answered once, and told of once, in order."""
    indices = np.random.default_rng(seed).integers(0, LIBRARY, count, np.int32)
    crew.take(indices, chunk)


def test_as_many_chunks_and_samples_as_there_may_be(crew: Crew) -> None:
    """The largest number of chunks fits the pipe, the largest query its block."""
    crew.take(np.arange(MAX_CHUNKS, dtype=np.int32) % LIBRARY, 1)
    crew.share([index % LIBRARY for index in range(MAX_SHARE)])


@quick
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["share", "freely", "take", "serve"]), INDICES), max_size=6
    )
)
def test_ways_of_working_follow_each_other(crew: Crew, steps: list[tuple[str, list[int]]]) -> None:
    """A team can change between its ways of working as often as it likes."""
    for way, indices in steps:
        if way in ("share", "freely"):
            crew.share(indices, freely=way == "freely")
        elif way == "take":
            crew.take(np.array(indices, np.int32), 3)
        else:
            crew.serve(indices)


def test_every_worker_works(crew: Crew) -> None:
    """In a shared query each has its part; nobody's is more than one sample larger."""
    crew.share([index % LIBRARY for index in range(101)])
    parts = crew.counts.sum(axis=1)
    assert parts.max() - parts.min() <= 1


def test_query_with_too_many_samples_is_refused(crew: Crew) -> None:
    """More samples than the block holds raise, before anybody is woken."""
    with pytest.raises(ValueError, match="memoryview"):
        crew.team.share([0] * (MAX_SHARE + 1))
    crew.share([1, 2, 3])
