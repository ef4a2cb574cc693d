"""Whatever ends the loop thread, every future is settled and every thread that waits is woken."""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import BlockingProducer
from aioproduce.errors import (
    DeliveryError,
    ForcedCloseError,
    NoBrokerAvailableError,
    ProducerClosedError,
    SenderDiedError,
)
from tests.blocking.test_room import FOREVER_MS, fill, line_of, small, until, until_known, wide
from tests.blocking.threads import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.blocking.threads import ThreadedCluster


def exit_in_callback(producer: Any) -> None:
    """`sys.exit()` in a delivery callback."""

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    session = producer._session
    session._thread.call_soon(leave)


def stop_loop(producer: Any) -> None:
    session = producer._session
    session._thread.call_soon(session._thread.loop.stop)


def cancel_all(producer: Any) -> None:
    import asyncio

    session = producer._session

    def cancel() -> None:
        for task in asyncio.all_tasks(session._thread.loop):
            task.cancel()

    session._thread.call_soon(cancel)


def kill_sender(producer: Any) -> None:
    session = producer._session

    def kill() -> None:
        session.producer._life.driver.core._failure = ZeroDivisionError("a bug")
        session.producer._life.driver.wake()

    session._thread.call_soon(kill)


@pytest.mark.parametrize(
    "kill", [exit_in_callback, stop_loop, cancel_all, kill_sender], ids=lambda kill: kill.__name__
)
def test_a_loop_thread_that_is_killed_settles_everything(
    cluster: ThreadedCluster, kill: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[Any] = []
    with small(cluster) as producer, contextlib.ExitStack() as stack:
        until_known(producer)
        stack.enter_context(cluster.stalled())
        told = producer.send("one", b"told", on_delivery=lambda *each: called.append(each))
        sent = [told, *fill(producer)]
        line = line_of(producer)
        calls = [
            Caller(sent[0].result),
            Caller(sent[-1].result),
            Caller(lambda: producer.send("one", wide("waits in line"))),
            Caller(producer.flush),
            Caller(lambda: producer.send("unknown", b"waits for its topic")),
        ]
        until(lambda: len(line) == 1)
        kill(producer)
        for call in calls:
            with pytest.raises((SenderDiedError, DeliveryError, ProducerClosedError)):
                call.outcome()
        assert all(delivery.exception() is not None for delivery in sent)
        assert len(called) == 1
        with pytest.raises(SenderDiedError):
            producer.send("one", b"late")
        with pytest.raises((SenderDiedError, ProducerClosedError)):
            producer.flush()
        assert producer.metrics().value("record-send-total") >= 1


def test_close_from_many_threads(cluster: ThreadedCluster) -> None:
    producer = BlockingProducer(
        cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=FOREVER_MS * 2
    )
    producer.start()
    delivery = producer.send("t", b"v")
    for call in [Caller(producer.close) for _ in range(4)]:
        call.outcome()
    assert delivery.result(0).offset == 0


def test_senders_while_it_is_closed(cluster: ThreadedCluster) -> None:
    """Each record that was taken is acknowledged or failed; each that was not, raised."""
    producer = BlockingProducer(cluster.bootstrap_servers)
    producer.start()
    taken: list[list[Any]] = [[], [], []]
    begun = threading.Barrier(4)

    def work(number: int) -> None:
        begun.wait()
        while True:
            try:
                taken[number].append(producer.send("t", b"%d" % number))
            except ProducerClosedError:
                return

    callers = [Caller(partial(work, number)) for number in range(3)]
    begun.wait()
    until(lambda: all(len(each) > 100 for each in taken))
    producer.close()
    for caller in callers:
        caller.outcome()
    deliveries = [delivery for each in taken for delivery in each]
    assert all(delivery.done() for delivery in deliveries)
    assert (
        len(cluster.records())
        == sum(delivery.exception() is None for delivery in deliveries)
        == len(deliveries)
    )


def test_start_without_a_broker(no_thread_left: None) -> None:
    producer = BlockingProducer("127.0.0.1:1", max_block_ms=50)
    with pytest.raises(NoBrokerAvailableError):
        producer.start(require_broker=True)
    # It can be tried again.
    with pytest.raises(NoBrokerAvailableError):
        producer.start(require_broker=True)
    producer.start()
    producer.close()


def test_one_that_nobody_closed_is_told_of_and_delivers(cluster: ThreadedCluster) -> None:
    before = set(threading.enumerate())
    producer = BlockingProducer(
        cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=FOREVER_MS * 2
    )
    producer.start()
    delivery = producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="unclosed <BlockingProducer"):
        del producer
    assert delivery.result().offset == 0
    until(
        lambda: (
            not [each for each in set(threading.enumerate()) - before if each.name.startswith("aioproduce")]
        )
    )


def test_close_gives_up_when_told_to(cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with small(cluster) as producer, contextlib.ExitStack() as stack:
        until_known(producer)
        stack.enter_context(cluster.stalled())
        sent = fill(producer)
        producer.close(0)
        assert {type(delivery.exception()) for delivery in sent} == {ForcedCloseError}
        assert not sent[-1].exception().possibly_written
        with pytest.raises(ValueError, match="0 or more"):
            producer.close(-1)
