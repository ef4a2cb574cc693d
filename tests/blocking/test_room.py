"""A full buffer: who waits, how long, in which order, and what becomes of the records when there is room again."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import BlockingProducer
from aioproduce.errors import (
    BufferExhaustedError,
    FlushTimeoutError,
    ForcedCloseError,
    LoopThreadError,
    MetadataTimeoutError,
    ProducerClosedError,
)
from tests.blocking.threads import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.blocking.threads import ThreadedCluster

FOREVER_MS = 3_600_000
"""Longer than any test: what waits for this in vain hangs, and the hang is the failure."""


def small(cluster: ThreadedCluster, **settings: Any) -> BlockingProducer:
    """A producer with room for a few records of 100 bytes, which nothing but an answer settles."""
    return BlockingProducer(
        cluster.bootstrap_servers,
        **{
            "batch_size": 1024,
            "buffer_memory": 4096,
            "linger_ms": 0,
            "max_block_ms": FOREVER_MS,
            "delivery_timeout_ms": FOREVER_MS,
            "request_timeout_ms": FOREVER_MS // 2,
        }
        | settings,
    )


def until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


def wide(text: str) -> bytes:
    """A value that fits nowhere where those of `fill()` do not."""
    return text.encode().ljust(200, b".")


def fill(producer: BlockingProducer, topic: str = "one") -> list[Any]:
    """Send until there is no room, and the loop thread waits for some, too."""
    sent: list[Any] = []
    session: Any = producer._session
    pool = session.producer._life.sender.pool
    while True:
        is_stuck = pool.waiting > 0
        try:
            sent.append(producer.send(topic, b"%0100d" % len(sent), timeout=0))
        except BufferExhaustedError:
            if is_stuck:
                return sent


def line_of(producer: BlockingProducer) -> Any:
    session: Any = producer._session
    return session.way.line


@pytest.fixture
def full(cluster: ThreadedCluster) -> Any:
    """A producer whose buffer is full since the brokers stalled, and what it holds."""
    with small(cluster) as producer:
        producer.send_and_wait("one", b"first")
        with cluster.stalled():
            yield producer, fill(producer), cluster


def test_send_waits_for_room_at_most_as_long_as_it_may(full: Any) -> None:
    producer, sent, cluster = full
    with pytest.raises(BufferExhaustedError) as caught:
        producer.send("one", wide("v"), timeout=0.01)
    assert caught.value.waited >= 0.01
    assert "more are waiting for it" in str(caught.value)
    with pytest.raises(BufferExhaustedError):
        producer.send("one", bytearray(wide("v")), headers=[("h", b"v")], timeout=0)

    cluster.resume()
    assert [delivery.result().offset for delivery in sent] == list(range(1, len(sent) + 1))
    assert producer.send_and_wait("one", b"last").offset == len(sent) + 1
    assert len(cluster.records("one")) == len(sent) + 2


def test_what_was_handed_over_waits_for_its_batch_no_longer_than_max_block(cluster: ThreadedCluster) -> None:
    with small(cluster, max_block_ms=20) as producer:
        until_known(producer)
        with cluster.stalled():
            sent = fill(producer)
            error = sent[-1].exception()
            assert isinstance(error, BufferExhaustedError)
        assert sent[0].result().offset == 1
        assert producer.metrics().value("record-error-total") >= 1


def until_known(producer: BlockingProducer) -> None:
    """Have a first record acknowledged, however short the time is that `send()` may wait for the topic."""
    while True:
        with contextlib.suppress(MetadataTimeoutError):
            producer.send("one", b"first").result()
            return


def test_what_waits_is_bounded(full: Any) -> None:
    producer, sent, _ = full
    session = producer._session
    assert producer.outstanding_bytes <= 4096
    assert session.hand_over.waiting_bytes <= 4096
    # 100 bytes and an entry's cost each, and as much again in batches: no more than that was taken.
    assert len(sent) <= 2 * 4096 // 100


def test_who_waits_is_let_in_in_turn(full: Any) -> None:
    producer, sent, cluster = full
    line = line_of(producer)
    callers = []
    for number in range(12):
        callers.append(Caller(partial(producer.send, "one", wide(f"waits {number}"))))
        until(lambda: len(line) == len(callers))
    cluster.resume()
    told = [caller.outcome().result().offset for caller in callers]
    assert told == sorted(told)
    assert told[0] == len(sent) + 1
    assert len(line) == 0
    values = [record.value for record in cluster.records("one")]
    assert values[-12:] == [wide(f"waits {number}") for number in range(12)]


def test_who_gives_up_leaves_the_line_to_the_others(full: Any) -> None:
    producer, sent, cluster = full
    line = line_of(producer)
    patient = Caller(lambda: producer.send("one", wide("patient")))
    until(lambda: len(line) == 1)
    with pytest.raises(BufferExhaustedError):
        producer.send("one", wide("hasty"), timeout=0)
    assert len(line) == 1
    cluster.resume()
    assert patient.outcome().result().offset == len(sent) + 1


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_close_refuses_who_waits_and_settles_everything(full: Any, timeout: float) -> None:
    producer, sent, _cluster = full
    line = line_of(producer)
    called: list[Any] = []
    sent[0].add_done_callback(called.append)
    waiting = Caller(lambda: producer.send("one", wide("waits")))
    until(lambda: len(line) == 1)
    asking = Caller(sent[-1].result)
    producer.close(timeout)
    with pytest.raises(ProducerClosedError):
        waiting.outcome()
    with pytest.raises(ForcedCloseError):
        asking.outcome()
    assert all(isinstance(delivery.exception(0), ForcedCloseError) for delivery in sent)
    assert called == [sent[0]]
    with pytest.raises(ProducerClosedError):
        producer.send("one", b"late")


def test_flush_says_when_it_took_too_long(full: Any) -> None:
    producer, sent, cluster = full
    with pytest.raises(FlushTimeoutError):
        producer.flush(0.01)
    with pytest.raises(TimeoutError):
        sent[-1].result(0.01)
    cluster.resume()
    producer.flush()
    assert all(delivery.done() for delivery in sent)


def test_close_waits_for_what_was_handed_over(full: Any) -> None:
    producer, sent, cluster = full
    closing = Caller(producer.close)
    until(lambda: not producer._session.hand_over.is_open)
    assert not sent[-1].done()
    cluster.resume()
    closing.outcome()
    assert [delivery.result().offset for delivery in sent] == list(range(1, len(sent) + 1))


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_second_close_bounds_the_first(full: Any, timeout: float) -> None:
    producer, sent, _cluster = full
    closing = Caller(producer.close)
    until(lambda: not producer._session.hand_over.is_open)
    producer.close(timeout)
    closing.outcome()
    assert {type(delivery.exception(0)) for delivery in sent} == {ForcedCloseError}


def test_a_delivery_of_a_full_producer_is_told_though_others_wait(full: Any) -> None:
    """Its batch is acknowledged while the loop thread waits for room: a caller that asks then must learn it."""
    _producer, sent, cluster = full
    first = Caller(sent[0].result)
    cluster.resume()
    assert first.outcome().offset == 1


def test_a_callback_may_send_while_there_is_room_and_never_waits(cluster: ThreadedCluster) -> None:
    raised: list[BaseException] = []
    more: list[Any] = []
    with small(cluster) as producer:
        until_known(producer)

        def on_delivery(metadata: Any, error: Any) -> None:
            more.append(producer.send("one", b"from the callback"))
            calls: list[Callable[[], object]] = [
                more[-1].result,
                producer.flush,
                producer.close,
                lambda: producer.send("unknown", b"v"),
                lambda: producer.send_many("one", [b"v"]),
                lambda: producer.send_and_wait("one", b"v"),
                lambda: producer.partitions_for("one"),
                lambda: fill(producer),
            ]
            for call in calls:
                try:
                    call()
                except LoopThreadError as loop_thread:
                    raised.append(loop_thread)

        producer.send("one", b"v", on_delivery=on_delivery).result()
        producer.flush()
        assert more[0].result().offset >= 2
        assert len(raised) == 8
        assert producer.metrics().value("record-error-total") == 2
        assert producer.send_and_wait("one", b"good") is not None


def test_records_of_a_topic_that_is_gone_hold_up_no_others(cluster: ThreadedCluster) -> None:
    cluster.call(lambda fake: fake.create_topic("gone"))
    with small(cluster, buffer_memory=1_000_000, metadata_max_age_ms=FOREVER_MS, linger_ms=50) as producer:
        until_known(producer)
        producer.send_and_wait("gone", b"0")
        session: Any = producer._session
        life = session.producer._life

        async def forget() -> None:
            # Between the hand-over and the batch: as if the cluster had said that there is no such topic.
            life.appenders.pop("gone")
            life.sender.metadata._drop(life.sender.metadata.topic("gone"))

        def blocked() -> None:
            entered.set()
            leave.wait()

        entered, leave = threading.Event(), threading.Event()
        session._thread.call_soon(blocked)
        entered.wait()
        waiting = [producer.send("gone", b"%d" % number) for number in (1, 2)]
        other = producer.send("one", b"other")
        session._thread.submit(forget)
        leave.set()
        assert other.result().offset == 1
        assert [delivery.result().offset for delivery in waiting] == [1, 2]


def test_nobody_waits_in_a_line_that_is_shut(cluster: ThreadedCluster) -> None:
    """A thread may find no room before a close, and come to the line after it: nobody looks at that line again."""
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        delivery = producer.send("one", b"v")
        line = line_of(producer)
    assert Caller(partial(line.wait, delivery, threading.TIMEOUT_MAX)).outcome() is False
