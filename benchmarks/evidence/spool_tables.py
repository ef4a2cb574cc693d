"""The tables of results about queues on disk, as `tables` has those of the others. Called by `blocks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.evidence.markdown import count, table
from benchmarks.evidence.tables import Documents, Render
from benchmarks.spool.tables import PARTS
from examples.outage.report import COUNTS

if TYPE_CHECKING:
    from collections.abc import Mapping

KILLS: Final = (
    *("kill-forwarding", "kill-forwarding-direct"),
    *("kill-forwarding-exactly-once", "kill-forwarding-transaction-version-1"),
)
"""The results of a killed service: one for each mode, and exactly once also with `transaction.version` 1."""


def outage(entry: str) -> Render:
    """Return the renderer of the audit's counts, the latencies in each state, and what happened."""

    def render(documents: Documents) -> str:
        figures = documents[entry]["figures"]
        counts = [[text, count(figures[name])] for name, text in COUNTS.items()]
        states = [
            [state, count(row["calls"]), *(f"{row[name]:,.2f}" for name in ("p50", "p99", "most"))]
            for state, row in figures["send_ms"].items()
        ]
        events = "; ".join(f"{at:.0f} s: {text}" for at, text in figures["events"])
        return (
            table(("records", figures["mode"]), counts)
            + "\n"
            + table(("ms until `send()` returned, while", "calls", "p50", "p99", "most"), states)
            + f"\nAt most {count(figures['largest_backlog'])} records waited. The cluster had them all "
            f"{figures['seconds_to_drain']:.1f} s after the network was back. {events}.\n"
        )

    return render


def kill_forwarding(documents: Documents) -> str:
    """Return what was done, and the audit's counts, by mode."""
    every = [documents[entry]["figures"] for entry in KILLS if entry in documents]
    done = {"kills": "kills of the service", "bounces": "brokers stopped or killed"}
    rows = [[text, *(count(each[name]) for each in every)] for name, text in {**done, **COUNTS}.items()]
    return table(("count", *map(_mode, every)), rows)


def _mode(figures: Mapping[str, Any]) -> str:
    version = figures.get("transaction_version")
    mode: str = figures["mode"]
    return mode if version is None else f"{mode}, transaction.version {version}"


def spool(documents: Documents) -> str:
    """Return the table of each part, and the targets with their verdicts."""
    figures = documents["spool"]["figures"]
    parts = []
    for name, rows_of in PARTS.items():
        headings, *rows = rows_of(figures[name])
        parts.append(table(headings, rows, texts=2 if name == "append" else 1))
    return "\n".join(parts)
