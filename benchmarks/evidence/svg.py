"""Plots as SVG, made from their figures alone: the same figures give the same bytes, which a test compares.

Called by `plots`. Text, lines and background take the reader's colours, light or dark, whatever the page's are.

1. Bars begin at zero and are linear. Values over several powers of ten are points and lines on logarithmic scales.
2. Each value that a bar or a range has is written next to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

_WIDTH: Final = 800
_ROW: Final = 20
_TOP: Final = 34
_NAMES: Final = 290
_VALUES: Final = 110
_STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.page { fill: #ffffff; }
.grid { stroke: #d1d9e0; }
.other { fill: #8c959f; stroke: #8c959f; }
.c0 { fill: #0969da; stroke: #0969da; }
.c1 { fill: #bc4c00; stroke: #bc4c00; }
.c2 { fill: #1a7f37; stroke: #1a7f37; }
.c3 { fill: #8250df; stroke: #8250df; }
.c4 { fill: #bf3989; stroke: #bf3989; }
.c5 { fill: #9a6700; stroke: #9a6700; }
polyline { fill: none !important; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .page { fill: #0d1117; }
  .grid { stroke: #3d444d; }
  .other { fill: #9198a1; stroke: #9198a1; }
  .c0 { fill: #4493f8; stroke: #4493f8; }
  .c1 { fill: #f0883e; stroke: #f0883e; }
  .c2 { fill: #3fb950; stroke: #3fb950; }
  .c3 { fill: #ab7df8; stroke: #ab7df8; }
  .c4 { fill: #db61a2; stroke: #db61a2; }
  .c5 { fill: #d29922; stroke: #d29922; }
}
"""
_COLOURS: Final = 6
_PANEL: Final = 180.0
_GAP: Final = 24.0


def _page(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" width="{_WIDTH}" height="{height:.0f}" rx="8"/>\n'
        f'<text class="title" x="8" y="18">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def bars(title: str, rows: Sequence[tuple[str, float]], layout: str, ours: str) -> str:
    """A bar for each row, from zero.

    Args:
        title: Above them.
        rows: Names and values.
        layout: Of a value's text.
        ours: What the names begin with whose bars have another colour.
    """
    most = max(value for _, value in rows)
    room = _WIDTH - _NAMES - _VALUES
    parts = []
    for number, (name, value) in enumerate(rows):
        y = _TOP + number * _ROW
        width = room * value / most
        colour = "c0" if name.startswith(ours) else "other"
        parts += [
            _text(_NAMES - 6, y + 12, name, "end"),
            f'<rect class="{colour}" x="{_NAMES}" y="{y}" width="{width:.1f}" height="{_ROW - 6}"/>',
            _text(_NAMES + width + 6, y + 12, layout.format(value)),
        ]
    return _page(title, _TOP + len(rows) * _ROW + 4, parts)


def ranges(
    title: str, rows: Sequence[tuple[str, Sequence[float]]], layout: str, ours: str, least: float
) -> str:
    """A line with a point for each value of each row, on a logarithmic scale.

    Args:
        title: Above them.
        rows: Names and ascending values.
        layout: Of a value's text.
        ours: As in `bars()`.
        least: What the scale begins at; what is less is drawn there.
    """
    place = _logarithmic(least, max(max(values) for _, values in rows), _NAMES + 8, _WIDTH - 170)
    height = _TOP + len(rows) * _ROW
    parts = _powers(least, max(max(values) for _, values in rows), place, _TOP - 6, height)
    for number, (name, values) in enumerate(rows):
        y = _TOP + number * _ROW + 8
        xs = [place(max(value, least)) for value in values]
        colour = "c0" if name.startswith(ours) else "other"
        parts += [_text(_NAMES - 6, y + 4, name, "end"), _line(xs[0], y, xs[-1], y, colour)]
        parts += [f'<circle class="{colour}" cx="{x:.1f}" cy="{y}" r="4"/>' for x in xs]
        parts.append(_text(xs[-1] + 10, y + 4, " / ".join(layout.format(value) for value in values)))
    return _page(title, height + 20, parts)


def lines(
    title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, *, is_logarithmic: bool
) -> str:
    """A line for each series.

    Args:
        title: Above them, with what the values are.
        series: Names, and points from left to right.
        x_label: Below them.
        is_logarithmic: Both scales; else both are linear, and that of the values begins at zero.
    """
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    left, right, top = 76.0, _WIDTH - 36.0, _TOP + 18.0 * -(-len(series) // 3)
    bottom = top + 280
    if is_logarithmic:
        across, up = _logarithmic(min(xs), max(xs), left, right), _logarithmic(min(ys), max(ys), bottom, top)
        parts = _powers(min(xs), max(xs), across, top, bottom)
        marks = [(each, f"{each:,.10g}") for each in _round_numbers(min(ys), max(ys))]
    else:
        across, up = _linear(min(xs), max(xs), left, right), _linear(0.0, max(ys), bottom, top)
        parts = [_text(across(x), bottom + 14, f"{x:,.0f}", "middle") for x in (min(xs), max(xs))]
        marks = [(max(ys) * share, f"{max(ys) * share:,.0f}") for share in (0.0, 0.5, 1.0)]
    for value, text in marks:
        parts += [
            _line(left, up(value), right, up(value), "grid"),
            _text(left - 6, up(value) + 4, text, "end"),
        ]
    for number, (name, points) in enumerate(series.items()):
        colour = f"c{number % _COLOURS}"
        x, y = 76 + number % 3 * 235, _TOP + number // 3 * 18
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts += [_line(x, y - 4, x + 18, y - 4, colour), _text(x + 24, y, name)]
        parts.append(f'<polyline class="{colour}" points="{path}"/>')
    parts.append(_text((left + right) / 2, bottom + 30, x_label, "middle"))
    return _page(title, bottom + 38, parts)


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of `timeline()`.

    Attributes:
        title: What the values are.
        series: Names, and points from left to right.
        is_logarithmic: The scale of the values; a linear one begins at zero.
        longest_step: A line is broken between points that are farther apart.
    """

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    is_logarithmic: bool = False
    longest_step: float = math.inf


def timeline(
    title: str,
    panels: Sequence[Panel],
    *,
    spans: Sequence[tuple[str, float, float]],
    marks: Sequence[tuple[str, float]],
    x_label: str,
) -> str:
    """Panels one above the other with the same time, and what happened meanwhile behind them.

    Args:
        title: Above them.
        panels: From top to bottom. A panel of one series is filled below its line.
        spans: Names, begins and ends of what lasted.
        marks: Names and times of what did not.
        x_label: Below them.
    """
    xs = [x for panel in panels for points in panel.series.values() for x, _ in points]
    left, right, top = 76.0, _WIDTH - 36.0, _TOP + 34.0
    across = _linear(0.0, max(xs), left, right)
    bottom = top + len(panels) * (_PANEL + _GAP) - _GAP
    parts = [
        f'<rect class="c{number % 2 + 1}" style="stroke:none;fill-opacity:.15" x="{across(begin):.1f}" '
        f'y="{top - 20:.1f}" width="{across(end) - across(begin):.1f}" height="{bottom - top + 20:.1f}"/>'
        for number, (_, begin, end) in enumerate(spans)
    ]
    parts += [_text(across(begin) + 4, top - 24, name) for name, begin, _ in spans]
    for name, at in marks:
        x = across(at)
        parts.append(f'<line class="c4" stroke-dasharray="4 3" x1="{x:.1f}" y1="{top - 20:.1f}" x2="{x:.1f}" '
                     f'y2="{bottom:.1f}"/>')  # fmt: skip
        parts.append(_text(x + 4, top - 8, name))
    for number, panel in enumerate(panels):
        parts += _panel(panel, across, left, right, top + number * (_PANEL + _GAP))
    parts += [_text(across(x), bottom + 14, f"{x:,.10g}", "middle") for x in _ticks(max(xs))]
    parts.append(_text((left + right) / 2, bottom + 30, x_label, "middle"))
    return _page(title, bottom + 38, parts)


def _panel(panel: Panel, across: Scale, left: float, right: float, top: float) -> list[str]:
    ys = [y for points in panel.series.values() for _, y in points]
    inner, bottom = top + 22, top + _PANEL
    if panel.is_logarithmic:
        least, most = min(ys), max(ys)
        up = _logarithmic(least, most, bottom, inner)
        values = [(each, f"{each:,.10g}") for each in _round_numbers(least, most)]
    else:
        most = max(ys)
        up = _linear(0.0, most, bottom, inner)
        values = [(most * share, f"{most * share:,.0f}") for share in (0.0, 0.5, 1.0)]
    parts = []
    for value, text in values:
        parts += [
            _line(left, up(value), right, up(value), "grid"),
            _text(left - 6, up(value) + 4, text, "end"),
        ]
    parts.append(_text(left + 4, top + 10, panel.title))
    for number, (name, points) in enumerate(panel.series.items()):
        colour = "c0" if not number else f"c{number + 2}"
        paths = [
            " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in piece)
            for piece in _pieces(points, panel.longest_step)
        ]
        parts += [f'<polyline class="{colour}" points="{path}"/>' for path in paths]
        if len(panel.series) > 1:
            x = right - 70 * (len(panel.series) - number)
            parts += [_line(x, top + 6, x + 18, top + 6, colour), _text(x + 24, top + 10, name)]
        else:
            begin, end = (f"{across(x):.1f},{bottom:.1f}" for x in (points[0][0], points[-1][0]))
            ends = " ".join((begin, *paths, end))
            parts.append(f'<polygon class="{colour}" style="stroke:none;fill-opacity:.25" points="{ends}"/>')
    return parts


def _pieces(
    points: Sequence[tuple[float, float]], longest_step: float
) -> list[Sequence[tuple[float, float]]]:
    breaks = [at for at in range(1, len(points)) if points[at][0] - points[at - 1][0] > longest_step]
    return [points[begin:end] for begin, end in pairwise((0, *breaks, len(points)))]


def _ticks(most: float) -> list[float]:
    """Return round numbers from zero on, at most nine."""
    step = next(
        10.0**power * factor
        for power in range(-3, 12)
        for factor in (1.0, 2.0, 5.0)
        if most / (10.0**power * factor) <= 8
    )
    return [step * number for number in range(int(most / step) + 1)]


Scale = Callable[[float], float]


def _linear(least: float, most: float, begin: float, end: float) -> Scale:
    span = (most - least) or 1.0
    return lambda value: begin + (end - begin) * (value - least) / span


def _logarithmic(least: float, most: float, begin: float, end: float) -> Scale:
    scale = _linear(math.log10(least), math.log10(most), begin, end)
    return lambda value: scale(math.log10(value))


def _round_numbers(least: float, most: float) -> list[float]:
    """Return the powers of ten within a range; with their doubles and fivefolds if there is at most one."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        every = [10.0**power * factor for power in powers for factor in factors]
        within = [each for each in every if least <= each * (1 + 1e-9) and each <= most * (1 + 1e-9)]
        if len(within) > 1:
            break
    return within


def _powers(least: float, most: float, place: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for value in _round_numbers(least, most):
        x = place(value)
        parts += [_line(x, top, x, bottom, "grid"), _text(x, bottom + 14, f"{value:,.10g}", "middle")]
    return parts
