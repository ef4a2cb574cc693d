"""What a message goes by: the producer, or the transaction that was open when `produce()` was called.

Made by `confluent.AIOProducer`; each message keeps it, so that it never goes with the next transaction.
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
    """What messages go by: the producer, or the transaction that was begun last.

    Args:
        send: `Producer.send`, or `Transaction.send`.
        transaction: That transaction.

    Attributes:
        send: As given.
        transaction: As given.
        entering: How many calls of `produce()` are to bring a message into it, and have not ended yet.
        failure: The first error of a message that was to go by it and that the drop-in itself failed.
        is_aborted: Whether a call has told that the transaction is aborted, and that it must be.
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
        """A message that was to go by it has failed."""
        if self.failure is None:
            self.failure = error

    def left(self) -> None:
        """A call of `produce()` has ended."""
        self.entering -= 1
        if self._all_in is not None and not self.entering:
            self._all_in.set()

    async def all_in(self) -> None:
        """Wait for the calls of `produce()` that have begun: a commit has their messages, or fails with them."""
        while self.entering:
            self._all_in = asyncio.Event()
            await self._all_in.wait()

    def check(self) -> None:
        """Refuse to commit without a message that failed.

        Raises:
            KafkaException: the message's code; the transaction must be aborted.
        """
        if self.failure is not None and self.transaction is not None and self.transaction.is_open:
            text = f"a message of the transaction failed: abort the transaction. {self.failure.str()}"
            raise KafkaException(KafkaError(self.failure.code(), text, False, False, True))
