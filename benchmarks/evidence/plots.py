"""The plots of results for the pages. Called by `blocks`; each function returns the text of an SVG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks import report
from benchmarks.evidence import svg
from benchmarks.evidence.results import Document
from benchmarks.evidence.sections import results_of
from benchmarks.evidence.tables import Documents
from examples.outage import report as report_of_outage

Plot = Callable[[Documents], str]
_OURS = "aioproduce"
HEADLINE: Final = (
    # The bars of README's chart: client and mode of a case on uvloop, or on the client's only way to run.
    ("aioproduce", "await-each"),
    ("aioproduce", "send-many"),
    ("aiokafka", "await-each"),
    ("confluent AIO", "await-each"),
    ("confluent", "callback"),
    ("kafka-python", "await-each"),
    ("Java", "callback"),
    ("franz-go", "callback"),
)


def rates(entry: str, title: str) -> Plot:
    """Records a second, the fastest first."""

    def plot(documents: Documents) -> str:
        results = results_of(documents[entry]["figures"], entry)
        rows = [(result.case.name, result.figures["records_per_second"]) for result in results]
        return svg.bars(title, sorted(rows, key=lambda row: -row[1]), "{:,.0f}", _OURS)

    return plot


def headline(documents: Documents) -> str:
    """The chart of README: acknowledged records a second of each client on real Kafka."""
    rates = headline_rates(documents["kafka"])
    rows = [(f"{client}, {mode}", rate) for (client, mode), rate in rates.items()]
    return svg.bars("Acknowledged records/s on real Kafka", rows, "{:,.0f}", _OURS)


def headline_rates(kafka: Document) -> dict[tuple[str, str], float]:
    """Return the records a second of each client and mode of `HEADLINE` that the result has."""
    rates: dict[tuple[str, str], float] = {}
    for result in results_of(kafka["figures"], "kafka"):
        key = (result.case.client, result.case.mode)
        if key in HEADLINE and result.case.loop in ("uvloop", ""):
            rates[key] = result.figures["records_per_second"]
    return {key: rates[key] for key in HEADLINE if key in rates}


def latency(documents: Documents) -> str:
    """p50, p99 and p99.9 of each client."""
    rows = []
    for result in results_of(documents["latency"]["figures"], "latency"):
        values = [result.figures[f"latency_{name}_ms"] for name in ("p50", "p99", "p99.9")]
        rows.append((result.case.name, values))
    return svg.ranges("Latency in ms at 5,000 records/s: p50, p99, p99.9", rows, "{:,.2f}", _OURS, least=0.05)


def transactions(documents: Documents) -> str:
    """Records a second, by the size of a transaction."""
    cases = documents["transactions"]["medians"]
    series: dict[str, list[tuple[float, float]]] = {}
    for name, value in cases.items():
        who, _, size = name.partition(" ")
        if size.isdecimal():
            title = {"ours": _OURS, "confluent": "confluent-kafka", "java": "Java"}[who]
            series.setdefault(title, []).append((float(size), value * float(size)))
    return svg.lines("Committed records/s, one transaction after the other", series, "records a transaction",
                     is_logarithmic=True)  # fmt: skip


def scaling(documents: Documents) -> str:
    """The cost of a record on each curve, by its least from 10 on."""
    curves = report.curves_of(results_of(documents["scaling"]["figures"], "scaling"))
    series = {}
    for curve, points in curves.items():
        if curve != "record size":
            least = min(y for x, y in points if x >= 10)
            series[curve] = [(x, y / least) for x, y in points]
    return svg.lines("CPU time of a record, by the least of its curve from 10 on", series, "how many",
                     is_logarithmic=True)  # fmt: skip


def soak(documents: Documents) -> str:
    """Resident memory over the run."""
    samples = documents["soak"]["figures"]["samples"]
    points = [(sample["at"] / 60, sample["rss_kib"] / 1024) for sample in samples if not sample["is_last"]]
    return svg.lines(
        "Resident memory of the producer's process, MiB", {"RSS": points}, "minutes", is_logarithmic=False
    )


def outage(documents: Documents) -> str:
    """The backlog, and the latency of `send()`, while the cluster goes away."""
    return report_of_outage.plot(documents["outage"]["figures"])
