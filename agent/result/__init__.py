"""What a run found, as plain data: no numpy, no runtime; the coordinator reads it too."""

from edgeperf.agent.result.document import (
    FORMAT_VERSION,
    File,
    Result,
    ResultError,
    result_from_json,
    result_schema,
    result_to_json,
)
from edgeperf.agent.result.figures import (
    Accuracy,
    Headline,
    LoadGen,
    Percentiles,
    Performance,
    Stopwatch,
)
from edgeperf.agent.result.reading import read_result
from edgeperf.agent.result.repeat import Data, Difference, Repeat
from edgeperf.agent.result.sut import (
    Model,
    ModelPart,
    Sut,
    Tensor,
    Thread,
    Worker,
    policy_of,
)
from edgeperf.agent.result.verdict import (
    Reason,
    Severity,
    Status,
    Verdict,
    status_of,
)

__all__ = [
    "FORMAT_VERSION",
    "Accuracy",
    "Data",
    "Difference",
    "File",
    "Headline",
    "LoadGen",
    "Model",
    "ModelPart",
    "Percentiles",
    "Performance",
    "Reason",
    "Repeat",
    "Result",
    "ResultError",
    "Severity",
    "Status",
    "Stopwatch",
    "Sut",
    "Tensor",
    "Thread",
    "Verdict",
    "Worker",
    "policy_of",
    "read_result",
    "result_from_json",
    "result_schema",
    "result_to_json",
    "status_of",
]
