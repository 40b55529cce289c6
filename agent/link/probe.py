"""``python -m edgeperf.agent.link.probe``: what this board is, as JSON on stdout.

A process of its own, because asking the backends imports numpy; it loads no runtime.
"""

import json
import os
import sys
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.board import describe_board
from edgeperf.agent.link.inspector import Findings
from edgeperf.agent.messages import Runtime
from edgeperf.backends import backend_names, open_backend
from edgeperf.datasets.assets import BUNDLED, Places
from edgeperf.datasets.catalogue import Asset, models


def main() -> int:
    """Print the findings and return the exit status."""
    board: dict[str, Any] = json.loads(msgspec.json.encode(describe_board()))
    findings = Findings(
        board=board,
        runtimes=tuple(_runtime(name) for name in backend_names()),
        catalogue={
            file.asset.sha256: _is_here(file.asset) for model in models() for file in model.files
        },
    )
    sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    return 0


def _runtime(name: str) -> Runtime:
    try:
        package, version = open_backend(name).version()
    except EdgeperfError as error:
        return Runtime(backend=name, problem=str(error)[:1900])
    return Runtime(backend=name, version=f"{package} {version}")


def _is_here(asset: Asset) -> bool:
    """Tell whether a file of the catalogue seems to be here; a run checks what is in it."""
    mirrors = Places.from_environment(os.environ).mirrors
    places = [BUNDLED, *mirrors]
    return any((place / part).is_file() for place in places for part in (asset.path, asset.name))


if __name__ == "__main__":
    raise SystemExit(main())
