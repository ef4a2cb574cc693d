"""A transaction whose records are in the log, and whose end is left to whoever has its identity.

Given by `Transaction.prepare()`; kept in a file or sent to another process as bytes, and ended there. Kafka's own
participation in two-phase commit (KIP-939) is not to be had from brokers yet; EndTxn by another process is, from
every broker.

Invariants:

1. One rule is the user's: until the end nobody initialises a producer of the same `transactional.id`, which would
   abort it.
2. The same verdict again is answered alike, so a process that died while it ended one asks again.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Self, final

from aioproduce.config import ProducerConfig, configured
from aioproduce.core.batching.producer_batch import ProducerIdAndEpoch
from aioproduce.errors import TransactionOutcome
from aioproduce.producer.life import ProducerLife
from aioproduce.producer.operations import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Unpack

    from aioproduce.config.settings import ProducerSettings
    from aioproduce.core.transactions.transaction_manager import TransactionManager


@final
@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """What identifies it.

    Args:
        transactional_id: Kafka's `transactional.id`.
        producer_id: The producer's id.
        producer_epoch: The epoch that it was sent with.
        transaction_version: 1, or 2 (KIP-890), in which it was begun and is ended.
        is_empty: Whether nothing was sent: there is nothing to be ended.

    Example:
        >>> prepared = PreparedTransaction("orders-1", 4000, 7, 2)
        >>> PreparedTransaction.from_bytes(prepared.to_bytes()) == prepared
        True
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    is_empty: bool = False

    def to_bytes(self) -> bytes:
        """For a file or another process: JSON in UTF-8."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes()` gave.

        Raises:
            ValueError: The bytes are something else.
        """
        try:
            found = cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise ValueError(
                "these bytes are not a prepared transaction: give those that to_bytes() returned"
            ) from error
        fields = (found.producer_id, found.producer_epoch, found.transaction_version)
        if not isinstance(found.transactional_id, str) or not all(type(field) is int for field in fields):
            raise ValueError("these bytes are not a prepared transaction: a field has the wrong type")
        return found

    async def commit(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Make all of it visible; waits for at most `max.block.ms`.

        Args:
            bootstrap_servers: As the Producer's; also a configuration.
            **settings: Likewise.

        Raises:
            TransactionTimedOutError: `transaction.timeout.ms` was over: it is aborted.
            TransactionUnconfirmedError: No answer came: make the same call again.
            ProducerFencedError: A producer of the same `transactional.id` was initialised meanwhile.
        """
        await self._end(TransactionOutcome.COMMITTED, bootstrap_servers, settings)

    async def abort(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Let no reader of committed records see any of it; as `commit()`.

        Raises:
            TransactionError: It was committed already: `outcome` says so.
        """
        await self._end(TransactionOutcome.ABORTED, bootstrap_servers, settings)

    async def outcome(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> TransactionOutcome | None:
        """Ask what became of it, and change nothing; waits for at most `max.block.ms`.

        The coordinator knows the latest transaction of an id, and no earlier one: ask before a producer of the same
        `transactional.id` goes on.

        Args:
            bootstrap_servers: As the Producer's; also a configuration.
            **settings: Likewise.

        Returns:
            `None` while it is open, and where nothing was sent: either end is still possible. `UNKNOWN` where a
            later transaction hides it; with `transaction.version` 1 also after `transaction.timeout.ms`, since a
            time-out looks like the abort of a producer that took over.

        Raises:
            TransactionUnconfirmedError: No answer came: make the same call again.
            TransactionsUnavailableError: This client may not describe the id, or the brokers are older than 3.0.
        """
        if self.is_empty:
            return None
        async with self._resumed(bootstrap_servers, settings) as (manager, life):
            operation = manager.ask_outcome()
            await wait_for(operation, life)
            return operation.outcome

    async def _end(
        self,
        verdict: TransactionOutcome,
        servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None,
        settings: Mapping[str, object],
    ) -> None:
        if self.is_empty:
            return
        async with self._resumed(servers, settings) as (manager, life):
            now = life.driver.now()
            is_commit = verdict is TransactionOutcome.COMMITTED
            await wait_for(manager.commit(now) if is_commit else manager.abort(now), life)

    @asynccontextmanager
    async def _resumed(
        self,
        servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None,
        settings: Mapping[str, object],
    ) -> AsyncIterator[tuple[TransactionManager, ProducerLife]]:
        """Take it over until the end of the context."""
        if isinstance(servers, ProducerConfig) and not settings:
            config = replace(servers, transactional_id=self.transactional_id)
        else:
            config = configured(servers, {**settings, "transactional_id": self.transactional_id})
        # It sends no records: an Auditor among them would begin anew, and forget its producer's numbers.
        life = ProducerLife(replace(config, interceptors=()), _no_way_for_records)
        life.start()
        try:
            manager, now = life.sender.transactions, life.driver.now()
            assert manager is not None
            producer = ProducerIdAndEpoch(self.producer_id, self.producer_epoch)
            manager.resume(producer, self.transaction_version, now)
            yield manager, life
        finally:
            await life.close(0)


def _no_way_for_records(is_open: bool) -> None:
    """A prepared transaction takes no more of them."""
