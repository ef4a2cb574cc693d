"""What a person sees of a chaos run or a soak run: a bar while it goes on, a table at the end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tests.chaos.run import Report
    from tests.chaos.soak import SoakReport

# Lines of the soak table, evenly over the run.
SOAK_ROWS = 16


@contextlib.contextmanager
def progress(console: Console, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    """A bar, where the console is a terminal; what is printed to the console meanwhile goes above it."""
    if not console.is_terminal:
        yield lambda _done: None
        return
    columns = (
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


def chaos_table(report: Report) -> Table:
    """The figures of a chaos run."""
    table = Table(title="Chaos run on three real brokers", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    figures = report.as_json()
    for name, value in figures.items():
        if name in ("faults", "failed"):
            for kind, count in value.items():
                table.add_row(f"{name}: {kind}", f"{count:,}")
            if not value:
                table.add_row(name, "0")
        elif name not in ("wrong", "examples"):
            table.add_row(name.replace("_", " "), f"{value:,}")
    return table


def soak_table(report: SoakReport) -> Table:
    """Samples of a soak run, evenly spread."""
    table = Table(title="Soak run on three real brokers", title_justify="left")
    for heading in (
        *("minutes", "sent", "acked", "records/s", "CPU %", "RSS MiB", "outstanding MiB"),
        *("tasks", "handles", "sockets"),
    ):
        table.add_column(heading, justify="right")
    samples = report.running
    step = max(1, -(-len(samples) // SOAK_ROWS))
    chosen = samples[::step] + report.samples[-1:]
    before: dict[str, Any] | None = None
    for sample in chosen:
        seconds = 0.0 if before is None else sample["at"] - before["at"]
        rate = (sample["acked"] - before["acked"]) / seconds if before is not None and seconds else 0.0
        cpu = (sample["cpu"] - before["cpu"]) / seconds if before is not None and seconds else 0.0
        table.add_row(
            f"{sample['at'] / 60:.1f}" + (" (closed)" if sample["is_last"] else ""),
            f"{sample['sent']:,}",
            f"{sample['acked']:,}",
            f"{rate:,.0f}",
            f"{cpu:.0%}",
            f"{sample['rss_kib'] / 1024:.1f}",
            f"{sample['outstanding'] / 2**20:.1f}",
            *(f"{sample[name]}" for name in ("tasks", "handles", "sockets")),
        )
        before = sample
    return table


def soak_summary(report: SoakReport) -> str:
    """The rest of the figures, in words."""
    bounces = ", ".join(f"{count} {kind}s" for kind, count in report.bounces.items()) or "no bounces"
    peak = max((sample["rss_kib"] for sample in report.samples), default=0) / 1024
    return (
        f"{bounces}; {report.in_log:,} records in the log; RSS at most {peak:.1f} MiB, slope over the last two "
        f"thirds {report.slope:+.1f} KiB a minute ({report.growth:+.2%})"
    )
