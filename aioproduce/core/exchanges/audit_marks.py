"""Publishing the marks of an audited producer: heartbeats while it works, and one when all records are settled.

The marks go through an accumulator as all records do, unnumbered, in memory of their own. They wait for no memory
and use none of `buffer.memory`. A transactional producer's marks go through the accumulator of another Sender.

Invariants:

1. `MARKS_STATES` is the table of states. After the closing mark there is no other.
2. Nothing here fails a user's record or stops the producer: a problem with a mark is a warning.
3. A heartbeat is published only if something changed since the last one that was acknowledged or is in flight.
4. The end waits for an unknown audit topic for `_PATIENCE` seconds at most (and not at all if the topic has been
   missing for longer), and for the mark itself as long as for any record (`delivery.timeout.ms`).
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from aioproduce._native.delivery import make_delivery
from aioproduce._native.key_hash import partition_for_key
from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, RecordBatchBuffer, record_size_upper_bound
from aioproduce.core.batching.buffer_pool import OwnMemory
from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.core.state_table import StateTable
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.record_audit import MarkSource, RecordAudit
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata, TopicView
    from aioproduce.core.exchanges.metadata_requests import MetadataRequests
    from aioproduce.records import RecordMetadata

# Seconds between two checks whether the audit topic became known.
_LOOK_AGAIN: Final = 1.0
# Seconds that an auto-created topic may take to get its leaders.
_PATIENCE: Final = 5.0
# Runs of failed numbers in a mark; fewer if the mark would exceed the largest request.
_MOST_RUNS: Final = 1000

_log = logging.getLogger("aioproduce.audit")


class MarksState(Enum):
    """The state of a producer's marks."""

    BEATING = auto()
    """Heartbeats are published."""
    CLOSING = auto()
    """The producer closes; its last mark is not sent yet."""
    LAST_SENT = auto()
    """The last mark is queued or in flight."""
    ENDED = auto()
    """No more marks follow."""


_Event: TypeAlias = Literal["closing", "last sent", "ended"]

MARKS_STATES: Final[StateTable[MarksState, _Event]] = StateTable(
    "the marks of a producer",
    {
        MarksState.BEATING: {"closing": MarksState.CLOSING},
        MarksState.CLOSING: {"last sent": MarksState.LAST_SENT, "ended": MarksState.ENDED},
        MarksState.LAST_SENT: {"ended": MarksState.ENDED},
        MarksState.ENDED: {},
    },
)


@final
class AuditMarks(Exchange):
    """The exchange that publishes the marks of one producer.

    Args:
        source: The source of the marks.
        audit: The account that the marks report.
        wall_ms: Returns milliseconds since the epoch.
        metadata: The audit topic's partitions.
        requests: The requests for metadata.
        accumulator: The queue of the marks.
        now: The current instant.
        most: The largest size of a mark, in bytes.

    Attributes:
        state: See `MarksState`.
    """

    __slots__ = (
        "_accumulator",
        "_audit",
        "_ends_at",
        "_has_warned",
        "_metadata",
        "_most",
        "_patience_ends_at",
        "_requests",
        "_source",
        "_told",
        "_wall_ms",
        "state",
    )

    def __init__(
        self,
        source: MarkSource,
        audit: RecordAudit,
        *,
        wall_ms: Callable[[], int],
        metadata: ClusterMetadata,
        requests: MetadataRequests,
        accumulator: RecordAccumulator,
        now: float,
        most: int,
    ) -> None:
        super().__init__()
        self._source = source
        self._audit = audit
        self._wall_ms = wall_ms
        self._metadata = metadata
        self._requests = requests
        self._accumulator = accumulator
        self._most = most
        self._has_warned = False
        # The counts of acknowledged and failed records in the last mark; `None` if that mark failed.
        self._told: tuple[int, int] | None = (0, 0)
        self._ends_at = inf
        self._patience_ends_at = now + _PATIENCE
        self.state: MarksState = MarksState.BEATING
        self.timer_at: float = now + source.heartbeat
        # Asked for now, so that the topic is known when the first mark is due; a cluster may auto-create it.
        requests.want_topic(source.topic, now)

    # -- heartbeats ---

    def advance(self, now: float) -> None:
        """Publish a heartbeat if one is due and there is something new to report."""
        if self.timer_at > now:
            return
        if self.state is not MarksState.BEATING:
            self.timer_at = inf  # `finish()` looks again, now
            return
        self.timer_at = now + self._source.heartbeat
        if self._counts == self._told:
            return
        topic = self._topic(now)
        if topic is not None:
            self._publish(topic, now, is_closing=False)
        elif not self._has_warned:
            self.timer_at = now + min(_LOOK_AGAIN, self._source.heartbeat)

    @property
    def _counts(self) -> tuple[int, int]:
        return self._audit.acknowledged, self._audit.failed

    def _topic(self, now: float) -> TopicView | None:
        """Return the audit topic; if it is unknown, ask for it, and warn if it has been missing for long."""
        name = self._source.topic
        topic = self._metadata.topic(name)
        if topic is None:
            code = self._metadata.topic_error(name)
            if code != codes.NONE and now >= self._patience_ends_at:
                self._warn(f"{codes.name_of(code)}: {codes.message_of(code)}", "Create it")
            self._requests.want_topic(name, now)
        return topic

    def _warn(self, why: str, remedy: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "marks cannot be published to the audit topic %s: %s. Records are still sent and numbered, but if "
                "the last ones are lost, no audit detects it. %s, or set another topic with Auditor(topic=...)",
                self._source.topic,
                why,
                remedy,
            )

    def _publish(self, topic: TopicView, now: float, *, is_closing: bool) -> bool:
        """Queue a mark; return whether that was possible."""
        at = self._wall_ms()
        runs = _MOST_RUNS
        while True:
            key, value = self._source.make(self._audit.account(runs), at, is_closing=is_closing)
            size = RECORD_BATCH_OVERHEAD + record_size_upper_bound(key, value)
            if size <= self._most:
                break
            if not runs:
                self._warn(
                    f"a mark takes {size} bytes, max.request.size is {self._most}", "Raise max.request.size"
                )
                return False
            runs //= 2
        records = RecordBatchBuffer(bytearray(size))
        records.try_append(at, key, value, None)
        partition = partition_for_key(key, topic.partition_count)
        result = self._accumulator.append_batch(OwnMemory(size), topic, partition, records, now)
        # The callback makes the failure count as observed: it is reported here, and nowhere else.
        make_delivery(result, 0, at, len(key), len(value))._add_delivery_callback(self._settled)
        self._told = self._counts
        return True

    def _settled(self, _metadata: RecordMetadata, error: BaseException | None) -> None:
        if error is not None:
            self._told = None
            self._warn(str(error), "Check its partitions")

    # -- the end ---

    def begin_close(self, now: float) -> None:
        """Stop the heartbeats; the last mark follows once all records are settled."""
        self._move("closing")
        self.timer_at = inf
        if self._metadata.topic(self._source.topic) is None:
            self._requests.want_topic(self._source.topic, now)

    def finish(self, now: float) -> bool:
        """Send the last mark, or end if it is settled; return whether nothing is left to do."""
        if self.state is MarksState.LAST_SENT:
            self._move("ended")
        elif self.state is MarksState.CLOSING:
            self._send_last(now)
        return self.state is MarksState.ENDED

    def _send_last(self, now: float) -> None:
        if not self._audit.given:
            self._move("ended")
            return
        topic = self._topic(now)
        if topic is not None:
            # After a closing mark a missing number is a lost record. So a mark is closing only if all are settled.
            is_settled = self._audit.settled_below == self._audit.given
            is_sent = self._publish(topic, now, is_closing=is_settled)
            self._move("last sent" if is_sent else "ended")
            return
        is_answered = self._metadata.topic_error(self._source.topic) != codes.NONE
        self._ends_at = min(self._ends_at, self._patience_ends_at if is_answered else now + _PATIENCE)
        if self._has_warned or now >= self._ends_at:
            self._warn("its partitions did not become known", "Create it, or check the brokers")
            self._move("ended")
            self.timer_at = inf
            return
        self.timer_at = self._ends_at

    def handle_timer(self, now: float) -> None:
        """Do nothing: `advance()` sets the next instant."""

    def _move(self, event: _Event) -> None:
        self.state = MARKS_STATES.after(self.state, event)
