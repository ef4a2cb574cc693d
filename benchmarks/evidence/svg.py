"""Plots as SVG, made from their figures alone: the same figures give the same bytes, which a test compares.

Called by `plots`. Text, lines and background take the reader's colours, light or dark, whatever the page's are.

1. Bars begin at zero and are linear. Values over several powers of ten are points and lines on logarithmic scales.
2. Each value that a bar or a range has is written next to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
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
