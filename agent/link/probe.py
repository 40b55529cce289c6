"""``python -m edgeperf.agent.link.probe``: what this board is, as JSON on stdout.

A process of its own, because asking the backends imports numpy; it loads no runtime.
"""

import json
import sys
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.board import describe_board
from edgeperf.agent.link.inspector import Findings
from edgeperf.agent.messages import Runtime
from edgeperf.backends import backend_names, open_backend


def main() -> int:
    """Print the findings and return the exit status."""
    board: dict[str, Any] = json.loads(msgspec.json.encode(describe_board()))
    findings = Findings(board=board, runtimes=tuple(_runtime(name) for name in backend_names()))
    sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    return 0


def _runtime(name: str) -> Runtime:
    try:
        package, version = open_backend(name).version()
    except EdgeperfError as error:
        return Runtime(backend=name, problem=str(error)[:1900])
    return Runtime(backend=name, version=f"{package} {version}")


if __name__ == "__main__":
    raise SystemExit(main())
