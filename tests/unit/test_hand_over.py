"""`HandOver` and `BlockingDelivery` without an event loop, alike in both builds: what comes in, goes out, waits."""

from __future__ import annotations

import concurrent.futures
import gc
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce._native.key_hash import MURMUR2
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.errors import ForcedCloseError, ForkedProcessError, LoopThreadError
from aioproduce.records import TopicPartition
from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = 160
"""The bytes charged for an entry in addition to its key and value."""


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    return native_build(request.param)


class Sender:
    """A `BlockingPath` and its hand-over, with the test as the loop thread."""

    def __init__(self, native: SimpleNamespace, *, limit: int = 1_000_000, size: int = 100_000) -> None:
        self.native = native
        self.wakes = 0
        self.asks = 0
        self.may_wait = True
        appender = native.topic_appender.TopicAppender(MURMUR2)
        appender.set_partition_count(2)
        self.results = [native.delivery.BatchResult("t", number, NoLoopRuntime()) for number in range(2)]
        for number, result in enumerate(self.results):
            buffer = native.record_batch.RecordBatchBuffer(bytearray(size))
            appender.open(number, buffer, result)
        appender.set_sticky(0, 10**9)
        self.appenders = {"t": appender}
        self.hand_over = native.hand_over.HandOver(
            self.appenders,
            self._wake,
            self._ask,
            self._forked,
            self._check,
            limit=limit,
            largest=1_000,
            is_plain=True,
        )

        class Path(native.hand_over.BlockingPath):  # type: ignore[name-defined,misc]
            slow: list[Any]

            def _send_slowly(self, *arguments: Any) -> Any:
                self.slow.append(arguments)
                return None

        self.path = Path()
        self.slow: list[Any] = []
        self.path.slow = self.slow
        self.path._open_path(self.hand_over)

    def _wake(self) -> None:
        self.wakes += 1

    def _ask(self) -> None:
        self.asks += 1

    def _forked(self) -> None:
        raise ForkedProcessError("forked")

    def _check(self, what: str) -> None:
        if not self.may_wait:
            raise LoopThreadError(what)

    def accept(self) -> list[Any]:
        """What the loop thread does: all that is there, into the open batches."""
        entries = self.hand_over.take()
        assert self.hand_over.accept(entries, 0, len(entries), {}) == len(entries)
        return list(entries)

    def settle(self, number: int = 0, **how: Any) -> None:
        result = self.results[number]
        if how:
            result.fail(how["error"], how["count"])
        else:
            result.succeed(100)
        assert result.run_callbacks() == []


def error() -> ForcedCloseError:
    return ForcedCloseError(
        "why", topic_partition=TopicPartition("t", 0), possibly_written=False, attempts=0, retriable=True
    )


@pytest.fixture
def sender(native: SimpleNamespace) -> Sender:
    return Sender(native)


# -- in and out ---


def test_the_loop_thread_is_woken_once_and_takes_all_in_order(sender: Sender) -> None:
    sent = [sender.path.send("t", b"%d" % number) for number in range(5)]
    assert sender.wakes == 1
    assert sender.hand_over.sent == 5
    assert sender.hand_over.waiting_bytes == 5 * (ENTRY + 1)

    assert sender.accept() == sent
    assert sender.hand_over.waiting_bytes == 0
    assert sender.hand_over.take() == []

    sender.path.send("t", b"again")
    assert sender.wakes == 2


def test_a_settled_delivery_tells_its_metadata(sender: Sender) -> None:
    first = sender.path.send("t", b"v", b"key", partition=1, timestamp=1234)
    second = sender.path.send("t", b"longer", partition=1)
    assert not first.done()
    assert first.running()
    sender.accept()
    assert not first.done()
    sender.settle(1)
    assert first.done()
    assert first.result() == ("t", 1, 100, 1234, 3, 1)
    assert second.result().offset == 101
    assert second.result().serialized_value_size == 6
    assert second.exception() is None
    assert not second.cancel()
    assert not second.cancelled()
    assert (first.topic, repr(first)) == ("t", "<BlockingDelivery t offset=100>")


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("t", "text"), {}),
        (("t", b"v", "key"), {}),
        (("other", b"v"), {}),
        ((b"t", b"v"), {}),
        (("t", b"v"), {"partition": 2}),
        (("t", b"v"), {"partition": -1}),
        (("t", b"v"), {"partition": True}),
        (("t", b"v"), {"timestamp": -1}),
        (("t", b"v"), {"timestamp": 1.5}),
        (("t", b"v"), {"timestamp": 2**63}),
        (("t", b"v"), {"headers": [("h", b"v")]}),
        (("t", b"v" * 1_001), {}),
        (("t", b"v" * 501, b"k" * 500), {}),
    ],
    ids=[
        *("value", "key", "unknown topic", "topic", "no such partition", "negative", "bool", "before 1970"),
        *("float", "overflow", "headers", "large", "large together"),
    ],
)
def test_what_is_to_be_decided_goes_the_long_way(
    sender: Sender, arguments: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    assert sender.path.send(*arguments, **settings, timeout=3, on_delivery=print) is None
    [given] = sender.slow
    assert given[: len(arguments)] == arguments
    assert given[6:] == (3, print)
    assert sender.hand_over.sent == sender.wakes == 0


def test_it_holds_no_more_than_its_limit(native: SimpleNamespace) -> None:
    sender = Sender(native, limit=3 * (ENTRY + 1))
    sent = [sender.path.send("t", b"v") for _ in range(4)]
    assert sent[:3] == sender.hand_over.take()
    assert sent[3] is None
    assert len(sender.slow) == 1
    assert not sender.hand_over.is_half_empty
    sender.hand_over.left(sent[0])
    sender.hand_over.left(sent[1])
    assert sender.hand_over.is_half_empty
    assert sender.path.send("t", b"v") is not None


def test_a_record_larger_than_the_limit_finds_it_empty(native: SimpleNamespace) -> None:
    sender = Sender(native, limit=10)
    assert sender.path.send("t", b"v") is not None
    assert sender.path.send("t", b"v") is None


def test_nobody_overtakes_the_line(native: SimpleNamespace) -> None:
    sender = Sender(native)
    waiting, third = (
        native.blocking_delivery.new_delivery(
            sender.hand_over, "t", None, value, None, NO_PARTITION, -1, None
        )
        for value in (b"first", b"third")
    )
    sender.hand_over.has_line = True
    assert sender.path.send("t", b"second") is None
    assert not sender.hand_over.put(third)
    assert sender.hand_over.put(waiting, is_first=True)
    sender.hand_over.has_line = False
    assert sender.path.send("t", b"fourth") is not None
    assert [entry._record[2] for entry in sender.hand_over.take()] == [b"first", b"fourth"]


def test_records_of_a_held_topic_and_of_a_full_batch_are_left(native: SimpleNamespace) -> None:
    sender = Sender(native, size=200)
    for _ in range(4):
        sender.path.send("t", b"v" * 40)
    entries = sender.hand_over.take()
    assert sender.hand_over.accept(entries, 0, 4, {"t": None}) == 0
    assert sender.hand_over.accept(entries, 0, 4, {}) == 2
    assert sender.hand_over.waiting_bytes == 2 * (ENTRY + 40)
    assert entries[2]._record[:3] == ("t", None, b"v" * 40)
    assert entries[0]._record[2] is None


def test_nothing_comes_in_once_it_is_shut(sender: Sender) -> None:
    sent = sender.path.send("t", b"v")
    sender.hand_over.shut()
    assert not sender.hand_over.is_open
    assert sender.path.send("t", b"v") is None
    assert sender.hand_over.take() == [sent]


def test_threads_lose_nothing(native: SimpleNamespace) -> None:
    """What is one step must be one with threads that switch at every chance, too."""
    sender = Sender(native, limit=10**9, size=2_000_000)
    count, threads = 2_000, 4
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    accepted: list[Any] = []
    ended = threading.Event()
    sent: list[list[Any]] = [[] for _ in range(threads)]

    def send(number: int) -> None:
        for each in range(count):
            sent[number].append(sender.path.send("t", b"%d" % each, partition=0))

    def take() -> None:
        while not ended.is_set():
            accepted.extend(sender.accept())

    taker = threading.Thread(target=take)
    callers = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    try:
        for thread in (taker, *callers):
            thread.start()
        for thread in callers:
            thread.join()
    finally:
        ended.set()
        taker.join()
        sys.setswitchinterval(interval)
    accepted.extend(sender.accept())
    assert len(accepted) == sender.hand_over.sent == count * threads
    assert sender.hand_over.waiting_bytes == 0
    sender.settle(0)
    offsets = [[delivery.result().offset for delivery in mine] for mine in sent]
    assert all(mine == sorted(mine) for mine in offsets)
    assert sorted(offset for mine in offsets for offset in mine) == list(range(100, 100 + count * threads))


# -- who waits ---


def caller(function: Any) -> tuple[threading.Thread, list[Any]]:
    """Runs it in a thread; its result or error ends in the list."""
    given: list[Any] = []

    def run() -> None:
        try:
            given.append(function())
        except BaseException as raised:
            given.append(raised)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, given


def until(condition: Any) -> None:
    while not condition():
        pass


@pytest.fixture
def waiting_before(sender: Sender) -> Iterator[tuple[Sender, Any, threading.Thread, list[Any]]]:
    """A delivery that a thread waits for since before it was accepted."""
    delivery = sender.path.send("t", b"v")
    thread, given = caller(delivery.result)
    # It waits once it has a condition, which has a waiter.
    until(lambda: delivery._condition._waiters)
    yield sender, delivery, thread, given
    thread.join()


def test_who_waits_before_is_woken(waiting_before: Any) -> None:
    sender, _, thread, given = waiting_before
    sender.accept()
    assert sender.asks == 0
    sender.settle()
    thread.join()
    assert given[0].offset == 100


def test_who_waits_after_the_record_is_accepted_asks(sender: Sender) -> None:
    delivery = sender.path.send("t", b"v")
    sender.accept()
    thread, given = caller(delivery.result)
    until(lambda: sender.asks)
    [asked] = sender.hand_over.take_questions()
    assert asked is delivery
    asked._heed_watch()
    sender.settle()
    thread.join()
    assert given[0].offset == 100
    assert delivery.exception() is None


def test_who_asks_too_late_for_the_batch_is_told_at_once(sender: Sender) -> None:
    delivery = sender.path.send("t", b"v")
    sender.accept()
    thread, given = caller(delivery.result)
    until(lambda: sender.asks)
    sender.settle()
    for asked in sender.hand_over.take_questions():
        asked._heed_watch()
    thread.join()
    assert given[0].offset == 100


def test_who_asks_after_the_end_is_told_at_once(sender: Sender) -> None:
    delivery = sender.path.send("t", b"v")
    sender.accept()
    assert sender.hand_over.end() == []
    sender.settle()
    called: list[Any] = []
    delivery.add_done_callback(called.append)
    assert called == [delivery]
    assert concurrent.futures.wait([delivery]).done == {delivery}
    assert delivery.result().offset == 100


def test_a_refused_record_tells_why_wherever_it_is_asked(waiting_before: Any) -> None:
    sender, delivery, thread, given = waiting_before
    called: list[Any] = []
    delivery.add_done_callback(called.append)
    cause = error()
    [entry] = sender.hand_over.take()
    sender.hand_over.left(entry)
    entry._refuse(cause)
    thread.join()
    assert isinstance(given[0], ForcedCloseError)
    assert given[0] is not cause
    assert called == [delivery]
    assert delivery.done()
    assert str(delivery.exception()) == "why"
    with pytest.raises(ForcedCloseError):
        delivery.result()
    assert repr(delivery).startswith("<BlockingDelivery t error=")


def test_a_refused_record_calls_back(sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    called: list[Any] = []
    good = sender.path.send("t", b"vv", b"k", timestamp=7, on_delivery=lambda *told: called.append(told))
    bad = sender.path.send("t", b"v", on_delivery=lambda *told: 1 / 0)
    for entry in sender.hand_over.take():
        entry._refuse(error())
    [(metadata, told)] = called
    assert metadata == ("t", -1, -1, 7, 1, 2)
    assert isinstance(told, ForcedCloseError)
    assert "a delivery callback for t failed" in caplog.text
    assert good.done()
    assert bad.done()


def test_a_time_out_leaves_the_record_alone(sender: Sender) -> None:
    delivery = sender.path.send("t", b"v")
    for timeout in (0, -1, 0.001):
        with pytest.raises(TimeoutError, match="the record goes on"):
            delivery.result(timeout)
    sender.accept()
    with pytest.raises(TimeoutError):
        delivery.exception(0)
    sender.settle()
    assert delivery.result(0).offset == 100


def test_nothing_waits_in_the_loop_thread(sender: Sender) -> None:
    delivery = sender.path.send("t", b"v")
    sender.may_wait = False
    with pytest.raises(LoopThreadError):
        delivery.result()
    with pytest.raises(LoopThreadError):
        delivery.exception(1)
    sender.accept()
    sender.settle()
    assert delivery.result().offset == 100


def test_done_callbacks_are_called_once_each_and_their_errors_logged(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = sender.path.send("t", b"v")
    called: list[Any] = []
    delivery.add_done_callback(lambda _: 1 / 0)
    delivery.add_done_callback(called.append)
    sender.accept()
    delivery.add_done_callback(called.append)
    assert called == []
    sender.settle()
    assert called == [delivery, delivery]
    delivery.add_done_callback(called.append)
    assert len(called) == 3
    assert "a done-callback of <BlockingDelivery t offset=100> failed" in caplog.text


@pytest.mark.parametrize("return_when", ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"])
def test_concurrent_futures_wait(sender: Sender, return_when: str) -> None:
    done = sender.path.send("t", b"v", partition=1)
    sender.accept()
    sender.settle(1)
    pending = [sender.path.send("t", b"v", partition=0) for _ in range(3)]
    thread, given = caller(lambda: concurrent.futures.wait([done, *pending], return_when=return_when))
    if return_when == "FIRST_COMPLETED":
        until(lambda: sender.asks)
    else:
        # Each has a waiter once it waits.
        until(lambda: all(delivery._waiters for delivery in pending))
    for asked in sender.hand_over.take_questions():
        asked._heed_watch()
    if return_when == "FIRST_COMPLETED":
        thread.join()
        assert done in given[0].done
    sender.accept()
    sender.settle(0)
    thread.join()
    if return_when != "FIRST_COMPLETED":
        assert given[0].done == {done, *pending}


def test_the_first_failure_ends_a_wait_for_the_first_failure(sender: Sender) -> None:
    fails = sender.path.send("t", b"v", partition=1)
    pending = sender.path.send("t", b"v", partition=0)
    thread, given = caller(
        lambda: concurrent.futures.wait([pending, fails], return_when=concurrent.futures.FIRST_EXCEPTION)
    )
    until(lambda: pending._waiters and fails._waiters)
    sender.accept()
    for asked in sender.hand_over.take_questions():
        asked._heed_watch()
    sender.settle(1, error=error(), count=1)
    thread.join()
    assert given[0] == ({fails}, {pending})
    sender.settle(0)
    assert pending.result().offset == 100


def test_concurrent_futures_as_completed(sender: Sender) -> None:
    early = sender.path.send("t", b"v", partition=1)
    late = sender.path.send("t", b"v", partition=0)
    thread, given = caller(lambda: list(concurrent.futures.as_completed([late, early])))
    until(lambda: early._waiters and late._waiters)
    sender.accept()
    for asked in sender.hand_over.take_questions():
        asked._heed_watch()
    sender.settle(1)
    sender.settle(0)
    thread.join()
    assert given[0] == [early, late]


# -- failures and split batches ---


def test_failures_that_nobody_asks_for_are_counted(native: SimpleNamespace) -> None:
    sender = Sender(native)
    asked = sender.path.send("t", b"1")
    told = sender.path.send("t", b"2", on_delivery=lambda *each: None)
    dropped = sender.path.send("t", b"3")
    sender.accept()
    cause = error()
    sender.settle(error=cause, count=3)
    for _ in range(2):
        assert isinstance(asked.exception(), ForcedCloseError)
        assert isinstance(told.exception(), ForcedCloseError)
    with pytest.raises(ForcedCloseError) as raised:
        asked.result()
    assert raised.value is not cause
    runtime = sender.results[0].runtime
    del asked, told, dropped, raised
    sender.appenders.clear()
    sender.results.clear()
    sender.path._shut_path()
    del sender
    gc.collect()  # interpreted, frames and their sender are a cycle
    assert runtime.unobserved == 1


def test_records_of_a_split_batch_are_where_their_part_is(sender: Sender) -> None:
    native = sender.native
    deliveries = [sender.path.send("t", b"v") for _ in range(4)]
    sender.accept()
    parts = [native.delivery.BatchResult("t", 0, NoLoopRuntime()) for _ in range(3)]
    deliveries[3].add_done_callback(lambda _: None)
    for asked in sender.hand_over.take_questions():
        asked._heed_watch()
    sender.results[0].split([(0, parts[0]), (2, parts[1])])
    assert not deliveries[0].done()
    parts[1].split([(0, parts[2]), (1, inner := native.delivery.BatchResult("t", 0, NoLoopRuntime()))])
    parts[0].succeed(10)
    parts[2].succeed(20)
    inner.succeed(30)
    inner.run_callbacks()
    assert [delivery.result().offset for delivery in deliveries] == [10, 11, 20, 30]


def test_deliveries_are_made_by_the_producer_only(native: SimpleNamespace, sender: Sender) -> None:
    import pickle

    with pytest.raises(TypeError):
        native.blocking_delivery.BlockingDelivery()
    with pytest.raises(TypeError, match="cannot copy or pickle"):
        pickle.dumps(sender.path.send("t", b"v"))
