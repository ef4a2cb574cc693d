"""The story as one HTML file that opens offline: it contains the plots and loads nothing.

Called by `__main__` at the end. It draws with matplotlib (the extra `plot`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from examples.lake.watch import Sample

COLORS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd")
GREY: Final = "#8a929b"
RED: Final = "#d9534f"
WINDOW: Final = 4
"""Samples in the window of a rate. They cover two seconds, so that a single flush is no spike."""

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2024; background: #fff; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.sub { color: #5b6570; margin-top: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e3e6e9; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #1a7f37; font-weight: 600; } .bad { color: #c4312c; font-weight: 600; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { flex: 1 1 9rem; border: 1px solid #e3e6e9; border-radius: .5rem; padding: .6rem .9rem; }
.tile b { display: block; font-size: 1.5rem; } .tile span { color: #5b6570; font-size: .85rem; }
svg { max-width: 100%; height: auto; } .scroll { overflow-x: auto; } code { font-size: .85em; }
"""


@dataclass(frozen=True, slots=True)
class Event:
    """An event in the story, such as a kill.

    Attributes:
        at: Seconds since the beginning.
        name: A word or two, for the plot.
        text: What happened.
    """

    at: float
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """The audit's figures of one source.

    Attributes:
        name: The source.
        producers: Number of producer ids. Each task of Spark has one.
        expected: Records that the source had.
        found: Distinct records in the lake.
        duplicates: Extra rows in the lake.
        lost: Sequence numbers that were assigned and are not in the lake.
        in_kafka: Records in the topic, with repeated ones.
    """

    name: str
    producers: int
    expected: int
    found: int
    duplicates: int
    lost: int
    in_kafka: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing is lost and the audit's duplicates equal the repeated records in Kafka."""
        return (
            self.lost == 0 and self.found == self.expected and self.duplicates == self.in_kafka - self.found
        )


@dataclass(slots=True)
class Told:
    """The contents of the report."""

    samples: Sequence[Sample] = ()
    events: list[Event] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    files_before: int = 0
    files_after: int = 0
    is_sound: bool = False
    versions: str = ""


def write(told: Told, file: Path) -> Path:
    """Write the report and return the file."""
    file.write_text(page(told), encoding="utf-8")
    return file


def page(told: Told) -> str:
    """Return the whole document."""
    lost = sum(row.lost for row in told.rows)
    duplicates = sum(row.duplicates for row in told.rows)
    repeated = sum(row.in_kafka - row.found for row in told.rows)
    verdict = (
        "nothing lost, every duplicate known" if told.is_sound else "the lake differs from what was sent"
    )
    tiles = (
        (f"{sum(row.expected for row in told.rows):,}", "records sent"),
        (f"{lost:,}", "lost"),
        (f"{repeated:,}", "twice in Kafka, after the kills"),
        (f"{duplicates:,}", "duplicates that the audit found"),
        (f"{told.files_before:,} → {told.files_after:,}", "files, compacted"),
        (f"{told.seconds:.0f} s", "from the first broker to the audit"),
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>aioproduce: the pipeline's audit</title><style>{STYLE}</style></head><body>
<h1>From services and files to a lake: <span class="{"good" if told.is_sound else "bad"}">{verdict}</span></h1>
<p class="sub">{escape(told.versions)}</p>
<div class="tiles">{"".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in tiles)}</div>
<h2>Audit</h2>{_table(told.rows)}{svg(lambda axes: _audit(axes, told.rows), height=2.4)}
<h2>Events</h2>{_events(told.events)}
<h2>Throughput</h2>{svg(lambda axes: _throughput(axes, told))}
<h2>Lag: in Kafka and not yet in the lake</h2>{svg(lambda axes: _lag(axes, told))}
</body></html>
"""


def _table(rows: Sequence[Row]) -> str:
    names = ("source", "producer ids", "sent", "in Kafka", "distinct in the lake", "duplicates", "lost")
    head = "".join(f"<th{' class=n' if number else ''}>{name}</th>" for number, name in enumerate(names))
    lines = []
    for row in rows:
        numbers = (row.producers, row.expected, row.in_kafka, row.found, row.duplicates, row.lost)
        cells = "".join(f"<td class=n>{number:,}</td>" for number in numbers)
        lines.append(
            f'<tr><td class="{"good" if row.is_sound else "bad"}">{escape(row.name)}</td>{cells}</tr>'
        )
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _events(events: Sequence[Event]) -> str:
    lines = "".join(
        f"<tr><td class=n>{event.at:.1f} s</td><td>{escape(event.text)}</td></tr>" for event in events
    )
    return f'<div class="scroll"><table><tr><th class=n>time</th><th>event</th></tr>{lines}</table></div>'


def svg(draw: Any, *, height: float = 3.0) -> str:
    """Return a plot as an element of the page."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(9.6, height), layout="constrained")
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    # Cut off the XML declaration, which is invalid within a page.
    return text.getvalue()[text.getvalue().index("<svg") :]


def _thousands(axes: Any, name: str) -> None:
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,g} k" if value >= 1000 else f"{value:g}")
    axes.set_ylabel(name)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e3e6e9", linewidth=0.6)
    axes.set_axisbelow(True)


def _mark(axes: Any, told: Told) -> None:
    """Mark the events. Names of close events stand side by side, so that they do not overlap."""
    width = max((sample.at for sample in told.samples), default=0.0) / 60  # the width of a name
    free = 0.0
    for event in sorted(told.events, key=lambda event: event.at):
        axes.axvline(event.at, color=RED, linewidth=0.8, linestyle=(0, (4, 3)))
        place = max(event.at, free)
        free = place + width
        axes.annotate(
            event.name,
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=7,
            color=RED,
        )
    axes.set_xlabel("seconds from the start")
    axes.set_xlim(left=0)


def rates(samples: Sequence[Sample], counts: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return times and rates: records a second, each over `WINDOW` samples."""
    at, rate = [], []
    for number in range(len(samples) - WINDOW):
        before, after = samples[number], samples[number + WINDOW]
        at.append((before.at + after.at) / 2)
        rate.append((counts[number + WINDOW] - counts[number]) / (after.at - before.at))
    return at, rate


def _throughput(axes: Any, told: Told) -> None:
    if not told.samples:
        return
    for color, topic in zip(COLORS, told.samples[-1].produced, strict=False):
        axes.plot(
            *rates(told.samples, [each.produced[topic] for each in told.samples]),
            color=color,
            label=f"into {topic}",
        )
    landed = [sum(each.landed.values()) for each in told.samples]
    axes.plot(*rates(told.samples, landed), color=GREY, linestyle="--", label="landed, all")
    _mark(axes, told)
    _thousands(axes, "records/s")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.22), ncols=5, frameon=False)


def _lag(axes: Any, told: Told) -> None:
    axes.fill_between(
        [each.at for each in told.samples], [each.lag for each in told.samples], color=COLORS[0], alpha=0.3
    )
    axes.plot([each.at for each in told.samples], [each.lag for each in told.samples], color=COLORS[0])
    _mark(axes, told)
    _thousands(axes, "records")


def _audit(axes: Any, rows: Sequence[Row]) -> None:
    names = [row.name for row in rows]
    found = [row.found for row in rows]
    axes.barh(names, found, color=COLORS[2], height=0.55, label="distinct in the lake")
    axes.barh(
        names, [row.duplicates for row in rows], left=found, color=COLORS[1], height=0.55, label="duplicates"
    )
    axes.barh(names, [row.lost for row in rows], left=found, color=RED, height=0.55, label="lost")
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,g} k" if value >= 1000 else f"{value:g}")
    axes.set_xlabel("records")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=3, frameon=False)
