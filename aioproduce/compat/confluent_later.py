# ruff: noqa: ARG002  # the arguments are the signatures that will stay
"""Calls of confluent-kafka's producer that come with later versions: their signatures, and an error that says so.

Inherited by `confluent.AIOProducer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioproduce.compat.confluent_errors import ConfluentNotSupportedError

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

_FOREVER: Final = -1.0


class LaterCalls:
    """Transactions: every call raises ConfluentNotSupportedError."""

    async def init_transactions(self, timeout: float = _FOREVER) -> NoReturn:
        """Transactions come with a later version; raises ConfluentNotSupportedError."""
        raise _no_transactions("init_transactions")

    async def begin_transaction(self) -> NoReturn:
        """Transactions come with a later version; raises ConfluentNotSupportedError."""
        raise _no_transactions("begin_transaction")

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = _FOREVER
    ) -> NoReturn:
        """Transactions come with a later version; raises ConfluentNotSupportedError."""
        raise _no_transactions("send_offsets_to_transaction")

    async def commit_transaction(self, timeout: float = _FOREVER) -> NoReturn:
        """Transactions come with a later version; raises ConfluentNotSupportedError."""
        raise _no_transactions("commit_transaction")

    async def abort_transaction(self, timeout: float = _FOREVER) -> NoReturn:
        """Transactions come with a later version; raises ConfluentNotSupportedError."""
        raise _no_transactions("abort_transaction")


def _no_transactions(call: str) -> ConfluentNotSupportedError:
    return ConfluentNotSupportedError(
        f"{call}() is missing: transactions come with a later version of aioproduce. Until then stay with "
        "confluent_kafka.aio.AIOProducer where you use them",
        feature="transactions",
    )
