"""A transaction whose records are in the log and that any process with its identity can end.

`Transaction.prepare()` returns it. It is stored in a file, or sent to another process as bytes, and ended there.
Brokers do not support Kafka's own two-phase commit (KIP-939) yet, but every broker accepts EndTxn from another
process.

Invariants:

1. Users must not initialise a producer of the same `transactional.id` before the end: that aborts the transaction.
2. A repeated commit or abort has the same result, so a process that died during the call can repeat it.
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
    """The identity of a prepared transaction.

    Args:
        transactional_id: Kafka's `transactional.id`.
        producer_id: The producer's id.
        producer_epoch: The epoch of its records.
        transaction_version: The version in which it was begun and is ended: 1, or 2 (KIP-890).
        is_empty: Whether nothing was sent, so that there is nothing to end.

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
        """Return the identity as JSON in UTF-8, for a file or another process."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the identity from the bytes of `to_bytes()`.

        Raises:
            ValueError: if the bytes are something else.
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
        """Commit the transaction; wait for at most `max.block.ms`.

        Args:
            bootstrap_servers: As in `Producer`; also a configuration.
            **settings: As in `Producer`.

        Raises:
            TransactionTimedOutError: if `transaction.timeout.ms` was over; the transaction is aborted.
            TransactionUnconfirmedError: if no answer came; make the same call again.
            ProducerFencedError: if a producer of the same `transactional.id` was initialised since.
        """
        await self._end(TransactionOutcome.COMMITTED, bootstrap_servers, settings)

    async def abort(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Abort the transaction, so that no reader of committed records sees it; otherwise as `commit()`.

        Raises:
            TransactionError: if it was committed already; the error's `outcome` says so.
        """
        await self._end(TransactionOutcome.ABORTED, bootstrap_servers, settings)

    async def outcome(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> TransactionOutcome | None:
        """Return the outcome of the transaction, and change nothing; wait for at most `max.block.ms`.

        The coordinator knows only the latest transaction of an id: call this before a producer of the same
        `transactional.id` sends again.

        Args:
            bootstrap_servers: As in `Producer`; also a configuration.
            **settings: As in `Producer`.

        Returns:
            `None` while it is open, or if nothing was sent: either end is still possible. `UNKNOWN` if a later
            transaction hides it; with `transaction.version` 1 also after `transaction.timeout.ms`, since a time-out
            looks like an abort by a producer that took over.

        Raises:
            TransactionUnconfirmedError: if no answer came; make the same call again.
            TransactionsUnavailableError: if this client may not describe the id, or the brokers are older than 3.0.
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
        """Resume the transaction in a new core until the end of the context."""
        if isinstance(servers, ProducerConfig) and not settings:
            config = replace(servers, transactional_id=self.transactional_id)
        else:
            config = configured(servers, {**settings, "transactional_id": self.transactional_id})
        # No records are sent here. An Auditor would begin again and forget its producer's numbers.
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
    """Open no path: a prepared transaction accepts no more records."""
