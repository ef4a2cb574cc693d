"""The route of a message: the producer, or the transaction that was open when `produce()` was called.

Created by `confluent.AIOProducer`. Each message keeps its route, so that it never joins the next transaction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias, final

from aioproduce.compat.confluent_errors import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce.producer.transactions import Transaction

    Send: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


@final
class Way:
    """The route of messages: the producer, or the last transaction.

    Args:
        send: `Producer.send`, or `Transaction.send`.
        transaction: The transaction, if any.

    Attributes:
        send: As passed.
        transaction: As passed.
        entering: How many calls of `produce()` for this route have begun and not ended.
        failure: The first error of a message for this route that the drop-in itself failed.
        is_aborted: Whether a call has reported that the transaction is aborted, or must be.
    """

    __slots__ = ("_all_in", "entering", "failure", "is_aborted", "send", "transaction")

    def __init__(self, send: Send, transaction: Transaction[Any, Any] | None = None) -> None:
        self.send: Send = send
        self.transaction: Transaction[Any, Any] | None = transaction
        self._all_in: asyncio.Event | None = None
        self.entering: int = 0
        self.failure: KafkaError | None = None
        self.is_aborted: bool = False

    def failed(self, error: KafkaError) -> None:
        """Record the failure of a message for this route."""
        if self.failure is None:
            self.failure = error

    def left(self) -> None:
        """Record the end of a call of `produce()`."""
        self.entering -= 1
        if self._all_in is not None and not self.entering:
            self._all_in.set()

    async def all_in(self) -> None:
        """Wait for the calls of `produce()` that have begun, so that a commit includes their messages or fails."""
        while self.entering:
            self._all_in = asyncio.Event()
            await self._all_in.wait()

    def check(self) -> None:
        """Refuse to commit without a failed message.

        Raises:
            KafkaException: If a message failed, with its code; the transaction must be aborted.
        """
        if self.failure is not None and self.transaction is not None and self.transaction.is_open:
            text = f"a message of the transaction failed: abort the transaction. {self.failure.str()}"
            raise KafkaException(KafkaError(self.failure.code(), text, False, False, True))
