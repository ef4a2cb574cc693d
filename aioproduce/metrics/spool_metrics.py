"""The sensors of one spooled producer, and the table of its metrics.

`spool.measuring` records into them and reads them, once per batch, group, read or wait, never per record. The names
begin with `spool-`, so that none is a name of a producer's own metric: a spooled producer reports both.

Invariant: recording never raises, and memory grows only with the number of topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from aioproduce._native.stats import Distribution, Meter, Spread, Windows
from aioproduce.metrics.metric import MetricKind
from aioproduce.metrics.rows import (
    Row,
    counted,
    distribution,
    level,
    meter,
    read_histograms,
    read_rows,
    spread,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.metrics.metric import Histogram, Metric

SPOOL: Final = "spool-metrics"
SPOOL_TOPIC: Final = "spool-topic-metrics"

_T = TypeVar("_T", bound="SpoolMetrics | SpoolTopicMetrics")
_MS: Final = 1e3


@final
class SpoolTopicMetrics:
    """The sensors of one topic.

    Args:
        windows: The sample windows.

    Attributes:
        levels: The values at the instant of reading, by the metric's name; set by the owner.
    """

    __slots__ = ("appended", "forwarded", "levels")

    def __init__(self, windows: Windows) -> None:
        self.appended: Meter = Meter(windows)
        self.forwarded: Meter = Meter(windows)
        self.levels: dict[str, float] = {}


@final
class SpoolMetrics:
    """All sensors of a spooled producer.

    Args:
        windows: The sample windows.

    Attributes:
        topics: Those of each topic.
        levels: The values at the instant of reading, by the metric's name; set by the owner.
    """

    __slots__ = (
        "_windows",
        "appended",
        "appended_bytes",
        "damaged",
        "dead_letters",
        "dropped",
        "forwarded",
        "group_size",
        "levels",
        "resent",
        "sync_time",
        "topics",
    )

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.appended: Meter = Meter(windows)
        self.appended_bytes: Meter = Meter(windows)
        self.group_size: Spread = Spread(windows)
        self.sync_time: Distribution = Distribution(windows)
        self.forwarded: Meter = Meter(windows)
        self.resent: Meter = Meter(windows)
        self.dead_letters: Meter = Meter(windows)
        self.dropped: Meter = Meter(windows)
        self.damaged: Meter = Meter(windows)
        self.topics: dict[str, SpoolTopicMetrics] = {}
        self.levels: dict[str, float] = {}

    def topic(self, topic: str) -> SpoolTopicMetrics:
        """Return the sensors of a topic, new ones for a new topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = SpoolTopicMetrics(self._windows)
        return found

    def synced(self, seconds: float, now: float) -> None:
        """Record a sync of a log."""
        self.sync_time.record(seconds * _MS, now)


def _level(name: str, unit: str, description: str) -> Row[_T]:
    return level(name, unit, description, _reader(name))


def _grown(name: str, unit: str, description: str) -> Row[_T]:
    return Row(name, unit, MetricKind.TOTAL, description, _reader(name))


def _reader(name: str) -> Callable[[SpoolMetrics | SpoolTopicMetrics, float], float]:
    return lambda m, _: m.levels[name]


SPOOL_ROWS: Final[tuple[Row[SpoolMetrics], ...]] = table(
    meter("spool-append", "records", "records put on disk", lambda m: m.appended),
    meter("spool-append-byte", "bytes", "bytes of batches put on disk", lambda m: m.appended_bytes),
    spread("spool-group-size", "records", "number of records written together", lambda m: m.group_size),
    distribution("spool-sync-time", "ms", "time of a sync of a log", lambda m: m.sync_time),
    counted("spool-sync", "syncs", "syncs of logs", lambda m: m.sync_time),
    _level("spool-backlog-records", "records", "The records without an outcome; NaN until they are known"),
    _level("spool-backlog-bytes", "bytes", "The bytes of these records on disk"),
    _level(
        "spool-unread-bytes",
        "bytes",
        "The bytes that an earlier process left and nobody has read yet: until then the backlogs are estimates",
    ),
    _level("spool-oldest-age", "s", "The age of the first waiting record; 0 for none, NaN until it is read"),
    _level(
        "spool-drain-time",
        "s",
        "The time until the queue is empty at the present rates; NaN if it does not shrink",
    ),
    _level("spool-stored-bytes", "bytes", "The bytes of all files of the queue"),
    _level("spool-max-bytes", "bytes", "The most bytes of the queue: max_bytes"),
    _level("spool-free-bytes", "bytes", "The bytes that the file system has free; NaN if it cannot be asked"),
    meter("spool-forward", "records", "records that the cluster acknowledged", lambda m: m.forwarded),
    meter("spool-resend", "records", "records that were read and sent again", lambda m: m.resent),
    meter(
        "spool-drop",
        "records",
        "records dropped, by the limits of size and age",
        lambda m: m.dropped,
    ),
    meter("spool-dead-letter", "records", "records put to the dead letters", lambda m: m.dead_letters),
    meter("spool-damage", "records", "records that may be lost by damage on disk", lambda m: m.damaged),
    _level("spool-quarantined-bytes", "bytes", "The damaged bytes that are kept"),
    _grown("spool-full-wait-total", "batches", "The total number of batches that found the queue full"),
    _level("spool-blocked-topics", "topics", "The topics that cannot be sent to at present"),
    _level("spool-takes-records", "", "1 while a record can be put into the queue, 0 otherwise"),
)
"""The metrics of the queue."""

SPOOL_TOPIC_ROWS: Final[tuple[Row[SpoolTopicMetrics], ...]] = table(
    meter("spool-append", "records", "records put on disk", lambda m: m.appended),
    meter("spool-forward", "records", "records that the cluster acknowledged", lambda m: m.forwarded),
    _level("spool-backlog-records", "records", "The records without an outcome; NaN until they are known"),
    _level("spool-backlog-bytes", "bytes", "The bytes of these records on disk"),
    _level("spool-oldest-age", "s", "The age of the first waiting record; 0 for none, NaN until it is read"),
    _level("spool-stored-bytes", "bytes", "The bytes of the topic's files"),
    _level("spool-is-blocked", "", "1 while the topic cannot be sent to, 0 otherwise"),
)
"""The metrics of each topic of the queue."""


def read_spool(metrics: SpoolMetrics, client_id: str, now: float) -> tuple[list[Metric], list[Histogram]]:
    """Read all sensors.

    Args:
        metrics: The sensors; their `levels` are those of now.
        client_id: The tag of all metrics.
        now: The end of the windows.
    """
    tags = {"client-id": client_id}
    found = list(read_rows(SPOOL, tags, SPOOL_ROWS, metrics, now))
    for topic, of_topic in list(metrics.topics.items()):
        found += read_rows(SPOOL_TOPIC, {**tags, "topic": topic}, SPOOL_TOPIC_ROWS, of_topic, now)
    return found, read_histograms(SPOOL_ROWS, tags, metrics)
