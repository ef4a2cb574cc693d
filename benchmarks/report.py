"""Tables of the results for people. Called by `__main__.py`; `judge.py` judges, `plot.py` draws.

A column that no result of a section has is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.plans import Section
from benchmarks.runner import Result

# A figure's name, its column, and its format.
_COLUMNS = (
    ("records", "records sent", "{:,.0f}"),
    ("seconds", "s", "{:,.2f}"),
    ("records_per_second", "records/s", "{:,.0f}"),
    ("megabytes_per_second", "MB/s", "{:,.1f}"),
    ("cpu_seconds_per_million", "CPU s per million", "{:,.2f}"),
    ("cpu_percent", "CPU %", "{:,.0f}"),
    ("rss_peak_mib", "peak RSS MiB", "{:,.0f}"),
    ("rss_over_start_mib", "over start MiB", "{:,.0f}"),
    ("records_per_batch", "records / batch", "{:,.0f}"),
    ("batches_per_request", "batches / request", "{:,.1f}"),
    ("requests_per_million", "requests per million", "{:,.0f}"),
    ("kb_per_request", "kB / request", "{:,.0f}"),
    ("fetches_per_million", "replicas' fetches per million", "{:,.0f}"),
    ("broker_cpu_seconds_per_million", "broker CPU s per million", "{:,.2f}"),
    ("warmup_records_per_second", "warm-up records/s", "{:,.0f}"),
    ("latency_p50_ms", "p50 ms", "{:,.2f}"),
    ("latency_p99_ms", "p99 ms", "{:,.2f}"),
    ("latency_p99.9_ms", "p99.9 ms", "{:,.2f}"),
    ("latency_max_ms", "max ms", "{:,.2f}"),
    ("stall_p50_ms", "stall p50 ms", "{:,.2f}"),
    ("stall_p99_ms", "p99 ms", "{:,.2f}"),
    ("stall_p99.9_ms", "p99.9 ms", "{:,.2f}"),
    ("stall_max_ms", "max ms", "{:,.2f}"),
    ("bytes_per_delivery", "bytes each, traced", "{:,.0f}"),
    ("resident_bytes_per_delivery", "bytes each, resident", "{:,.0f}"),
    ("gc_full_ms", "gc.collect() ms", "{:,.1f}"),
    ("gc_runs", "automatic collections", "{:,.0f}"),
    ("gc_seconds", "s in them", "{:,.3f}"),
)
_USUAL = (
    *("records_per_second", "megabytes_per_second", "cpu_seconds_per_million", "cpu_percent"),
    *("rss_peak_mib", "rss_over_start_mib", "records_per_batch", "batches_per_request"),
    "warmup_records_per_second",
)
# The columns of a section's table, if they are not the usual ones.
_OF_SECTION = {
    "kafka": (
        *("records_per_second", "cpu_seconds_per_million", "rss_over_start_mib", "records_per_batch"),
        *("batches_per_request", "requests_per_million", "kb_per_request", "fetches_per_million"),
        *("broker_cpu_seconds_per_million", "warmup_records_per_second"),
    ),
    "latency": ("latency_p50_ms", "latency_p99_ms", "latency_p99.9_ms", "latency_max_ms", "cpu_percent"),
    "stall": (
        *("stall_p50_ms", "stall_p99_ms", "stall_p99.9_ms", "stall_max_ms"),
        *("records_per_second", "cpu_seconds_per_million"),
    ),
    "classic": (
        "records",
        "seconds",
        "cpu_percent",
        "rss_peak_mib",
        "cpu_seconds_per_million",
    ),
    "tls": (
        *("records_per_second", "megabytes_per_second", "cpu_seconds_per_million", "cpu_percent"),
        *("broker_cpu_seconds_per_million", "records_per_batch", "batches_per_request"),
    ),
    "round-trip": ("records_per_second", "cpu_seconds_per_million"),
    "memory": (
        *("bytes_per_delivery", "resident_bytes_per_delivery"),
        *("gc_full_ms", "gc_runs", "gc_seconds", "cpu_seconds_per_million"),
    ),
}


def settings_label(result: Result) -> str:
    """Return the settings of a case that differ from the usual ones."""
    settings, parts = result.case.settings, []
    if settings.ca:
        parts.append("TLS")
    if settings.value_size != 100:
        size = settings.value_size
        parts.append(f"{size // 1000} KB" if size % 1000 == 0 else f"{size} B")
    if settings.compression != "none":
        parts.append(settings.compression)
    if settings.acks != "all":
        parts.append(f"acks={settings.acks}")
    if settings.batch_size != 65536:
        parts.append(f"{settings.batch_size // 1024} KiB")
    if "round_trip_ms" in result.case.options:
        parts.append(f"{result.case.options['round_trip_ms']:.0f} ms")
    return ", ".join(parts)


def table_of(section: str, results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return a section's headings, and a row of texts for each case: its name, its settings, its figures."""
    has = {name for result in results for name in result.figures}
    wanted = _OF_SECTION.get(section, _USUAL)
    columns = [column for column in _COLUMNS if column[0] in has and column[0] in wanted]
    labels = [settings_label(result) for result in results]
    names = ["client, mode", *(["with"] if any(labels) else [])]
    rows = []
    for result, label in zip(results, labels, strict=True):
        cells = [
            layout.format(result.figures[name]) if name in result.figures else ""
            for name, _, layout in columns
        ]
        rows.append([result.case.name, *([label] if any(labels) else []), *cells])
    return [*names, *(heading for _, heading, _ in columns)], rows


def print_section(console: Console, section: Section, results: Sequence[Result]) -> None:
    """Print one table, a line per case, with its note."""
    headings, rows = table_of(section.name, results)
    table = Table(title=f"{section.title} (medians of {section.rounds})", title_justify="left")
    for heading in headings:
        is_name = heading in ("client, mode", "with")
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if section.note:
        console.print(section.note, style="dim")


def print_scaling(console: Console, section: Section, curves: dict[str, list[tuple[float, float]]]) -> None:
    """Print a line per curve, its points, and the verdict."""
    table = Table(title=f"{section.title} (medians of {section.rounds})", title_justify="left")
    for heading in ("what grows", "CPU us per record at each size", "flat within 20 %?"):
        table.add_column(heading)
    for curve, points in curves.items():
        shown = "  ".join(f"{x:,.0f}: {y:,.2f}" for x, y in points)
        table.add_row(curve, shown, verdict(curve, points))
    console.print(table)
    console.print(section.note, style="dim")


def verdict(curve: str, points: Sequence[tuple[float, float]]) -> str:
    """Return whether the cost grows by at most 20 % from any point from 10 on to a later one; bytes may cost."""
    if curve == "record size":
        return "(the cost of bytes)"
    growth = growth_of(points)
    return f"{'yes' if growth <= 1.2 else 'NO'} ({growth:.2f} x)"


def growth_of(points: Sequence[tuple[float, float]]) -> float:
    """Return the largest ratio of a later point's cost to an earlier one's, from 10 on."""
    costs = [cost for x, cost in points if x >= 10]
    return max(later / earlier for index, earlier in enumerate(costs) for later in costs[index:])


def curves_of(results: Sequence[Result]) -> dict[str, list[tuple[float, float]]]:
    """Return each curve's points: the quantity that grows, and CPU microseconds per record."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        points = curves.setdefault(result.case.mode, [])
        points.append((result.case.options["x"], result.figures["cpu_seconds_per_million"]))
    return curves


def stage_cell(figures: Mapping[str, float], name: str, digits: int) -> str:
    """Return a figure of a stage as text; how often something happens stands where the microseconds would."""
    if name in figures:
        return f"{figures[name]:.{digits}f}"
    return f"{figures['times']:.1f} times" if name == "batch_us" and "times" in figures else ""
