"""The Sender where batches are compressed by other threads, which the test plays: who waits for whom, what goes
when, and what becomes of memory and futures whenever a thread is done, or fails.

What no scenario of Java's has, as Java compresses while it appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.core.batching.batch_compression import AHEAD, HAND_OVER, STEP_SHARE, THREADS, WINDOW
from aioproduce.core.effects import Compress
from aioproduce.errors import DeliveryError, DeliveryTimeoutError, ForcedCloseError
from aioproduce.testing.fake_cluster.record_batch import read_header
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import PRODUCER_ID, SenderHarness
from tests.unit.sender_wire import METADATA, PRODUCE
from tests.unit.stored_codec import LONG, SHORT, StoredCodec

if TYPE_CHECKING:
    from typing import Any

    from tests.unit.sender_harness import Record

BATCH = 1000
HALF = bytes(500)
"""Two of them do not fit into one batch."""


def held(codec: StoredCodec | None = None, **settings: Any) -> SenderHarness:
    """A harness whose workers finish only what the test has them finish."""
    h = SenderHarness(
        codec=codec or StoredCodec(LONG),
        **{"enable_idempotence": False, "batch_size": BATCH, **settings},
    )
    h.holds_compression = True
    return h


def jobs(h: SenderHarness) -> list[int]:
    """The partitions whose batches are being compressed, the oldest first."""
    return [job.batch.partition for job in h.compressing]


def sent(h: SenderHarness, partition: int = 0) -> list[bytes | None]:
    """The values of a partition that were sent and not answered, in their order."""
    return [
        value
        for request in h.produces
        if partition in request.partitions
        for value in request.batch(partition).values
    ]


def hold_connection(h: SenderHarness) -> None:
    """The transport holds the bytes of one request: nothing else can be sent."""
    for is_held in (False, True):
        h.holds_writable = is_held
        h.send(1, b"in the way")
        h.finish_compression()
        if not is_held:
            h.acknowledge()
    assert len(h.produces) == 1


# -- which batches, and when ---


def test_a_long_batch_is_sent_when_a_worker_is_done() -> None:
    h = held()
    record = h.send(0, b"v")
    assert (jobs(h), h.produces) == ([0], [])
    h.finish_compression()
    assert sent(h) == [b"v"]
    assert read_header(h.produce().batch().content).codec_id == 1
    h.acknowledge(offset=7)
    assert record.offset == 7
    assert h.outstanding == 0


def test_a_short_batch_is_compressed_at_once() -> None:
    codec = StoredCodec(SHORT)
    h = held(codec)
    h.send(0, b"v")
    assert (jobs(h), codec.calls) == ([], 1)
    assert read_header(h.produce().batch().content).codec_id == 1
    assert sent(h) == [b"v"]


def test_a_batch_that_takes_just_as_long_as_a_hand_over_is_compressed_here() -> None:
    codec = StoredCodec(HAND_OVER)
    h = held(codec)
    h.send(0, b"v")
    assert (jobs(h), codec.calls) == ([], 1)
    assert sent(h) == [b"v"]


def test_a_batch_is_long_by_what_is_in_it_when_it_is_sent() -> None:
    h = held(StoredCodec(0.0, cost_of_byte=HAND_OVER / 500))
    h.append(0, bytes(100))
    h.append(1, bytes(100))
    h.append(1, bytes(450))
    h.run()
    assert jobs(h) == [1]
    assert len(sent(h, 0)) == 1
    h.finish_compression()
    assert len(sent(h, 1)) == 2


def test_one_step_compresses_its_share_and_gives_the_rest_away() -> None:
    cost = HAND_OVER * 0.9
    share = int(STEP_SHARE / cost)
    h = held(StoredCodec(cost), partitions=share + 3)
    for partition in range(share + 3):
        h.append(partition)
    h.run()
    assert jobs(h) == [share, share + 1, share + 2]
    assert h.produce().partitions == list(range(share))
    h.jump(0.001)
    h.send(0, b"another")  # another instant, another share
    assert sent(h) == [b"v", b"another"]
    while h.compressing:
        h.finish_compression()
    assert [sent(h, partition) for partition in range(share, share + 3)] == [[b"v"]] * 3


def test_a_full_batch_is_compressed_while_the_connection_is_busy() -> None:
    h = held()
    hold_connection(h)
    h.append(0, HALF)
    h.run()
    assert jobs(h) == [0], "its time has come"
    h.append(0, HALF)
    h.append(0, HALF)  # closes the one before
    h.run()
    assert jobs(h) == [0, 0]
    h.finish_compression()
    h.finish_compression()
    assert sent(h) == []
    h.finish_writes()
    assert sent(h) == [HALF, HALF]


def test_a_batch_that_lingers_is_compressed_when_its_time_has_come() -> None:
    h = held(linger_ms=20)
    h.down.add(0)
    h.lose()
    h.send(0, b"v")
    h.advance(0.019)
    h.append(0, b"w")
    assert jobs(h) == []
    h.advance(0.001)
    assert jobs(h) == [0], "though there is no connection"
    assert h.compressing[0].batch.record_count == 2


def test_a_batch_behind_another_one_fills_up() -> None:
    """A leased buffer is not left half empty because the broker is slow."""
    h = held(linger_ms=20)
    h.append(0, HALF)
    h.append(0, b"behind")
    h.append(0, HALF)
    h.advance(0.1)
    assert jobs(h) == [0]
    for _ in range(3):
        h.append(0, b"more")
        h.advance(0.1)
    assert jobs(h) == [0]
    assert h.outstanding == 2 * BATCH


def test_memory_that_runs_out_ends_the_wait() -> None:
    h = held(linger_ms=400)
    h.send(0, b"v")
    assert jobs(h) == []
    h.sender.pool.enqueue(h.sender.pool.total, lambda: None)
    h.sender.memory_exhausted(h.now)
    h.run()
    assert jobs(h) == [0]


def test_a_flush_ends_the_wait_and_is_told_at_the_end() -> None:
    h = held(linger_ms=400)
    h.send(0, b"v")
    told: list[float] = []
    h.sender.begin_flush(lambda: told.append(h.now), h.now)
    h.run()
    assert jobs(h) == [0]
    h.finish_compression()
    assert told == []
    h.acknowledge()
    assert told == [h.now]


def test_workers_are_given_a_window_in_turn() -> None:
    h = held(StoredCodec(WINDOW / 4), partitions=4)
    hold_connection(h)
    for partition in (0, 0, 0, 0, 0, 0, 2, 2, 2, 3):
        h.append(partition, HALF)
    h.run()
    assert jobs(h) == [0, 0, 0, 0]
    order = []
    while h.compressing:
        h.finish_compression()
        order += jobs(h)[3:]
    assert order == [0, 2, 3, 2], "no partition waits for all of another's"


def test_very_long_batches_go_two_at_a_time() -> None:
    h = held(partitions=4)
    for partition in range(4):
        h.append(partition)
    h.run()
    assert jobs(h) == [0, 1]
    h.finish_compression(1)
    assert jobs(h) == [0, 2]
    h.finish_compression()
    assert jobs(h) == [2, 3]
    assert THREADS == 2


def test_no_more_than_a_few_batches_are_compressed_ahead() -> None:
    h = held()
    hold_connection(h)
    for _ in range(20):
        h.append(0, HALF)
    h.run()
    while h.compressing:
        h.finish_compression()
    waiting = [batch for batch in h.sender.accumulator.incomplete if batch.partition == 0]
    assert [batch.is_compressed for batch in waiting] == [True] * AHEAD + [False] * (20 - AHEAD)


# -- order ---


def test_a_later_batch_never_goes_before_one_that_still_compresses() -> None:
    h = held()
    for number in b"123":
        h.append(0, b"%c" % number + HALF)
    h.append(0, b"4" + HALF)  # closes the third
    h.run()
    assert jobs(h) == [0, 0]
    h.finish_compression(1)
    assert sent(h) == []
    h.finish_compression(1)
    assert sent(h) == []
    h.finish_compression()
    assert sent(h) == [b"1" + HALF, b"2" + HALF, b"3" + HALF]
    h.finish_compression()
    assert sent(h)[3:] == [b"4" + HALF]


def test_another_partition_does_not_wait() -> None:
    h = held()
    h.append(0, b"slow")
    h.append(1, b"quick")
    h.run()
    h.finish_compression(1)
    assert (sent(h, 0), sent(h, 1)) == ([], [b"quick"])


def test_records_that_come_meanwhile_go_into_the_next_batch() -> None:
    h = held()
    h.send(0, b"1")
    h.send(0, b"2")
    h.finish_compression()
    assert sent(h) == [b"1"]
    h.finish_compression()
    assert sent(h) == [b"1", b"2"]


def test_sequences_are_given_when_batches_are_sent() -> None:
    h = held(enable_idempotence=True)
    for _ in range(4):
        h.append(0, HALF)
    h.run()
    for place in (1, 1, 0):
        h.finish_compression(place)
    assert h.places() == [(0, 0)]
    h.acknowledge(offset=0)
    assert h.places() == [(0, 1), (0, 2)]


# -- retries and splits ---


def test_a_retry_is_not_compressed_again() -> None:
    codec = StoredCodec(LONG)
    h = held(codec)
    h.send(0, b"v")
    h.finish_compression()
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.advance(0.05)
    assert jobs(h) == []
    assert sent(h) == [b"v"]
    assert codec.calls == 1


def test_a_new_epoch_is_sealed_into_the_same_compressed_bytes() -> None:
    codec = StoredCodec(LONG)
    h = held(codec, enable_idempotence=True)
    h.send(0, b"v")
    h.finish_compression()
    first = h.produce().batch()
    h.answer(code=codes.UNKNOWN_PRODUCER_ID, log_start_offset=0)
    h.advance(0.05)
    again = h.produce().batch()
    assert (first.place, again.place) == ((0, 0), (1, 0))
    assert again.producer_id == PRODUCER_ID
    assert first.content[61:] == again.content[61:]
    assert codec.calls == 1


def test_the_parts_of_a_batch_that_was_too_large_are_compressed_in_their_turn() -> None:
    h = held(linger_ms=5)
    records = [h.append(0, b"%d" % number + bytes(300)) for number in range(3)]
    h.advance(0.005)
    h.finish_compression()
    assert len(sent(h)) == 3
    h.answer(h.produces[0], codes.MESSAGE_TOO_LARGE)
    assert jobs(h) == [0, 0]
    second_part = h.compressing[1]
    h.finish_compression(1)
    assert second_part.batch.is_compressed
    assert sent(h) == []
    h.finish_compression()
    h.acknowledge(offset=0)
    h.acknowledge(offset=len(records) - second_part.batch.record_count)
    assert [record.offset for record in records] == [0, 1, 2]
    assert h.outstanding == 0


# -- giving up while a worker reads ---


def test_a_record_fails_in_time_and_its_memory_follows_when_the_worker_is_done() -> None:
    h = held(buffer_memory=BATCH)
    record = h.send(0, b"old")
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert "still being compressed" in str(record.error)
    assert not record.error.possibly_written
    assert record.error.attempts == 0
    assert h.outstanding == BATCH
    assert h.sender.pool.try_allocate(BATCH) is None
    assert bytes(h.compressing[0].records).endswith(b"old\x00"), "what the worker reads is untouched"
    h.finish_compression()
    assert h.outstanding == 0
    assert h.count(PRODUCE) == 0
    assert len(record.outcomes) == 1
    h.send(0, b"new")
    h.finish_compression()
    assert sent(h) == [b"new"]


def test_the_next_batch_goes_when_the_first_is_given_up() -> None:
    h = held()
    old = h.send(0, b"old")
    h.advance(1)
    new = h.append(0, b"new" + HALF)
    h.append(0, b"newest" + HALF)
    h.run()
    h.finish_compression(1)
    assert sent(h) == []
    h.advance(0.5)
    assert old.is_done
    assert sent(h) == [b"new" + HALF]
    h.acknowledge()
    assert new.error is None
    assert h.outstanding == 2 * BATCH
    h.finish_compression()
    assert h.outstanding == BATCH


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_forced_close_settles_at_once_and_ends_with_the_workers(is_failing: bool) -> None:
    h = held(partitions=4)
    records = [h.append(partition, HALF) for partition in (0, 0, 0, 1, 2, 3)]
    h.run()
    h.sender.abort(h.now)
    h.run()
    assert all(isinstance(record.error, ForcedCloseError) for record in records)
    assert not any(record.error.possibly_written for record in records)
    assert jobs(h) == [0, 0], "nothing more is begun"
    assert h.outstanding == 2 * BATCH
    for left in (1, 0):
        assert not h.is_closed()
        h.finish_compression(error=MemoryError() if is_failing else None)
        assert h.outstanding == left * BATCH
    assert h.is_closed()
    assert h.count(PRODUCE) == 0


def test_a_forced_close_begins_nothing_for_what_it_gives_up() -> None:
    h = held()
    h.send(0, HALF)
    h.send(0, HALF)
    h.sender.abort(h.now)
    h.run()
    assert jobs(h) == [0]
    h.finish_compression()
    assert h.is_closed()


def test_a_forced_close_takes_back_what_no_worker_has_seen() -> None:
    h = held()
    records = [h.append(0), h.append(1)]
    taken = h.sender.next_effect(h.now)
    assert isinstance(taken, Compress)
    h.sender.abort(h.now)
    h.run()
    assert all(record.is_done for record in records)
    assert h.outstanding == BATCH
    assert jobs(h) == []
    assert not h.is_closed()
    h.sender.compressed(taken.batch, b"in vain", h.now)
    assert h.outstanding == 0
    assert h.is_closed()


def test_a_close_sends_what_is_being_compressed() -> None:
    h = held(linger_ms=400)
    record = h.send(0, b"v")
    h.sender.begin_close(h.now)
    h.run()
    assert jobs(h) == [0]
    h.finish_compression()
    h.acknowledge()
    assert record.error is None
    assert h.is_closed()


def test_a_close_ends_with_the_worker_of_a_batch_that_was_given_up() -> None:
    h = held()
    h.send()
    h.advance(1.5)
    h.sender.begin_close(h.now)
    h.run()
    assert not h.is_closed()
    h.finish_compression()
    assert h.is_closed()


def test_the_senders_death_settles_what_is_being_compressed() -> None:
    h = held()
    record = h.send()
    h.sender.die(RuntimeError("a bug"), "it died of a bug", h.now)
    assert isinstance(record.delivery.exception(), DeliveryError)
    assert bytes(h.compressing[0].records).endswith(b"v\x00"), "the worker goes on reading its own"


# -- failure ---


def assert_failed(record: Record) -> None:
    error = record.error
    assert type(error) is DeliveryError
    assert "could not be compressed with gzip (MemoryError('no room'))" in str(error)
    assert isinstance(error.__cause__, MemoryError)
    assert not error.possibly_written
    assert error.attempts == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_batch_that_cannot_be_compressed_fails_and_the_next_one_goes(idempotent: bool) -> None:
    h = held(enable_idempotence=idempotent)
    told: list[None] = []
    bad, good, last = (h.append(0, b"%d" % number + HALF) for number in range(3))
    h.run()
    h.finish_compression(1)
    h.finish_compression(error=MemoryError("no room"))
    assert_failed(bad)
    assert sent(h) == [b"1" + HALF]
    h.sender.begin_flush(lambda: told.append(None), h.now)
    h.acknowledge()
    h.finish_compression()
    h.acknowledge()
    assert last.error is None
    assert good.error is None
    assert told == [None]
    assert h.outstanding == 0


def test_so_does_the_one_before_it_which_is_still_being_compressed() -> None:
    h = held()
    good, bad = (h.append(0, b"%d" % number + HALF) for number in range(2))
    h.append(0, HALF)  # closes the second
    h.run()
    assert jobs(h) == [0, 0]
    h.finish_compression(1, error=MemoryError("no room"))
    assert_failed(bad)
    h.finish_compression()
    assert sent(h) == [b"0" + HALF]
    h.acknowledge()
    assert good.error is None


def test_a_flush_is_told_of_a_batch_that_cannot_be_compressed() -> None:
    h = held()
    told: list[None] = []
    h.send()
    h.sender.begin_flush(lambda: told.append(None), h.now)
    h.finish_compression(error=MemoryError(), run=False)
    assert told == [None], "by that fact, not by the next"
    assert h.outstanding == 0


def test_so_does_one_that_is_compressed_in_the_step_itself() -> None:
    codec = StoredCodec(SHORT)
    h = held(codec)
    told: list[None] = []
    h.send_acknowledged()
    codec.error = MemoryError("no room")
    bad = h.append(0)
    h.sender.begin_flush(lambda: told.append(None), h.now)
    assert h.sender.next_effect(h.now) is None
    assert told == [None], "by that step, not by the next fact"
    h.run()
    assert_failed(bad)
    assert h.outstanding == 0
    codec.error = None
    h.send(0, b"good")
    assert sent(h) == [b"good"]


def test_a_failure_after_the_time_out_gives_the_memory_back_and_changes_nothing() -> None:
    h = held()
    record = h.send()
    h.advance(1.5)
    h.finish_compression(error=MemoryError())
    assert isinstance(record.error, DeliveryTimeoutError)
    assert len(record.outcomes) == 1
    assert h.outstanding == 0


def test_a_partition_whose_leader_is_unknown_is_asked_for_when_the_batch_is_ready() -> None:
    h = held()
    h.move(0, -1)
    h.refresh()
    asked = h.count(METADATA)
    h.send(0, b"v")
    h.finish_compression()
    h.move(0, 0)
    h.advance(0.2)
    assert h.count(METADATA) > asked
    assert sent(h) == [b"v"]
