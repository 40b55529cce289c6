"""Starts the agent service with settings that a test gives as JSON."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.link import Service, Settings, read_identity, read_settings


def main() -> int:
    """Serve until stopped and return the exit status."""
    given: dict[str, Any] = msgspec.json.decode(sys.argv[1])
    state = Path(given["state"])
    board = read_settings(state, None).board
    given |= {"identity": msgspec.to_builtins(read_identity(state)), "board": board}
    given["board"] = msgspec.to_builtins(board)
    try:
        settings = msgspec.convert(given, Settings, strict=False, dec_hook=_path)
        Service(settings).run()
    except EdgeperfError as error:
        sys.stderr.write(f"edgeperf: {error}\n")
        return error.exit_code
    return 0


def _path(kind: type, value: object) -> object:
    return Path(str(value)) if kind is Path else value


raise SystemExit(main())
