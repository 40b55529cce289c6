"""What the control groups leave to this process: cores, share of CPU, memory.

Both generations are read, because JetPack 5 and old containers still mount version 1.
The tightest limit on the way up to the root holds, so every ancestor is read. The trap:
in a container without its own cgroup namespace /proc/self/cgroup names the host's path,
which does not exist inside; then the mount itself is the container's group.
"""

from collections.abc import Iterator
from pathlib import Path

from edgeperf.agent.board.kernel_files import parse_core_list, read_int, read_text

#: Version 1 says "no limit" as the largest page-aligned number.
_UNLIMITED = 1 << 60


def cpuset_cores(root: Path = Path("/")) -> tuple[int, ...] | None:
    """Return the cores that the cpuset leaves us, None where nothing limits them."""
    for group in _groups(root, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if cores := parse_core_list(read_text(group / name)):
                return cores
    return None


def quota_cores(root: Path = Path("/")) -> float | None:
    """Return how many cores' worth of CPU time the quota allows, None for no quota."""
    quotas = [_quota(group) for group in _groups(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def quota_stall_ns(root: Path = Path("/")) -> int | None:
    """Return for how long the quota has stopped us since the group was made.

    Returns:
        Nanoseconds, None where nothing counts them.
    """
    for group in _groups(root, "cpu"):
        counters = _counters(group / "cpu.stat")
        if "throttled_usec" in counters:
            return counters["throttled_usec"] * 1000
        if "throttled_time" in counters:
            return counters["throttled_time"]
    return None


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that the control group allows, None for no limit."""
    limits = [
        read_int(group / name)  # version 2 says "max" where there is none
        for group in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min(
        (limit for limit in limits if limit is not None and limit < _UNLIMITED), default=None
    )


def memory_left_bytes(root: Path = Path("/")) -> int | None:
    """Return how much more memory the control group allows, None for no limit.

    Files that were read and are not in use do not count: they give way.
    """
    left = [
        limit - used
        for group in _groups(root, "memory")
        for limit, used in _limit_and_use(group)
        if limit < _UNLIMITED
    ]
    return min((max(0, bytes_) for bytes_ in left), default=None)


def _limit_and_use(group: Path) -> Iterator[tuple[int, int]]:
    kinds = (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for limit_name, used_name, idle_name in kinds:
        limit, used = read_int(group / limit_name), read_int(group / used_name)
        if limit is not None:
            idle = _counters(group / "memory.stat").get(idle_name, 0)
            yield limit, max(0, (used or 0) - idle)


def _counters(path: Path) -> dict[str, int]:
    """Return the ``key value`` lines of *path*."""
    pairs = (line.partition(" ") for line in (read_text(path) or "").splitlines())
    return {key: int(value) for key, _, value in pairs if value.isdecimal()}


def _quota(group: Path) -> float | None:
    fields = (read_text(group / "cpu.max") or "").split()
    if len(fields) == 2 and fields[0].isdecimal():  # noqa: PLR2004 - "QUOTA PERIOD"
        return int(fields[0]) / int(fields[1])
    quota_us = read_int(group / "cpu.cfs_quota_us")
    period_us = read_int(group / "cpu.cfs_period_us")
    if quota_us and period_us and quota_us > 0:
        return quota_us / period_us
    return None


def _groups(root: Path, controller: str) -> list[Path]:
    """Return our group for *controller* and its ancestors, own group first."""
    groups: list[Path] = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:  # noqa: PLR2004 - "ID:CONTROLLERS:PATH"
            continue
        for mount in _mounts(root, fields[1], controller):
            group = mount / fields[2].lstrip("/")
            if not group.is_dir():
                group = mount
            while group != mount:
                groups.append(group)
                group = group.parent
            groups.append(mount)
    return groups


def _mounts(root: Path, controllers: str, controller: str) -> list[Path]:
    base = root / "sys/fs/cgroup"
    if not controllers:  # version 2; beside version 1 it is mounted one level down
        return [base / "unified" if (base / "unified").is_dir() else base]
    if controller not in controllers.split(","):
        return []
    names = [base / controllers, base / controller]
    return [next((name for name in names if name.is_dir()), base / controller)]
