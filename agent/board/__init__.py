"""What the board is and in which condition it is: cores, clocks, temperatures, load.

Others import from here, not from the modules inside. Nothing here imports numpy or a
runtime: the agent's own process stays light.
"""

from edgeperf.agent.board.clocks import Clocks, rate_error_ppm, read_clocks, step_between_ns
from edgeperf.agent.board.conditions import Pressure, Sensors, Snapshot, take_snapshot
from edgeperf.agent.board.cores import (
    Core,
    CoreError,
    CoreLimits,
    check_cores,
    core_limits,
    cores,
    rank_cores,
    usable_cores,
)
from edgeperf.agent.board.describe import BoardInfo, describe_board
from edgeperf.agent.board.doubts import doubts, doubts_together
from edgeperf.agent.board.host import DiskSpace, available_memory_bytes, disk_space
from edgeperf.agent.board.kernel_files import format_core_list, parse_core_list
from edgeperf.agent.board.load import OwnLoad, OwnLoadMeter
from edgeperf.agent.board.sampler import Sample, Sampler
from edgeperf.agent.board.supervision import Supervisor
from edgeperf.agent.board.threads import PinError, ThreadSeen, pin, pin_process, threads_of
from edgeperf.agent.board.throttle import ThrottleState
from edgeperf.agent.board.window import CoreWindow, PressureShare, WindowConditions, compare

__all__ = [
    "BoardInfo",
    "Clocks",
    "Core",
    "CoreError",
    "CoreLimits",
    "CoreWindow",
    "DiskSpace",
    "OwnLoad",
    "OwnLoadMeter",
    "PinError",
    "Pressure",
    "PressureShare",
    "Sample",
    "Sampler",
    "Sensors",
    "Snapshot",
    "Supervisor",
    "ThreadSeen",
    "ThrottleState",
    "WindowConditions",
    "available_memory_bytes",
    "check_cores",
    "compare",
    "core_limits",
    "cores",
    "describe_board",
    "disk_space",
    "doubts",
    "doubts_together",
    "format_core_list",
    "parse_core_list",
    "pin",
    "pin_process",
    "rank_cores",
    "rate_error_ppm",
    "read_clocks",
    "step_between_ns",
    "take_snapshot",
    "threads_of",
    "usable_cores",
]
