"""The bound on memory: every byte that an accepted record may occupy is leased from one BufferPool.

Called by the RecordAccumulator when it opens a batch, by the Sender when a batch's memory is free again, and
by the driver for a `send()` that has to wait. It never waits itself: a caller who cannot be served at once
joins a queue with a `notify` callable, and how to sleep until that is called is the driver's business.

Prior art is Java's BufferPool, which hands a waiting thread its share when that thread next runs. Here memory
is assigned to the longest waiter at the moment it comes free, so that a waiter which is slow to wake, or
which never wakes because it was cancelled, can neither lose its turn nor hold up the accounting.

Invariants:

1. `available + reserved + outstanding == total`, always; each of them is at least 0.
2. First come, first served: memory that comes free goes to the longest waiter until it has enough, also when
   a smaller request behind it could be served first. Only the first in the queue gathers.
3. While somebody waits nothing is available; a newcomer is never served ahead of one who waits, nor of one
   whose memory was granted and who has not claimed it yet (his record was sent first).
4. A lease is given back exactly once. After that it refers to no pool memory: its buffer may be another's.
5. A waiter leaves no trace: claimed, abandoned or closed, in whatever state that found it, all that it had
   gathered goes to the next, exactly once.
6. `notify` is called at most once per waiter, and exactly once unless the waiter is abandoned first. One that
   raises costs only its own waiter its turn; the error goes on to whoever's call woke it.
7. After `write_off()` nothing is out, whatever its holders still do.
8. Each call costs O(1), plus O(1) per waiter it grants and per pooled buffer it breaks up, each of which was
   paid for by one earlier call. Nothing scans the queue but `close()`.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from aioproduce.core.state_table import StateTable
from aioproduce.errors import ProducerClosedError, RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferLease", "BufferPool", "BufferWaiter", "WaiterState"]


class WaiterState(Enum):
    """What became of one request that could not be served at once."""

    WAITING = auto()
    """In the queue; may have gathered a part of what it needs."""
    GRANTED = auto()
    """All its bytes are set aside for it; it has yet to claim them."""
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


@final
class BufferLease:
    """Memory that belongs to its holder until `release()`.

    Attributes:
        buffer: The memory, `size` bytes whose contents are undefined (pooled buffers are not wiped). Empty
            after `release()`, so that late writes through the lease cannot reach the next holder.
        size: Bytes charged to the pool, whatever becomes of the buffer's length.
    """

    __slots__ = ("_pool", "buffer", "size")

    def __init__(self, pool: BufferPool, buffer: bytearray, size: int) -> None:
        self._pool: BufferPool | None = pool
        self.buffer: bytearray = buffer
        self.size: int = size

    @property
    def is_released(self) -> bool:
        """Whether the memory was given back."""
        return self._pool is None

    def release(self) -> None:
        """Gives the memory back and serves those who wait for it.

        Raises:
            RuntimeError: It was given back before: two owners believed that it was theirs.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError(f"This lease of {self.size} bytes was already released")
        buffer = self.buffer
        self._pool = None
        self.buffer = bytearray()
        pool._take_back(buffer, self.size)


@final
class BufferWaiter:
    """One place in the queue, to be claimed when granted or to be abandoned.

    Attributes:
        size: Bytes asked for.
        state: Where it stands.
        gathered: Bytes set aside for it so far; all of `size` once granted, 0 once it is over.
    """

    __slots__ = ("_buffer", "_notify", "gathered", "size", "state")

    def __init__(self, size: int, notify: Callable[[], None]) -> None:
        self.size: int = size
        self.state: WaiterState = WaiterState.WAITING
        self.gathered: int = 0
        self._buffer: bytearray | None = None  # a pooled buffer set aside whole; then gathered == size
        self._notify: Callable[[], None] | None = notify

    @property
    def is_granted(self) -> bool:
        """Whether `claim()` would hand out a lease."""
        return self.state is WaiterState.GRANTED

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed before this waiter claimed."""
        return self.state is WaiterState.CLOSED

    def _move(self, event: _Event) -> None:
        self.state = WAITER_STATES.after(self.state, event)


@final
class OwnMemory:
    """A lease of memory that is nobody else's.

    Marks of an audited producer lie in it: at close the pool is shut already, and a full pool must not delay them.
    """

    __slots__ = ("buffer",)

    def __init__(self, size: int) -> None:
        self.buffer: bytearray = bytearray(size)

    def release(self) -> None:
        """Give it back."""
        self.buffer = bytearray()


@final
class BufferPool:
    """Hands out at most `total` bytes, fairly, and reuses buffers of the usual size.

    Args:
        total: Bytes that may be out at once (`buffer.memory`).
        poolable_size: The size whose buffers are kept for reuse (`batch.size`); others are made and dropped.
            0 keeps none.
        allocate: Makes a buffer of so many bytes; tests let it fail.

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
        # Last in, first out: the buffer that was used last is the likeliest to be in the processor's cache.
        self._free: list[bytearray] = []
        self._reserved = 0
        # OrderedDict and not dict: to find the first of a dict whose front was deleted scans what is gone.
        self._waiters: OrderedDict[BufferWaiter, None] = OrderedDict()
        self._granted: set[BufferWaiter] = set()
        self._is_closed = False
        self._is_serving = False
        self._is_written_off = False

    @property
    def available(self) -> int:
        """Bytes that nobody holds: never allocated, or kept for reuse."""
        return self._unallocated + len(self._free) * self.poolable_size

    @property
    def unallocated(self) -> int:
        """The part of `available` that is not kept for reuse."""
        return self._unallocated

    @property
    def reserved(self) -> int:
        """Bytes set aside for waiters: gathered in part, or granted and not claimed yet."""
        return self._reserved

    @property
    def outstanding(self) -> int:
        """Bytes that are leased out."""
        return self.total - self.available - self._reserved

    @property
    def waiting(self) -> int:
        """How many wait; one whose memory was granted does not."""
        return len(self._waiters)

    @property
    def is_exhausted(self) -> bool:
        """Whether someone waits: what makes every open batch ready to be sent."""
        return bool(self._waiters)

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called."""
        return self._is_closed

    def try_allocate(self, size: int) -> BufferLease | None:
        """Leases memory if that is possible without waiting and without overtaking anyone.

        Args:
            size: Bytes wanted, at least 1.

        Returns:
            The lease, or `None`: `enqueue()` then.

        Raises:
            RecordTooLargeError: More than the whole pool; waiting would not help.
            ProducerClosedError: The pool is closed.
            MemoryError: The machine has no memory; nothing stays charged.
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
        """Joins the queue behind all who wait already.

        Args:
            size: Bytes wanted, at least 1.
            notify: Called when the memory was granted or the pool closed, maybe before this returns. It shall
                only wake whoever waits; he looks at `is_granted` and claims.

        Returns:
            The place in the queue; end it with `claim()` or `abandon()`.

        Raises:
            RecordTooLargeError: More than the whole pool.
            ProducerClosedError: The pool is closed.
        """
        if self._is_closed or not 0 < size <= self.total:
            self._refuse(size)
        waiter = BufferWaiter(size, notify)
        self._waiters[waiter] = None
        self._serve()
        return waiter

    def claim(self, waiter: BufferWaiter) -> BufferLease:
        """Turns what was granted into a lease.

        Raises:
            ProducerClosedError: The pool was closed; nothing is held.
            MemoryError: The machine has no memory; the bytes went to the next waiter.
            RuntimeError: Nothing was granted, or the waiter was claimed or abandoned before.
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
        """Gives up a place in the queue after a time-out or a cancellation, in whatever state it is.

        What it had gathered or been granted goes to the next. Without effect when it is over already, so that
        it can stand in a `finally` around `claim()`: a lease that was claimed stays with its holder.
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
        """Refuses all requests from now on and wakes everyone who waits. Leases can still be released.

        Raises:
            BaseException: What `notify` raised, after everybody was woken.
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
        """Close, and expect nothing back: those who hold the leases died, and what they held goes with them.

        Raises:
            BaseException: As `close()`.
        """
        self._is_written_off = True
        try:
            self.close()
        finally:
            self._unallocated = self.total

    def _take_back(self, buffer: bytearray, size: int) -> None:
        """Ends a lease. Called by `BufferLease.release()` only, once per lease."""
        if self._is_written_off:
            return
        # A holder may have resized its buffer; what is charged is the lease's size all the same.
        if size == self.poolable_size == len(buffer) and not self._is_closed:
            self._free.append(buffer)
        else:
            self._unallocated += size
        if self._waiters:
            self._serve()

    def _serve(self) -> None:
        """Grants what there is to the longest waiters, in order, and wakes those who have all they need."""
        if self._is_serving:
            return  # called from a notify: the loop below, further up the stack, goes on with what changed
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
                        # Nobody may ever come for it; had its owner been woken, he would see it abandoned.
                        self._granted.remove(waiter)
                        waiter._move("abandoned")
                        self._refund(waiter)
        finally:
            self._is_serving = False
        _raise_all(errors)

    def _gather(self, waiter: BufferWaiter) -> bool:
        """Sets aside all that is available for the waiter, up to its size; tells whether that is enough."""
        if waiter.size == self.poolable_size and self._free:
            buffer = self._free.pop()
            self._refund(waiter)  # the part it had, if any: a whole buffer is better than a new one
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
        """Takes back all that was set aside for a waiter."""
        self._reserved -= waiter.gathered
        if waiter._buffer is not None:
            self._free.append(waiter._buffer)
            waiter._buffer = None
        else:
            self._unallocated += waiter.gathered
        waiter.gathered = 0

    def _free_up(self, size: int) -> None:
        """Breaks up pooled buffers until `size` bytes are unallocated, or none is left."""
        free = self._free
        while free and self._unallocated < size:
            free.pop()
            self._unallocated += self.poolable_size

    def _make_lease(self, size: int) -> BufferLease:
        """Makes the buffer for bytes that were deducted already; gives them to the next if that fails."""
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
            raise ValueError(f"At least 1 byte must be asked for, not {size}")
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
    """Calls the waiter's `notify`, the one time; returns what it raised."""
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
    """Raises what was collected while the work went on."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("Several buffer waiters could not be woken", errors)
