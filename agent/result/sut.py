"""What ran: the model file, the runtime, the processes and their threads."""

import msgspec


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output of the model, as the runtime describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class ModelPart(msgspec.Struct, frozen=True, kw_only=True):
    """A further file of the model: its decoder, its tokenizer."""

    name: str
    file: str
    sha256: str
    size_bytes: int


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The model file under test; ``sha256`` is its identity, the name is for people.

    ``parts`` were named with it (decoder, tokenizer); ``companions`` lie beside it and are
    read by the runtime on its own: the weights of an OpenVINO or ONNX file.
    """

    name: str
    file: str
    format: str
    sha256: str
    size_bytes: int
    precision: str | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parts: tuple[ModelPart, ...] = ()
    companions: tuple[ModelPart, ...] = ()


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a worker as /proc showed it while the test ran."""

    tid: int
    name: str
    cores: tuple[int, ...]


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the SUT.

    Attributes:
        index: 0 is the leader.
        role: ``leader`` (LoadGen and inference) or ``follower``.
        cores: Cores that it was pinned to.
        threads: Every thread with its real affinity.
        scheduling: ``fifo`` (real-time), or ``normal`` and why.
        memory_locked: Whether its memory could not be moved out.
        peak_rss_bytes: Peak resident memory of the process, nought where unknown.
    """

    index: int
    role: str
    cores: tuple[int, ...]
    threads: tuple[Thread, ...]
    scheduling: str = ""
    memory_locked: bool = False
    peak_rss_bytes: int = 0

    @property
    def policy(self) -> str:
        """What came of real-time priority, without why; empty where it was not recorded."""
        return policy_of(self.scheduling)


def policy_of(scheduling: str) -> str:
    """Return ``fifo`` or ``normal`` of what a worker said of its scheduling."""
    return scheduling.partition(" ")[0]


class Sut(msgspec.Struct, frozen=True, kw_only=True):
    """System under test: runtime, what was asked of it and what really ran."""

    backend: str
    runtime: str
    version: str
    device: str
    precision: str
    delegates: tuple[str, ...]
    threads_per_worker: int
    input_copy: str
    batch: int = 1
    timed: tuple[str, ...]
    options: dict[str, str]
    notes: tuple[str, ...]
    workers: tuple[Worker, ...]
