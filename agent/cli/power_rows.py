"""The lines of a summary that tell energy and power."""

from typing import Any

from edgeperf.power.result import PORT, PSEUDO_TERMINAL

Rows = list[tuple[str, str]]

_PREFIXES = (("", 1.0), ("m", 1e-3), ("µ", 1e-6), ("n", 1e-9))


def power_rows(power: dict[str, Any] | None) -> Rows:
    """Return label and text of each line; none without a meter."""
    if power is None:
        return []
    meter = power["meter"]
    if power.get("identity", {}).get("details", {}).get(PORT) == PSEUDO_TERMINAL:
        meter += " (simulated)"
    rows = [("meter", f"{meter}: {power['measures']} at the {power['boundary']}")]
    gross, idle, net = power["gross"], power["idle"], power["net"]
    if gross is None:
        share = f"saw {power['coverage']:.1%} of the window"
        return [*rows, ("energy", f"not stated: the meter {share}")]
    rows.append(("energy", _energy(gross)))
    if idle is not None and net is not None:
        rows.append(("net of idle", f"{_energy(net)}; idle {_number(idle['average_w'], 'W')}"))
    peak = power["peak_w"]
    if peak is not None:
        rows.append(("peak", f"{_number(peak, 'W')} at {power['rate_hz']:g} readings/s"))
    return rows


def _energy(metrics: dict[str, Any]) -> str:
    parts = [
        f"{_number(metrics['energy_j'], 'J')} in the window",
        f"{_number(metrics['average_w'], 'W')} on average",
    ]
    if metrics["energy_per_sample_j"] is not None:
        parts.insert(0, f"{_number(metrics['energy_per_sample_j'], 'J')} per sample")
    return ", ".join(parts)


def _number(estimate: dict[str, float], unit: str) -> str:
    """Return a value with its k = 2 uncertainty, scaled to a readable size."""
    value, uncertainty = estimate["value"], estimate["uncertainty"]
    larger = max(abs(value), uncertainty)
    prefix, size = next(((p, s) for p, s in _PREFIXES if larger >= s), _PREFIXES[-1])
    value, uncertainty = value / size, uncertainty / size
    return f"{value:.4g} ± {_two_digits(uncertainty)} {prefix}{unit}"


def _two_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"  # noqa: PLR2004 - two digits
