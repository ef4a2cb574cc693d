"""From two consecutive snapshots of a producer's metrics to the data of the charts, for JSON.

Called by the feed. Sampled windows of Kafka's metrics are 30 s long: a chart of them would show a broker's end
half a minute late. So rates come from the growth of totals between two snapshots, and averages from the growth of
histograms. Percentiles and maxima are those of the metrics, over their windows; the page says so.

Invariants:

1. A number that does not exist (an average of nothing, the first rate) is `None`, never NaN: JSON has no NaN.
2. The size of a reading is bounded: the busiest topics and brokers have a row each, all others share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, final, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproduce.config import ProducerConfig
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.transaction_status import TransactionStatus
    from aioproduce.records import SilentBroker

MOST_TOPICS: Final = 20
MOST_BROKERS: Final = 20

STAGES: Final = ("send-wait", "batching", "await-send", "in-flight", "retry", "delivery")
"""The stages of a record's life in the order of KIP-91, then the total from its batch's first record on."""

_TOPIC_RATES: Final = (
    ("records_per_s", "record-send-total"),
    ("bytes_per_s", "byte-total"),
    ("retries_per_s", "record-retry-total"),
    ("errors_per_s", "record-error-total"),
)
_BROKER_RATES: Final = (("requests_per_s", "request-total"), ("bytes_per_s", "outgoing-byte-total"))
_OTHERS: Final = "(others)"

LATE_SHARE: Final = 0.5
"""The oldest record or `send()` is late, with a warning, from this share of its time-out on."""


class Source(Protocol):
    """A producer to show: a `Producer`, or an object with the same interface."""

    @property
    def config(self) -> ProducerConfig:
        """Its configuration."""
        ...

    def metrics(self) -> MetricsSnapshot:
        """Return its metrics now."""
        ...


@runtime_checkable
class TransactionalSource(Protocol):
    """A source that also reports the state of its transactions; a `Source` need not."""

    def transaction_status(self) -> TransactionStatus | None:
        """Return that state; `None` without a `transactional.id`."""
        ...


@runtime_checkable
class WatchedSource(Protocol):
    """A source that also reports the brokers that stopped answering; a `Source` need not."""

    def silent_brokers(self) -> list[SilentBroker]:
        """Return those brokers."""
        ...


@final
@dataclass(slots=True, eq=False, repr=False)
class Reader:
    """A reader of one producer.

    Args:
        source: The producer.
    """

    _source: Source
    _last: MetricsSnapshot | None = None
    _last_at: float = 0.0
    _averages: dict[str, tuple[int, float]] = field(default_factory=dict)

    def read(self, now: float) -> dict[str, Any]:
        """Return the state of the producer at this instant.

        Args:
            now: Seconds of a clock that never goes back; rates are those since the last call.
        """
        snapshot = self._source.metrics()
        growth = _Growth(self._last, snapshot, now - self._last_at)
        self._last, self._last_at = snapshot, now
        value = snapshot.value
        total = value("buffer-total-bytes")
        topics = _group("topic", _TOPIC_RATES, growth)
        spool = self._spool(snapshot, growth)
        limits = _limits(self._source.config)
        if spool is not None:
            limits["delivery_timeout"] = (
                None  # a record from a queue on disk is sent until it is acknowledged
            )
        ages = {
            "record": _age(value("oldest-record-age"), limits["delivery_timeout"]),
            "send": _age(value("oldest-send-wait"), limits["max_block"]),
        }
        return {
            "client_id": self._source.config.client_id,
            "limits": limits,
            "ages": ages,
            "warnings": [*_silence(self._source), *_lateness(ages, limits), *_queue_trouble(spool)],
            "records_per_s": growth.rate("record-send-total"),
            "bytes_per_s": growth.rate("outgoing-byte-total"),
            "retries_per_s": growth.rate("record-retry-total"),
            "errors_per_s": growth.rate("record-error-total"),
            "totals": {
                "records": value("record-send-total"),
                "retries": value("record-retry-total"),
                "errors": value("record-error-total"),
                "unobserved": value("unobserved-failure-total"),
                "exhausted": value("buffer-exhausted-total"),
            },
            "latency": self._times(snapshot, "request-latency"),
            "loop_lag": self._times(snapshot, "event-loop-lag"),
            "throttle": self._times(snapshot, "produce-throttle-time"),
            "stages": {stage: self._times(snapshot, f"{stage}-time") for stage in STAGES},
            "buffer": {
                "total": total,
                "used": total - value("buffer-available-bytes"),
                "waiting": value("waiting-tasks"),
            },
            "requests_in_flight": value("requests-in-flight"),
            "connections": value("connection-count"),
            "transactions": _transactions(self._source, snapshot, growth),
            "spool": spool,
            "topics": _busiest(topics, "records_per_s", MOST_TOPICS),
            "brokers": _brokers(snapshot, growth),
        }

    def _spool(self, snapshot: MetricsSnapshot, growth: _Growth) -> dict[str, Any] | None:
        """Return the state of the queue on disk; `None` for a producer without one."""
        if not snapshot.find("spool-takes-records"):
            return None
        value = snapshot.value
        return {
            "takes_records": bool(value("spool-takes-records")),
            "records": _finite(value("spool-backlog-records")),
            "bytes": value("spool-backlog-bytes"),
            "is_estimate": value("spool-unread-bytes") > 0,
            "oldest_ms": _finite(value("spool-oldest-age") * 1e3),
            "drain_ms": _finite(value("spool-drain-time") * 1e3),
            "stored_per_s": growth.rate("spool-append-total"),
            "forwarded_per_s": growth.rate("spool-forward-total"),
            "size": value("spool-stored-bytes"),
            "max_size": value("spool-max-bytes"),
            "free": _finite(value("spool-free-bytes")),
            "sync": self._times(snapshot, "spool-sync-time"),
            "group": _finite(value("spool-group-size-avg")),
            "blocked_topics": value("spool-blocked-topics"),
            "totals": {
                name.replace("-", "_"): value(f"spool-{name}-total")
                for name in ("full-wait", "resend", "dead-letter", "damage")
            },
            "topics": _spool_topics(snapshot),
        }

    def _times(self, snapshot: MetricsSnapshot, name: str) -> dict[str, float | None]:
        """Return a distribution's average since the last reading, and its percentiles and maximum of the window."""
        histogram = snapshot.histogram(name)
        count, total = self._averages.get(name, (0, 0.0))
        self._averages[name] = (histogram.count, histogram.total)
        grown = histogram.count - count
        return {
            "avg": _finite((histogram.total - total) / grown) if grown > 0 else None,
            **{
                suffix: _finite(snapshot.value(f"{name}-{suffix}"))
                for suffix in ("p50", "p99", "p999", "max")
            },
        }


@final
@dataclass(slots=True, eq=False, repr=False)
class _Growth:
    """The growth of totals from one snapshot to the next."""

    _before: MetricsSnapshot | None
    _now: MetricsSnapshot
    _seconds: float

    def rate(self, name: str) -> float | None:
        """Return the producer's own rate per second."""
        return self.rates(name, None).get("")

    def rates(self, name: str, tag: str | None) -> dict[str, float | None]:
        """Return rates per second by topic or broker; a new one began at 0."""
        now = _by_tag(self._now, name, tag)
        if self._before is None or self._seconds <= 0:
            return dict.fromkeys(now)
        before = _by_tag(self._before, name, tag)
        return {
            which: _finite((total - before.get(which, 0.0)) / self._seconds) for which, total in now.items()
        }


def _by_tag(snapshot: MetricsSnapshot, name: str, tag: str | None) -> dict[str, float]:
    """Return a metric's values by topic or broker; without a tag the producer's own, under an empty name."""
    # In one pass: a thousand single look-ups would stall the event loop for seconds.
    return {
        metric.tags.get(tag, "") if tag else "": metric.value
        for metric in snapshot.find(name)
        if not isinstance(metric.value, str) and (tag in metric.tags if tag else len(metric.tags) == 1)
    }


def _transactions(source: Source, snapshot: MetricsSnapshot, growth: _Growth) -> dict[str, Any] | None:
    """Return the transactional state of a producer; `None` for a producer without transactions."""
    status = source.transaction_status() if isinstance(source, TransactionalSource) else None
    if status is None:
        return None
    committed, waited_ns = growth.rate("txn-committed-total"), growth.rate("txn-commit-time-ns-total")
    return {
        "id": status.transactional_id,
        "state": status.state.name.lower().replace("_", " "),
        "open_ms": _finite(status.open_for * 1e3),
        "error": None if status.error is None else str(status.error),
        "committed_per_s": committed,
        "aborted_per_s": growth.rate("txn-aborted-total"),
        # No call waits for the commits of a group: they add no time.
        "commit_avg": _finite(waited_ns / committed / 1e6) if committed and waited_ns else None,
        "totals": {name: snapshot.value(f"txn-{name}-total") for name in ("committed", "aborted", "unknown")},
    }


def _spool_topics(snapshot: MetricsSnapshot) -> list[dict[str, Any]]:
    """Return a row for each topic of a queue, those with the largest backlogs if there are too many."""
    tag = "topic"
    sizes = _by_tag(snapshot, "spool-backlog-bytes", tag)
    records = _by_tag(snapshot, "spool-backlog-records", tag)
    oldest = _by_tag(snapshot, "spool-oldest-age", tag)
    blocked = _by_tag(snapshot, "spool-is-blocked", tag)
    rows = [
        {
            "name": topic,
            "bytes": size,
            "records": _finite(records[topic]),
            "oldest_ms": _finite(oldest[topic] * 1e3),
            "blocked": blocked[topic],
        }
        for topic, size in sizes.items()
    ]
    return _busiest(rows, "bytes", MOST_TOPICS)


def _queue_trouble(spool: dict[str, Any] | None) -> list[str]:
    """Return warnings about the queue on disk."""
    if spool is None:
        return []
    warnings = []
    if not spool["takes_records"]:
        warnings.append(
            "The queue on disk takes no records: it is full, its disk failed, or the producer is not running."
        )
    if spool["blocked_topics"]:
        names = ", ".join(row["name"] for row in spool["topics"] if row["blocked"])
        warnings.append(f"Records in the queue on disk cannot be sent at present: {names}.")
    return warnings


def _age(milliseconds: float, limit: float | None) -> dict[str, Any]:
    """Return the age of the oldest, and whether it is late (`LATE_SHARE`)."""
    return {
        "ms": _finite(milliseconds),
        "is_late": limit is not None and milliseconds > LATE_SHARE * limit,
    }


def _silence(source: Source) -> list[str]:
    """Return a warning for each broker that stopped answering."""
    silent = source.silent_brokers() if isinstance(source, WatchedSource) else []
    return [
        f"Broker {broker.node_id} ({broker.host}:{broker.port}) has not answered for {broker.seconds:.0f} s: "
        f"{broker.requests} requests and {broker.records} records wait for it."
        if broker.node_id >= 0
        else f"The bootstrap server {broker.host}:{broker.port} has not answered for {broker.seconds:.0f} s: "
        f"{broker.requests} requests wait for it."
        for broker in silent
    ]


def _lateness(ages: dict[str, dict[str, Any]], limits: dict[str, float | None]) -> list[str]:
    """Return warnings about the oldest record and the oldest waiting `send()`, if they are late."""
    warnings = []
    if ages["record"]["is_late"]:
        warnings.append(
            f"The oldest record was accepted {ages['record']['ms'] / 1e3:.1f} s ago and is not acknowledged. After "
            f"delivery.timeout.ms ({_seconds(limits['delivery_timeout'])} s) it fails."
        )
    if ages["send"]["is_late"]:
        warnings.append(
            f"The oldest send() has waited {ages['send']['ms'] / 1e3:.1f} s for its topic or for room. After "
            f"max.block.ms ({_seconds(limits['max_block'])} s) it fails."
        )
    return warnings


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1e3:g}"


def _limits(config: ProducerConfig) -> dict[str, float | None]:
    """Return the settings that bound the times, in milliseconds."""
    return {
        "linger": _finite(config.linger * 1e3),
        "request_timeout": _finite(config.request_timeout * 1e3),
        "delivery_timeout": _finite(config.delivery_timeout * 1e3),
        "max_block": _finite(config.max_block * 1e3),
        "window": _finite(config.metrics_sample_window * config.metrics_num_samples * 1e3),
    }


def _group(tag: str, rates: Iterable[tuple[str, str]], growth: _Growth) -> list[dict[str, Any]]:
    """Return a row for each topic or broker."""
    rows: dict[str, dict[str, Any]] = {}
    for key, name in rates:
        for which, rate in growth.rates(name, tag).items():
            rows.setdefault(which, {"name": which})[key] = rate
    return list(rows.values())


def _brokers(snapshot: MetricsSnapshot, growth: _Growth) -> list[dict[str, Any]]:
    tag = "node-id"
    in_flight = _by_tag(snapshot, "requests-in-flight", tag)
    average = _by_tag(snapshot, "request-latency-avg", tag)
    longest = _by_tag(snapshot, "request-latency-max", tag)
    silent = _by_tag(snapshot, "silent-time", tag)
    rows = [
        {
            **row,
            "name": row["name"].removeprefix("node-"),
            "in_flight": in_flight[row["name"]],
            "latency_avg": _finite(average[row["name"]]),
            "latency_max": _finite(longest[row["name"]]),
            "silent_ms": _finite(silent[row["name"]]),
        }
        for row in _group(tag, _BROKER_RATES, growth)
        # Bootstrap servers have negative ids until metadata gives them theirs; nothing is produced to them.
        if not row["name"].startswith("node--")
    ]
    return _busiest(rows, "requests_per_s", MOST_BROKERS)


def _busiest(rows: list[dict[str, Any]], key: str, most: int) -> list[dict[str, Any]]:
    """Return the rows by name; if there are too many, the busiest and the sum of all others."""
    if len(rows) > most:
        rows.sort(key=lambda row: (-(row[key] or 0.0), row["name"]))
        others = rows[most:]
        rows = [*rows[:most], _sum_of(others)]
    return sorted(
        rows,
        key=lambda row: (
            row["name"] == _OTHERS,
            len(row["name"]) if row["name"].isdigit() else 0,
            row["name"],
        ),
    )


def _sum_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    summed: dict[str, Any] = {"name": _OTHERS, "count": len(rows)}
    for key in rows[0]:
        values = [row[key] for row in rows if row[key] is not None]
        if key != "name":
            is_sum = not key.startswith(("latency", "silent", "oldest"))
            summed[key] = (sum(values) if is_sum else max(values)) if values else None
    return summed


def _finite(value: float) -> float | None:
    """Round to a thousandth, a microsecond of a time: more figures are only more bytes."""
    return round(value, 3) if math.isfinite(value) else None
