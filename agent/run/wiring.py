"""What the workers of one test share: making it, and closing it afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from edgeperf.agent.run.memory import new_block, new_event, new_pipe

#: Room for the queries that a Server run may have waiting at once.
_QUERIES_BYTES = 16 * (1 << 16)


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptors of what the workers share.

    Attributes:
        inputs: Block with the inputs.
        predictions: Block with predictions and payloads (accuracy mode).
        control: Block with progress words and the shared query.
        latencies: Block with start and end of each query.
        wake: One event per follower: work is there.
        done: One event per follower: its part is done.
        tickets: Reading and writing end of the pipe that hands out work.
        answers: Reading and writing end of the pipe of finished work (Server).
    """

    inputs: int
    predictions: int
    control: int
    latencies: int
    wake: tuple[int, ...]
    done: tuple[int, ...]
    tickets: tuple[int, int]
    answers: tuple[int, int]

    def descriptors(self) -> list[int]:
        """Return every descriptor, for the child to inherit."""
        blocks = [self.inputs, self.predictions, self.control, self.latencies]
        return [*blocks, *self.wake, *self.done, *self.tickets, *self.answers]


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
