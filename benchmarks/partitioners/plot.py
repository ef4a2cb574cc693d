"""The three experiments as one picture. Called by `__main__.py`; needs matplotlib (the `bench` extra)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.partitioners.balance import PUBLISHED

Row = dict[str, Any]
COLOURS = {"round_robin": "#b8bec6", "sticky": "#ff7f0e", "uniform_sticky": "#1f77b4"}
INK, GREY = "#333333", "#b8bec6"


def draw(file: Path, results: Mapping[str, list[Row]]) -> None:
    """Write the picture; the file's suffix is its format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {"batching": _batching, "slow_broker": _slow_broker, "balance": _balance}
    drawn = [name for name in panels if results.get(name)]
    with pyplot.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"}
    ):
        figure = pyplot.figure(figsize=(12, 3.4 * len(drawn)), layout="constrained")
        parts = figure.subfigures(len(drawn), 1, squeeze=False)
        for part, name in zip(parts.flat, drawn, strict=True):
            panels[name](part, results[name])
        figure.savefig(file, dpi=130)
        pyplot.close(figure)


def _legend(axis: Any) -> None:
    """Draw the legend next to the title, where no bar is."""
    axis.set_title(axis.get_title(), loc="left")
    axis.set_title("")
    axis.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)


def _plain_log(axis: Any) -> None:
    """Make the axis logarithmic, with its numbers written out."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def _batching(part: Any, rows: list[Row]) -> None:
    part.suptitle("KIP-480: latency of three producers, 1,000 records/s each, 16 partitions (median, 99 %)")
    kinds = list(dict.fromkeys(row["brokers"] for row in rows))
    for axis, kind in zip(part.subplots(1, len(kinds), sharey=True), kinds, strict=True):
        own = [row for row in rows if row["brokers"] == kind]
        lingers = list(dict.fromkeys(row["linger_ms"] for row in own))
        for number, (name, colour) in enumerate(COLOURS.items()):
            places = [place + (number - 1) * 0.27 for place in range(len(lingers))]
            of_name = [row for row in own if row["partitioner"] == name]
            axis.bar(places, [row["p99_ms"] for row in of_name], 0.25, color=colour, alpha=0.45)
            axis.bar(places, [row["p50_ms"] for row in of_name], 0.25, color=colour, label=name)
        _plain_log(axis)
        axis.set_xticks(range(len(lingers)), [f"linger.ms={linger}" for linger in lingers])
        axis.set_title(f"brokers {kind}")
        axis.set_ylabel("ms")
        _legend(axis)


def _slow_broker(part: Any, rows: list[Row]) -> None:
    part.suptitle("KIP-794: one broker takes 20 ms longer for each request")
    latency, shares = part.subplots(1, 2)
    places = range(len(rows))
    for offset, ours, label, colour in (
        (-0.2, "mean_ms", "here", "#1f77b4"),
        (0.2, "published_mean_ms", "published", GREY),
    ):
        latency.bar(
            [place + offset for place in places], [row[ours] for row in rows], 0.36, color=colour, label=label
        )
    _plain_log(latency)
    latency.set_xticks(places, [row["choice"] for row in rows])
    latency.set_title("mean latency, ms")
    _legend(latency)
    bottom = [0.0] * len(rows)
    for broker, colour in enumerate(("#d9534f", "#1f77b4", "#7fb2d9")):
        share = [100 * row["by_broker"][broker] / sum(row["by_broker"]) for row in rows]
        label = f"broker {broker}" + (" (slow)" if broker == 0 else "")
        shares.bar(places, share, 0.6, bottom=bottom, color=colour, label=label)
        bottom = [low + more for low, more in zip(bottom, share, strict=True)]
    shares.set_xticks(places, [row["choice"] for row in rows])
    shares.set_title("records, %")
    _legend(shares)


def _balance(part: Any, rows: list[Row]) -> None:
    records = sum(rows[0]["by_partition"])
    part.suptitle(f"{records:,} keyless records over four partitions: each partition's part of a quarter")
    axis = part.subplots()
    even = records / len(rows[0]["by_partition"])
    for place, row in enumerate(reversed(rows)):
        axis.plot(
            [100 * count / even - 100 for count in row["by_partition"]],
            [place] * len(row["by_partition"]),
            "o",
            color="#1f77b4",
            alpha=0.7,
        )
    for bound in PUBLISHED:
        axis.axvline(100 * bound / (sum(PUBLISHED) / 2) - 100, color=GREY, lw=1)
    axis.set_yticks(range(len(rows)), [row["partitioner"] for row in reversed(rows)])
    axis.set_xlabel("% from even; grey: the published extremes")
    axis.axvline(0, color=INK, lw=0.6)
