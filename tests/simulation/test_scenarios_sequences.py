"""Scenarios of batches and their sequences: refused, split, expired, out of order.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.core.batching.sequences import MAX_SEQUENCE
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
)
from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of

if TYPE_CHECKING:
    from tests.simulation.ledger import Entry

SLOW = 0.15
"""Seconds one way: five requests are sent before the first is answered."""


def sequences(scene: Scenario, partition: int = 0) -> list[tuple[int, int]]:
    """(epoch, sequence) of each batch in a log."""
    return [(batch.producer_epoch, batch.base_sequence) for batch in scene.log(partition)]


def assert_no_gap(scene: Scenario, partition: int = 0) -> None:
    """Each batch's sequence follows the one before it, or is 0 in a newer epoch."""
    epoch, expected = 0, 0
    for batch in scene.log(partition):
        assert batch.producer_epoch >= epoch
        assert batch.base_sequence == (expected if batch.producer_epoch == epoch else 0)
        epoch, expected = batch.producer_epoch, (batch.base_sequence + batch.record_count) & MAX_SEQUENCE


def rejection_of(entry: Entry) -> BrokerRejectedError:
    error = failure_of(entry)
    assert isinstance(error, BrokerRejectedError)
    return error


# -- batches that are refused ---


@pytest.mark.scenario(41, "S")
@in_modes()
def test_a_batch_that_is_too_large_is_split(mode: str, side: str) -> None:
    scene = Scenario(mode, side, default_config=TopicConfig(max_message_bytes=1500))

    async def story() -> None:
        await scene.warm_up()
        began = scene.now
        entries = await scene.send(count=60, size=200)  # one batch of 12 KB
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(entries, 1)
        assert sorted(offsets_of(entries)) == list(range(1, 61))
        assert max(len(batch.content) for batch in scene.log()) <= 1500
        if scene.is_idempotent:
            # In order, and the parts have the sequences of the whole, in the same epoch.
            assert offsets_of(entries) == list(range(1, 61))
            assert sequences(scene) == [(0, batch.base_offset) for batch in scene.log()]

    scene.play(story())


@pytest.mark.scenario(41, "S")
@in_modes()
def test_a_batch_that_is_too_large_with_others_in_flight(mode: str, side: str) -> None:
    settings = {"linger_ms": 0}
    scene = Scenario(mode, side, settings, default_config=TopicConfig(max_message_bytes=1500))

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        entries = await scene.send_in_flight(1, records=2)
        for count in (40, 3, 30, 2):
            entries += await scene.send(count=count, size=200)
            await scene.sleep(0.02)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)
        if scene.is_idempotent:
            assert offsets_of(entries) == list(range(1, 78))
            assert_no_gap(scene)

    scene.play(story())


@pytest.mark.scenario(41, "S")
@in_modes()
def test_one_record_that_is_too_large_fails_alone(mode: str, side: str) -> None:
    scene = Scenario(mode, side, default_config=TopicConfig(max_message_bytes=1500))

    async def story() -> None:
        await scene.warm_up()
        before = await scene.send(count=3, size=100)
        large = await scene.send(size=2000)
        after = await scene.send(count=3, size=100)
        await scene.side.flush()
        error = rejection_of(large[0])
        assert error.name == "MESSAGE_TOO_LARGE"
        assert not error.possibly_written
        assert scene.copies(large) == [0]
        scene.assert_acknowledged([*before, *after], 1)

    scene.play(story())


@pytest.mark.scenario(41, "S")
@in_modes("idempotent")
def test_a_batch_that_may_be_written_is_not_split(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.reset_connections_on()  # written, and the answer lost
        entries = await scene.send(count=10, size=200)
        await scene.until(lambda: any(scene.copies(entries)), 1.0)
        # The limit is lowered meanwhile. A broker knows a repetition by the whole batch: halves would be new to it.
        scene.cluster.state.configure_topic(TOPIC, max_message_bytes=1500)
        await scene.side.flush()
        for entry in entries:
            error = rejection_of(entry)
            assert error.name == "MESSAGE_TOO_LARGE"
            assert error.possibly_written
        assert scene.copies(entries) == [1] * 10
        later = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(later)

    scene.play(story())


@pytest.mark.scenario(43, "S")
@in_modes()
def test_a_batch_with_one_invalid_record(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        scene.faults.fail_produce(
            codes.INVALID_RECORD, message="no good", record_errors=((1, "the second is at fault"),)
        )
        refused = await scene.send_in_flight(1, records=3)
        await scene.sleep(0.02)
        behind = await scene.send(count=3)  # in flight as well when the refusal comes
        await scene.side.flush()
        errors = [rejection_of(entry) for entry in refused]
        assert [error.record_index for error in errors] == [None, 1, None]
        assert "the second is at fault" in str(errors[1])
        assert [error.retriable for error in errors] == [True, False, True]
        assert not any(error.possibly_written for error in errors)
        assert scene.copies(refused) == [0, 0, 0]
        scene.assert_acknowledged(behind, 1)
        later = await scene.send(count=3)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(later, 1)
        if scene.is_idempotent:
            assert_no_gap(scene)

    scene.play(story())


@pytest.mark.scenario(43, "S")
@in_modes()
def test_a_batch_with_several_invalid_records(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(
            codes.INVALID_TIMESTAMP, message="no good", record_errors=((1, "too old"), (3, "too new"))
        )
        refused = await scene.send(count=5)
        await scene.side.flush()
        errors = [rejection_of(entry) for entry in refused]
        assert [error.record_index for error in errors] == [None, 1, None, 3, None]
        # One code for all: it is known of none of those that are blamed, and of the others it is not theirs.
        assert [error.name for error in errors] == [
            "INVALID_TIMESTAMP",
            "INVALID_RECORD",
            "INVALID_TIMESTAMP",
            "INVALID_RECORD",
            "INVALID_TIMESTAMP",
        ]
        assert ["too old" in str(error) for error in errors] == [False, True, False, False, False]
        assert ["too new" in str(error) for error in errors] == [False, False, False, True, False]
        assert [error.retriable for error in errors] == [True, False, True, False, True]
        assert scene.copies(refused) == [0] * 5

    scene.play(story())


@pytest.mark.scenario(43, "S")
@in_modes()
def test_records_without_a_key_on_a_compacted_topic(mode: str, side: str) -> None:
    scene = Scenario(mode, side, default_config=TopicConfig(is_compacted=True))

    async def story() -> None:
        entries = await scene.send(count=3)
        await scene.side.flush()
        for index, entry in enumerate(entries):
            assert rejection_of(entry).record_index == index
            assert "without key" in str(failure_of(entry))
        scene.cluster.state.configure_topic(TOPIC, is_compacted=False)
        later = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(later, 1)

    scene.play(story())


@pytest.mark.scenario(46, "S")
@pytest.mark.parametrize("after_append", [False, True], ids=["refused", "appended"])
@pytest.mark.parametrize(
    ("code", "name"), [(codes.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"), (999, "UNKNOWN_CODE_999")]
)
@in_modes()
def test_an_error_that_says_nothing(mode: str, side: str, code: int, name: str, after_append: bool) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        scene.faults.fail_produce(code, after_append=after_append)
        failed = await scene.send_in_flight(1, records=3)
        behind = await scene.send_in_flight(3)
        await scene.side.flush()
        for entry in failed:
            error = rejection_of(entry)
            assert (error.code, error.name) == (code, name)
            assert error.possibly_written
        assert scene.copies(failed) == [int(after_append)] * 3
        later = await scene.send(count=3)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 2.0  # no stall
        scene.assert_acknowledged([*behind, *later], 1)
        if scene.is_idempotent:
            assert_no_gap(scene)

    scene.play(story())


# -- sequences ---


@pytest.mark.scenario(47, "S")
@in_modes("idempotent")
def test_five_in_flight_and_the_first_is_refused(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        scene.faults.fail_produce(codes.NOT_ENOUGH_REPLICAS)
        began = scene.now
        entries = await scene.send_in_flight(5, records=2)
        await scene.side.flush()
        # The other four found a gap in front of them, so that all five went twice at least.
        assert len(scene.requests(since=began)) >= 10
        scene.assert_acknowledged(entries)
        assert offsets_of(entries) == list(range(1, 11))
        # Nothing was given up, so no sequence was rewritten.
        assert sequences(scene) == [(0, s) for s in (0, 1, 3, 5, 7, 9)]

    scene.play(story())


@pytest.mark.scenario(48, "S")
@in_modes("idempotent")
def test_a_duplicate_sequence_is_a_success_without_an_offset(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(codes.DUPLICATE_SEQUENCE_NUMBER, after_append=True)
        entries = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        assert offsets_of(entries) == [-1, -1, -1]
        later = await scene.send(count=3)
        await scene.side.flush()
        scene.assert_acknowledged(later)
        assert sequences(scene) == [(0, 0), (0, 1), (0, 4)]

    scene.play(story())


@pytest.mark.scenario(49, "S")
@in_modes("idempotent")
def test_a_gap_before_the_only_batch_in_flight(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(entries)
        others = await scene.send(1, 3)
        await scene.side.flush()
        scene.assert_acknowledged(others)
        # A new epoch, and from 0; the other partitions follow it, each from 0 as well.
        assert sequences(scene, 0) == [(0, 0), (1, 0)]
        assert sequences(scene, 1) == [(0, 0), (1, 0)]

    scene.play(story())


@pytest.mark.scenario(51, "S")
@in_modes()
def test_a_batch_expires_before_it_was_ever_sent(mode: str, side: str) -> None:
    scene = Scenario(
        mode, side, {"batch_size": 500}
    )  # so that later records do not join these, and their time

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.cluster.stop_broker(broker)
            scene.later(150.0, scene.cluster.start_broker, broker)
        await scene.sleep(0.1)  # the connections' ends are known
        began = scene.now
        expired = await scene.send(count=5, size=300)
        await scene.sleep(60.0)
        later = await scene.send(count=5, size=300)
        await scene.until(lambda: all(entry.outcomes for entry in expired), 61.0)
        assert scene.now - began == pytest.approx(120.0, abs=0.1)
        for entry in expired:
            error = failure_of(entry)
            assert isinstance(error, DeliveryTimeoutError)
            assert error.attempts == 0
            assert not error.possibly_written
        await scene.side.flush()
        assert 149.9 <= scene.now - began < 153.0
        scene.assert_acknowledged(later, 1)
        assert scene.copies(expired) == [0] * 5
        if scene.is_idempotent:
            # Theirs were never used.
            assert sequences(scene) == [(0, batch.base_offset) for batch in scene.log()]

    scene.play(story())


@pytest.mark.scenario(52, "S")
@pytest.mark.parametrize("is_written", [False, True], ids=["stalled", "written, answers lost"])
@in_modes()
def test_a_batch_expires_in_flight_with_others_queued(mode: str, side: str, is_written: bool) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        began = scene.now
        if is_written:
            lost = scene.faults.drop_answers(times=None, api=ApiKey.PRODUCE, broker=scene.leader())
            scene.later(130.0, lost.cancel)
        else:
            scene.faults.stall(scene.leader())
            scene.later(130.0, scene.faults.resume, scene.leader())
        first = await scene.send(count=3)
        await scene.sleep(50.0)
        queued = []
        for _ in range(12):
            queued += await scene.send(count=3)
            await scene.sleep(6.0)
        for entry in first:
            error = failure_of(entry)
            assert isinstance(error, DeliveryTimeoutError)
            assert error.possibly_written
        await scene.side.flush()
        assert scene.now - began < 130.0 + 35.0
        if scene.is_idempotent:
            assert_no_gap(scene)
            scene.assert_acknowledged(queued)
        assert [failure_of(entry) for entry in queued] == [None] * len(queued)
        # Never out of order for ever: the next goes at once.
        began = scene.now
        later = await scene.send(count=3)
        await scene.side.flush()
        assert scene.now - began < 0.5
        scene.assert_acknowledged(later, 1)

    scene.play(story())


@pytest.mark.scenario(48, "S")
@pytest.mark.scenario(52, "S")
@pytest.mark.parametrize("has_others", [False, True], ids=["alone", "others behind it"])
@pytest.mark.parametrize("code", [codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER], ids=codes.name_of)
@in_modes("idempotent")
def test_a_repetition_is_recognized_when_its_batch_has_expired(
    mode: str, side: str, code: int, has_others: bool
) -> None:
    settings = {"linger_ms": 0, "delivery_timeout_ms": 10_000, "request_timeout_ms": 9_000}
    scene = Scenario(mode, side, settings)

    async def story() -> None:
        await scene.warm_up()
        # Written, which the first answer leaves open; the second answer comes a second after the batch's time.
        scene.faults.delay_answers(5.0, api=ApiKey.PRODUCE, times=1)
        scene.faults.fail_produce(codes.REQUEST_TIMED_OUT, after_append=True)
        scene.faults.delay_answers(6.0, api=ApiKey.PRODUCE, times=1)
        if code != codes.NONE:
            scene.faults.fail_produce(code)
        began = scene.now
        expired = await scene.send(count=3)
        await scene.sleep(6.0)
        repeated = scene.requests(since=began)
        others = await scene.send(count=2) if has_others else []
        await scene.until(lambda: all(entry.outcomes for entry in expired), 4.1)
        assert all(isinstance(failure_of(entry), DeliveryTimeoutError) for entry in expired)
        assert scene.copies(expired) == [1, 1, 1]
        assert len(repeated) == 2
        held = scene.sender.pool.outstanding
        await scene.sleep(1.5)
        assert held > scene.sender.pool.outstanding == 0
        scene.assert_acknowledged(others)
        later = await scene.send(count=3)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 0.1
        scene.assert_acknowledged(later)
        # The epoch ends where nothing behind it shows what became of it.
        assert sequences(scene) == [(0, 0), (0, 1), *([(0, 4), (0, 6)] if has_others else [(1, 0)])]

    scene.play(story())


@pytest.mark.scenario(55, "S")
@in_modes()
def test_the_first_of_five_answers_is_lost_and_the_leader_moves(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        old, new = scene.leader(0), scene.leader(1)
        host = scene.host()
        scene.network.set_latency(host, SLOW, 0.0)
        lost = scene.faults.reset_connections_on(broker=old)
        entries = await scene.send_in_flight(5, records=2)
        await scene.until(lambda: lost.hits, 1.0)
        scene.cluster.state.move_leader(TOPIC, 0, new)
        more = await scene.send(count=10, apart=0.01)
        await scene.side.flush()
        scene.assert_acknowledged(entries[2:] + more, 1)
        scene.assert_acknowledged(entries[:2], 2)
        if scene.is_idempotent:
            assert offsets_of([*entries, *more]) == list(range(1, 21))
            assert_no_gap(scene)

    scene.play(story())
