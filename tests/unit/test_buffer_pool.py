"""BufferPool, one call at a time: Java's BufferPoolTest, KIP-1332's accounting cases, and what is ours.

| scenario of Java | test here |
|---|---|
| simple | test_simple |
| cantAllocateMoreMemoryThanWeHave | test_more_than_the_pool_is_refused_at_once |
| delayedAllocation | test_delayed_allocation |
| bufferExhaustedExceptionIsThrown, blockTimeout | test_a_timed_out_waiter_is_cleaned_up (who waits raises) |
| cleanupMemoryAvailabilityWaiterOnBlockTimeout | test_a_timed_out_waiter_is_cleaned_up |
| cleanupMemoryAvailabilityWaiterOnInterruption | test_cancelled_waiters_leave_the_queue... |
| cleanupMemoryAvailabilityOnMetricsException | test_a_notify_that_raises_leaks_no_waiter (no sensors here) |
| stressfulSituation | tests/property/test_buffer_pool.py |
| largeAvailableMemory | test_sizes_beyond_two_gib |
| outOfMemoryOnAllocation | test_failed_allocation_gives_the_bytes_back |
| closeAllocations | test_close_refuses_and_still_takes_back |
| closeNotifyWaiters | test_close_wakes_every_waiter |

Of KIP-1332 (BufferPoolChunkAllocationTest), whose chunks we do not have, the accounting:

| scenario | test here |
|---|---|
| rejectsRequestExceedingTotalMemory | test_more_than_the_pool_is_refused_at_once |
| rejectsNonPositiveRequest | test_a_request_for_nothing_is_refused |
| rollbackOnPartialFailure | test_failed_allocation_after_a_wait_serves_the_next |
| fifoFairnessAcrossMultiChunkAndSingleChunk | test_a_small_request_does_not_overtake_a_large_one |
| slowPathDoesNotDoubleRefundPolledChunksOnTimeout | test_abandoning_twice_refunds_once |
| slowPathSuccessDoesNotCorruptAccounting | test_partial_gathering_then_a_whole_buffer |
| availableMemoryAfterAllocation, deallocationRestoresMemory | test_simple |
| noPartialHoldsDuringWait | left out: the first in the queue does gather, by design |
| allocateOneChunk, roundsUpToChunkBoundary, multipleChunks | left out: no chunks |
"""

from __future__ import annotations

from functools import partial

import pytest

from aioproduce.core.batching.buffer_pool import BufferLease, BufferPool, BufferWaiter, WaiterState
from aioproduce.errors import ProducerClosedError, RecordTooLargeError


def lease_of(pool: BufferPool, size: int) -> BufferLease:
    lease = pool.try_allocate(size)
    assert lease is not None
    return lease


class Caller:
    """One `send()` that waits: counts how often it was woken, and can look at the pool when it is."""

    def __init__(self, pool: BufferPool, size: int, woken: list[str] | None = None, name: str = "") -> None:
        self.pool = pool
        self.name = name
        self.woken = woken
        self.calls = 0
        self.waiter: BufferWaiter = pool.enqueue(size, self.notify)

    def notify(self) -> None:
        self.calls += 1
        if self.woken is not None:
            self.woken.append(self.name)

    def has_nothing(self) -> bool:
        return not self.waiter.is_granted

    def claim(self) -> BufferLease:
        return self.pool.claim(self.waiter)

    def abandon(self) -> None:
        self.pool.abandon(self.waiter)


def sums(pool: BufferPool) -> tuple[int, int, int]:
    assert pool.available + pool.reserved + pool.outstanding == pool.total
    return pool.available, pool.reserved, pool.outstanding


# ---- Java's scenarios ----------------------------------------------------------------------------------


def test_simple() -> None:
    total, size = 64 * 1024, 1024
    pool = BufferPool(total, size)
    lease = lease_of(pool, size)
    assert len(lease.buffer) == lease.size == size
    assert (pool.unallocated, pool.available) == (total - size, total - size)
    buffer = lease.buffer
    buffer[0] = 7
    lease.release()
    assert (pool.unallocated, pool.available) == (total - size, total)
    again = lease_of(pool, size)
    assert again.buffer is buffer
    again.release()
    assert (pool.unallocated, pool.available) == (total - size, total)
    odd = lease_of(pool, 2 * size)
    assert len(odd.buffer) == 2 * size
    odd.release()
    assert (pool.unallocated, pool.available) == (total - size, total)


def test_more_than_the_pool_is_refused_at_once() -> None:
    pool = BufferPool(1024, 512)
    lease = lease_of(pool, 1024)
    assert len(lease.buffer) == 1024
    for ask in (pool.try_allocate, lambda size: pool.enqueue(size, pytest.fail)):
        with pytest.raises(RecordTooLargeError) as caught:
            ask(1025)
        assert (caught.value.size, caught.value.limit) == (1025, 1024)
        assert caught.value.limited_by == "buffer.memory"
    assert pool.waiting == 0
    lease.release()
    assert sums(pool) == (1024, 0, 0)


def test_delayed_allocation() -> None:
    pool = BufferPool(5 * 1024, 1024)
    held = lease_of(pool, 1024)
    assert pool.try_allocate(5 * 1024) is None
    caller = Caller(pool, 5 * 1024)
    assert caller.has_nothing()
    assert pool.is_exhausted is True
    assert caller.calls == 0
    assert sums(pool) == (0, 4 * 1024, 1024)
    held.release()
    assert caller.calls == 1
    assert caller.waiter.is_granted
    assert pool.waiting == 0
    lease = caller.claim()
    assert len(lease.buffer) == 5 * 1024
    assert caller.waiter.gathered == 0
    assert sums(pool) == (0, 0, 5 * 1024)
    lease.release()
    assert sums(pool) == (5 * 1024, 0, 0)


def test_a_timed_out_waiter_is_cleaned_up() -> None:
    pool = BufferPool(2, 1)
    held = lease_of(pool, 1)
    caller = Caller(pool, 2)
    caller.abandon()
    assert pool.waiting == 0
    assert sums(pool) == (1, 0, 1)
    held.release()
    assert caller.calls == 0
    assert sums(pool) == (2, 0, 0)


def test_cancelled_waiters_leave_the_queue_and_the_next_is_served() -> None:
    pool = BufferPool(2, 1)
    held = lease_of(pool, 1)
    first, second, third = (Caller(pool, size) for size in (2, 2, 1))
    second.abandon()  # from the middle
    assert (pool.waiting, sums(pool)) == (2, (0, 1, 1))
    first.abandon()
    assert (first.calls, second.calls, third.calls) == (0, 0, 1)
    assert pool.waiting == 0
    third.claim().release()
    held.release()
    assert sums(pool) == (2, 0, 0)


class NotifyError(Exception):
    pass


def test_a_notify_that_raises_leaks_no_waiter() -> None:
    pool = BufferPool(2, 1)
    held = lease_of(pool, 2)

    def broken() -> None:
        raise NotifyError

    waiter = pool.enqueue(1, broken)
    next_one = Caller(pool, 2)
    with pytest.raises(NotifyError):
        held.release()
    assert waiter.state is WaiterState.ABANDONED
    assert (pool.waiting, next_one.calls) == (0, 1)
    next_one.claim().release()
    assert sums(pool) == (2, 0, 0)
    lease_of(pool, 1)


def test_several_notifies_that_raise_are_all_told() -> None:
    pool = BufferPool(2, 1)
    held = lease_of(pool, 2)

    def broken() -> None:
        raise NotifyError

    for _ in range(2):
        pool.enqueue(2, broken)
    with pytest.raises(BaseExceptionGroup) as caught:
        held.release()
    assert [type(error) for error in caught.value.exceptions] == [NotifyError, NotifyError]
    assert (pool.waiting, sums(pool)) == (0, (2, 0, 0))


def test_a_notify_that_claims_and_then_raises_keeps_its_lease() -> None:
    pool = BufferPool(2, 1)
    held = lease_of(pool, 2)
    leases: list[BufferLease] = []

    def claims() -> None:
        leases.append(pool.claim(waiter))
        raise NotifyError

    waiter = pool.enqueue(2, claims)
    with pytest.raises(NotifyError):
        held.release()
    assert sums(pool) == (0, 0, 2)
    leases[0].release()
    assert sums(pool) == (2, 0, 0)


def test_sizes_beyond_two_gib() -> None:
    pool = BufferPool(20_000_000_000, 2_000_000_000, allocate=lambda size: bytearray())
    leases = [lease_of(pool, 2_000_000_000) for _ in range(2)]
    assert pool.available == 16_000_000_000
    for lease in leases:
        lease.release()
    assert pool.available == 20_000_000_000


def test_failed_allocation_gives_the_bytes_back() -> None:
    def fail(size: int) -> bytearray:
        raise MemoryError

    pool = BufferPool(1024, 1024, allocate=fail)
    with pytest.raises(MemoryError):
        pool.try_allocate(1024)
    assert sums(pool) == (1024, 0, 0)


def test_failed_allocation_after_a_wait_serves_the_next() -> None:
    is_short = False

    def allocate(size: int) -> bytearray:
        if is_short:
            raise MemoryError
        return bytearray(size)

    pool = BufferPool(1000, 100, allocate=allocate)
    held = [lease_of(pool, 100) for _ in range(10)]
    large, next_one = Caller(pool, 700), Caller(pool, 400)
    for lease in held[:7]:
        lease.release()
    assert (large.calls, next_one.calls) == (1, 0)
    is_short = True
    with pytest.raises(MemoryError):
        large.claim()
    is_short = False
    assert next_one.calls == 1
    assert sums(pool) == (300, 400, 300)
    large.abandon()  # as a `finally` does
    next_one.claim().release()
    for lease in held[7:]:
        lease.release()
    assert sums(pool) == (1000, 0, 0)


def test_close_refuses_and_still_takes_back() -> None:
    pool = BufferPool(10, 1)
    lease = lease_of(pool, 1)
    pool.close()
    pool.close()
    assert pool.is_closed
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(1)
    with pytest.raises(ProducerClosedError):
        pool.enqueue(1, pytest.fail)
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(11)
    lease.release()
    assert sums(pool) == (10, 0, 0)
    assert pool.unallocated == 10  # a closed pool keeps no buffers


def test_what_is_written_off_is_out_no_more() -> None:
    pool = BufferPool(10, 5)
    held, pooled, granted_to = lease_of(pool, 5), lease_of(pool, 5), Caller(pool, 5)
    waiting = Caller(pool, 7)
    pooled.release()
    assert granted_to.waiter.is_granted
    pool.write_off()
    assert waiting.calls == 1
    assert granted_to.waiter.is_closed
    assert sums(pool) == (10, 0, 0)
    held.release()  # by its present owner
    assert sums(pool) == (10, 0, 0)
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(1)


def test_close_wakes_every_waiter() -> None:
    pool = BufferPool(10, 5)
    held = lease_of(pool, 5)
    pooled = lease_of(pool, 5)
    granted = Caller(pool, 5)
    pooled.release()
    waiting = [Caller(pool, 7) for _ in range(3)]
    assert granted.waiter.is_granted
    pool.close()
    assert pool.waiting == 0
    assert [caller.calls for caller in (granted, *waiting)] == [1, 1, 1, 1]
    for caller in (granted, *waiting):
        assert caller.waiter.is_closed
        with pytest.raises(ProducerClosedError):
            caller.claim()
        caller.abandon()
    assert sums(pool) == (5, 0, 5)
    held.release()
    assert sums(pool) == (10, 0, 0)


def test_close_wakes_all_though_one_notify_raises() -> None:
    pool = BufferPool(1, 1)
    lease_of(pool, 1)

    def broken() -> None:
        raise NotifyError

    pool.enqueue(1, broken)
    other = Caller(pool, 1)
    with pytest.raises(NotifyError):
        pool.close()
    assert other.calls == 1
    assert pool.waiting == 0


# ---- Order ---------------------------------------------------------------------------------------------


def test_a_notify_that_closes_the_pool_and_raises_tells_only_what_it_raised() -> None:
    pool = BufferPool(10, 1)

    def close_and_fail() -> None:
        pool.close()
        raise NotifyError

    with pytest.raises(NotifyError):
        pool.enqueue(3, close_and_fail)
    assert sums(pool) == (10, 0, 0)


def test_a_small_request_does_not_overtake_a_large_one() -> None:
    pool = BufferPool(1000, 100)
    held = [lease_of(pool, 100) for _ in range(10)]
    woken: list[str] = []
    large = Caller(pool, 500, woken, "large")
    small = Caller(pool, 100, woken, "small")
    for lease in held[:4]:
        lease.release()
        assert (large.waiter.is_granted, small.waiter.is_granted) == (False, False)
    assert (large.waiter.gathered, small.waiter.gathered) == (400, 0)
    held[4].release()
    assert woken == ["large"]
    held[5].release()
    assert woken == ["large", "small"]


def test_a_newcomer_does_not_overtake_one_who_was_granted() -> None:
    pool = BufferPool(10, 1)
    held = lease_of(pool, 10)
    granted = Caller(pool, 2)
    held.release()
    assert (granted.waiter.is_granted, pool.available) == (True, 8)
    assert pool.try_allocate(1) is None
    woken: list[str] = []
    newcomer = Caller(pool, 1, woken, "newcomer")
    assert (newcomer.waiter.is_granted, woken) == (True, ["newcomer"])
    granted.claim()
    assert pool.try_allocate(1) is None
    newcomer.claim()
    assert pool.try_allocate(1) is not None


def test_ten_thousand_waiters_are_served_in_order() -> None:
    pool = BufferPool(100, 1)
    held = [lease_of(pool, 1) for _ in range(100)]
    woken: list[str] = []
    callers = [Caller(pool, 1, woken, str(number)) for number in range(10_000)]
    assert pool.waiting == 10_000
    in_use = [*held]
    for caller in callers:
        in_use.pop().release()
        in_use.append(caller.claim())
    assert woken == [str(number) for number in range(10_000)]
    for lease in in_use:
        lease.release()
    assert sums(pool) == (100, 0, 0)


def test_one_large_release_serves_as_many_as_it_can() -> None:
    pool = BufferPool(10, 1)
    held = lease_of(pool, 10)
    woken: list[str] = []
    callers = [Caller(pool, size, woken, str(index)) for index, size in enumerate((4, 4, 4))]
    held.release()
    assert woken == ["0", "1"]
    assert [caller.waiter.gathered for caller in callers] == [4, 4, 2]


# ---- Accounting of waiters -----------------------------------------------------------------------------


def test_partial_gathering_then_a_whole_buffer() -> None:
    pool = BufferPool(250, 100)
    pooled = [lease_of(pool, 100), lease_of(pool, 100)]
    odd = lease_of(pool, 50)
    buffer = pooled[0].buffer
    caller = Caller(pool, 100)
    odd.release()
    assert (caller.waiter.gathered, sums(pool)) == (50, (0, 50, 200))
    pooled[0].release()
    assert (caller.calls, sums(pool)) == (1, (50, 100, 100))
    lease = caller.claim()
    assert lease.buffer is buffer  # reused, and what was gathered before was given back
    assert sums(pool) == (50, 0, 200)


def test_abandoning_a_partly_gathered_waiter_serves_the_next() -> None:
    pool = BufferPool(1000, 100)
    held = [lease_of(pool, 100) for _ in range(10)]
    large, small = Caller(pool, 900), Caller(pool, 300)
    for lease in held[:3]:
        lease.release()
    assert (large.waiter.gathered, small.calls) == (300, 0)
    large.abandon()
    assert (large.waiter.gathered, small.calls) == (0, 1)
    assert sums(pool) == (0, 300, 700)


def test_abandoning_twice_refunds_once() -> None:
    pool = BufferPool(10, 1)
    held = lease_of(pool, 6)
    caller = Caller(pool, 8)
    for _ in range(2):
        caller.abandon()
        assert sums(pool) == (4, 0, 6)
    with pytest.raises(RuntimeError):
        caller.claim()
    held.release()
    assert sums(pool) == (10, 0, 0)


def test_abandoning_after_the_grant_refunds_a_pooled_buffer_once() -> None:
    pool = BufferPool(200, 100)
    held = [lease_of(pool, 100), lease_of(pool, 100)]
    first, second = Caller(pool, 100), Caller(pool, 150)
    held[0].release()
    assert first.waiter.is_granted
    first.abandon()
    first.abandon()
    assert (second.waiter.gathered, sums(pool)) == (100, (0, 100, 100))
    held[1].release()
    second.claim().release()
    assert sums(pool) == (200, 0, 0)


def test_abandoning_after_the_claim_leaves_the_lease() -> None:
    pool = BufferPool(10, 1)
    caller = Caller(pool, 3)
    lease = caller.claim()
    caller.abandon()
    assert sums(pool) == (7, 0, 3)
    assert not lease.is_released
    assert len(lease.buffer) == 3


def test_claiming_what_was_not_granted_is_an_error() -> None:
    pool = BufferPool(10, 1)
    held = lease_of(pool, 10)
    caller = Caller(pool, 3)
    with pytest.raises(RuntimeError):
        caller.claim()
    held.release()
    caller.claim()
    with pytest.raises(RuntimeError):
        caller.claim()
    assert sums(pool) == (7, 0, 3)


def test_a_notify_may_call_the_pool() -> None:
    """Also deep: each notify claims and releases, which serves the next, without recursion."""
    pool = BufferPool(1, 1)
    held = lease_of(pool, 1)
    served: list[int] = []
    waiters: list[BufferWaiter] = []

    def take_and_return(number: int) -> None:
        served.append(number)
        pool.claim(waiters[number]).release()

    count = 5_000
    waiters.extend(pool.enqueue(1, partial(take_and_return, number)) for number in range(count))
    held.release()
    assert served == list(range(count))
    assert sums(pool) == (1, 0, 0)


# ---- Leases --------------------------------------------------------------------------------------------


def test_a_second_release_is_an_error() -> None:
    pool = BufferPool(10, 5)
    lease = lease_of(pool, 5)
    lease.release()
    assert lease.is_released
    with pytest.raises(RuntimeError):
        lease.release()
    assert sums(pool) == (10, 0, 0)


def test_a_late_write_does_not_reach_the_next_holder() -> None:
    pool = BufferPool(10, 5)
    lease = lease_of(pool, 5)
    lease.release()
    next_one = lease_of(pool, 5)
    next_one.buffer[:] = b"12345"
    lease.buffer[0:1] = b"X"
    assert next_one.buffer == b"12345"


def test_a_resized_buffer_is_charged_as_leased_and_not_reused() -> None:
    pool = BufferPool(10, 5)
    lease = lease_of(pool, 5)
    lease.buffer.extend(b"more")
    lease.release()
    assert (pool.available, pool.unallocated) == (10, 10)


def test_pooled_buffers_are_broken_up_for_other_sizes() -> None:
    pool = BufferPool(100, 10)
    for lease in [lease_of(pool, 10) for _ in range(10)]:
        lease.release()
    assert (pool.unallocated, pool.available) == (0, 100)
    odd = lease_of(pool, 15)
    assert (pool.unallocated, pool.available) == (5, 85)
    assert pool.try_allocate(86) is None
    assert (pool.unallocated, pool.available) == (5, 85)  # nothing was broken up in vain
    odd.release()
    assert pool.available == 100
    # As many as are needed, and no more: 20 are unallocated already, and one buffer makes 30.
    odd = lease_of(pool, 30)
    assert (pool.unallocated, pool.available) == (0, 70)
    odd.release()


def test_without_a_poolable_size_nothing_is_kept() -> None:
    pool = BufferPool(10, 0)
    lease_of(pool, 5).release()
    assert (pool.unallocated, pool.available) == (10, 10)


@pytest.mark.parametrize("size", [0, -1])
def test_a_request_for_nothing_is_refused(size: int) -> None:
    pool = BufferPool(10, 1)
    with pytest.raises(ValueError, match="at least 1 byte"):
        pool.try_allocate(size)
    with pytest.raises(ValueError, match="at least 1 byte"):
        pool.enqueue(size, pytest.fail)


@pytest.mark.parametrize(("total", "poolable"), [(-1, 1), (1, -1)])
def test_negative_sizes_are_refused(total: int, poolable: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        BufferPool(total, poolable)


def test_a_pool_of_nothing_refuses_every_record() -> None:
    """Kafka takes a `buffer.memory` of 0: ConfigDef has it at least 0."""
    pool = BufferPool(0, 0)
    with pytest.raises(RecordTooLargeError) as caught:
        pool.try_allocate(1)
    assert (caught.value.size, caught.value.limit) == (1, 0)
    assert sums(pool) == (0, 0, 0)


def test_ten_requests_fit_the_eleventh_waits() -> None:
    """The textbook case: ten times 1 MB of a 10 MB pool."""
    size = 1_000_000
    pool = BufferPool(10 * size, size)
    leases = [lease_of(pool, size) for _ in range(10)]
    assert pool.try_allocate(size) is None
    eleventh = Caller(pool, size)
    leases[0].release()
    assert len(eleventh.claim().buffer) == size
    assert sums(pool) == (0, 0, 10 * size)
