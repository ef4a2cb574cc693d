"""One batch from its first record to its outcome: the scenarios of Java's ProducerBatchTest, and the state table.

Obsolete: the magic v0/v1 half of `splitPreservesMagicAndCompressionType`. Java's
`completeExceptionallyWithNullRecordErrors` is a missing argument there; here it means the batch's error for all.
`withLeaderChangesAcrossRetries` is the accumulator's (test_a_newer_leader_ends_back_off_at_once).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from aioproduce.compression import codec_for, decompress
from aioproduce.core.batching.producer_batch import (
    NO_PRODUCER_ID,
    BatchState,
    ProducerBatch,
    ProducerIdAndEpoch,
)
from aioproduce.errors import DeliveryError
from aioproduce.records import TopicPartition
from tests.unit.accumulator_harness import NoLoopRuntime, delivery_error, records, wire_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.compression import Codec

NOW = 1488748346917
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITION = TopicPartition("topic", 1)


class Lease:
    """Counts how often it was given back."""

    def __init__(self) -> None:
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def make(size: int = 512) -> tuple[ProducerBatch, Lease]:
    lease = Lease()
    batch = ProducerBatch(
        PARTITION, lease, bytearray(size), NoLoopRuntime(), batch_id=7, created_at=100.0, deadline=110.24
    )
    return batch, lease


def append(
    batch: ProducerBatch, told: list[tuple[int, str | None]] | None = None, value: bytes = bytes(10)
) -> DeliveryFuture:
    delivery = batch.try_append(NOW, None, value, None)
    assert delivery is not None
    if told is not None:
        delivery._add_delivery_callback(
            lambda found, error: told.append((found.offset, None if error is None else str(error)))
        )
    return delivery


def in_flight(size: int = 512, records: int = 1) -> tuple[ProducerBatch, Lease, list[DeliveryFuture]]:
    batch, lease = make(size)
    deliveries = [append(batch) for _ in range(records)]
    batch.begin_attempt()
    return batch, lease, deliveries


def attempt(batch: ProducerBatch, codec: Codec | None) -> None:
    """As the accumulator does: compressed once, sealed for each attempt."""
    if codec is not None and not batch.is_compressed:
        batch.compress(codec)
    batch.begin_attempt()


# -- outcomes ---


def test_a_failed_batch_ignores_nothing_and_fails_once() -> None:
    """Java's batchAbort, batchCannotAbortTwice."""
    batch, lease = make()
    told: list[tuple[int, str | None]] = []
    delivery = append(batch, told)
    batch.fail(delivery_error("aborted"))
    assert batch.result.run_callbacks() == []
    assert delivery.done()
    assert told == [(-1, "aborted")]
    ways: list[Callable[[], object]] = [
        lambda: batch.succeed(500, 2342342341),
        lambda: batch.fail(delivery_error("again")),
        lambda: batch.answer_failed(delivery_error("again")),
        lambda: batch.requeue(0.0),
        lambda: batch.begin_attempt(),
        batch.release_abandoned,
    ]
    for again in ways:
        with pytest.raises(RuntimeError, match=r"topic-1. is done: .* cannot happen"):
            again()
    assert batch.result.run_callbacks() == []
    assert told == [(-1, "aborted")]
    assert str(delivery.exception()) == "aborted"
    assert lease.releases == 1


def test_a_batch_succeeds_once() -> None:
    """Java's batchCannotCompleteTwice."""
    batch, lease = make()
    told: list[tuple[int, str | None]] = []
    delivery = append(batch, told)
    batch.begin_attempt()
    batch.succeed(500, 10)
    assert batch.result.run_callbacks() == []
    with pytest.raises(RuntimeError, match="is done: 'answered' cannot happen"):
        batch.succeed(1000, 20)
    assert told == [(500, None)]
    assert delivery.result() == ("topic", 1, 500, 10, -1, 10)
    assert lease.releases == 1


def test_errors_of_single_records() -> None:
    """Java's completeExceptionallyWithRecordErrors."""
    batch, _, deliveries = in_flight(records=5)
    batch.answer_failed(delivery_error("all"), {0: delivery_error("first"), 3: delivery_error("fourth")})
    texts = [str(delivery.exception()) for delivery in deliveries]
    assert texts == ["first", "all", "all", "fourth", "all"]


def test_without_errors_of_single_records_the_batchs_own_counts() -> None:
    batch, _, deliveries = in_flight(records=5)
    batch.answer_failed(delivery_error("all"))
    assert [str(delivery.exception()) for delivery in deliveries] == ["all"] * 5


# -- memory ---


def test_in_flight_a_failed_batch_keeps_its_bytes_until_they_are_free() -> None:
    batch, lease, [delivery] = in_flight()
    sent = wire_bytes(batch)
    batch.fail(delivery_error())
    assert delivery.done()
    assert batch.is_settled
    assert (batch.state, lease.releases) == (BatchState.ABANDONED, 0)
    assert wire_bytes(batch) == sent
    ways: list[Callable[[], object]] = [
        lambda: batch.requeue(0.0),
        lambda: batch.begin_attempt(),
        lambda: batch.fail(delivery_error()),
        lambda: batch.answer_failed(delivery_error()),
        lambda: batch.succeed(1, -1),
    ]
    for wrong in ways:
        with pytest.raises(RuntimeError, match=r"is abandoned: .* cannot happen"):
            wrong()
        assert (batch.state, lease.releases) == (BatchState.ABANDONED, 0)
    batch.release_abandoned()
    assert (batch.state, lease.releases) == (BatchState.DONE, 1)
    assert batch.buffers == ()


@pytest.mark.parametrize("end", ["succeed", "answer_failed", "fail while queued"])
def test_every_end_gives_the_memory_back_once(end: str) -> None:
    batch, lease, _ = in_flight()
    if end == "succeed":
        batch.succeed(0, -1)
    elif end == "answer_failed":
        batch.answer_failed(delivery_error())
    else:
        batch.requeue(0.0)
        assert lease.releases == 0
        batch.fail(delivery_error())
    assert lease.releases == 1
    assert batch.buffers == ()
    # The buffer may be another batch's by now.
    assert batch.try_append(NOW, None, b"", None) is None
    with pytest.raises(RuntimeError, match="given back"):
        batch.records.records_view()


def test_the_memory_goes_back_though_a_waiter_cannot_be_woken() -> None:
    class BrokenLoop(NoLoopRuntime):
        def call_soon(self, callback: Any, argument: Any, context: Any) -> None:
            raise RuntimeError("the loop is closed")

    ways: list[Callable[[ProducerBatch], object]] = [
        lambda batch: batch.succeed(0, -1),
        lambda batch: batch.answer_failed(delivery_error()),
    ]
    for settle in ways:
        lease = Lease()
        batch = ProducerBatch(
            PARTITION, lease, bytearray(512), BrokenLoop(), batch_id=7, created_at=100.0, deadline=110.24
        )
        append(batch).add_done_callback(lambda found: None)
        batch.begin_attempt()
        with pytest.raises(RuntimeError, match="the loop is closed"):
            settle(batch)
        assert lease.releases == 1


# -- appends ---


def test_a_closed_batch_takes_no_record_though_it_has_room() -> None:
    """Java's shouldNotAttemptAppendOnceRecordsBuilderIsClosedForAppends."""
    batch, _ = make()
    append(batch)
    assert batch.is_open
    batch.close_for_appends()
    assert batch.try_append(NOW + 1, None, bytes(10), None) is None
    assert batch.record_count == 1


def test_a_full_batch_takes_no_record_and_stays_as_it_is() -> None:
    batch, _ = make(61 + 20)
    append(batch, value=bytes(10))
    assert batch.try_append(NOW, None, bytes(10), None) is None
    assert batch.is_open
    assert batch.record_count == 1


def test_a_batch_in_flight_takes_no_record() -> None:
    batch, _, _ = in_flight()
    assert batch.try_append(NOW, None, b"", None) is None
    batch.requeue(0.0)
    assert batch.try_append(NOW, None, b"", None) is None


# -- time ---


def test_time_runs_from_the_creation_not_from_a_retry() -> None:
    """Java's batchExpiration, batchExpirationAfterReenqueue; the accumulator compares `deadline` with now."""
    batch, _, _ = in_flight(records=4)
    batch.requeue(500.0)
    assert (batch.created_at, batch.deadline, batch.retry_at) == (100.0, 110.24, 500.0)
    batch.begin_attempt()
    assert batch.attempts == 2
    for part in batch.split():
        assert (part.created_at, part.deadline) == (100.0, 110.24)


# -- sealing ---


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_goes_on_the_wire(compression: str) -> None:
    batch, _ = make(4096)
    for number in range(20):
        append(batch, value=b"value %d" % number)
    batch.set_sequence(ProducerIdAndEpoch(2**40, 3), 17)
    attempt(batch, codec_for(compression))
    assert batch.size == len(wire_bytes(batch))
    decoded = DefaultRecordBatch(wire_bytes(batch))
    assert decoded.validate_crc()
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_offset) == (2**40, 3, 0)
    assert base_sequence(batch) == 17
    assert decoded.compression_type == COMPRESSIONS.index(compression)
    assert [each.value for each in decoded] == [b"value %d" % number for number in range(20)]


def base_sequence(batch: ProducerBatch) -> int:
    """The four bytes at 53 of the record batch's header."""
    found: tuple[int] = struct.unpack_from(">i", wire_bytes(batch), 53)
    return found[0]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_retry_sends_the_very_same_bytes_unless_its_sequence_changed(compression: str) -> None:
    codec = codec_for(compression)
    batch, _ = make(4096)
    append(batch, value=bytes(100))
    batch.set_sequence(ProducerIdAndEpoch(1, 0), 5)
    resets = [batch.sequence_has_been_reset]
    attempt(batch, codec)
    first, buffers = wire_bytes(batch), batch.buffers
    batch.requeue(0.0)
    attempt(batch, codec)
    assert batch.buffers is buffers, "not sealed again"
    batch.requeue(0.0)
    batch.set_sequence(ProducerIdAndEpoch(1, 1), 0)
    resets.append(batch.sequence_has_been_reset)
    attempt(batch, codec)
    resets.append(batch.sequence_has_been_reset)
    assert resets == [False, True, False], "since it was last sent"
    again = wire_bytes(batch)
    assert base_sequence(batch) == 0
    decoded = DefaultRecordBatch(again)
    assert decoded.validate_crc()
    assert decoded.producer_epoch == 1
    # The records themselves are as they were.
    assert again[61:] == first[61:]
    assert batch.attempts == 3


def test_a_sequence_that_changes_in_flight_leaves_the_bytes_alone() -> None:
    batch, _ = make()
    append(batch)
    batch.set_sequence(ProducerIdAndEpoch(1, 0), 5)
    batch.begin_attempt()
    sent = wire_bytes(batch)
    batch.set_sequence(ProducerIdAndEpoch(1, 1), 0)
    assert wire_bytes(batch) == sent


# -- splits ---


def full(
    size: int, headers: list[tuple[str, bytes | None]] | None
) -> tuple[ProducerBatch, list[DeliveryFuture]]:
    batch, _ = make(size)
    deliveries = []
    while (delivery := batch.try_append(NOW + batch.record_count, b"hi", b"there", headers)) is not None:
        deliveries.append(delivery)
    return batch, deliveries


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_parts_keep_headers_timestamps_and_compression(compression: str) -> None:
    """Java's splitPreservesHeaders and splitPreservesMagicAndCompressionType."""
    codec = codec_for(compression)
    headers: list[tuple[str, bytes | None]] = [("header-key", b"header-value"), ("null", None)]
    batch, deliveries = full(1024, headers)
    attempt(batch, codec)
    parts = batch.split()
    assert len(parts) == 2
    found = []
    for part in parts:
        attempt(part, codec)
        decoded = DefaultRecordBatch(wire_bytes(part))
        assert decoded.magic == 2
        assert decoded.base_offset == 0
        assert decoded.compression_type == COMPRESSIONS.index(compression)
        found += [(at, key, value, tuple(some)) for _, at, key, value, some in records(part)]
    assert found == [(NOW + index, b"hi", b"there", tuple(headers)) for index in range(len(deliveries))]


def test_parts_say_what_the_whole_had_been_through() -> None:
    batch, _, _ = in_flight(records=3)
    batch.requeue(0.0)
    batch.begin_attempt()
    batch.possibly_written = True
    first, second = batch.split()
    for part in (first, second):
        # Being too large is a definite answer and no failed attempt: it does not count against `retries`.
        assert part.attempts == 1
        assert part.possibly_written
        assert part.origin is batch
        assert part.batch_id == 7
        assert not part.is_open
        assert not part.has_sequence
        assert part.producer == NO_PRODUCER_ID
        assert part.state is BatchState.QUEUED
    first.begin_attempt()
    [*_, nested] = in_twos(second)
    assert nested.origin is batch


def in_twos(batch: ProducerBatch) -> list[ProducerBatch]:
    batch.begin_attempt()
    return batch.split() if batch.record_count > 1 else [batch]


def test_the_lease_goes_back_with_the_last_of_the_parts() -> None:
    batch, lease, deliveries = in_flight(records=4)
    first, second = batch.split()
    assert batch.state is BatchState.DONE
    first.begin_attempt()
    third, fourth = first.split()
    second.fail(delivery_error())
    third.begin_attempt()
    third.fail(delivery_error())
    fourth.begin_attempt()
    fourth.succeed(30, -1)
    assert lease.releases == 0, "one part is abandoned in flight"
    third.release_abandoned()
    assert lease.releases == 1
    assert deliveries[1].result().offset == 30
    assert all(isinstance(deliveries[n].exception(), DeliveryError) for n in (0, 2, 3))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10, 10], (1, 1)),
        ([10] * 4, (2, 2)),
        ([10] * 5, (2, 3)),
        ([300, 1, 1, 1], (1, 3)),
        ([1, 1, 1, 300], (3, 1)),
        ([1, 300, 1], (1, 2)),
        ([100, 100, 100, 1], (2, 2)),
    ],
)
def test_halves_are_as_even_as_records_allow(sizes: list[int], expected: tuple[int, int]) -> None:
    batch, _ = make(1024)
    for size in sizes:
        append(batch, value=bytes(size))
    batch.begin_attempt()
    first, second = batch.split()
    assert (first.record_count, second.record_count) == expected


def test_a_single_record_cannot_be_split() -> None:
    batch, lease, [delivery] = in_flight()
    with pytest.raises(RuntimeError, match="cannot be split"):
        batch.split()
    assert batch.state is BatchState.IN_FLIGHT
    batch.answer_failed(delivery_error())
    assert delivery.done()
    assert lease.releases == 1


def test_compressed_bytes_are_made_once() -> None:
    class Counting:
        id = 1
        name = "gzip"
        calls = 0

        def compress(self, data: bytes | bytearray | memoryview, /) -> bytes:
            self.calls += 1
            codec = codec_for("gzip")
            assert codec is not None
            return codec.compress(data)

        def cost(self, size: int, /) -> float:
            return 0.0

    codec = Counting()
    batch, _ = make()
    append(batch, value=b"compress me")
    for epoch in range(3):
        batch.set_sequence(ProducerIdAndEpoch(1, epoch), 0)
        attempt(batch, codec)
        batch.requeue(0.0)
    assert codec.calls == 1
    assert b"compress me" in decompress(1, wire_bytes(batch)[61:])
