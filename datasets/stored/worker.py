"""A process that makes shards: reads which from standard input, says of each how it went.

It ends when nobody is left to tell it, so a killed run leaves none behind.
"""

import sys
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.datasets import open_task
from edgeperf.datasets.stored.build import Work
from edgeperf.datasets.stored.shards import Shard, Store


def main() -> None:
    """Do what the lines of standard input say."""
    lines, answers = sys.stdin.buffer, sys.stdout.buffer
    work = msgspec.json.decode(lines.readline(), type=Work)
    library = store = None
    while line := lines.readline():
        said: dict[str, str] = {}
        try:
            if library is None or store is None:
                data = None if work.data is None else Path(work.data)
                library = open_task(work.task).open(work.inputs, work.outputs, data=data)
                store = Store(Path(work.folder), library, work.inputs, work.recipe.encode())
            store.make(msgspec.json.decode(line, type=Shard), library)
        except InputError as error:
            said["input_error"] = str(error)
        except Exception as error:  # noqa: BLE001 - the parent must hear of any end
            said["error"] = f"{type(error).__name__}: {error}"
        answers.write(msgspec.json.encode(said) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
