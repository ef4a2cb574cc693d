"""BufferPool against a model that knows nothing of free lists: its accounting is exact in any order of calls.

Stands for Java's stressfulSituation. The model keeps who waits and how much is out, and recomputes from that
alone who must have been served, in which order, and how many bytes each gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from aioproduce.core.buffer_pool import BufferLease, BufferPool, BufferWaiter
from aioproduce.errors import ProducerClosedError


@dataclass(eq=False)
class Caller:
    """What the model believes of one request that had to queue."""

    size: int
    number: int
    waiter: BufferWaiter | None = None
    gathered: int = 0
    is_granted: bool = False
    wakes: int = 0


class AllocationFails(MemoryError):
    """Raised by the allocator when the test says so."""


class BufferPoolMachine(RuleBasedStateMachine):
    leases = Bundle("leases")
    callers = Bundle("callers")

    @initialize(total=st.integers(1, 60), poolable=st.integers(0, 12))
    def start(self, total: int, poolable: int) -> None:
        self.total = total
        self.poolable = poolable
        self.can_allocate = True
        self.pool = BufferPool(total, poolable, allocate=self.allocate)
        self.is_closed = False
        # The model.
        self.out = 0
        self.queue: list[Caller] = []
        self.granted: list[Caller] = []
        self.woken: list[int] = []
        self.expected_woken: list[int] = []
        self.count = 0

    def allocate(self, size: int) -> bytearray:
        if not self.can_allocate:
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
            self.expected_woken.append(first.number)

    def sizes(self, size: int) -> int:
        """Sizes up to the total, and often the poolable one."""
        return self.poolable if size % 3 == 0 and 0 < self.poolable <= self.total else 1 + size % self.total

    # -- the calls

    @precondition(lambda self: not self.is_closed)
    @rule(target=leases, size=st.integers(0, 200))
    def try_allocate(self, size: int) -> object:
        size = self.sizes(size)
        lease = self.pool.try_allocate(size)
        must_wait = bool(self.queue or self.granted) or self.free() < size
        assert (lease is None) == must_wait
        if lease is None:
            return multiple()
        assert len(lease.buffer) == lease.size == size
        self.out += size
        return lease

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
    @rule(target=callers, size=st.integers(0, 200))
    def enqueue(self, size: int) -> Caller:
        caller = Caller(self.sizes(size), self.count)
        self.count += 1

        def notify() -> None:
            caller.wakes += 1
            self.woken.append(caller.number)

        self.queue.append(caller)
        self.serve()
        caller.waiter = self.pool.enqueue(caller.size, notify)
        return caller

    @rule(lease=consumes(leases))
    def release(self, lease: BufferLease) -> None:
        lease.release()
        self.out -= lease.size
        self.serve()
        with pytest.raises(RuntimeError):
            lease.release()

    @rule(target=leases, caller=callers, fails=st.booleans())
    def claim(self, caller: Caller, fails: bool) -> object:
        assert caller.waiter is not None
        if self.is_closed and (caller in self.queue or caller in self.granted):
            with pytest.raises(ProducerClosedError):
                self.pool.claim(caller.waiter)
            return multiple()
        if caller not in self.granted:
            with pytest.raises((RuntimeError, ProducerClosedError)):
                self.pool.claim(caller.waiter)
            return multiple()
        self.granted.remove(caller)
        caller.gathered = 0
        self.can_allocate = not fails
        try:
            lease = self.pool.claim(caller.waiter)
        except AllocationFails:
            self.serve()
            return multiple()
        finally:
            self.can_allocate = True
        assert len(lease.buffer) == lease.size == caller.size
        self.out += caller.size
        return lease

    @rule(caller=callers)
    def abandon(self, caller: Caller) -> None:
        assert caller.waiter is not None
        self.pool.abandon(caller.waiter)
        for where in (self.queue, self.granted):
            if caller in where:
                where.remove(caller)
                caller.gathered = 0
        self.serve()

    @precondition(lambda self: not self.is_closed and self.count > 3)
    @rule()
    def close(self) -> None:
        self.pool.close()
        self.is_closed = True
        self.expected_woken += [caller.number for caller in self.queue]
        for caller in (*self.queue, *self.granted):
            caller.gathered = 0
        self.queue.clear()
        self.granted.clear()

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

    @invariant()
    def everyone_was_served_in_order_and_woken_once(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.woken == self.expected_woken
        for caller in (*self.queue, *self.granted):
            assert caller.waiter is not None
            assert caller.waiter.is_granted == caller.is_granted
            assert caller.waiter.gathered == caller.gathered
            assert caller.wakes == int(caller.is_granted)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        # Whatever was left over: once the waiters have gone, only leases are out.
        for caller in (*self.queue, *self.granted):
            assert caller.waiter is not None
            self.pool.abandon(caller.waiter)
        assert self.pool.reserved == 0
        assert self.pool.available == self.total - self.pool.outstanding


BufferPoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBufferPool = BufferPoolMachine.TestCase
