"""Meter specs and the registry: what may be written, and what is told otherwise."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import METERS, SIMULATORS, meter_class, meter_names, parse_meter_spec
from edgeperf.power.base import MeterInputError, SourceInfo
from edgeperf.power.serial_meter import SerialMeter

#: Ports of the meters that are neither serial nor part of the board.
NEEDS = {"ptdaemon": "localhost:8888"}


@pytest.mark.parametrize(
    ("text", "kind", "port", "options"),
    [
        ("rapl", "rapl", "", {}),
        ("ppk2:/dev/serial/by-id/usb-x-if01,voltage=5.0", "ppk2", "/dev/serial/by-id/usb-x-if01",
         {"voltage": "5.0"}),
        ("ptdaemon:lab-pc:8888", "ptdaemon", "lab-pc:8888", {}),
        ("tc66:/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0", "tc66",
         "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0", {}),
        ("ppk2,voltage=5,mode=source", "ppk2", "", {"voltage": "5", "mode": "source"}),
        (" textline:/dev/x , baud = 9600 ", "textline", "/dev/x", {"baud": "9600"}),
    ],
)  # fmt: skip
def test_good_specs(text: str, kind: str, port: str, options: dict[str, str]) -> None:
    """A kind, perhaps a port with colons, perhaps options; its text parses to itself."""
    spec = parse_meter_spec(text)
    assert (spec.kind, spec.port, spec.options) == (kind, port, options)
    assert parse_meter_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "starts with no kind"),
        (":/dev/x", "starts with no kind"),
        ("/dev/ttyACM0", "starts with no kind"),
        ("ppk2:/dev/x,voltage", "'voltage' is not KEY=VALUE"),
        ("ppk2:/dev/x,", "'' is not KEY=VALUE"),
        ("ppk2:/dev/x,a=1,a=2", "a is given twice"),
    ],
)
def test_bad_specs(text: str, complaint: str) -> None:
    """What is no spec says which part is not."""
    with pytest.raises(MeterInputError, match=complaint):
        parse_meter_spec(text)


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    """Any text is a spec that survives its own text, or bad input."""
    try:
        spec = parse_meter_spec(text)
    except MeterInputError:
        return
    assert parse_meter_spec(str(spec)) == spec


@pytest.mark.parametrize("kind", list(METERS))
def test_every_meter_keeps_the_house_rules(kind: str) -> None:
    """Each driver is named like its entry, needs no option to be made, and has a simulator."""
    try:
        driver: Any = meter_class(kind)
    except MeterInputError as error:
        assert "needs a package" in str(error)  # noqa: PT017  # an extra that is not installed
        return
    assert driver.kind == kind
    assert driver.Options.__struct_config__.forbid_unknown_fields
    port = "/dev/none" if issubclass(driver, SerialMeter) else NEEDS.get(kind, "")
    source = driver(port, driver.Options())
    info = source.info()
    assert isinstance(info, SourceInfo)
    assert info.kind == kind
    assert info.rate_hz > 0
    assert msgspec.convert(msgspec.to_builtins(info), SourceInfo) == info
    assert kind in SIMULATORS or kind == "nvml"
    source.close()


def test_unknown_kind() -> None:
    """An unknown kind lists the known ones."""
    with pytest.raises(MeterInputError, match="no such kind; known: textline, "):
        meter_class("joulemeter")
    assert meter_names()[: len(METERS)] == list(METERS)


def test_light_modules_stay_light() -> None:
    """Specs, results and the recorder's near side load neither numpy nor pyserial."""
    code = (
        "import sys, edgeperf.power, edgeperf.power.base, edgeperf.power.spec\n"
        "import edgeperf.power.result, edgeperf.power.live, edgeperf.power.recorder\n"
        "edgeperf.power.parse_meter_spec('ppk2:/dev/x'); edgeperf.power.meter_names()\n"
        "print(sorted({'numpy', 'serial', 'cryptography'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
