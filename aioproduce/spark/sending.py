"""Sends the Arrow batches of one task in the loop thread, and returns the outcome of each row.

Used by `task` with one `send()` for each Arrow batch; up to `inflight.batches` are in flight at once.

Invariants:

1. Rows are accepted in order, over all Arrow batches of the task. So Kafka has them in that order in each
   partition, except for rows that the producer had to send again on their own (2).
2. A row is acknowledged, or the user's policy refuses it, or the write fails. A row that shared a Kafka batch with
   one that the broker refused is sent again. A Kafka batch has rows of several Arrow batches: a row's own error
   shows whether it is at fault, never that of another one.
3. `on.error` applies only to rows that no retry can help. A timeout, a lost connection, a missing permission or a
   row that may be in the log in spite of its error always fails the write: `drop` must not turn an unavailable
   broker into an empty topic.
4. `send()` ends within `delivery.timeout.ms` of its call.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aioproduce.errors import (
    ArrowColumnError,
    BrokerRejectedError,
    DeliveryError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartialSendError,
    PartitionOutOfRangeError,
    ProducerError,
    ProducerFatalError,
)
from aioproduce.producer.arrow import ReadyRows
from aioproduce.spark.dead_letters import DeadLetters, DeadRow
from aioproduce.spark.errors import RowError, WriteError
from aioproduce.wire.error_codes import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    is_retriable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.producer import Producer

# Error codes for a record that the broker will never accept. A missing permission is not included: it concerns the
# whole write, and `on.error` is not meant to drop all of its rows.
_OF_THE_RECORD: Final = frozenset(
    {MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD}
)
# Error codes for a topic that the broker does not have, or can never have.
_OF_THE_TOPIC: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION})


@final
@dataclass(slots=True, eq=False)
class Rows:
    """Rows ready to be sent.

    Attributes:
        batch: A `pyarrow.RecordBatch` with the columns `value`, and where there are any `key`, `headers`, `topic`,
            `partition`, `timestamp`.
        numbers: The number of each row within the task.
        size: Bytes of keys and values.
        added_headers: How many of each row's last headers in `batch` are the sink's.
        stamps: Each row's stamp, or None.
        encoded: Each row's headers in encoded form, if `batch` has none.
        ready: The converted rows, if already converted.
    """

    batch: Any
    numbers: np.ndarray[Any, Any]
    size: int = 0
    added_headers: int = 0
    stamps: np.ndarray[Any, Any] | None = None
    encoded: np.ndarray[Any, Any] | None = None
    ready: ReadyRows | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def make_ready(self, *, has_topic: bool) -> ReadyRows:
        """Return the input for `send_arrow()`, which is created once."""
        if self.ready is None:
            encoded = None if self.encoded is None else (self.encoded.shape[1], self.encoded)
            self.ready = ReadyRows(self.batch, has_topic=has_topic, encoded=encoded)
        return self.ready

    def part(self, start: int, stop: int | None = None) -> Rows:
        """Return consecutive rows."""
        end = len(self) if stop is None else stop
        return self._some(self.batch.slice(start, end - start), slice(start, end))

    def take(self, places: Sequence[int]) -> Rows:
        """Return the rows at these positions."""
        at = np.array(places, dtype=np.int64)
        return self._some(self.batch.take(pa.array(at)), at)

    def _some(self, batch: Any, at: slice | np.ndarray[Any, Any]) -> Rows:
        return Rows(
            batch,
            self.numbers[at],
            added_headers=self.added_headers,
            stamps=None if self.stamps is None else self.stamps[at],
            encoded=None if self.encoded is None else self.encoded[at],
        )

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Join rows of one Arrow batch."""
        first = parts[0]
        if len(parts) == 1:
            return first

        def of(name: str) -> np.ndarray[Any, Any] | None:
            arrays = [array for part in parts if (array := getattr(part, name)) is not None]
            return np.concatenate(arrays) if arrays else None

        numbers = of("numbers")
        assert numbers is not None
        return Rows(
            pa.concat_batches([part.batch for part in parts]),
            numbers,
            added_headers=first.added_headers,
            stamps=of("stamps"),
            encoded=of("encoded"),
        )

    def column(self, name: str) -> Any:
        """Return a column, or None if there is none."""
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)

    def dead(self, place: int, error: ProducerError, topic: str | None) -> DeadRow:
        """Return a row for the dead-letter topic."""

        def cell(name: str) -> Any:
            column = self.column(name)
            return None if column is None else column[place].as_py()

        pairs = cell("headers") or []
        own = pairs[: len(pairs) - self.added_headers]
        return DeadRow(
            row=int(self.numbers[place]),
            error=error,
            topic=topic or cell("topic"),
            partition=cell("partition"),
            key=_bytes(cell("key")),
            value=_bytes(cell("value")),
            headers=[
                (pair["key"], pair["value"]) for pair in own if pair is not None and pair["key"] is not None
            ],
            stamp=None if self.stamps is None else self.stamps[place].tobytes(),
        )


@final
@dataclass(slots=True)
class Outcome:
    """The result for an Arrow batch.

    Attributes:
        topics: Acknowledged rows, by topic.
        size: Bytes of their keys and values.
        refused: The numbers of refused rows, which are not in their topic.
        seconds: From the call to the last acknowledgement.
    """

    topics: Counter[str] = field(default_factory=Counter)
    size: int = 0
    refused: list[int] = field(default_factory=list)
    seconds: float = 0.0


@final
@dataclass(slots=True, eq=False, kw_only=True)
class TaskSending:
    """Sends for one task.

    Attributes:
        producer: The producer.
        topic: The topic of all rows; None if the column `topic` has it.
        policy: `fail`, `dead_letter` or `drop`, for rows that can never be sent.
        dead_letters: Sends them under `dead_letter`.
        bound: Maximum seconds of a `send()`.
        headers: The headers of all rows without their own.
    """

    producer: Producer[Any, Any]
    topic: str | None
    policy: str
    dead_letters: DeadLetters | None
    bound: float
    headers: Sequence[tuple[str, bytes]] = ()
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    # Topics of the column `topic`: those already requested, and those that the cluster does not have.
    _asked: set[str] = field(default_factory=set, init=False)
    _missing: dict[str, MetadataTimeoutError] = field(default_factory=dict, init=False)

    async def send(self, rows: Rows) -> Outcome:
        """Send rows, and wait until each is acknowledged or refused.

        Raises:
            RowError: If a row can never be sent, and `on.error` is `fail`.
            WriteError: If they were not all acknowledged in time.
            ProducerError: If `Producer.send_arrow()` or its deliveries raise it.
        """
        began_at = time.perf_counter()
        dead: list[DeadRow] = []
        try:
            async with asyncio.timeout(self.bound):
                left: Rows | None = rows
                while left is not None:
                    async with self._turn:
                        accepted = await self._accept(left, dead)
                    left = await self._settle(accepted, dead)
                if dead and self.dead_letters is not None:
                    await self.dead_letters.send(dead)
        except TimeoutError as error:
            if isinstance(error, ProducerError):
                raise
            raise WriteError(
                f"{len(rows)} rows were not all acknowledged within delivery.timeout.ms ({self.bound:g} s): check "
                "that the brokers are up and fast enough, or raise option 'kafka.delivery.timeout.ms'",
                unknown=len(rows),
            ) from error
        return self._outcome(rows, dead, time.perf_counter() - began_at)

    async def flush(self) -> None:
        """Send lingering records."""
        await self.producer.flush(self.bound)

    # -- accepting ---

    async def _accept(self, rows: Rows, dead: list[DeadRow]) -> list[tuple[Rows, Deliveries]]:
        """Pass rows to the producer, skipping those that it refuses."""
        accepted: list[tuple[Rows, Deliveries]] = []
        await self._ask_for_topics(rows)
        if self._missing:
            rows = self._without_missing(rows, dead)
        while len(rows):
            try:
                deliveries = await self.producer.send_arrow(
                    self.topic,
                    rows.make_ready(has_topic=self.topic is not None),
                    headers=list(self.headers) or None,
                )
            except PartialSendError as error:
                cause = error.__cause__
                done = error.index
                accepted.append((rows.part(0, done), error.deliveries))  # type: ignore[arg-type]  # of an asyncio producer
                if not isinstance(cause, ProducerError):
                    raise
                self._refuse(rows, done, cause, dead)
                rows = rows.part(done + 1)
                if isinstance(cause, MetadataTimeoutError):
                    self._missing[cause.topic] = cause
                    rows = self._without_missing(rows, dead)
                elif isinstance(cause, PartitionOutOfRangeError):
                    rows = self._without_partitions(rows, cause, dead)
            else:
                accepted.append((rows, deliveries))
                break
        return accepted

    async def _ask_for_topics(self, rows: Rows) -> None:
        """Find out which topics exist, all at once.

        A missing one takes `max.block.ms`; checked one by one, two of them would take as long as a write may.
        """
        topics = None if self.topic is not None else rows.column("topic")
        if topics is None:
            return
        names = {name for name in pc.unique(topics).to_pylist() if name is not None} - self._asked
        self._asked |= names
        found = await asyncio.gather(*map(self.producer.partitions_for, names), return_exceptions=True)
        for error in found:
            if isinstance(error, MetadataTimeoutError) and _is_of_the_row(error, has_topic=False):
                self._missing[error.topic] = error
            # All other errors occur again with the row that they belong to.

    def _without_missing(self, rows: Rows, dead: list[DeadRow]) -> Rows:
        """Return the rows whose topics exist; the others are refused."""
        topics = rows.column("topic")
        if self.topic is not None or topics is None:
            return rows
        named = topics.to_pylist()
        for place, topic in enumerate(named):
            if topic in self._missing:
                self._refuse(rows, place, self._missing[topic], dead)
        return rows.take([place for place, topic in enumerate(named) if topic not in self._missing])

    def _without_partitions(self, rows: Rows, known: PartitionOutOfRangeError, dead: list[DeadRow]) -> Rows:
        """Return the rows whose partitions exist in the topic; the others are refused.

        The producer asks the cluster for each of them whether there are more now, which takes a second.
        """
        partitions = rows.column("partition")
        is_beyond = pc.greater_equal(partitions, known.partition_count)
        if self.topic is None:
            is_beyond = pc.and_(is_beyond, pc.equal(rows.column("topic"), known.topic))
        beyond = pc.fill_null(is_beyond, False).to_numpy(zero_copy_only=False)
        for place in np.flatnonzero(beyond).tolist():
            partition = partitions[place].as_py()
            error = PartitionOutOfRangeError(
                f"topic {known.topic!r} has {known.partition_count} partition(s), and no partition {partition}",
                topic=known.topic,
                partition=partition,
                partition_count=known.partition_count,
            )
            self._refuse(rows, place, error, dead)
        return rows.take(np.flatnonzero(~beyond).tolist())

    # -- acknowledgements ---

    async def _settle(self, accepted: list[tuple[Rows, Deliveries]], dead: list[DeadRow]) -> Rows | None:
        """Wait for acknowledgements; return the rows to send again, which belong to one Arrow batch."""
        again: list[Rows] = []
        for rows, deliveries in accepted:
            failed = await deliveries.failed()
            if not failed:
                continue
            blameless: list[int] = []
            for place, error in sorted(failed.items()):
                if _is_blameless(error):
                    blameless.append(place)
                else:
                    self._refuse(rows, place, error, dead)
            if blameless:
                again.append(rows.take(blameless))
        return Rows.joined(again) if again else None

    def _refuse(self, rows: Rows, place: int, error: ProducerError, dead: list[DeadRow]) -> None:
        """Apply the policy to a row that cannot be sent, if it is the row's fault.

        Raises:
            RowError: If the policy is to fail.
            ProducerError: If it is not the row's fault.
        """
        if not _is_of_the_row(error, has_topic=self.topic is not None):
            raise error
        refused = rows.dead(place, error, self.topic)
        if self.policy == "fail":
            raise RowError(
                f"row {refused.row} can never be sent: {error}. Change the query so that there is no such row, or "
                "send such rows elsewhere with option 'on.error' = 'dead_letter' or 'drop'",
                row=refused.row,
                topic=refused.topic,
            ) from error
        dead.append(refused)

    def _outcome(self, rows: Rows, dead: list[DeadRow], seconds: float) -> Outcome:
        outcome = Outcome(seconds=seconds, size=rows.size, refused=[row.row for row in dead])
        if self.topic is not None:
            outcome.topics[self.topic] = len(rows) - len(dead)
        else:
            for entry in pc.value_counts(rows.column("topic")).to_pylist():
                if entry["values"] is not None:
                    outcome.topics[entry["values"]] = entry["counts"]
            for row in dead:
                if row.topic is not None:
                    outcome.topics[row.topic] -= 1
        outcome.topics = +outcome.topics
        for row in dead:
            outcome.size -= len(row.key or b"") + len(row.value or b"")
        return outcome


def _is_blameless(error: DeliveryError) -> bool:
    """Return whether the broker refused a record's batch because of another record, so that it can be sent again.

    The other record need not be known here: a Kafka batch has rows of several Arrow batches.
    """
    return (
        isinstance(error, BrokerRejectedError)
        and error.record_index is None
        and error.retriable
        and not is_retriable(error.code)
        and not error.possibly_written
    )


def _is_of_the_row(error: ProducerError, *, has_topic: bool) -> bool:
    """Return whether the row itself can never be sent, as opposed to a failure of the cluster or network."""
    if isinstance(error, MetadataTimeoutError):
        return not has_topic and error.code in _OF_THE_TOPIC
    if isinstance(error, BrokerRejectedError):
        return (
            not isinstance(error, ProducerFatalError)
            and not error.possibly_written
            and error.code in _OF_THE_RECORD
        )
    return isinstance(error, InvalidRecordError) and not isinstance(error, ArrowColumnError)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
