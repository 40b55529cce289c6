"""Making what the workers of one test share, and closing it afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from edgeperf.agent.run.jobs import Wiring
from edgeperf.agent.run.memory import new_block, new_event, new_pipe

#: Room for the queries that a Server run may have waiting at once.
_QUERIES_BYTES = 8 * (1 << 17)


@contextmanager
def wired(inputs: int, followers: int) -> Iterator[Wiring]:
    """Yield the wiring of a leader and *followers*; *inputs* stays open after it."""
    tickets = new_pipe(_QUERIES_BYTES)
    os.set_blocking(tickets[0], False)
    wiring = Wiring(
        inputs=inputs,
        predictions=new_block("predictions"),
        control=new_block("control"),
        latencies=new_block("latencies"),
        wake=tuple(new_event() for _ in range(followers)),
        done=tuple(new_event() for _ in range(followers)),
        tickets=tickets,
        answers=new_pipe(_QUERIES_BYTES),
    )
    try:
        yield wiring
    finally:
        for descriptor in wiring.descriptors():
            if descriptor != inputs:
                os.close(descriptor)
