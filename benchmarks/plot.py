"""The results as one picture: the targets, the clients next to each other, latency, scaling.

Called by `__main__.py` with `--plot`; needs the `bench` extra (matplotlib). A panel without figures is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.judge import Judgement
from benchmarks.plans import Section
from benchmarks.runner import Result

OURS, PEER, MET, MISSED, INK = "#1f77b4", "#b8bec6", "#2ca02c", "#d9534f", "#333333"
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf")
Panel = tuple[float, Callable[[Any], None]]


def draw(
    file: Path,
    sections: Mapping[str, Section],
    results: Mapping[str, Sequence[Result]],
    judgements: Mapping[str, Sequence[Judgement]],
) -> None:
    """Write the picture; the file's suffix is its format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = _rows(sections, results, judgements)
    if not rows:
        return
    with pyplot.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"}
    ):
        heights = [max(height for height, _ in row) for row in rows]
        figure = pyplot.figure(figsize=(14, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)
        for part, row in zip(parts.flat, rows, strict=True):
            axes = part.subplots(1, len(row), squeeze=False)
            for axis, (_, panel) in zip(axes.flat, row, strict=True):
                panel(axis)
        figure.savefig(file, dpi=130)
        pyplot.close(figure)


def _rows(
    sections: Mapping[str, Section],
    results: Mapping[str, Sequence[Result]],
    judgements: Mapping[str, Sequence[Judgement]],
) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    judged = [(section, each) for section, found in judgements.items() for each in found]
    if judged:
        rows.append([(_height(len(judged)), lambda axis: _targets(axis, judged))])
    rows += [_bars(sections[name].title, results[name]) for name in ("null", "kafka") if results.get(name)]
    last: list[Panel] = []
    if latencies := results.get("latency"):
        last.append((_height(len(latencies), 0.3), lambda axis: _latency(axis, latencies)))
    if scaling := results.get("scaling"):
        curves = report.curves_of(scaling)
        last.append((4.5, lambda axis: _curves(axis, curves)))
    return [*rows, last] if last else rows


def _height(lines: int, each: float = 0.22) -> float:
    return 0.9 + each * lines


def _targets(axis: Any, judged: Sequence[tuple[str, Judgement]]) -> None:
    """Draw the distance of each figure from its target: 1 is the target, further right is better."""
    labels = [f"{each.what}  [{section}]" for section, each in judged]
    for place, (_, each) in enumerate(judged):
        wanted = each.least if each.least is not None else each.goal
        assert wanted is not None
        share = wanted / each.value if each.is_most else each.value / wanted
        met = each.is_met and (each.least is not None or each.is_goal_met)
        axis.barh(
            place,
            share - 1,
            left=1,
            color=MET if met else MISSED,
            height=0.7,
            alpha=1 if each.least is not None else 0.5,
        )
        text = f"{each.value:,.2f} {each.unit} (wanted {'≤' if each.is_most else '≥'} {wanted:.3g})"
        right = share >= 1
        axis.annotate(
            text, (share, place), xytext=(4 if right else -4, 0), textcoords="offset points",
            va="center", ha="left" if right else "right", fontsize=7.5, color=INK,
        )  # fmt: skip
        if each.least is not None and each.goal is not None:
            goal = each.least / each.goal if each.is_most else each.goal / each.least
            axis.plot(goal, place, marker="|", color=INK, markersize=9)
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    # Room for the figures next to the bars, as a share of the axis' length.
    room = (max(high, 2.0) / min(low, 0.5)) ** 0.35
    axis.set_xlim(min(low, 0.5) / room, max(high, 2.0) * room)
    axis.axvline(1, color=INK, linewidth=1)
    _name_bars(axis, labels)
    _title(axis, "Targets: from 1 on met, further right is better; | is the goal, pale bars have only a goal")
    axis.set_xlabel("measured / wanted (upside down where less is better)")


def _bars(title: str, results: Sequence[Result]) -> list[Panel]:
    """Records per second and CPU seconds per million, best first, on log scales."""
    ranked = sorted(results, key=lambda result: -result.figures["records_per_second"])
    labels = [", ".join(filter(None, (result.case.name, report.settings_label(result)))) for result in ranked]

    def panel(figure: str, heading: str, layout: str) -> Callable[[Any], None]:
        def paint(axis: Any) -> None:
            values = [result.figures[figure] for result in ranked]
            colours = [OURS if result.case.client == "aioproduce" else PEER for result in ranked]
            axis.barh(range(len(ranked)), values, color=colours, height=0.7)
            for place, result in enumerate(ranked):
                runs = [each[figure] for each in result.rounds]
                axis.plot([min(runs), max(runs)], [place, place], color=INK, linewidth=1)
                axis.annotate(
                    layout.format(values[place]), (max(max(runs), values[place]), place), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=7.5, color=INK,
                )  # fmt: skip
            axis.set_xscale("log")
            axis.set_xlim(min(values) / 1.6, max(values) * 2.2)
            _name_bars(axis, labels)
            _title(axis, f"{title}: {heading}")

        return paint

    height = _height(len(ranked))
    return [
        (height, panel("records_per_second", "records/s", "{:,.0f}")),
        (
            height,
            panel("cpu_seconds_per_million", "CPU s of the client per million", "{:,.2f}"),
        ),
    ]


def _title(axis: Any, text: str) -> None:
    axis.set_title(text, loc="left", fontsize=10, fontweight="bold")


def _name_bars(axis: Any, labels: Sequence[str]) -> None:
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.margins(y=0.01)
    axis.grid(axis="x", which="major", color="#e5e5e5")
    axis.set_axisbelow(True)


def _latency(axis: Any, results: Sequence[Result]) -> None:
    """p50, p99 and p99.9 as points on a line."""
    for place, result in enumerate(results):
        told = [result.figures[f"latency_{name}_ms"] for name in ("p50", "p99", "p99.9")]
        # Java reports whole milliseconds: its 0 has no place on this scale.
        values = [max(value, 0.05) for value in told]
        colour = OURS if result.case.client == "aioproduce" else "#7f868f"
        axis.plot(values, [place] * 3, color=colour, linewidth=1.5, zorder=2)
        for value, marker in zip(values, ("o", "s", "D"), strict=True):
            axis.plot(value, place, marker=marker, color=colour, markersize=6, zorder=3)
        axis.annotate(
            " / ".join(f"{value:,.2f}" for value in told), (values[2], place), xytext=(8, 0),
            textcoords="offset points", va="center", fontsize=7.5, color=INK,
        )  # fmt: skip
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.set_xlim(low, high * 3)
    _name_bars(axis, [result.case.name for result in results])
    _title(axis, "Latency at 5,000 records/s: p50 (circle), p99 (square), p99.9 (diamond)")
    axis.margins(y=0.04)
    axis.set_xlabel("milliseconds")


def _curves(axis: Any, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw the cost per record, each curve relative to its cheapest point from 10 on."""
    for (curve, points), colour in zip(curves.items(), _COLOURS * 2, strict=False):
        if curve == "record size":
            continue
        least = min(y for x, y in points if x >= 10)
        axis.plot([x for x, _ in points], [y / least for _, y in points], marker="o", color=colour,
                  label=f"{curve} ({least:,.1f} us at its least)")  # fmt: skip
    axis.axhspan(1.0, 1.2, color=MET, alpha=0.12)
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = (1, 1.2, 1.5, 2, 3, 5, 10)
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_yticks([], minor=True)
    axis.grid(color="#e5e5e5")
    axis.legend(fontsize=8, frameon=False)
    _title(axis, "Scaling: client CPU per record / its least from 10 on; the band is 20 %")
    axis.set_xlabel("how many")
