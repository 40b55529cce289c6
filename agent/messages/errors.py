"""Why a message is refused: one error, one code."""

import enum

from edgeperf import InputError


class Code(str, enum.Enum):
    """Reason of a refusal, stable for scripts.

    The first group is decided by the message alone, the second by the signature and the
    board's journal, the third by the board.
    """

    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    VERSION = "version"
    UNKNOWN_TYPE = "unknown-type"
    WRONG_DEVICE = "wrong-device"
    SPEC = "spec"

    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown-key"
    BAD_SIGNATURE = "bad-signature"
    EXPIRED = "expired"
    REPLAYED = "replayed"
    COUNTER = "counter"

    POLICY = "policy"
    DRAINING = "draining"
    QUEUE_FULL = "queue-full"
    NO_SPACE = "no-space"
    MODEL = "model"
    UNKNOWN_RUN = "unknown-run"
    FAILED = "failed"


class MessageError(InputError):
    """A message cannot be used.

    Attributes:
        code: Why, for scripts.
        message_id: The message's own id where it could be read, else None.
    """

    def __init__(self, code: Code, problem: str, *, message_id: str | None = None) -> None:
        super().__init__(f"{code.value}: {problem}")
        self.code = code
        self.problem = problem
        self.message_id = message_id
