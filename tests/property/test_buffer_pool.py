"""BufferPool against a model that knows nothing of free lists: its accounting is exact in any order of calls.

Stands for Java's stressfulSituation. The model keeps who waits and how much is out, and recomputes from that
alone who must have been served, in which order, and how many bytes each gathered.

Who is woken may do at once what a driver might, in the middle of the pool's own work: claim, give another lease
back, give up another's wait, or fail. The model comes first: it decides what that does, and what the pool is to be
like.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aioproduce.core.batching.buffer_pool import BufferLease, BufferPool, BufferWaiter
from aioproduce.errors import ProducerClosedError

NOTHING, CLAIMS, RELEASES, ABANDONS, FAILS = "nothing", "claims", "releases", "abandons", "fails"

when_woken = st.sampled_from([NOTHING, CLAIMS, RELEASES, RELEASES, ABANDONS, FAILS, FAILS])
number = st.integers(0, 100)


@dataclass(eq=False)
class Caller:
    """What the model believes of one request that had to queue."""

    size: int
    number: int
    when_woken: str = NOTHING
    waiter: BufferWaiter | None = None
    gathered: int = 0
    is_granted: bool = False
    wakes: int = 0
    victim: Caller | None = None
    """Whose wait it gives up when woken: decided by the model."""
    held: BufferLease | None = None
    """What it gives back when woken."""


class AllocationFails(MemoryError):
    """Raised by the allocator when the test says so."""


class WakingFails(Exception):
    """Raised by a `notify`."""


class BufferPoolMachine(RuleBasedStateMachine):
    @initialize(total=st.sampled_from([2, 3, 6, 20, 60]), poolable=st.integers(0, 12))
    def start(self, total: int, poolable: int) -> None:
        self.total = total
        self.poolable = poolable
        self.can_allocate = True
        self.pool = BufferPool(total, poolable, allocate=self.allocate)
        self.is_closed = False
        self.leases: list[BufferLease] = []
        self.callers: list[Caller] = []
        # The model.
        self.out = 0
        self.queue: list[Caller] = []
        self.granted: list[Caller] = []
        self.woken: list[int] = []
        self.expected_woken: list[int] = []
        self.failed_wakings = 0

    def allocate(self, size: int) -> bytearray:
        if not self.can_allocate:
            self.can_allocate = True
            self.serve()  # the bytes go to the next
            raise AllocationFails
        return bytearray(size)

    # -- the model

    def free(self) -> int:
        return self.total - self.out - sum(c.gathered for c in (*self.queue, *self.granted))

    def serve(self) -> None:
        while self.queue:
            first = self.queue[0]
            first.gathered += min(first.size - first.gathered, self.free())
            if first.gathered < first.size:
                return
            self.queue.pop(0)
            first.is_granted = True
            self.granted.append(first)
            self.wake(first)

    def wake(self, caller: Caller) -> None:
        self.expected_woken.append(caller.number)
        match caller.when_woken:
            case "fails":
                self.failed_wakings += 1
                self.forget(caller)
            case "claims" if caller in self.granted and caller.waiter is not None:
                self.forget(caller)
                self.out += caller.size
            case "releases" if caller.held is not None:
                self.out -= caller.held.size
            case "abandons" if self.queue:
                caller.victim = self.queue[-1]
                self.forget(caller.victim)

    def forget(self, caller: Caller) -> None:
        for where in (self.queue, self.granted):
            if caller in where:
                where.remove(caller)
        caller.gathered = 0
        caller.is_granted = False

    def sizes(self, size: int) -> int:
        """Sizes up to the total, and often the poolable one."""
        return self.poolable if size % 3 == 0 and 0 < self.poolable <= self.total else 1 + size % self.total

    # -- the real thing

    def notify(self, caller: Caller) -> None:
        caller.wakes += 1
        self.woken.append(caller.number)
        match caller.when_woken:
            case "fails":
                raise WakingFails
            case "claims" if caller.waiter is not None and caller.waiter.is_granted:
                self.take(self.pool.claim(caller.waiter), caller.size)
            case "releases" if caller.held is not None:
                lease, caller.held = caller.held, None
                lease.release()
            case "abandons" if caller.victim is not None:
                assert caller.victim.waiter is not None
                self.pool.abandon(caller.victim.waiter)

    @contextmanager
    def wakings_may_fail(self) -> Iterator[None]:
        """What a `notify` raises goes on to whoever's call woke it, several of them as a group."""
        told = 0
        try:
            yield
        except WakingFails:
            told = 1
        except BaseExceptionGroup as group:
            failed, others = group.split(WakingFails)
            if failed is None or others is not None:
                raise
            told = len(failed.exceptions)
        expected, self.failed_wakings = self.failed_wakings, 0
        assert told == expected

    def take(self, lease: BufferLease, size: int) -> None:
        assert len(lease.buffer) == lease.size == size
        assert all(lease.buffer is not other.buffer for other in self.leases), "two owners of one buffer"
        self.leases.append(lease)

    # -- the calls

    @precondition(lambda self: not self.is_closed)
    @rule(size=st.integers(0, 200))
    def try_allocate(self, size: int) -> None:
        size = self.sizes(size)
        lease = self.pool.try_allocate(size)
        must_wait = bool(self.queue or self.granted) or self.free() < size
        assert (lease is None) == must_wait
        if lease is not None:
            self.take(lease, size)
            self.out += size

    @precondition(lambda self: not self.is_closed)
    @rule(size=st.integers(0, 200))
    def fail_to_allocate(self, size: int) -> None:
        size = self.sizes(size)
        self.can_allocate = False
        try:
            lease = self.pool.try_allocate(size)
        except AllocationFails:
            return
        finally:
            self.can_allocate = True
        if lease is not None:  # it came from the free list
            assert size == self.poolable
            lease.release()

    @precondition(lambda self: not self.is_closed)
    @rule(size=st.integers(0, 200), when_woken=when_woken, lease=number)
    def enqueue(self, size: int, when_woken: str, lease: int) -> None:
        caller = Caller(self.sizes(size), len(self.callers), when_woken)
        if when_woken == RELEASES and self.leases:
            caller.held = self.leases.pop(lease % len(self.leases))
        self.callers.append(caller)
        self.queue.append(caller)
        self.serve()
        with self.wakings_may_fail():
            caller.waiter = self.pool.enqueue(caller.size, lambda: self.notify(caller))

    @precondition(lambda self: self.leases)
    @rule(lease=number, is_resized=st.booleans())
    def release(self, lease: int, is_resized: bool) -> None:
        given_back = self.leases.pop(lease % len(self.leases))
        if is_resized:
            given_back.buffer.append(0)
        self.out -= given_back.size
        self.serve()
        with self.wakings_may_fail():
            given_back.release()
        assert given_back.buffer == b""
        with pytest.raises(RuntimeError):
            given_back.release()

    @precondition(lambda self: self.callers)
    @rule(caller=number, fails=st.booleans())
    def claim(self, caller: int, fails: bool) -> None:
        chosen = self.callers[caller % len(self.callers)]
        if chosen.waiter is None:
            return  # its waking failed within `enqueue()`
        if chosen not in self.granted:
            with pytest.raises((RuntimeError, ProducerClosedError)):
                self.pool.claim(chosen.waiter)
            return
        self.forget(chosen)
        self.can_allocate = not fails
        with self.wakings_may_fail():
            try:
                lease = self.pool.claim(chosen.waiter)
            except AllocationFails:
                assert fails
                return
            finally:
                self.can_allocate = True
            self.out += chosen.size
            self.take(lease, chosen.size)

    @precondition(lambda self: self.callers)
    @rule(caller=number)
    def abandon(self, caller: int) -> None:
        chosen = self.callers[caller % len(self.callers)]
        if chosen.waiter is not None:
            self.forget(chosen)
            self.serve()
            with self.wakings_may_fail():
                self.pool.abandon(chosen.waiter)

    @precondition(lambda self: self.is_closed or len(self.callers) > 3)
    @rule()
    def close(self) -> None:
        waiting, self.queue, self.granted = self.queue, [], []
        for caller in self.callers:
            self.forget(caller)
        for caller in waiting:
            self.wake(caller)
        self.is_closed = True
        with self.wakings_may_fail():
            self.pool.close()

    @precondition(lambda self: self.is_closed)
    @rule(size=st.integers(0, 200))
    def ask_when_closed(self, size: int) -> None:
        with pytest.raises(ProducerClosedError):
            self.pool.try_allocate(self.sizes(size))
        with pytest.raises(ProducerClosedError):
            self.pool.enqueue(self.sizes(size), lambda: None)

    # -- what must hold

    @invariant()
    def accounting_is_exact(self) -> None:
        if not hasattr(self, "pool"):
            return
        reserved = sum(caller.gathered for caller in (*self.queue, *self.granted))
        assert self.pool.outstanding == self.out
        assert self.pool.reserved == reserved
        assert self.pool.available == self.free() == self.total - self.out - reserved
        assert 0 <= self.pool.unallocated <= self.pool.available
        assert self.pool.waiting == len(self.queue)
        assert self.pool.is_exhausted == bool(self.queue)
        assert not self.queue or self.pool.available == 0
        held = [caller.held for caller in self.callers if caller.held is not None]
        assert sum(lease.size for lease in (*self.leases, *held)) == self.out

    @invariant()
    def everyone_was_served_in_order_and_woken_once(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.woken == self.expected_woken
        assert all(caller.wakes <= 1 for caller in self.callers)
        for caller in (*self.queue, *self.granted):
            assert caller.waiter is not None
            assert caller.waiter.is_granted == caller.is_granted
            assert caller.waiter.gathered == caller.gathered
            assert caller.wakes == int(caller.is_granted)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        # Whatever was left over: once the waiters have gone, only leases are out.
        for caller in self.callers:
            caller.when_woken = NOTHING
        for caller in self.callers:
            if caller.waiter is not None:
                self.pool.abandon(caller.waiter)
        assert self.pool.reserved == 0
        assert self.pool.available == self.total - self.pool.outstanding
        held = [caller.held for caller in self.callers if caller.held is not None]
        for lease in (*self.leases, *held):
            lease.release()
        assert self.pool.available == self.total


BufferPoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestBufferPool = BufferPoolMachine.TestCase


@pytest.mark.extended("runs twice as many examples as the gate")
def test_at_length() -> None:
    run_state_machine_as_test(
        BufferPoolMachine, settings=settings(BufferPoolMachine.TestCase.settings, max_examples=300)
    )
