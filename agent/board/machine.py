"""Which machine this is: model, processor, system on chip, vendor's release.

Arm processors have no name in /proc/cpuinfo, only numbers; the table below names the
cores found in boards. An unknown one keeps its numbers.
"""

from pathlib import Path

from edgeperf.agent.board.kernel_files import read_fields, read_text

#: (implementer, part) -> name, as in the kernel's ``arch/arm64/include/asm/cputype.h``.
_ARM_CORES: dict[tuple[str, str], str] = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd04"): "Cortex-A35",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd09"): "Cortex-A73",
    ("0x41", "0xd0a"): "Cortex-A75",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd0d"): "Cortex-A77",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd41"): "Cortex-A78",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd46"): "Cortex-A510",
    ("0x41", "0xd47"): "Cortex-A710",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4b"): "Cortex-A78C",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd83"): "Neoverse-V3AE",
    ("0x4e", "0x003"): "NVIDIA Denver 2",
    ("0x4e", "0x004"): "NVIDIA Carmel",
}

#: Jetson Linux (L4T) major release -> JetPack major release.
_JETPACK_OF_L4T: dict[str, str] = {"32": "4", "35": "5", "36": "6", "38": "7"}


def machine_model(root: Path) -> str | None:
    """Return the board's or computer's model as its firmware names it."""
    if model := read_text(root / "proc/device-tree/model"):
        return model
    dmi = root / "sys/class/dmi/id"
    words = [read_text(dmi / name) for name in ("sys_vendor", "product_name", "product_version")]
    return " ".join(word for word in words if word) or None


def cpu_model(root: Path) -> str | None:
    """Return the processor's name; of a big.LITTLE board the kinds of cores, ``+`` between."""
    kinds: list[str] = []
    for block in (read_text(root / "proc/cpuinfo") or "").split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, colon, value in (line.partition(":") for line in block.splitlines())
            if colon
        }
        if "model name" in fields and not fields["model name"].startswith("ARM"):
            return fields["model name"]
        maker, part = fields.get("CPU implementer"), fields.get("CPU part")
        if maker and part:
            kind = _ARM_CORES.get((maker, part), f"Arm implementer {maker} part {part}")
            if kind not in kinds:
                kinds.append(kind)
    return " + ".join(kinds) or None


def microcode(root: Path) -> str | None:
    """Return the version of the processor's microcode (x86)."""
    return read_fields(root / "proc/cpuinfo").get("microcode")


def soc_ids(root: Path) -> dict[str, str]:
    """Return what the kernel knows of the system on chip: family, machine, soc_id, ..."""
    folder = root / "sys/devices/soc0"
    names = ("family", "machine", "soc_id", "revision")
    found = {name: read_text(folder / name) for name in names}
    if compatible := read_text(root / "proc/device-tree/compatible"):
        found["compatible"] = compatible.replace("\0", " ")
    return {name: value for name, value in found.items() if value}


def pi_revision(root: Path) -> str | None:
    """Return the revision code of a Raspberry Pi (``d04171``), None on anything else."""
    if "Raspberry Pi" not in (machine_model(root) or ""):
        return None
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Revision":
            return value.strip()
    return None


def l4t_release(root: Path) -> str | None:
    """Return the Jetson Linux release (``36.4.3``), None on anything else.

    Source: first line of /etc/nv_tegra_release, ``# R36 (release), REVISION: 4.3, ...``.
    """
    line = (read_text(root / "etc/nv_tegra_release") or "").partition("\n")[0]
    major = line.partition("R")[2].partition(" ")[0]
    minor = line.partition("REVISION:")[2].partition(",")[0].strip()
    return f"{major}.{minor}" if major and minor else None


def jetpack_release(root: Path) -> str | None:
    """Return the JetPack release.

    Returns:
        The version of the package ``nvidia-jetpack`` (``6.2+b77``); where that is not
        installed the major release that belongs to the Jetson Linux release; None on
        anything but a Jetson.
    """
    l4t = l4t_release(root)
    if l4t is None:
        return None
    try:
        status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        status = ""
    block = status.partition("Package: nvidia-jetpack\n")[2].partition("\n\n")[0]
    version = block.partition("Version: ")[2].partition("\n")[0]
    return version or _JETPACK_OF_L4T.get(l4t.partition(".")[0])


def nvpmodel_mode(root: Path) -> str | None:
    """Return the power mode of a Jetson: its name, else its number.

    Source: nvpmodel keeps ``pmode:0002`` in its status file and the names in
    /etc/nvpmodel.conf, ``< POWER_MODEL ID=2 NAME=MAXN_SUPER >``. The names cap clocks;
    they are no promise of watts.
    """
    status = read_text(root / "var/lib/nvpmodel/status") or ""
    number = status.partition("pmode:")[2].partition(" ")[0].strip()
    if not number.isdecimal():
        return None
    for line in (read_text(root / "etc/nvpmodel.conf") or "").splitlines():
        words = line.replace("<", " ").replace(">", " ").split()
        if words[:1] == ["POWER_MODEL"] and f"ID={int(number)}" in words:
            names = [word[5:] for word in words if word.startswith("NAME=")]
            return names[0] if names else str(int(number))
    return str(int(number))


def virtualisation(root: Path) -> tuple[str, ...]:
    """Return hints that this is a container or a virtual machine, none on bare metal."""
    hints: list[str] = []
    if (root / ".dockerenv").exists():
        hints.append("container: docker")
    if (root / "run/.containerenv").exists():
        hints.append("container: podman")
    if manager := read_text(root / "run/systemd/container"):
        hints.append(f"container: {manager}")
    if kind := read_text(root / "sys/hypervisor/type"):
        hints.append(f"hypervisor: {kind}")
    if "hypervisor" in read_fields(root / "proc/cpuinfo").get("flags", "").split():
        hints.append("virtual machine: CPU flag 'hypervisor'")
    if "microsoft" in (read_text(root / "proc/sys/kernel/osrelease") or "").lower():
        hints.append("virtual machine: WSL")
    return tuple(hints)
