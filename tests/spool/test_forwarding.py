"""The order of events in a topic's forwarding, made by hand: what a real cluster and disk do only now and then."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aioproduce.errors import ProducerError, SpoolDroppedError, TopicAuthorizationError
from aioproduce.spool.batch_head import place
from aioproduce.spool.bell import Bell
from aioproduce.spool.forwarder import TopicForwarder
from aioproduce.spool.log_reader import Batch
from aioproduce.spool.pauses import Pauses
from aioproduce.spool.refusals import Refusals
from aioproduce.spool.topic_queue import TopicQueue
from aioproduce.spool.writer_messages import Append, Dropped
from tests.spool.batches import make_batch


class _Waiter:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, deadline: float) -> bool:
        left = None if deadline == inf else max(deadline - asyncio.get_running_loop().time(), 0)
        try:
            await asyncio.wait_for(self._event.wait(), left)
        except TimeoutError:
            return False
        return True


class _Driver:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def make_waiter(self) -> _Waiter:
        return _Waiter()


class _Story:
    """The queue of a topic: two batches, of which the first has its outcome after the second could not be sent.

    Args:
        outcome: What the first batch ends with.
    """

    topic = "orders"
    blocked_by: BaseException | None = None
    wants_more = False
    is_passed = True
    moves_in = inf

    def __init__(self, outcome: dict[int, ProducerError]) -> None:
        self.events: list[str] = []
        self.turns = 0
        self.is_over = asyncio.Event()
        self._outcome = outcome
        self._at = 0
        self._refusals = 1
        self._may_end = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        return self._at >= 20

    @property
    def next_batch(self) -> Any:
        if self.is_idle:
            return None
        return SimpleNamespace(head=SimpleNamespace(base_offset=self._at, end_offset=self._at + 10, size=10))

    async def send_next(self, _life: object, _position: int) -> Any:
        batch = self.next_batch
        if self._at == 10 and self._refusals:
            self._refusals = 0
            self.events.append("10 has no room")
            self._may_end.set()
            raise ProducerError("no room")
        self.events.append(f"{self._at} is sent")
        self._at += 10
        return SimpleNamespace(batch=batch, deliveries=SimpleNamespace(failed=self._failed))

    async def _failed(self) -> dict[int, ProducerError]:
        await self._may_end.wait()
        outcome, self._outcome = self._outcome, {}
        return outcome

    async def bury(self, _sent: object, failed: dict[int, ProducerError]) -> ProducerError:
        return failed[0]

    def move(self, position: int) -> None:
        self.events.append(f"position {position}")

    def settle(self, sent: Any, _following: object) -> None:
        self.events.append(f"{sent.batch.head.base_offset} is settled")
        if sent.batch.head.end_offset == 20:
            self.is_over.set()

    def begin_again(self, offset: int) -> None:
        self.events.append(f"again from {offset}")
        self._at = offset

    def pass_unused(self) -> None:
        pass


async def _events(story: _Story, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    async def heed_turn() -> None:
        story.turns += 1

    monkeypatch.setattr("aioproduce.spool.forwarder.FIRST_PAUSE", 0.0)
    forwarder = TopicForwarder(
        cast("Any", story),
        cast("Any", SimpleNamespace(driver=_Driver())),
        lambda: 0,
        lambda: 1_000_000,
        heed_turn,
        lambda: None,
    )
    tasks = [asyncio.create_task(run()) for run in (forwarder.send_all, forwarder.settle_all)]
    await story.is_over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # A backlog of small batches is sent without a wait: the loop is asked before each.
    assert story.turns >= sum("is sent" in event for event in story.events) > 1
    return story.events


async def test_a_batch_that_fails_while_a_later_one_waits_for_room_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denied = TopicAuthorizationError("denied", topic="orders")
    assert await _events(_Story({0: denied}), monkeypatch) == [
        *("0 is sent", "10 has no room", "again from 0", "0 is sent", "10 is sent"),
        *("position 10", "0 is settled", "position 20", "10 is settled"),
    ]


async def test_a_batch_that_is_acknowledged_while_a_later_one_waits_for_room_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await _events(_Story({}), monkeypatch) == [
        *("0 is sent", "10 has no room", "position 10", "0 is settled"),
        *("again from 10", "10 is sent", "position 20", "10 is settled"),
    ]


# -- direct mode ---


class _Log:
    """A log in which batches of ten records are written, and answered when the test says so."""

    offset = 0

    def __init__(self) -> None:
        self.damages: list[object] = []
        self.written: list[int] = []
        self.rescued: list[int] = []
        self.cancelled: list[Append] = []

    def life_begins_at(self, _topic: str) -> int:
        return 0

    def segments(self, _topic: str) -> list[object]:
        return []

    def dropped_to(self, _topic: str) -> int:
        return 0

    def has_settled(self, _topic: str) -> bool:
        return False

    def rescues(self, _topic: str) -> int:
        return self.rescued.pop(0) if self.rescued else 0

    def cancel(self, append: Append) -> None:
        self.cancelled.append(append)

    def pass_over(self, offset: int) -> None:
        self.offset = max(self.offset, offset)

    def begin_at(self, offset: int) -> None:
        self.offset = offset

    def read_cached(self, _segments: object, _most: int) -> list[Batch]:
        return []

    def read(self, _segments: object, _most: int) -> list[Batch]:
        content = make_batch([b"%d" % number for number in range(10)])
        found = [Batch(place(content, base), content) for base in self.written if base >= self.offset]
        self.offset = found[-1].head.end_offset if found else self.offset
        return found


def _direct_queue(log: _Log) -> TopicQueue:
    async def read(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    driver = SimpleNamespace(make_waiter=_Waiter, on_turn=lambda call: call())
    measures = SimpleNamespace(read=lambda *_: None)
    parts: tuple[Any, ...] = ("orders", log, log, None, None, driver, read, lambda: None, measures)
    return TopicQueue(*parts)


def _append() -> Append:
    content = make_batch([b"%d" % number for number in range(10)])
    return Append("orders", [content], len(content), 0.0, lambda _: None)


async def test_nothing_goes_ahead_of_a_batch_that_is_written_and_not_answered() -> None:
    """The reader sees a batch when it is written, which may be long before its sync ends its `send()`."""
    log = _Log()
    queue = _direct_queue(log)
    queue.blocked_by = OSError()
    first, second = _append(), _append()
    assert queue.go_ahead(first) is first
    assert queue.go_ahead(second) is second
    queue.blocked_by = None
    log.written = [0, 10]
    first.answer(first)
    queue.stored(0, 10)
    await queue.read_ahead()
    third = _append()
    assert queue.go_ahead(third) is third
    assert third.at_least == 20
    second.answer(second)
    queue.stored(10, 20)
    assert (queue.group_at(0).end_offset, queue.group_at(10).end_offset) == (10, 20)


async def test_a_batch_that_the_disk_refused_does_not_end_direct_mode() -> None:
    queue = _direct_queue(_Log())
    queue.blocked_by = OSError()
    refused = _append()
    assert queue.go_ahead(refused) is refused
    queue.blocked_by = None
    refused.error = OSError()
    refused.answer(refused)
    following = _append()
    assert queue.go_ahead(following) is not following
    assert (following.offset, following.end_offset) == (10, 20)


async def test_what_is_left_to_the_disk_has_its_answer_before_direct_mode_goes_on() -> None:
    queue = _direct_queue(_Log())
    answers: list[Exception | None] = []
    append = _append()
    append.answer = lambda answered: answers.append(answered.error)
    write = queue.go_ahead(append)
    assert write is not append
    queue.begin_again(0)
    following = _append()
    assert queue.go_ahead(following) is following
    write.error = OSError("no room")
    write.answer(write)
    following.answer(following)
    assert [type(error).__name__ for error in answers] == ["PossiblyStoredError"]
    assert queue.go_ahead(last := _append()) is not last


async def test_a_ring_wakes_the_task_that_waits_and_one_that_comes_before_the_wait_ends_it_at_once() -> None:
    bell = Bell(cast("Any", _Driver()))
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    bell.ring()
    await waiting

    bell.ring()
    bell.ring()
    await bell.wait()
    await bell.wait(0)  # both were one: this wait ends by its time
    again = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    bell.ring()
    await bell.wait()


# -- what comes between ---


async def test_batches_that_a_failed_sync_has_moved_meanwhile_are_not_passed_over() -> None:
    """The reader looked at the segments of before, and found nothing in them."""
    log = _Log()
    queue = _direct_queue(log)
    queue.stored(0, 10)
    log.rescued = [0, 2, 2, 2]
    await queue.read_ahead()
    assert queue.next_batch is None
    assert queue.has_unread
    log.written = [0]
    await queue.read_ahead()
    assert queue.next_batch is not None


async def test_a_batch_that_was_dropped_before_it_was_answered_has_an_outcome() -> None:
    queue = _direct_queue(_Log())
    queue._measures = cast("Any", SimpleNamespace(dropped=lambda _: None))
    queue.were_dropped(Dropped("orders", 0, 10, 10, 1_000, "the queue had its bytes"))
    queue.stored(0, 10)
    assert queue.group_at(3).is_settled
    with pytest.raises(SpoolDroppedError):
        queue.group_at(3).outcome(3)
    queue.stored(10, 20)
    assert not queue.group_at(12).is_settled


def _told(*told: int | None) -> list[Append]:
    return [replace(_append(), told=each) for each in told]


def test_what_is_behind_a_refused_batch_is_refused_whatever_its_sender_knew() -> None:
    refusals = Refusals()
    full = OSError(errno.ENOSPC, "No space left on device")
    first = _told(0)
    assert refusals.admit("orders", first) == first
    first[0].error = full
    refusals.refuse("orders", first, full)
    assert first[0].refusals == 1

    behind = _told(0, 1, None)
    assert refusals.admit("orders", behind) == [behind[2]]
    assert [each.refusals for each in behind] == [2, 2, 0]
    assert refusals.admit("payments", other := _told(0)) == other
    assert refusals.admit("orders", _told(1)) == []
    assert refusals.admit("orders", again := _told(3, 3)) == again


def test_pauses_become_longer_and_end_one_by_one() -> None:
    pauses = Pauses(1.0, 3.0)
    assert pauses.left(["a"], 0.0) == inf
    assert not pauses.holds("a", 0.0)
    for now, ends_at in ((10.0, 11.0), (20.0, 22.0), (30.0, 33.0), (40.0, 43.0)):
        pauses.begin("a", now)
        assert pauses.holds("a", ends_at - 0.1)
        assert not pauses.holds("a", ends_at)
    pauses.begin("b", 42.0)
    assert pauses.left(["a", "b"], 42.0) == 1.0
    assert pauses.left(["b"], 42.5) == 0.5
    assert pauses.left(["b"], 43.0) == inf
    pauses.end("a")
    assert "a" not in pauses
    pauses.begin("a", 50.0)
    assert pauses.left(["a"], 50.0) == 1.0
