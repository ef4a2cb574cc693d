"""The blocks of the pages by name: the results of each, and its rendering. Used by `pages` and the tests.

In a page a block begins with `<!-- evidence: transactions -->`, and ends with `<!-- end -->`. A block
`<!-- evidence: transactions@3.13 -->` shows the results of CPython 3.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks.evidence import plots, results, spool_tables, tables
from benchmarks.evidence.entries import ENTRIES
from benchmarks.evidence.markdown import told
from benchmarks.evidence.plots import Plot
from benchmarks.evidence.results import Document
from benchmarks.evidence.tables import Documents, Render

_JUDGED: Final = (
    *(
        "null",
        "kafka",
        "latency",
        "stall",
        "tls",
        "round-trip",
        "memory",
        "loopback",
        "large-values",
        "small-batches",
        "handshakes",
        "start-up",
    ),
)


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A part of a page that is made of results.

    Attributes:
        entries: The results that it shows.
        render: Makes the table.
        plot: Makes the picture above it, if it has one.
        is_partial: Whether it is shown if some of the results are missing.
        name: Its title, if it shows more than one entry.
    """

    entries: tuple[str, ...]
    render: Render
    plot: Plot | None = None
    is_partial: bool = False
    name: str = ""

    @property
    def title(self) -> str:
        """Its title, in a few words."""
        return self.name or ENTRIES[self.entries[0]].title


class MissingResultError(Exception):
    """A block shows a result that does not exist; the text names both."""


Later = Callable[[Document], int | None]
"""Returns how many commits changed `aioproduce/` since a result."""

BLOCKS: Final[Mapping[str, Block]] = {
    "throughput": Block(
        ("null", "kafka"), tables.throughput, plots.headline, name="Throughput and processor time"
    ),
    "targets": Block(_JUDGED, tables.targets, is_partial=True, name="Targets, met and missed"),
    "null": Block(("null",), tables.section("null"), plots.rates("null", "Records/s on the null broker")),
    "kafka": Block(("kafka",), tables.section("kafka"), plots.rates("kafka", "Records/s on real Kafka")),
    "not-pinned": Block(("not-pinned",), tables.section("not-pinned", "null")),
    "trio": Block(("trio",), tables.section("trio", "null")),
    "drop-in": Block(("drop-in",), tables.section("drop-in", "null")),
    "drop-in-aio": Block(("drop-in-aio",), tables.section("drop-in-aio", "null")),
    "latency": Block(("latency",), tables.section("latency"), plots.latency),
    "stall": Block(("stall",), tables.section("stall")),
    "tls": Block(("tls",), tables.section("tls")),
    "round-trip": Block(("round-trip",), tables.section("round-trip")),
    "classic": Block(("classic",), tables.section("classic")),
    "memory": Block(("memory",), tables.section("memory")),
    "loopback": Block(("loopback",), tables.section("loopback")),
    "parking": Block(("parking",), tables.section("parking")),
    "large-values": Block(("large-values",), tables.section("large-values", "null")),
    "small-batches": Block(("small-batches",), tables.section("small-batches", "null")),
    "matrix": Block(("matrix",), tables.matrix),
    "scaling": Block(("scaling",), tables.scaling, plots.scaling),
    "start-up": Block(("start-up",), tables.others("start-up")),
    "handshakes": Block(("handshakes",), tables.others("handshakes")),
    "bounds": Block(("bounds",), tables.others("bounds")),
    "transactions": Block(("transactions",), tables.transactions, plots.transactions),
    "recording": Block(("recording",), tables.recording),
    "budget": Block(("budget",), tables.budget),
    "interpreters": Block(("interpreters",), tables.interpreters),
    "stages": Block(("stages",), tables.stages),
    "growth": Block(("growth",), tables.growth),
    "blocking": Block(("blocking",), tables.blocking),
    "blocking-stages": Block(("blocking-stages",), tables.named("blocking-stages", "ns a record", "{:,.0f}")),
    "service-overhead": Block(("service-overhead",), tables.service),
    "auditor": Block(("auditor",), tables.pairs("auditor")),
    "auditor-roomy": Block(("auditor-roomy",), tables.pairs("auditor-roomy")),
    "partitioners": Block(("partitioners",), tables.partitioners),
    "spool": Block(("spool",), spool_tables.spool),
    "serializers": Block(("serializers",), tables.named("serializers", "us of a record")),
    "failing-logins": Block(("failing-logins",), tables.failing_logins),
    "reauthentication": Block(("reauthentication",), tables.reauthentication),
    "spark-sink": Block(("spark-sink",), tables.spark_sink),
    "spark-land": Block(("spark-land",), tables.spark_land),
    "spark-audit": Block(("spark-audit",), tables.spark_audit),
    "spark-sizing": Block(("spark-sizing",), tables.spark_sizing),
    "million-lines": Block(("million-lines",), tables.counts("million-lines")),
    "copy": Block(("copy",), tables.counts("copy")),
    "security-faults": Block(("security-faults",), tables.counts("security-faults")),
    "mutants": Block(("mutants",), tables.mutants),
    "chaos": Block(
        ("chaos", "chaos-full-rate", "chaos-control"),
        tables.counts("chaos", "chaos-full-rate", "chaos-control"),
        is_partial=True,
        name="Real brokers hurt under producers",
    ),
    "simulation": Block(
        ("simulation", "simulation-transactional"),
        tables.counts("simulation", "simulation-transactional"),
        is_partial=True,
        name="Simulated lives of a producer",
    ),
    "soak": Block(("soak",), tables.soak, plots.soak),
    "lake": Block(("lake",), tables.lake),
    "outage": Block(("outage",), spool_tables.outage("outage"), plots.outage),
    "long-cut": Block(("long-cut",), spool_tables.outage("long-cut")),
    "kill-forwarding": Block(
        spool_tables.KILLS,
        spool_tables.kill_forwarding,
        is_partial=True,
        name="A service with a queue, killed",
    ),
    "kill-land": Block(("kill-land",), tables.counts("kill-land")),
    "fuzz": Block(("fuzz",), tables.fuzz),
    "mutation": Block(("mutation",), tables.counts("mutation")),
}


def documents_of(block: str, folder: Path = results.FOLDER) -> dict[str, Document]:
    """Return the results that a block shows, by their entries.

    Raises:
        MissingResultError: if one is missing, or there is no such block.
    """
    name, at, python = block.partition("@")
    if name not in BLOCKS:
        raise MissingResultError(f"there is no block {name!r}: there are {', '.join(BLOCKS)}")
    found = {entry: results.read(f"{entry}{at}{python}", folder) for entry in BLOCKS[name].entries}
    missing = [entry for entry, document in found.items() if document is None]
    kept = {entry: document for entry, document in found.items() if document is not None}
    if missing and not (kept and BLOCKS[name].is_partial):
        raise MissingResultError(
            f"the block {block!r} shows results that are missing: {', '.join(missing)}; "
            f"make evidence EVIDENCE='--only {' '.join(missing)}'"
        )
    return kept


def plot_name(block: str) -> str:
    """Return the file name of a block's plot."""
    return f"{block.replace('@', '-')}.svg"


def plot_of(block: str, documents: Documents) -> str | None:
    """Return the text of a block's plot, if it has one."""
    plot = BLOCKS[block.partition("@")[0]].plot
    return None if plot is None else plot(documents)


def render(block: str, documents: Documents, plots_at: str, results_at: str, later: Later) -> str:
    """Return a block's text.

    Args:
        block: The block's name.
        documents: The results, from `documents_of()`.
        plots_at: The folder of plots, for links in the page.
        results_at: The folder of results, for links in the page.
        later: Returns the age of a result.
    """
    name = block.partition("@")[0]
    parts = []
    if BLOCKS[name].plot is not None:
        parts.append(f"![{block}]({plots_at}/{plot_name(block)})\n")
    parts.append(BLOCKS[name].render(documents))
    for document in documents.values():
        link = f"[{document['name']}]({results_at}/{document['name']}.json)"
        parts.append(f"{link}: {told(document, later(document))}")
    return "\n".join(parts)
