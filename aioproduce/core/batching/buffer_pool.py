"""The bound on memory: one BufferPool leases every byte that an accepted record may occupy.

Called by the RecordAccumulator when it opens a batch, by the Sender when a batch's memory is free again, and
by the driver for a `send()` that has to wait. The pool itself never waits: a caller that cannot be served at once
joins a queue with a `notify` callable. The driver decides how to sleep until the pool calls it.

Java's BufferPool gives a waiting thread its memory when that thread next runs. This pool assigns memory
to the longest waiter as soon as the memory is free. So a waiter that wakes late cannot lose its turn, and one
that never wakes because it was cancelled cannot block the accounting.

Invariants:

1. `available + reserved + outstanding == total`, always; each of them is at least 0.
2. First come, first served: free memory goes to the longest waiter until it has enough, even if a smaller
   request behind it could be served first. Only the first in the queue gathers.
3. While a request waits, nothing is available. A new request is never served before a waiter, nor before a
   waiter that has not claimed its granted memory yet (its record was sent first).
4. A lease is released exactly once. After that it refers to no pool memory: its buffer may have a new holder.
5. A waiter leaves no trace: when it is abandoned or closed, in whatever state, all that it had gathered goes to
   the next, exactly once. When it claims, all of it becomes the lease.
6. `notify` is called at most once per waiter, and exactly once unless the waiter is abandoned first. If it
   raises, only its own waiter loses its turn; the error goes to the caller whose call woke it.
7. After `write_off()` nothing is outstanding, whatever the holders of leases still do.
8. Each call costs O(1), plus O(1) per waiter that it grants and per pooled buffer that it breaks up; one earlier
   call paid for each of these. Only `close()` scans the queue.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproduce.core.state_table import StateTable
from aioproduce.errors import ProducerClosedError, RecordTooLargeError

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferLease", "BufferPool", "BufferWaiter", "WaiterState"]


class WaiterState(Enum):
    """The state of one request that could not be served at once."""

    WAITING = auto()
    """It is in the queue, and may have gathered a part of what it needs."""
    GRANTED = auto()
    """All its bytes are reserved for it; it has not claimed them yet."""
    CLAIMED = auto()
    """It has its lease, or its allocation failed. Final."""
    ABANDONED = auto()
    """It timed out or was cancelled. Final."""
    CLOSED = auto()
    """The pool was closed before it claimed. Final."""


_Event: TypeAlias = Literal["granted", "claimed", "abandoned", "pool closed"]

WAITER_STATES: Final[StateTable[WaiterState, _Event]] = StateTable(
    "the buffer waiter",
    {
        WaiterState.WAITING: {
            "granted": WaiterState.GRANTED,
            "abandoned": WaiterState.ABANDONED,
            "pool closed": WaiterState.CLOSED,
        },
        WaiterState.GRANTED: {
            "claimed": WaiterState.CLAIMED,
            "abandoned": WaiterState.ABANDONED,
            "pool closed": WaiterState.CLOSED,
        },
        WaiterState.CLAIMED: {},
        WaiterState.ABANDONED: {},
        WaiterState.CLOSED: {},
    },
)


@cython.freelist(16384)
@cython.cclass
class BufferLease:
    """Memory that belongs to its holder until `release()`.

    Attributes:
        buffer: The memory, `size` bytes with undefined contents (pooled buffers are not wiped). Empty
            after `release()`, so that late writes through the lease cannot reach the next holder.
        size: Bytes charged to the pool, even if the holder resizes the buffer.
    """

    __slots__ = ("_pool", "buffer", "size")

    def __init__(self, pool: BufferPool, buffer: bytearray, size: int) -> None:
        self._pool: BufferPool | None = pool
        self.buffer: bytearray = buffer
        self.size: int = size

    @property
    def is_released(self) -> bool:
        """Whether the memory was released."""
        return self._pool is None

    def release(self) -> None:
        """Return the memory to the pool and serve the requests that wait for it.

        Raises:
            RuntimeError: if it was released before: two owners held the same lease.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError(f"This lease of {self.size} bytes was already released")
        buffer = self.buffer
        self._pool = None
        self.buffer = bytearray()
        pool._take_back(buffer, self.size)


class BufferWaiter:
    """One place in the queue. Its owner claims it once it is granted, or abandons it.

    Attributes:
        size: Bytes requested.
        state: See `WaiterState`.
        gathered: Bytes reserved for it so far; all of `size` once granted, 0 in a final state.
    """

    __slots__ = ("_buffer", "_notify", "gathered", "size", "state")

    def __init__(self, size: int, notify: Callable[[], None]) -> None:
        self.size: int = size
        self.state: WaiterState = WaiterState.WAITING
        self.gathered: int = 0
        self._buffer: bytearray | None = None  # a whole pooled buffer; then gathered == size
        self._notify: Callable[[], None] | None = notify

    @property
    def is_granted(self) -> bool:
        """Whether `claim()` would return a lease."""
        return self.state is WaiterState.GRANTED

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed before this waiter claimed."""
        return self.state is WaiterState.CLOSED

    def _move(self, event: _Event) -> None:
        self.state = WAITER_STATES.after(self.state, event)


class OwnMemory:
    """A lease of memory outside the pool.

    Marks of an audited producer use it: the last one is sent after the pool is closed, and a full pool must not
    delay any.
    """

    __slots__ = ("buffer",)

    def __init__(self, size: int) -> None:
        self.buffer: bytearray = bytearray(size)

    def release(self) -> None:
        """Free the memory."""
        self.buffer = bytearray()


class BufferPool:
    """A pool that leases at most `total` bytes, fairly, and reuses buffers of the usual size.

    Args:
        total: Bytes that may be leased at once (`buffer.memory`).
        poolable_size: The size of buffers that are kept for reuse (`batch.size`); others are made and dropped.
            0 keeps none.
        allocate: Makes a buffer of a given size in bytes; tests let it fail.

    Example:
        >>> pool = BufferPool(1024, 256)
        >>> lease = pool.try_allocate(256)
        >>> (len(lease.buffer), pool.available, pool.outstanding)
        (256, 768, 256)
        >>> lease.release()
        >>> pool.available
        1024
    """

    __slots__ = (
        "_allocate",
        "_free",
        "_granted",
        "_is_closed",
        "_is_serving",
        "_is_written_off",
        "_reserved",
        "_unallocated",
        "_waiters",
        "poolable_size",
        "total",
    )

    def __init__(
        self, total: int, poolable_size: int, *, allocate: Callable[[int], bytearray] = bytearray
    ) -> None:
        if total < 0 or poolable_size < 0:
            raise ValueError(f"Sizes cannot be negative: total={total}, poolable_size={poolable_size}")
        self.total: Final = total
        self.poolable_size: Final = poolable_size
        self._allocate = allocate
        self._unallocated = total
        # Last in, first out: the buffer that was used last is the most likely to be in the processor's cache.
        self._free: list[bytearray] = []
        self._reserved = 0
        # Not a dict: finding the first entry of a dict scans all entries that were deleted before it.
        self._waiters: OrderedDict[BufferWaiter, None] = OrderedDict()
        self._granted: set[BufferWaiter] = set()
        self._is_closed = False
        self._is_serving = False
        self._is_written_off = False

    @property
    def available(self) -> int:
        """Bytes that are free: never allocated, or kept for reuse."""
        return self._unallocated + len(self._free) * self.poolable_size

    @property
    def unallocated(self) -> int:
        """The part of `available` that is not kept for reuse."""
        return self._unallocated

    @property
    def reserved(self) -> int:
        """Bytes reserved for waiters: gathered in part, or granted and not claimed yet."""
        return self._reserved

    @property
    def outstanding(self) -> int:
        """Bytes that are leased."""
        return self.total - self.available - self._reserved

    @property
    def waiting(self) -> int:
        """How many requests wait; a granted one does not."""
        return len(self._waiters)

    @property
    def is_exhausted(self) -> bool:
        """Whether a request waits: then every open batch is ready to be sent."""
        return bool(self._waiters)

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called."""
        return self._is_closed

    def try_allocate(self, size: int) -> BufferLease | None:
        """Lease memory if that is possible without waiting and without overtaking a waiter.

        Args:
            size: Bytes wanted, at least 1.

        Returns:
            The lease, or `None`: then call `enqueue()`.

        Raises:
            RecordTooLargeError: if `size` exceeds the whole pool; waiting would not help.
            ProducerClosedError: if the pool is closed.
            MemoryError: if the machine has no memory; nothing stays charged.
        """
        if self._is_closed or not 0 < size <= self.total:
            self._refuse(size)
        if self._waiters or self._granted:
            return None
        if size == self.poolable_size and self._free:
            return BufferLease(self, self._free.pop(), size)
        if self._unallocated < size:
            if self.available < size:
                return None
            self._free_up(size)
        self._unallocated -= size
        return self._make_lease(size)

    def enqueue(self, size: int, notify: Callable[[], None]) -> BufferWaiter:
        """Join the queue behind all waiters.

        Args:
            size: Bytes wanted, at least 1.
            notify: Called when the memory was granted or the pool closed, maybe before this returns. It must
                only wake the waiting caller, which then checks `is_granted` and claims.

        Returns:
            The place in the queue; end it with `claim()` or `abandon()`.

        Raises:
            RecordTooLargeError: if `size` exceeds the whole pool.
            ProducerClosedError: if the pool is closed.
        """
        if self._is_closed or not 0 < size <= self.total:
            self._refuse(size)
        waiter = BufferWaiter(size, notify)
        self._waiters[waiter] = None
        self._serve()
        return waiter

    def claim(self, waiter: BufferWaiter) -> BufferLease:
        """Turn the granted memory into a lease.

        Raises:
            ProducerClosedError: if the pool was closed; nothing is held.
            MemoryError: if the machine has no memory; the bytes went to the next waiter.
            RuntimeError: if nothing was granted, or the waiter was claimed or abandoned before.
        """
        if waiter.state is WaiterState.CLOSED:
            raise self._closed_error()
        waiter._move("claimed")
        self._granted.remove(waiter)
        buffer = waiter._buffer
        size = waiter.size
        self._reserved -= size
        waiter.gathered = 0
        waiter._buffer = None
        if buffer is not None:
            return BufferLease(self, buffer, size)
        return self._make_lease(size)

    def abandon(self, waiter: BufferWaiter) -> None:
        """Give up a place in the queue after a time-out or a cancellation, in whatever state it is.

        The memory that it had gathered or been granted goes to the next waiter. A waiter in a final state does not
        change, so this can stand in a `finally` around `claim()`: a claimed lease stays with its holder.
        """
        if waiter.state is WaiterState.WAITING:
            del self._waiters[waiter]
        elif waiter.state is WaiterState.GRANTED:
            self._granted.remove(waiter)
        else:
            return
        waiter._move("abandoned")
        waiter._notify = None
        self._refund(waiter)
        self._serve()

    def close(self) -> None:
        """Refuse all requests from now on, and wake all waiters. Leases can still be released.

        Raises:
            BaseException: if `notify` raised it; all waiters were woken first.
        """
        if self._is_closed:
            return
        self._is_closed = True
        woken = list(self._waiters)
        for waiter in (*woken, *self._granted):
            waiter._move("pool closed")
            self._refund(waiter)
        self._waiters.clear()
        self._granted.clear()
        self._unallocated += len(self._free) * self.poolable_size
        self._free.clear()
        _raise_all([error for waiter in woken if (error := _notify(waiter)) is not None])

    def write_off(self) -> None:
        """Close, and expect no lease to be released: the holders died, and their memory is dropped with them.

        Raises:
            BaseException: as `close()`.
        """
        self._is_written_off = True
        try:
            self.close()
        finally:
            self._unallocated = self.total

    def _take_back(self, buffer: bytearray, size: int) -> None:
        """End a lease. Only `BufferLease.release()` calls this, once per lease."""
        if self._is_written_off:
            return
        # A holder may have resized its buffer; the lease's size is charged all the same.
        if size == self.poolable_size == len(buffer) and not self._is_closed:
            self._free.append(buffer)
        else:
            self._unallocated += size
        if self._waiters:
            self._serve()

    def _serve(self) -> None:
        """Grant free memory to the longest waiters, in order, and wake those that have all they need."""
        if self._is_serving:
            return  # called from a notify: the loop below, further up the stack, handles the change
        self._is_serving = True
        errors: list[BaseException] = []
        try:
            while self._waiters:
                waiter = next(iter(self._waiters))
                if not self._gather(waiter):
                    break
                del self._waiters[waiter]
                waiter._move("granted")
                self._granted.add(waiter)
                error = _notify(waiter)
                if error is not None:
                    errors.append(error)
                    if waiter in self._granted:
                        # Its owner may never claim it. An owner that was woken all the same sees it abandoned.
                        self._granted.remove(waiter)
                        waiter._move("abandoned")
                        self._refund(waiter)
        finally:
            self._is_serving = False
        _raise_all(errors)

    def _gather(self, waiter: BufferWaiter) -> bool:
        """Reserve all that is available for the waiter, up to its size; return whether that is enough."""
        if waiter.size == self.poolable_size and self._free:
            buffer = self._free.pop()
            self._refund(waiter)  # the part that it had, if any: a pooled buffer is better than a new one
            waiter._buffer = buffer
            got = waiter.size
        else:
            missing = waiter.size - waiter.gathered
            self._free_up(missing)
            got = min(missing, self._unallocated)
            self._unallocated -= got
        waiter.gathered += got
        self._reserved += got
        return waiter.gathered == waiter.size

    def _refund(self, waiter: BufferWaiter) -> None:
        """Free all that was reserved for a waiter."""
        self._reserved -= waiter.gathered
        if waiter._buffer is not None:
            self._free.append(waiter._buffer)
            waiter._buffer = None
        else:
            self._unallocated += waiter.gathered
        waiter.gathered = 0

    def _free_up(self, size: int) -> None:
        """Break up pooled buffers until `size` bytes are unallocated, or no buffer is left."""
        free = self._free
        while free and self._unallocated < size:
            free.pop()
            self._unallocated += self.poolable_size

    def _make_lease(self, size: int) -> BufferLease:
        """Make the buffer for bytes that were deducted already; if that fails, the next waiter gets the bytes."""
        try:
            buffer = self._allocate(size)
        except BaseException:
            self._unallocated += size
            self._serve()
            raise
        return BufferLease(self, buffer, size)

    def _refuse(self, size: int) -> None:
        if self._is_closed:
            raise self._closed_error()
        if size <= 0:
            raise ValueError(f"The size must be at least 1 byte, not {size}")
        raise RecordTooLargeError(
            f"the record needs {size} bytes, more than buffer.memory={self.total}: raise buffer.memory, or send a "
            "smaller record",
            size=size,
            limit=self.total,
            limited_by="buffer.memory",
        )

    @staticmethod
    def _closed_error() -> ProducerClosedError:
        return ProducerClosedError(
            "the producer is closed, and nothing was queued: make a new one to send again"
        )


def _notify(waiter: BufferWaiter) -> BaseException | None:
    """Call the waiter's `notify`, once; return what it raised."""
    notify = waiter._notify
    waiter._notify = None
    if notify is None:
        return None
    try:
        notify()
    except BaseException as error:
        return error
    return None


def _raise_all(errors: list[BaseException]) -> None:
    """Raise the errors that were collected while the work went on."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("Several buffer waiters could not be woken", errors)
