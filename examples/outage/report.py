"""What the run was like: latency of `send()` in each state of the cluster, and the backlog over time.

Called by `__main__`, and by `benchmarks.evidence` for the plot of a result. All figures come from the journals of
the service and from the brokers' own times, so none of them depends on the queue.

1. The backlog at an instant: the records whose `send()` has returned, less those of them that a broker has
   appended. Both clocks are the machine's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from benchmarks.evidence.svg import Panel, timeline
from examples.outage.audit import Logged
from examples.outage.events import BROKER, FAULTS, NETWORK, SERVICE, Event
from examples.outage.journal import Journals, Returned

BUCKETS: Final = 200
WELL: Final = "all is well"
STATES: Final = {NETWORK: "the network is cut", BROKER: "a broker is dead"}

COUNTS: Final = {
    "returned": "their send() returned",
    "read": "in the log",
    "distinct": "different ones in the log",
    "unreturned": "of these, killed before their send() returned",
    "lost": "lost",
    "repeated": "copies beyond the first",
    "unlike": "of these, with another id than the first",
    "twice": "still there twice when equal ids are dropped",
    "shared": "different records with one id",
    "misordered": "in front of an older one",
    "foreign": "of nobody",
}
"""The audit's counts, in words."""


class Span(NamedTuple):
    """A fault's time.

    Attributes:
        fault: Of `FAULTS`.
        begin: Its begin, in seconds since the first event.
        end: Its end.
    """

    fault: str
    begin: float
    end: float


def figures(journals: Journals, log: Sequence[Logged], events: Sequence[Event]) -> dict[str, Any]:
    """Return everything for the table, the plot and `--json`."""
    began_at, ended_at = events[0].at, events[-1].at
    calls = sorted(
        (call for life in journals.lives() for call in journals.read(life)), key=lambda each: each.at
    )
    spans = spans_of(events)
    backlog = backlog_of(journals, log, began_at, ended_at)
    healed_at = next((span.end for span in spans if span.fault == NETWORK), 0.0)
    return {
        "seconds": round(ended_at - began_at, 1),
        "largest_backlog": max((count for _, count in backlog), default=0),
        "seconds_to_drain": drained_after(journals, log, began_at, healed_at),
        "send_ms": latencies(calls, spans, began_at),
        "spans": [[span.fault, round(span.begin, 2), round(span.end, 2)] for span in spans],
        "kills": [round(each.at - began_at, 2) for each in events if each.fault == SERVICE],
        "events": [[round(each.at - began_at, 1), each.text] for each in events],
        "backlog": backlog,
        "send_p50_ms": per_bucket(calls, began_at, ended_at, 0.5),
        "send_p99_ms": per_bucket(calls, began_at, ended_at, 0.99),
    }


def spans_of(events: Iterable[Event]) -> list[Span]:
    """Return when each fault began and ended; the service's kills have no length."""
    found: list[Span] = []
    begun: dict[str, float] = {}
    first: float | None = None
    for event in events:
        first = event.at if first is None else first
        if event.fault not in FAULTS or event.fault == SERVICE:
            continue
        begin = begun.pop(event.fault, None)
        if begin is None:
            begun[event.fault] = event.at
        else:
            found.append(Span(event.fault, begin - first, event.at - first))
    return found


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of all values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def latencies(calls: Sequence[Returned], spans: Sequence[Span], began_at: float) -> dict[str, Any]:
    """Return the milliseconds of `send()` in each state of the cluster."""
    found: dict[str, list[float]] = {}
    for call in calls:
        at = call.at - began_at
        fault = next((span.fault for span in spans if span.begin <= at < span.end), "")
        found.setdefault(STATES.get(fault, WELL), []).append(call.took * 1000)
    return {state: _summary(sorted(found[state])) for state in (WELL, *STATES.values()) if state in found}


def _summary(ordered: Sequence[float]) -> dict[str, float]:
    return {
        "calls": len(ordered),
        "p50": round(quantile(ordered, 0.5), 3),
        "p99": round(quantile(ordered, 0.99), 3),
        "most": round(ordered[-1], 3),
    }


def per_bucket(
    calls: Iterable[Returned], began_at: float, ended_at: float, share: float
) -> list[tuple[float, float]]:
    """Return a quantile of the milliseconds of `send()` in each stretch of time that has calls."""
    width = (ended_at - began_at) / BUCKETS
    buckets: dict[int, list[float]] = {}
    for call in calls:
        buckets.setdefault(int((call.at - began_at) / width), []).append(call.took * 1000)
    return [
        (round((number + 0.5) * width, 2), round(quantile(sorted(took), share), 3))
        for number, took in sorted(buckets.items())
    ]


def _instants(journals: Journals, log: Iterable[Logged]) -> tuple[list[tuple[float, int]], list[float]]:
    """Return when records returned, with their counts, and when brokers first appended one of them."""
    promised: dict[int, set[int]] = {life: set() for life in journals.lives()}
    returned: list[tuple[float, int]] = []
    for life, numbers in promised.items():
        for call in journals.read(life):
            returned.append((call.at, call.records))
            numbers.update(range(call.first, call.first + call.records))
    appended: list[float] = []
    for each in log:
        numbers = promised.get(each.life, set())
        if each.number in numbers:
            numbers.discard(each.number)
            appended.append(each.at)
    return sorted(returned), sorted(appended)


def backlog_of(
    journals: Journals, log: Iterable[Logged], began_at: float, ended_at: float
) -> list[tuple[float, int]]:
    """Return the backlog in records, at instants of equal distance."""
    returned, appended = _instants(journals, log)
    times = [at for at, _ in returned]
    counts = [0, *accumulate(count for _, count in returned)]
    points = []
    for number in range(BUCKETS + 1):
        at = began_at + (ended_at - began_at) * number / BUCKETS
        waiting = counts[bisect_right(times, at)] - bisect_right(appended, at)
        points.append((round(at - began_at, 2), max(0, waiting)))
    return points


def drained_after(
    journals: Journals, log: Iterable[Logged], began_at: float, healed_at: float
) -> float | None:
    """Return how long after the network was back every record from before was in the cluster."""
    if not healed_at:
        return None
    before: dict[int, set[int]] = {life: set() for life in journals.lives()}
    for life, numbers in before.items():
        for call in journals.read(life):
            if call.at - began_at < healed_at:
                numbers.update(range(call.first, call.first + call.records))
    last = began_at + healed_at
    for each in log:
        numbers = before.get(each.life, set())
        if each.number in numbers:
            numbers.discard(each.number)
            last = max(last, each.at)
    return round(last - began_at - healed_at, 2)


def plot(told: Mapping[str, Any]) -> str:
    """Return the plot as SVG: the backlog above, the latency of `send()` below, the faults behind both."""
    return timeline(
        "A service with a queue on disk, while its cluster goes away",
        [
            Panel("records on disk, and not yet in the cluster", {"backlog": told["backlog"]}),
            Panel(
                "ms until send() returns",
                {"p50": told["send_p50_ms"], "p99": told["send_p99_ms"]},
                is_logarithmic=True,
                longest_step=3 * told["seconds"] / BUCKETS,  # longer without a call: the service is dead
            ),
        ],
        spans=[(STATES[fault], begin, end) for fault, begin, end in told["spans"]],
        marks=[("service killed", at) for at in told["kills"]],
        x_label="seconds",
    )
