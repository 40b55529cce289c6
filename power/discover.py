"""Which meters are attached here: found by what they are, not by a number that changes.

``/dev/ttyACM0`` is whatever was plugged in first. ``/dev/serial/by-id`` names the device by
its USB serial number, ``by-path`` by the socket it is plugged into; the latter is needed
where makers give every unit the same serial number, or none. Our udev rules make
``/dev/edgeperf`` of both, which is preferred where it is there.

The trap is asking: a byte sent to a strange serial device may move a machine. Only ports
whose USB ids are those of a meter are asked, the others only when the user says so.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from edgeperf.power import METERS, make_source, meter_class, meter_names
from edgeperf.power.base import MeterError, MeterInputError
from edgeperf.power.ports import holders_of

#: USB vendor and product -> kinds that look so. ``0483:5740`` is any board with an STM32, so
#: only the product's name tells an LPM01A from a TC66.
USB_KINDS: dict[str, tuple[str, ...]] = {
    "1915:520f": ("ppk2",),
    "1915:521f": ("ppk2",),
    "1915:c00a": ("ppk2",),
    "0483:5740": ("tc66",),
    "0b21:0025": ("wt310",),
    "0416:5011": ("korad",),
}
#: Kinds that may sit behind an adapter chip that says nothing about them.
ADAPTER_KINDS = ("textline", "pzem004t", "pzem017", "wt310", "korad")
_NAMES = ("ttyACM", "ttyUSB", "rfcomm", "usbtmc")


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A port that may have a meter behind it.

    Attributes:
        port: The name to use in a meter spec: by-id, else by-path, else the device.
        device: ``/dev/ttyACM0``.
        usb: Vendor and product, ``1915:c00a``; empty where it is no USB device.
        serial: USB serial number, empty where there is none.
        product: What the device calls itself.
        kinds: Kinds of meters that look so.
        holders: Programs that have it open.
        problem: Why it cannot be used, with what to do; empty if it can.
        answers: What answered to which probe, ``kind: model``; empty if not asked.
    """

    port: str
    device: str
    usb: str = ""
    serial: str = ""
    product: str = ""
    kinds: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    problem: str = ""
    answers: dict[str, str] = msgspec.field(default_factory=dict)


def attached_ports(root: Path = Path("/")) -> list[Attached]:
    """Return the ports that may have a meter behind them; asks nothing.

    Args:
        root: Where ``sys`` and ``dev`` are.
    """
    names = {
        entry.name
        for folder in ("sys/class/tty", "sys/class/usbmisc")
        for entry in _listed(root / folder)
        if entry.name.startswith(_NAMES)
    }
    found = [_attached(root, name) for name in sorted(names)]
    alike = [one.serial for one in found if one.serial]
    return [
        msgspec.structs.replace(one, port=_by(root, "by-path", one.device) or one.port)
        if alike.count(one.serial) > 1 and not _same_unit(found, one)
        else one
        for one in found
    ]


def _same_unit(found: Iterable[Attached], one: Attached) -> bool:
    """Say whether equal serial numbers are the interfaces of one unit, each with its own link."""
    ports = [other.port for other in found if other.serial == one.serial]
    named = all("by-path" not in port and port != one.device for port in ports)
    return named and len(set(ports)) == len(ports)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _attached(root: Path, name: str) -> Attached:
    device = f"/dev/{name}"
    ids = _usb_ids(root, name)
    usb = ids.get("idVendor", "") + ":" + ids.get("idProduct", "") if ids else ""
    kinds = USB_KINDS.get(usb, ADAPTER_KINDS if usb else ())
    if "PowerShield" in ids.get("product", ""):
        kinds = ("lpm01a",)
    holders = holders_of(str(root / device[1:]))
    return Attached(
        port=_by(root, "by-id", device) or _by(root, "by-path", device) or device,
        device=device,
        usb=usb,
        serial=ids.get("serial", ""),
        product=ids.get("product", ""),
        kinds=("um25c",) if name.startswith("rfcomm") else kinds,
        holders=tuple(holders),
        problem=_problem(root / device[1:], holders),
    )


def _problem(device: Path, holders: list[str]) -> str:
    if holders:
        return f"busy: held by {', '.join(holders)}"
    if not os.access(device, os.R_OK | os.W_OK):
        group = "usbtmc" if device.name.startswith("usbtmc") else "dialout"
        return f"no permission: run `sudo usermod -a -G {group} $USER`, log out and in again"
    return ""


def _usb_ids(root: Path, name: str) -> dict[str, str]:
    """Read the USB identity of the device that a tty belongs to."""
    for folder in ("tty", "usbmisc"):
        start = (root / "sys/class" / folder / name / "device").resolve()
        for place in (start, *start.parents):
            if (place / "idVendor").is_file():
                wanted = ("idVendor", "idProduct", "serial", "product")
                return {key: _read(place / key) for key in wanted if (place / key).is_file()}
            if place == root:
                break
    return {}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _by(root: Path, how: str, device: str) -> str:
    """Return the stable name of a device, empty if it has none; our own udev rules' first."""
    folders = {"by-id": ("dev/edgeperf", "dev/serial/by-id")}
    folders["by-path"] = ("dev/edgeperf/by-path", "dev/serial/by-path")
    for folder in folders[how]:
        for link in sorted(_listed(root / folder)):
            if link.is_symlink() and link.resolve().name == Path(device).name:
                return f"/{folder}/{link.name}"
    return ""


def probe(kind: str, port: str) -> str:
    """Ask whether a kind of meter is behind a port; return its model, empty if it is not.

    Raises:
        MeterError: The port is busy or forbidden.
    """
    source = make_source(f"{kind}:{port}")
    try:
        source.open()
        identity = source.identify()
    except MeterInputError:
        return ""
    except MeterError as error:
        if "busy" in str(error) or "permission" in str(error):
            raise
        return ""
    finally:
        source.close()
    return f"{identity.model} {identity.serial}".strip()


def probe_port(one: Attached, *, adapters: bool = False) -> Attached:
    """Ask a port what is behind it, with the kinds that look so.

    Args:
        one: The port.
        adapters: Also ask behind adapter chips, where anything may be attached.
    """
    known = one.usb in USB_KINDS or one.device.startswith("/dev/rfcomm")
    if one.problem or not (known or adapters):
        return one
    answers = {}
    for kind in one.kinds:
        if kind in meter_names() and (model := _probe_quietly(kind, one.port)):
            answers[kind] = model
            break
    return msgspec.structs.replace(one, answers=answers)


def _probe_quietly(kind: str, port: str) -> str:
    try:
        return probe(kind, port)
    except MeterError:
        return ""


def find_port(kind: str, root: Path = Path("/")) -> str:
    """Return the one port that has the USB ids of a kind of meter.

    Raises:
        MeterInputError: There is none, or there are several; lists them.
    """
    known = {usb for usb, kinds in USB_KINDS.items() if kind in kinds}
    found = [one for one in attached_ports(root) if one.usb in known]
    units = {one.serial or one.port: one for one in reversed(found)}
    if len(units) == 1:
        return next(iter(units.values())).port
    if not units:
        raise MeterInputError(
            f"meter {kind}: no port given, and none here looks like one; "
            f"say {kind}:/dev/serial/by-id/..., see `edgeperf meter ls`"
        )
    several = ", ".join(sorted(one.port for one in units.values()))
    raise MeterInputError(f"meter {kind}: several are attached: {several}; say which one")


def onboard_meters(root: Path = Path("/")) -> list[str]:
    """Return the specs of the meters that are part of this board."""
    specs: list[str] = []
    for kind in METERS:
        try:
            find = getattr(meter_class(kind), "find", None)
        except MeterInputError:  # its package is not installed here
            continue
        specs += find(root) if find is not None else []
    return specs
