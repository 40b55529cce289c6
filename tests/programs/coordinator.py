"""A coordinator at a broker that a test started: ``DATA BROKER_PORT HTTP_PORT``."""

import sys
from pathlib import Path

from edgeperf import EdgeperfError
from edgeperf.coordinator.service import Coordinator
from edgeperf.coordinator.settings import Settings


def main() -> int:
    """Serve until killed and return the exit status."""
    data, broker_port, http_port = sys.argv[1:]
    settings = Settings(
        data=Path(data),
        fleet="lab",
        broker=f"mqtt://127.0.0.1:{broker_port}",
        http_port=int(http_port),
    )
    try:
        with Coordinator(settings) as coordinator:
            coordinator.wait()
    except EdgeperfError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


raise SystemExit(main())
