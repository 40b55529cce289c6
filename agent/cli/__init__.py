"""The command line. Each command is loaded when it is called, so ``--help`` is instant.

Exit status: 0 valid; 1 measured, but suspect or invalid; 2 usage or bad input; 3 the
board or a part failed; 130 and 143 interrupted and terminated.
"""

from edgeperf.agent.cli.main import main

__all__ = ["main"]
