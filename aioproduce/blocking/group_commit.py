"""Many threads, one transaction after another: a `GroupCommit` of the loop thread, with calls for threads.

Made by `BlockingProducer.group_commit()`. What is public is called in any thread.

Invariants:

1. Each `send()` is a task of the loop thread. Ctrl-C cancels that task alone: its record stays in the transaction
   of the others, or was never in it.
2. After a fork the child refuses its parent's group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from aioproduce.blocking.session import Session
    from aioproduce.producer.group_commit import GroupCommit
    from aioproduce.records import Headers, ProducerRecord, RecordMetadata


@final
class BlockingGroupCommit:
    """Sends in transactions that threads share.

    Args:
        session: The producer's loop thread.
        group: The group commit in the loop thread.

    Example:
        >>> with BlockingProducer("localhost:9092", transactional_id="orders-1") as producer:
        ...     with producer.group_commit(interval=0.05) as group:
        ...         metadata = group.send("orders", b"42")  # committed
    """

    __slots__ = ("_group", "_session")

    def __init__(self, session: Session, group: GroupCommit) -> None:
        self._session = session
        self._group = group

    def send(
        self,
        topic: str | ProducerRecord,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until its transaction is committed.

        Serializers, interceptors and a partitioner of yours run in the loop thread.

        Args:
            topic: The topic, or a whole record; the arguments are those of `BlockingProducer.send()`.
            value: The record's value.
            key: The record's key.
            partition: The partition; `None` lets the partitioner choose.
            timestamp: Milliseconds since 1970, or a `datetime`; `None` is now.
            headers: The record's headers.

        Returns:
            Where the record is in the log.

        Raises:
            TransactionFailedError: If a record of any thread in the transaction failed: all of it is aborted.
                Send again.
            TransactionTimedOutError: If the coordinator aborted the transaction. Send again.
            TransactionUnconfirmedError: If no answer came in time: nobody knows yet whether it is committed.
            TransactionStateError: If the group commit is not open.
            LoopThreadError: If it is called in the loop thread.
            ProducerError: As in `BlockingProducer.send()`.
        """
        self._check_process()

        async def sending() -> RecordMetadata:
            return await self._group.send(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers
            )

        metadata: RecordMetadata = self._session.call(sending)
        return metadata

    def __enter__(self) -> Self:
        self._check_process()
        try:
            self._session.call(self._group.__aenter__)
        except KeyboardInterrupt:
            # It may be open already, and then nobody else would end it.
            self._session.submit(self._group.__aexit__, None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit what is open, and wait for the end; the outcome is reported to the threads that sent."""
        if not self._session.is_over:
            self._session.call(self._group.__aexit__, kind, error, traceback)

    def _check_process(self) -> None:
        if self._session.hand_over.is_forked():
            self._session.raise_forked()
