"""The chart of docs/performance.md: a dot per harness, its interval as a line through it."""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec
from benchmarks.analysis import Line
from benchmarks.rows import Record

_COLOURS = {
    "edgeperf": "#00695c",
    "reference": "#ef6c00",
    "queue": "#8e24aa",
    "pipe": "#c2185b",
    "benchmark_app": "#1565c0",
}
_LABEL_PX, _PANEL_PX, _GAP_PX, _ROW_PX, _TOP_PX = 236, 196, 24, 34, 84
_TICKS = 4
_STYLE = (
    'font-family="system-ui, sans-serif" font-size="12" role="img"'
    ' aria-label="Ratio of each harness to bare loops of the same runtime, by model."'
)


class Panel(msgspec.Struct, frozen=True):
    """One column of the chart.

    Attributes:
        scenario: Whose ratio is drawn.
        ratio: Which one.
        title: Above it.
        low: Left end of the axis.
        high: Right end; what lies outside is drawn at the edge, hollow.
    """

    scenario: str
    ratio: str
    title: str
    low: float
    high: float


PANELS = (
    Panel("SingleStream", "p90_ns", "SingleStream p90 / bare loop", 0.9, 1.7),
    Panel("MultiStream", "p50_ns", "MultiStream p50 / ideal", 0.9, 1.7),
    Panel("Offline", "sps", "Offline rate / all bare loops", 0.4, 1.2),
    Panel("Server", "sps", "Server rate at bound / all loops", 0.4, 1.2),
)


def chart(record: Record, lines: Sequence[Line]) -> str:
    """Return the chart as SVG."""
    targets = list(record.facts)
    width = _LABEL_PX + len(PANELS) * (_PANEL_PX + _GAP_PX)
    height = _TOP_PX + len(targets) * _ROW_PX + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_STYLE}>',
        f'<rect width="{width}" height="{height}" fill="#fafafa"/>',
        *_legend(),
        *_labels(record, targets),
    ]
    for place, panel in enumerate(PANELS):
        left = _LABEL_PX + place * (_PANEL_PX + _GAP_PX)
        parts += _panel(panel, left, targets, lines)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    left = _LABEL_PX
    for name, colour in _COLOURS.items():
        yield f'<circle cx="{left}" cy="22" r="5" fill="{colour}"/>'
        yield f'<text x="{left + 10}" y="26" fill="#263238">{name}</text>'
        left += 34 + 7 * len(name)


def _labels(record: Record, targets: Sequence[str]) -> Iterator[str]:
    for row, target in enumerate(targets):
        text = f"{target}, {record.facts[target].bare_ns / 1e3:,.0f} µs"
        y = _middle(row) + 4
        yield f'<text x="{_LABEL_PX - 12}" y="{y}" text-anchor="end">{escape(text)}</text>'


def _middle(row: int) -> int:
    return _TOP_PX + row * _ROW_PX + _ROW_PX // 2


def _panel(panel: Panel, left: int, targets: Sequence[str], lines: Sequence[Line]) -> Iterator[str]:
    bottom = _TOP_PX + len(targets) * _ROW_PX
    yield f'<text x="{left}" y="{_TOP_PX - 26}" font-weight="600">{escape(panel.title)}</text>'
    for tick in range(_TICKS + 1):
        value = panel.low + tick * (panel.high - panel.low) / _TICKS
        x = left + tick * _PANEL_PX / _TICKS
        yield f'<path d="M{x:.1f} {_TOP_PX}V{bottom}" stroke="#cfd8dc"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:.2g}</text>'
    one = left + (1 - panel.low) / (panel.high - panel.low) * _PANEL_PX
    yield f'<path d="M{one:.1f} {_TOP_PX - 8}V{bottom}" stroke="#37474f" stroke-width="1.5"/>'
    for row, target in enumerate(targets):
        for place, name in enumerate(_COLOURS):
            for line in lines:
                if (line.target, line.scenario, line.contestant) == (target, panel.scenario, name):
                    yield from _dot(panel, left, _middle(row) - 8 + 4 * place, line)


def _dot(panel: Panel, left: int, y: int, line: Line) -> Iterator[str]:
    if (found := line.ratios.get(panel.ratio)) is None:
        return
    colour = _COLOURS[line.contestant]

    def x(value: float) -> float:
        inside = min(max(value, panel.low), panel.high)
        return left + (inside - panel.low) / (panel.high - panel.low) * _PANEL_PX

    outside = not panel.low <= found.value <= panel.high
    fill = "#fafafa" if outside else colour
    text = f"{line.contestant}: {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    yield f'<path d="M{x(found.low):.1f} {y}H{x(found.high):.1f}" stroke="{colour}"/>'
    yield (
        f'<circle cx="{x(found.value):.1f}" cy="{y}" r="3.5" fill="{fill}" stroke="{colour}">'
        f"<title>{escape(text)}</title></circle>"
    )
