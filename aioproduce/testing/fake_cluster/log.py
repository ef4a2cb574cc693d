"""The log of one partition: batches in order of offset.

Used by `produce` (append), `fetch` and `list_offsets` (read), `partition` (truncate) and by inspection. It is the
leader's log; `partition` knows how much of it other replicas have.

Invariants:
1. Offsets are dense: each batch begins where the previous one ended. `start_offset` only grows; `end_offset` falls
   only in `truncate_to` (unclean leader election).
2. A batch is stored as the leader would write it: base offset, leader epoch and, for LogAppendTime, timestamp and
   checksum are the broker's; every other byte is the producer's.
3. An append changes everything (batch, end offset, producer state) or nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.control_batch import (
    Marker,
    coordinator_epoch_of,
    encode_marker,
    is_commit_marker,
)
from aioproduce.testing.fake_cluster.failures import InvalidBatchError, RefusedError
from aioproduce.testing.fake_cluster.producer_state import ProducerState
from aioproduce.testing.fake_cluster.record_batch import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    DecodedRecord,
    check_client_batch,
    check_crc,
    check_shape,
    decode_records,
    parse_single_batch,
    read_header,
    stamp,
)
from aioproduce.testing.fake_cluster.transaction_log import TransactionLog

# message.timestamp.after.max.ms of Kafka 4: a create time further ahead than this is refused.
MAX_TIMESTAMP_AHEAD_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The part of a topic's configuration that affects its logs.

    Attributes:
        max_message_bytes: `max.message.bytes`: the largest batch, including its 61 header bytes.
        is_log_append_time: `message.timestamp.type=LogAppendTime`.
        is_compacted: `cleanup.policy=compact`: records without a key are refused; nothing is compacted.
        retention_bytes: `retention.bytes` per partition: the oldest batches are deleted; `None` keeps all.
        retention_seconds: `retention.ms`: batches whose newest record is older are deleted; `None` keeps all.
        min_insync_replicas: `min.insync.replicas`, which acks=all requires.
        unclean_leader_election: `unclean.leader.election.enable`: a replica that is not in sync leads when no
            other can.
        producer_expiration_seconds: `producer.id.expiration.ms` (of the broker, in Kafka): a producer is
            forgotten when the newest record of its last batch is older; `None`: never.
        check_records: Read every record on append instead of its length only (slower, finds more).
    """

    max_message_bytes: int = 1_048_588
    is_log_append_time: bool = False
    is_compacted: bool = False
    retention_bytes: int | None = None
    retention_seconds: float | None = None
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    producer_expiration_seconds: float | None = None
    check_records: bool = False


class StoredBatch(NamedTuple):
    """One batch in a log, as consumers get it."""

    header: BatchHeader
    content: bytes

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def producer_id(self) -> int:
        """-1 if the producer was not idempotent."""
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        """-1 if the producer was not idempotent."""
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """-1 if the producer was not idempotent."""
        return self.header.base_sequence

    @property
    def record_count(self) -> int:
        """The number of records, including a marker."""
        return self.header.record_count

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction: records or a marker."""
        return self.header.is_transactional

    @property
    def marker(self) -> str | None:
        """COMMIT or ABORT if the batch is the end of a transaction; else `None`."""
        if not self.header.is_control:
            return None
        return "COMMIT" if is_commit_marker(self.content) else "ABORT"

    def records(self) -> list[DecodedRecord]:
        """Read the records (again on each call); for a marker none.

        Raises:
            RefusedError: If they are malformed in a way that the checks on append do not detect.
        """
        return [] if self.header.is_control else decode_records(self.header, self.content)


class Appended(NamedTuple):
    """The result for an accepted batch.

    Attributes:
        base_offset: The offset of its first record.
        last_offset: The offset of its last record.
        append_time: Milliseconds for LogAppendTime and for duplicates, else -1.
        is_duplicate: Whether it was already in the log.
    """

    base_offset: int
    last_offset: int
    append_time: int
    is_duplicate: bool


@final
@dataclass(slots=True, eq=False, repr=False)
class PartitionLog:
    """The batches of one partition, and its knowledge of producers.

    Attributes:
        batches: All of them, oldest first.
        transactions: Which part of it is decided.
        size: Bytes of all batches.
        lost: The batches that elections removed, for tests that account for every record.
        corrupt: Batches that are out of order, or whose checksum does not match their bytes.
    """

    config: TopicConfig
    start_offset: int = 0
    end_offset: int = 0
    producers: ProducerState = field(default_factory=ProducerState)
    transactions: TransactionLog = field(default_factory=TransactionLog)
    lost: list[StoredBatch] = field(default_factory=list)
    corrupt: int = 0
    batches: deque[StoredBatch] = field(default_factory=deque)
    _base_offsets: list[int] = field(default_factory=list)
    size: int = 0

    def append(
        self, records: bytes | memoryview, *, produce_version: int, leader_epoch: int, wall_ms: int
    ) -> Appended:
        """Check one batch as a broker does, and append it.

        Args:
            records: The bytes of this partition in the Produce request.
            produce_version: The version of that request.
            leader_epoch: The partition's leader epoch.
            wall_ms: Now, in milliseconds since the epoch.

        Raises:
            RefusedError: With the error code for the partition's answer.
        """
        try:
            header = parse_single_batch(records, produce_version)
            self._check_size(len(records))
            check_crc(header, records)
        except InvalidBatchError as error:
            self.corrupt += error.code != ErrorCode.message_too_large
            raise
        check_client_batch(header)
        self._check_records(header, records, wall_ms)
        if header.producer_id != NO_PRODUCER_ID:
            expiration = self.config.producer_expiration_seconds
            if expiration is not None:
                self.producers.expire(header.producer_id, wall_ms - int(expiration * 1000))
            duplicate = self.producers.find_duplicate(header)
            if duplicate is not None:
                # Kafka answers a duplicate's timestamp as log append time, also for CreateTime topics.
                last_offset = duplicate.base_offset + header.last_offset_delta
                return Appended(duplicate.base_offset, last_offset, duplicate.timestamp, is_duplicate=True)
            self.producers.check(header)
        return self._store(records, leader_epoch, wall_ms)

    def append_marker(self, marker: Marker, *, leader_epoch: int, wall_ms: int) -> int:
        """Append the end of a transaction; return its offset.

        Raises:
            RefusedError: If the producer or the coordinator has a newer epoch here.
        """
        self.producers.check_marker(marker)
        return self._store(encode_marker(marker, wall_ms), leader_epoch, wall_ms).base_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return where readers of committed records stop."""
        return self.transactions.last_stable_offset(high_watermark, self.start_offset)

    def committed_batches(self, high_watermark: int) -> list[StoredBatch]:
        """Return the batches before the last stable offset, without those of aborted transactions."""
        end = self.last_stable_offset(high_watermark)
        aborted = self.transactions.aborted
        return [
            batch
            for batch in self.batches
            if batch.last_offset < end
            and not any(
                batch.is_transactional
                and batch.producer_id == each.producer_id
                and each.first_offset <= batch.base_offset < each.last_offset
                for each in aborted
            )
        ]

    def read(self, offset: int, max_bytes: int, *, committed: int, at_least_one: bool) -> list[StoredBatch]:
        """Return whole batches, beginning with the one that contains `offset`.

        Args:
            offset: Between `start_offset` and `end_offset`.
            max_bytes: Stop before a batch that would exceed this.
            committed: Stop here: the high watermark, or the last stable offset.
            at_least_one: Return the first batch even if it is larger than `max_bytes` (KIP-74).
        """
        chosen: list[StoredBatch] = []
        total = 0
        index = max(bisect_right(self._base_offsets, offset) - 1, 0)
        while index < len(self.batches) and offset < committed:
            batch = self.batches[index]
            if batch.base_offset >= committed:
                break
            size = len(batch.content)
            if total + size > max_bytes and (chosen or not at_least_one):
                break
            chosen.append(batch)
            total += size
            index += 1
        return chosen

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """Return the (offset, timestamp) of the first record that is not older than `timestamp`."""
        for batch in self.batches:
            if batch.header.max_timestamp >= timestamp:
                for record in batch.records():
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return record.offset, record.timestamp
        return None

    def newest(self) -> tuple[int, int] | None:
        """Return the (offset, timestamp) of the first record with the greatest timestamp."""
        if not self.batches:
            return None
        timestamp = max(batch.header.max_timestamp for batch in self.batches)
        return self.first_at_or_after(timestamp)

    def delete_before(self, offset: int) -> None:
        """Raise the start of the log, as DeleteRecords and retention do; producer state stays, as in Kafka."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        while self.batches and self.batches[0].last_offset < self.start_offset:
            self.size -= len(self.batches.popleft().content)
            del self._base_offsets[0]

    def apply_retention(self, wall_ms: int, committed: int) -> None:
        """Delete what is too much or too old before `committed`; the last batch may be too old."""
        limit, seconds = self.config.retention_bytes, self.config.retention_seconds
        while limit is not None and self.size > limit and len(self.batches) > 1:
            if not self._delete_oldest(committed):
                break
        if seconds is not None:
            oldest = wall_ms - int(seconds * 1000)
            while self.batches and self.batches[0].header.max_timestamp < oldest:
                if not self._delete_oldest(committed):
                    break

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches beyond `offset`, as an unclean leader election does.

        The producer state is rebuilt from the rest.
        """
        while self.batches and self.batches[-1].last_offset >= offset:
            batch = self.batches.pop()
            self.lost.append(batch)
            self._base_offsets.pop()
            self.size -= len(batch.content)
            self.end_offset = batch.base_offset
        self.end_offset = min(self.end_offset, max(offset, 0))
        self.start_offset = min(self.start_offset, self.end_offset)
        self.producers.forget()
        self.transactions.forget()
        for batch in self.batches:
            self._remember(batch)

    def _delete_oldest(self, committed: int) -> bool:
        end = self.batches[0].last_offset + 1
        if end <= committed:
            self.delete_before(end)
        return end <= committed

    def _check_size(self, size: int) -> None:
        limit = self.config.max_message_bytes
        if size > limit:
            raise InvalidBatchError(
                ErrorCode.message_too_large,
                f"The record batch size is {size} bytes, above max.message.bytes {limit}",
            )

    def _check_records(self, header: BatchHeader, records: bytes | memoryview, wall_ms: int) -> None:
        latest = wall_ms + MAX_TIMESTAMP_AHEAD_MS
        is_suspicious = not self.config.is_log_append_time and header.max_timestamp > latest
        if not (self.config.check_records or self.config.is_compacted or is_suspicious):
            check_shape(header, records)
            return
        decoded = decode_records(header, records)
        if self.config.is_compacted:
            keyless = tuple(
                (index, "Compacted topic cannot accept message without key")
                for index, record in enumerate(decoded)
                if record.key is None
            )
            if keyless:
                raise RefusedError(
                    ErrorCode.invalid_record, "One or more records have been rejected", keyless
                )
        if not self.config.is_log_append_time:
            ahead = tuple(
                (index, f"Timestamp {record.timestamp} is out of range: at most {latest}")
                for index, record in enumerate(decoded)
                if record.timestamp > latest
            )
            if ahead:
                raise RefusedError(
                    ErrorCode.invalid_timestamp,
                    "One or more records have been rejected due to invalid timestamp",
                    ahead,
                )

    def _store(self, records: bytes | memoryview, leader_epoch: int, wall_ms: int) -> Appended:
        append_time = wall_ms if self.config.is_log_append_time else None
        content = stamp(
            records, base_offset=self.end_offset, leader_epoch=leader_epoch, append_time=append_time
        )
        batch = StoredBatch(read_header(content), content)
        self.batches.append(batch)
        self._base_offsets.append(batch.base_offset)
        self.size += len(content)
        self.end_offset = batch.last_offset + 1
        self._remember(batch)
        return Appended(
            batch.base_offset,
            batch.last_offset,
            NO_TIMESTAMP if append_time is None else append_time,
            is_duplicate=False,
        )

    def _remember(self, batch: StoredBatch) -> None:
        """Record the effects of a batch on its producer and on decided offsets."""
        header = batch.header
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.is_control:
            is_commit = is_commit_marker(batch.content)
            marker = Marker(
                header.producer_id,
                header.producer_epoch,
                is_commit,
                coordinator_epoch_of(batch.content),
                version=0,
            )
            self.producers.append_marker(marker, header.max_timestamp)
            self.transactions.end(header.producer_id, batch.base_offset, is_commit=is_commit)
            return
        self.producers.append(header, batch.base_offset)
        if header.is_transactional:
            self.transactions.begin(header.producer_id, batch.base_offset)
