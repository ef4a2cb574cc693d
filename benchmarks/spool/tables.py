"""The tables of the figures: rows of text, of which the first has the headings.

Used by `__main__`, and by `benchmarks.evidence` for the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Rows: TypeAlias = list[list[str]]


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _ratio(middle: float, least: float, largest: float) -> str:
    return f"{middle:.2f} ({least:.2f}, {largest:.2f})"


def append(figures: Sequence[Mapping[str, Any]]) -> Rows:
    """Return the rates on the way to the disk."""
    headings = ["way", "until a record is", "records/s", "CPU us a record", "records/s by the producer's"]
    return [
        headings,
        *(
            [
                row["way"],
                row["contender"],
                _count(row["records_per_second"]),
                f"{row['cpu_us']:.2f}",
                _ratio(*row["by_producer"]),
            ]
            for row in figures
        ),
    ]


def always(figures: Sequence[Mapping[str, Any]]) -> Rows:
    """Return each round next to bare syncs."""
    headings = ["round", "always, records/s", "records of a group", "KiB of a group", "bare syncs/s", "share"]
    headings.append("share, were all 1,000 in a group")
    return [
        headings,
        *(
            [
                str(number),
                _count(row["records_per_second"]),
                _count(row["group"]),
                _count(row["group_bytes"] / 1024),
                _count(row["syncs_per_second"]),
                f"{row['share']:.2f}",
                f"{row['full_share']:.2f}",
            ]
            for number, row in enumerate(figures, 1)
        ),
    ]


def drain(figures: Mapping[str, Any]) -> Rows:
    """Return both rates."""
    return [
        ["what", "records/s", "CPU us a record"],
        [
            "a queue forwards its backlog",
            _count(figures["drained_per_second"]),
            f"{figures['drained_cpu_us']:.2f}",
        ],
        [
            "send_many, the same records and header",
            _count(figures["sent_per_second"]),
            f"{figures['sent_cpu_us']:.2f}",
        ],
    ]


def direct(figures: Sequence[Mapping[str, Any]]) -> Rows:
    """Return how long calls took with each cluster."""
    return [
        ["a cluster that", "a call returns when the record is", "p50, ms", "p99, ms", "written to disk"],
        *(
            [
                row["cluster"],
                row["contender"],
                f"{row['p50_ms']:.3f}",
                f"{row['p99_ms']:.3f}",
                f"{row['written']:.0%}",
            ]
            for row in figures
        ),
    ]


def start_up(figures: Mapping[str, Any]) -> Rows:
    """Return the start, and what its files have."""
    files = (
        f"{_count(figures['segments'])}, of which {_count(figures['segments_with_records'])} have records and the "
        "rest are holes that nothing here reads"
    )
    rows = {
        "segments": files,
        "GB of the backlog, by its files' sizes": f"{figures['backlog_bytes'] / 1e9:.1f}",
        "of these on disk": f"{figures['bytes_on_disk'] / 1e9:.2f}",
        "seconds to start": f"{figures['seconds']:.3f}",
        "the same with an empty queue": f"{figures['seconds_when_empty']:.3f}",
        "seconds of a second start in the same process": f"{figures['seconds_again']:.3f}",
        "MiB more than then, after the start": f"{figures['more_mib_after_start']:.1f}",
        "MiB more than then, at most while it forwards": f"{figures['more_mib_at_most_while_forwarding']:.1f}",
        "records forwarded meanwhile": _count(figures["forwarded"]),
    }
    return [["50 GB on disk", "measured"], *([name, value] for name, value in rows.items())]


def peers(figures: Mapping[str, Any]) -> Rows:
    """Return each comparison, or why there is none."""
    headings = ["other", "records/s", "CPU us", "ours", "records/s", "CPU us", "ours by theirs"]
    rows = [headings]
    for name, found in figures.items():
        if "left_out" in found:
            rows.append([f"{name}: left out, {found['left_out']}", *[""] * 6])
            continue
        rows += [
            [
                f"{row['theirs']} ({found['version']})",
                _count(row["their_records_per_second"]),
                f"{row['their_cpu_us']:.2f}",
                row["ours"],
                _count(row["records_per_second"]),
                f"{row['cpu_us']:.2f}",
                _ratio(*row["ratio"]),
            ]
            for row in found["rows"]
        ]
    return rows


def targets(figures: Sequence[Mapping[str, Any]]) -> Rows:
    """Return each target with its verdict."""
    return [
        ["target", "wanted", "measured (least, largest)", ""],
        *(
            [
                row["what"],
                f"{'>=' if row['is_least'] else '<='} {row['bound']:,g}",
                f"{row['measured']:,.4g} ({row['spread'][0]:,.4g}, {row['spread'][1]:,.4g})",
                "met" if row["is_met"] else "**missed**",
            ]
            for row in figures
        ),
    ]


PARTS: Final[Mapping[str, Callable[[Any], Rows]]] = {
    "append": append,
    "always": always,
    "drain": drain,
    "direct": direct,
    "start-up": start_up,
    "peers": peers,
    "targets": targets,
}
"""Each part's table; the last is of all parts."""
