"""Meters are found by what they are: USB ids and stable names, in a tree of files."""

from pathlib import Path

import msgspec
import pytest

from edgeperf.power.base import MeterInputError
from edgeperf.power.discover import Attached, attached_ports, find_port, probe, probe_port


class Machine:
    """A tree that looks like ``/sys`` and ``/dev`` of a board."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units = 0

    def plug(  # noqa: PLR0913 - what a device may have
        self,
        name: str,
        usb: str = "",
        *,
        serial: str = "",
        by_id: str = "",
        by_path: str = "",
        unit: str = "",
        ours: str = "",
    ) -> None:
        """Attach a serial device, or one more interface of *unit*."""
        self.units += 1
        device = self.root / "sys/devices" / (unit or f"usb{self.units}")
        interface = device / f"if{self.units}"
        interface.mkdir(parents=True)
        if usb:
            vendor, _, product = usb.partition(":")
            (device / "idVendor").write_text(f"{vendor}\n")
            (device / "idProduct").write_text(f"{product}\n")
            (device / "product").write_text("A device\n")
            if serial:
                (device / "serial").write_text(f"{serial}\n")
        entry = self.root / "sys/class/tty" / name
        entry.mkdir(parents=True)
        (entry / "device").symlink_to(interface)
        node = self.root / "dev" / name
        node.parent.mkdir(exist_ok=True)
        node.touch()
        links = {"serial/by-id": by_id, "serial/by-path": by_path, "edgeperf": ours}
        for how, link in links.items():
            if link:
                folder = self.root / "dev" / how
                folder.mkdir(parents=True, exist_ok=True)
                (folder / link).symlink_to(node)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A board with nothing attached."""
    return Machine(tmp_path)


def test_nothing_attached(machine: Machine) -> None:
    """A board without ports has none, and that is no error."""
    assert attached_ports(machine.root) == []


def test_ports_have_stable_names(machine: Machine) -> None:
    """The name is by-id where there is one, else by-path, else the device."""
    machine.plug("ttyACM3", "1915:c00a", serial="C0FFEE", by_id="usb-Nordic_PPK2_C0FFEE-if01")
    machine.plug("ttyUSB0", "1a86:7523", by_path="pci-0000:00:14.0-usb-0:1:1.0-port0")
    machine.plug("rfcomm0")
    machine.plug("ttyS0")
    by_device = {one.device: one for one in attached_ports(machine.root)}
    assert set(by_device) == {"/dev/ttyACM3", "/dev/ttyUSB0", "/dev/rfcomm0"}
    assert by_device["/dev/ttyACM3"].port == "/dev/serial/by-id/usb-Nordic_PPK2_C0FFEE-if01"
    assert by_device["/dev/ttyACM3"].kinds == ("ppk2",)
    assert by_device["/dev/ttyACM3"].product == "A device"
    assert by_device["/dev/ttyUSB0"].port.startswith("/dev/serial/by-path/")
    assert "pzem004t" in by_device["/dev/ttyUSB0"].kinds
    assert by_device["/dev/rfcomm0"].kinds == ("um25c",)


def test_our_own_names_come_first(machine: Machine) -> None:
    """Where our udev rules are installed, their name is the one to use."""
    machine.plug("ttyACM0", "1915:c00a", serial="A", by_id="usb-A-if01", ours="ppk2-A-01")
    assert [one.port for one in attached_ports(machine.root)] == ["/dev/edgeperf/ppk2-A-01"]


def test_two_devices_alike(machine: Machine) -> None:
    """Boards with one serial number for all are told apart by their socket."""
    for i in range(2):
        machine.plug(
            f"ttyACM{i}",
            "0483:5740",
            serial="FFFFFFFEFFFF",
            by_id="usb-STM_FFFFFFFEFFFF-if00" if i else "",
            by_path=f"pci-usb-0:{i}:1.0",
        )
    ports = [one.port for one in attached_ports(machine.root)]
    assert ports == ["/dev/serial/by-path/pci-usb-0:0:1.0", "/dev/serial/by-path/pci-usb-0:1:1.0"]


def test_two_ports_of_one_unit(machine: Machine) -> None:
    """A PPK2 shows two ports; both keep their names, and the first is meant without a port."""
    for i in range(2):
        machine.plug(
            f"ttyACM{i}", "1915:c00a", serial="C0FFEE", by_id=f"usb-PPK2-if0{2 * i + 1}", unit="u"
        )
    ports = [one.port for one in attached_ports(machine.root)]
    assert ports == ["/dev/serial/by-id/usb-PPK2-if01", "/dev/serial/by-id/usb-PPK2-if03"]
    assert find_port("ppk2", machine.root) == "/dev/serial/by-id/usb-PPK2-if01"


def test_several_of_a_kind_must_be_named(machine: Machine) -> None:
    """Two units are listed; none is chosen."""
    for serial in ("AAA", "BBB"):
        machine.plug(f"ttyACM{serial}", "1915:c00a", serial=serial, by_id=f"usb-PPK2_{serial}-if01")
    with pytest.raises(MeterInputError, match=r"several are attached: .*AAA.*BBB.*; say which"):
        find_port("ppk2", machine.root)


@pytest.mark.parametrize("kind", ["ppk2", "textline"])
def test_none_of_a_kind(kind: str, machine: Machine) -> None:
    """Without a device that looks right the user is told how to name one."""
    machine.plug("ttyUSB0", "1a86:7523")
    with pytest.raises(MeterInputError, match=f"say {kind}:/dev/serial/by-id/"):
        find_port(kind, machine.root)


def test_probe_tells_what_answers(simulate: object) -> None:
    """A meter answers to its own probe and to no other."""
    port = simulate("tc66").port  # type: ignore[operator]  # a fixture function
    assert probe("tc66", port) == "TC66 4711"
    assert probe("um25c", port) == ""
    one = Attached(port=port, device="/dev/ttyACM0", usb="0483:5740", kinds=("tc66",))
    assert probe_port(one).answers == {"tc66": "TC66 4711"}


def test_strange_devices_are_not_asked() -> None:
    """Behind an adapter anything may be, so nothing is sent unless the user says so."""
    one = Attached(port="/dev/x", device="/dev/ttyUSB0", usb="1a86:7523", kinds=("tc66",))
    assert probe_port(one) is one
    assert msgspec.structs.replace(one, problem="busy") == probe_port(
        msgspec.structs.replace(one, problem="busy"), adapters=True
    )
