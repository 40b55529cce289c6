"""Probe of the power meters: which are attached or built in, and which of them answer.

Only ports whose USB ids are a meter's are asked: a byte sent to a strange serial device
may move a machine.
"""

from collections.abc import Iterator
from pathlib import Path

from edgeperf.agent.board.findings import Area, Finding

_AREA = Area("meters")


def find_meters(root: Path = Path("/")) -> Iterator[Finding]:
    """Look for meters on this board and on its ports; fits :attr:`Board.meters`."""
    # Here, because this loads pyserial, which the agent's own process does without.
    from edgeperf.power.discover import (  # noqa: PLC0415
        Attached,
        attached_ports,
        onboard_meters,
        probe_port,
    )

    onboard = onboard_meters(root)
    for spec in onboard:
        yield _AREA.ok(f"meter {spec}", "on this board")
    ports: list[Attached] = [probe_port(port) for port in attached_ports(root)]
    for port in ports:
        name = f"meter on {port.port}"
        if port.problem:
            value, _, what_to_do = port.problem.partition(": ")
            yield _AREA.warn(name, value, what_to_do)
        elif port.answers:
            told = ", ".join(f"{kind}: {model}" for kind, model in port.answers.items())
            yield _AREA.ok(name, told)
        else:
            text = "say which kind it is with --meter KIND:PORT; edgeperf meter ls --probe asks it"
            kinds = ", ".join(port.kinds) or "unknown"
            yield _AREA.missing(name, f"{port.product or 'a port'}, not asked ({kinds})", text)
    if not onboard and not ports:
        text = "plug a meter in; without one energy is not measured"
        yield _AREA.missing("meters", "none", text)
