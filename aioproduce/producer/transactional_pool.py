"""Several transactions at a time: a pool of producers, each with a transactional id of its own.

A producer has one open transaction at a time. The pool gives each of several independent transactions its own
producer. If records may commit and abort together, `Producer.group_commit()` is faster and cheaper.

Invariants:

1. A producer is lent to one transaction at a time. Waiting tasks get one in the order of their calls.
2. A failed producer is closed and replaced before it is lent again. A transaction that its last borrower left open
   is aborted first. If that fails, its place is still free, and the next borrower tries again.
3. However the opening or the closing ends, no producer stays open.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce.config import ProducerConfig, configured
from aioproduce.config.secret import hides_arguments
from aioproduce.errors import MaxBlockTimeoutError, ProducerStateError
from aioproduce.producer.producer import Producer
from aioproduce.producer.producer_states import ProducerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from aioproduce.config.settings import ProducerSettings
    from aioproduce.core.transactions.transaction_manager import TransactionManager
    from aioproduce.drivers.base import Waiter
    from aioproduce.producer.transactions import Transaction

_CLOSED: Final = "the pool was closed"
_NOT_OPEN: Final = "the pool is not open: use it as a context, `async with TransactionalPool(...) as pool:`"


@final
class _Place:
    """A place in the queue for a producer."""

    __slots__ = ("number", "waiter")

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.number: int | None = None


@final
class TransactionalPool:
    """Lends producers, one to each transaction.

    Args:
        bootstrap_servers: As in `Producer`.
        transactional_id_prefix: The ids are this, a hyphen, and 0 to `size` - 1. Each process needs its own prefix.
        size: Number of transactions that can be open at a time.
        **settings: As in `Producer`. Each producer has a `buffer.memory` of its own.

    Raises:
        ValueError: if `size` is less than 1.
        ConfigError: as in `Producer`.

    Example:
        >>> async def main():
        ...     async with TransactionalPool("localhost:9092", transactional_id_prefix="orders", size=4) as pool:
        ...         async with pool.transaction() as txn:
        ...             await txn.send("orders", b"42")
    """

    __slots__ = ("_configs", "_free", "_is_open", "_producers", "_waiting")

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None = None,
        *,
        transactional_id_prefix: str,
        size: int,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        if size < 1:
            raise ValueError(f"size is {size!r}: give 1 or more")
        self._configs: list[ProducerConfig] = [
            configured(
                bootstrap_servers, {**settings, "transactional_id": f"{transactional_id_prefix}-{number}"}
            )
            for number in range(size)
        ]
        self._producers: list[Producer[Any, Any]] = []
        self._free: deque[int] = deque()
        self._waiting: deque[_Place] = deque()
        self._is_open = False

    @property
    def free(self) -> int:
        """Number of producers that are not lent."""
        return len(self._free)

    async def __aenter__(self) -> Self:
        """Start the producers, one after the other; after a failure, the call can be repeated.

        Raises:
            ProducerStateError: if the pool was opened before.
            TransactionError: as in `Producer.start()`.
        """
        if self._producers:
            raise ProducerStateError("a pool is opened once: make another one")
        try:
            for config in self._configs:
                self._producers.append(Producer(config))
                await self._producers[-1].start()
        except BaseException:
            try:
                await self._close()
            finally:
                self._producers.clear()
            raise
        self._free.extend(range(len(self._producers)))
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the producers; abort transactions that are still open."""
        self._is_open = False
        for place in self._waiting:
            place.waiter.notify()
        await self._close()

    async def _close(self) -> None:
        failure: BaseException | None = None
        for producer in list(self._producers):
            try:
                await producer.close()
            except (
                BaseException
            ) as error:  # e.g. a cancellation: that close gave up, and the others must not stay open
                failure = failure or error
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction[Any, Any]]:
        """Run a transaction of a free producer; wait for one for at most `max.block.ms`.

        Raises:
            MaxBlockTimeoutError: if no producer became free in time.
            TransactionError: as in `Producer.transaction()`.
            ProducerStateError: if the pool is not open.
        """
        number = await self._take()
        try:
            producer = await self._usable(number)
            async with producer.transaction() as transaction:
                yield transaction
        finally:
            self._release(number)

    async def _take(self) -> int:
        if not self._is_open:
            raise ProducerStateError(_NOT_OPEN)
        if self._free:
            return self._free.popleft()
        driver, max_block = self._producers[0]._life.driver, self._configs[0].max_block
        place = _Place(driver.make_waiter())
        began = driver.now()
        self._waiting.append(place)
        try:
            await place.waiter.wait(began + max_block)
        except BaseException:
            if place.number is not None:
                self._release(place.number)
            raise
        finally:
            if place.number is None:
                self._waiting.remove(place)
        if place.number is not None:
            return place.number
        if not self._is_open:
            raise ProducerStateError(_CLOSED)
        raise MaxBlockTimeoutError(
            f"none of {len(self._producers)} producers became free within max.block.ms ({max_block:g} s): make the "
            "pool larger, or the transactions shorter",
            waited=driver.now() - began,
        )

    def _release(self, number: int) -> None:
        if self._waiting and self._is_open:
            place = self._waiting.popleft()
            place.number = number
            place.waiter.notify()
        else:
            self._free.append(number)

    async def _usable(self, number: int) -> Producer[Any, Any]:
        """Return the producer of that number, ready for another transaction."""
        producer = self._producers[number]
        if producer._life.state is not ProducerState.RUNNING or _manager_of(producer).error is not None:
            await producer.close()
            self._check_open()  # if the pool was closed during the await, nobody would close a new producer
            producer = self._producers[number] = Producer(self._configs[number])
            await producer.start()
        elif _manager_of(producer).wants_init:
            await producer.init_transactions()
        elif _manager_of(producer).can_abort:
            await producer.abort_transaction()
        return producer

    def _check_open(self) -> None:
        if not self._is_open:
            raise ProducerStateError(_CLOSED)


def _manager_of(producer: Producer[Any, Any]) -> TransactionManager:
    assert producer._transactions is not None
    return producer._transactions.manager
