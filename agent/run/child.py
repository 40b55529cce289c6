"""Entry point of every child process of a run: read one job, do it, say how it ended."""

import os
import socket
import sys
import traceback
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.run.jobs import ExamineJob, Failure, Message, PrepareJob, WorkerJob, decode_job
from edgeperf.agent.run.process import die_with


class Channel:
    """The child's end of its channel to the supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lines = self._socket.makefile("rb")

    def job(self) -> Any:
        """Return the job."""
        return decode_job(self._lines.readline())

    def say(self, message: Message) -> None:
        """Tell the supervisor."""
        self._socket.sendall(msgspec.json.encode(message) + b"\n")

    def wait_for_go(self) -> None:
        """Wait until the supervisor lets this worker start, or leave if it is gone."""
        if self._lines.readline() != b'"go"\n':
            os._exit(1)


def main() -> None:
    """Do the job that comes through the channel; both ends are named on the command line."""
    descriptor, supervisor = map(int, sys.argv[1:])
    die_with(supervisor)
    channel = Channel(descriptor)
    try:
        _work(channel)
    except EdgeperfError as error:
        fail(channel, error)
    except BaseException as error:  # noqa: BLE001 - the supervisor must hear of any end
        fail(channel, error)


def fail(channel: Channel, error: BaseException) -> None:
    """Tell the supervisor why, and end at once.

    At once, since LoadGen crashes or hangs when an exception passes through its
    callbacks, and its threads when the interpreter is taken down under them.
    """
    if isinstance(error, EdgeperfError):
        failure = Failure(text=str(error), exit_code=error.exit_code)
    else:
        traceback.print_exception(error)
        failure = Failure(text=f"{type(error).__name__}: {error}", exit_code=3)
    sys.stdout.flush()
    sys.stderr.flush()
    channel.say(failure)
    os._exit(failure.exit_code)


def _work(channel: Channel) -> None:
    job = channel.job()
    if isinstance(job, PrepareJob):
        from edgeperf.agent.run.prepare import prepare  # noqa: PLC0415 - each child loads its own part

        channel.say(prepare(job, channel.say))
    elif isinstance(job, ExamineJob):
        from edgeperf.agent.run.examine import examine  # noqa: PLC0415 - each child loads its own part

        channel.say(examine(job))
    elif isinstance(job, WorkerJob):
        from edgeperf.agent.run.worker import work  # noqa: PLC0415 - each child loads its own part

        work(job, channel)


if __name__ == "__main__":
    main()
