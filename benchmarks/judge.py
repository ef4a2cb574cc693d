"""The targets, and the distance of this run's results from them. Called by `__main__.py` for a table and the JSON.

A target is a ratio of two medians of the same run. A target without measured figures is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table

from benchmarks.runner import Result

Results = Mapping[str, Sequence[Result]]


@final
@dataclass(frozen=True, slots=True)
class Judgement:
    """One target: the value must reach `least` and should reach `goal`.

    With `is_most` it must not exceed `least`; with None nothing is required. `by_cpu` is the same ratio of records
    per CPU second, which a busy machine hardly changes.
    """

    what: str
    value: float
    least: float | None
    goal: float | None
    is_most: bool = False
    unit: str = "x"
    by_cpu: float | None = None

    @property
    def is_met(self) -> bool:
        if self.least is None:
            return True
        return self.value <= self.least if self.is_most else self.value >= self.least

    @property
    def is_goal_met(self) -> bool:
        if self.goal is None:
            return self.is_met
        return self.value <= self.goal if self.is_most else self.value >= self.goal


# Our mode, the peer, its mode, at least, the goal: records/s, both on uvloop where they have a loop.
_NULL_RATIOS = (
    ("await-each", "aiokafka", "await-each", 13.5, 15.0),
    ("await-each", "confluent", "callback", 2.0, 2.5),
    ("await-each", "confluent", "no-report", 0.8, 1.0),
    ("await-each", "Java", "callback", 1.6, 2.0),
    ("await-each", "franz-go", "callback", 0.9, 1.0),
    ("dropped", "Java", "callback", 1.3, None),
    ("dropped", "franz-go", "callback", 1.5, None),
    ("gather", "aiokafka", "gather", 3.0, 4.0),
    ("tasks", "aiokafka", "tasks", 4.0, 6.0),
    *((bulk, "Java", "callback", 1.5, None) for bulk in ("send-many", "send-batch", "send-arrow")),
    *((bulk, "franz-go", "callback", 2.0, None) for bulk in ("send-many", "send-batch", "send-arrow")),
)
_KAFKA_RATIOS = (
    ("await-each", "aiokafka", "await-each", 5.0, None),
    ("await-each", "Java", "callback", 1.3, None),
    ("await-each", "franz-go", "callback", 1.0, 1.2),
    ("dropped", "Java", "callback", 1.3, None),
    ("dropped", "franz-go", "callback", 1.0, 1.2),
    ("tasks", "aiokafka", "tasks", 3.0, None),
    *((bulk, "Java", "callback", 1.3, None) for bulk in ("send-many", "send-batch", "send-arrow")),
    *((bulk, "franz-go", "callback", 1.2, None) for bulk in ("send-many", "send-batch", "send-arrow")),
)
_SMALL_BATCH_RATIOS = (("await-each", "Java", "callback", 1.2, None),)
# The same text with the drop-in imported in aiokafka's place.
_DROP_IN_RATIOS = (
    ("await-each", "aiokafka", "await-each", 8.0, None),
    ("gather", "aiokafka", "gather", 3.0, None),
    ("tasks", "aiokafka", "tasks", 4.0, None),
)
_RATE, _CPU = "records_per_second", "cpu_seconds_per_million"


def _find(
    results: Sequence[Result], client: str, mode: str, batch_size: int = 65536, value_size: int = 100
) -> Result | None:
    sizes = (batch_size, value_size)
    for result in results:
        case = result.case
        settings = case.settings
        is_usual = settings.compression == "none" and settings.acks == "all"
        is_of_sizes = (settings.batch_size, settings.value_size) == sizes
        if (
            case.client == client
            and case.mode == mode
            and case.loop != "asyncio"
            and is_usual
            and is_of_sizes
        ):
            return result
    return None


def _ratios(
    results: Sequence[Result],
    ratios: Sequence[tuple[str, str, str, float | None, float | None]],
    client: str = "aioproduce",
    batch_size: int = 65536,
) -> list[Judgement]:
    found = []
    for mode, peer, peer_mode, least, goal in ratios:
        ours = _find(results, client, mode, batch_size)
        theirs = _find(results, peer, peer_mode, batch_size)
        if ours is None or theirs is None:
            continue
        value = ours.figures[_RATE] / theirs.figures[_RATE]
        by_cpu = theirs.figures[_CPU] / ours.figures[_CPU]
        what = f"{mode} / {peer} {peer_mode}"
        if client != "aioproduce":
            what = f"{client} {what}"
        if batch_size != 65536:
            what = f"{what}, batches of {batch_size // 1024} KiB"
        found.append(Judgement(what, value, least, goal, by_cpu=by_cpu))
    return found


def _null(results: Sequence[Result]) -> list[Judgement]:
    found = _ratios(results, _NULL_RATIOS) + _ratios(results, _DROP_IN_RATIOS, "drop-in")
    found += _ratios(results, _SMALL_BATCH_RATIOS, batch_size=16384)
    if large := _find(results, "aioproduce", "dropped", value_size=10_000):
        rate = large.figures["megabytes_per_second"]
        found.append(Judgement("10 KB records, dropped", rate, 2000.0, 3000.0, unit="MB/s"))
    java = _find(results, "Java", "callback")
    for mode, least, goal, of_java in (
        ("await-each", 0.5, 0.45, 0.65),
        ("send-many", 0.4, 0.3, 0.6),
        ("send-batch", 0.4, 0.3, 0.6),
        ("send-arrow", 0.4, 0.3, 0.6),
    ):
        ours = _find(results, "aioproduce", mode)
        if ours is None:
            continue
        value = ours.figures[_CPU]
        found.append(Judgement(f"{mode}: CPU s per million", value, least, goal, is_most=True, unit="s"))
        if java is not None:
            share = value / java.figures[_CPU]
            found.append(Judgement(f"{mode}: CPU / Java's", share, of_java, None, is_most=True))
    return found


# Ours over TLS compared with a peer's over TLS.
_TLS_RATIOS = (("aiokafka", "await-each", 10.0), ("confluent", "no-report", 1.0))


def _tls(results: Sequence[Result]) -> list[Judgement]:
    found = []
    secured = {
        (result.case.client, result.case.mode, result.case.settings.compression): result
        for result in results
        if result.case.settings.ca
    }
    for plain in results:
        case = plain.case
        over = secured.get((case.client, case.mode, case.settings.compression))
        if case.settings.ca or case.client != "aioproduce" or over is None:
            continue
        value, by_cpu = over.figures[_RATE] / plain.figures[_RATE], plain.figures[_CPU] / over.figures[_CPU]
        least, goal = (0.8, None) if case.mode == "await-each" else (None, 0.8)
        what = f"{case.mode}, {case.settings.compression}: TLS"
        found.append(Judgement(f"{what} / plaintext", value, least, goal, by_cpu=by_cpu))
        more = over.figures[_CPU] - plain.figures[_CPU]
        found.append(Judgement(f"{what}, CPU s per million more", more, 0.1, 0.07, is_most=True, unit="s"))
    for compression in ("none", "lz4"):
        ours = secured.get(("aioproduce", "await-each", compression))
        for peer, mode, least in _TLS_RATIOS:
            theirs = secured.get((peer, mode, compression))
            if ours is None or theirs is None:
                continue
            value = ours.figures[_RATE] / theirs.figures[_RATE]
            by_cpu = theirs.figures[_CPU] / ours.figures[_CPU]
            what = f"await-each / {peer} {mode}, both TLS, {compression}"
            found.append(Judgement(what, value, least, None, by_cpu=by_cpu))
    return found


def _latency(results: Sequence[Result]) -> list[Judgement]:
    found = []
    zero = [result for result in results if result.case.settings.linger_ms == 0]
    ours = next((result for result in zero if result.case.name.startswith("aioproduce (uvloop)")), None)
    # Whole milliseconds from another starting point are no match for the others.
    peers = [r for r in zero if r.case.measure == "latency" and r.case.client not in ("aioproduce", "Java")]
    if ours is None or not peers:
        return []
    for name in ("p50", "p99", "p99.9"):
        figure = f"latency_{name}_ms"
        best = min(result.figures[figure] for result in peers)
        found.append(
            Judgement(f"latency {name}, linger 0", ours.figures[figure], best, 0.8 * best, True, "ms")
        )
    if confluent := next((peer for peer in peers if peer.case.client == "confluent"), None):
        share = ours.figures["cpu_percent"] / confluent.figures["cpu_percent"]
        found.append(Judgement("processor at that rate / confluent's", share, 1.4, 1.1, is_most=True))
    return found


def _stall(results: Sequence[Result]) -> list[Judgement]:
    return [
        Judgement(
            f"loop stall p99.9, {result.case.settings.compression}",
            result.figures["stall_p99.9_ms"],
            2.0,
            None,
            True,
            "ms",
        )
        for result in results
        if result.case.client == "aioproduce"
    ]


def _loopback(results: Sequence[Result]) -> list[Judgement]:
    ours = _find(results, "aioproduce", "dropped", value_size=1000)
    if ours is None:
        return []
    return [
        Judgement("1 KB records, dropped", ours.figures["megabytes_per_second"], 1200.0, 1600.0, unit="MB/s")
    ]


def _round_trip(results: Sequence[Result]) -> list[Judgement]:
    ours = [r for r in results if r.case.client == "aioproduce"]
    if len(ours) != 2:
        return []
    near, far = sorted(ours, key=lambda r: r.case.options["round_trip_ms"])
    # Five requests in flight, each with a batch of every partition.
    ceiling = 5 * 6 * far.case.settings.batch_size / 0.010 / far.case.settings.value_size
    value = far.figures[_RATE] / min(near.figures[_RATE], ceiling)
    return [Judgement("10 ms of round trip / without", value, 0.9, None)]


def _memory(results: Sequence[Result]) -> list[Judgement]:
    return [
        Judgement("bytes per live delivery", r.figures["bytes_per_delivery"], 64.0, None, True, "B")
        for r in results
        if r.case.client == "aioproduce"
    ]


def _start_up(figures: Mapping[str, float]) -> list[Judgement]:
    ours = {name: value for name, value in figures.items() if "aioproduce" in name}
    return [Judgement(name, value, 150.0, None, True, "ms") for name, value in ours.items()]


_JUDGES: dict[str, Callable[[Sequence[Result]], list[Judgement]]] = {
    "null": _null,
    "kafka": lambda results: _ratios(results, _KAFKA_RATIOS),
    "latency": _latency,
    "stall": _stall,
    "loopback": _loopback,
    "tls": _tls,
    "round-trip": _round_trip,
    "memory": _memory,
}


def _handshakes(figures: Mapping[str, Mapping[str, float]]) -> list[Judgement]:
    """Of one producer: each takes its own connections in turns, and knows of no other's."""
    return [
        Judgement(f"loop stall p99.9, {what}", each["stall_p99.9_ms"], 5.0, None, True, "ms")
        for what, each in figures.items()
        if "connections" in each and "one producer" in what
    ]


def judge(
    results: Results, others: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, list[Judgement]]:
    """Every target of which the figures are there, by section.

    Args:
        results: The cases of each section.
        others: The figures of each section that has no cases: by title, then by name.
    """
    judged = {name: _JUDGES[name](found) for name, found in results.items() if name in _JUDGES and found}
    if handshakes := others.get("handshakes"):
        judged["handshakes"] = _handshakes(handshakes)
    if start_up := others.get("start-up"):
        judged["start-up"] = _start_up(start_up["milliseconds to import"])
    return judged


HEADINGS = ("section", "what", "measured", "by CPU", "wanted", "goal", "")


def _short(goal: float) -> str:
    """Three digits are enough, and all of those before the point."""
    return f"{goal:,.0f}" if goal >= 1000 else f"{goal:.3g}"


def row_of(section: str, each: Judgement) -> tuple[str, ...]:
    """A line of the table of targets."""
    sign = "<=" if each.is_most else ">="
    wanted = "" if each.least is None else f"{sign} {each.least:,.2f}"
    goal = "" if each.goal is None else f"{_short(each.goal)} {each.unit}"
    if each.least is None:
        verdict = "goal met" if each.is_goal_met else "goal missed"
    else:
        verdict = "goal met" if each.is_goal_met else ("met" if each.is_met else "MISSED")
    by_cpu = "" if each.by_cpu is None else f"{each.by_cpu:,.2f} x"
    return section, each.what, f"{each.value:,.2f} {each.unit}", by_cpu, wanted, goal, verdict


def print_judgements(console: Console, judgements: Mapping[str, Sequence[Judgement]]) -> None:
    """One table, and a line that sums up."""
    table = Table(title="Targets (ratios of records/s where no unit is given)", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("section", "what", "") else "right")
    asked = [each for judged in judgements.values() for each in judged if each.least is not None]
    for section, judged in judgements.items():
        for each in judged:
            table.add_row(*row_of(section, each))
    if count := len(asked):
        met = sum(each.is_met for each in asked)
        console.print(table)
        console.print(f"{met} of {count} targets met", style="bold")
