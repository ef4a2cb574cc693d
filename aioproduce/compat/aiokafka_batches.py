"""Batches with aiokafka's interface: `create_batch()`, `append()`, `send_batch()`.

Created by the drop-in. A batch here wraps one of aioproduce's; only the calls and their results differ.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, final

from aioproduce.compat.aiokafka_errors import translated, whole
from aioproduce.errors import ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce import BatchBuilder as OurBatch
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.deliveries import Deliveries


class BatchedRecord(NamedTuple):
    """The result of `append()` for a record.

    Attributes:
        offset: Its place in the batch, from 0 on.
        crc: Always None: records have no checksum of their own in this format.
        size: Bytes that it takes in the batch.
        timestamp: Milliseconds since the epoch.
    """

    offset: int
    crc: None
    size: int
    timestamp: int


@final
class BatchBuilder:
    """Records for one partition, appended until the batch is full.

    Example:
        >>> batch = producer.create_batch()
        >>> batch.append(key=None, value=b"42", timestamp=None)
        BatchedRecord(offset=0, crc=None, size=9, timestamp=1767225600000)
    """

    def __init__(
        self,
        batch: OurBatch,
        key_serializer: Callable[[Any], Any] | None,
        value_serializer: Callable[[Any], Any] | None,
    ) -> None:
        self._batch = batch
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    def append(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None = (),
    ) -> BatchedRecord | None:
        """Add a record.

        Args:
            timestamp: Milliseconds since the epoch; None means now.
            key: Bytes or None, or any object that the key serializer accepts.
            value: Bytes or None, or any object that the value serializer accepts.
            headers: `(name, value)` pairs.

        Returns:
            The record's place and size; None if the batch has no room for it, which closes the batch, or is closed.

        Raises:
            TypeError: If the record can never be sent.
            MessageSizeTooLargeError: If the record is larger than max_request_size or max_batch_size.
        """
        batch = self._batch
        if batch.is_closed:
            return None
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        at = whole(timestamp)
        if at is None:
            at = time.time_ns() // 1_000_000
        before = batch.size
        try:
            index = batch.append(value, key, timestamp=at, headers=tuple(headers or ()))
        except ProducerError as error:
            raise translated(error)  # noqa: B904  # already has its cause
        if index is None:
            batch.close()
            return None
        return BatchedRecord(index, None, batch.size - before, at)

    def close(self) -> None:
        """Close the batch for further records."""
        self._batch.close()

    def size(self) -> int:
        """Return its size in bytes without compression."""
        return self._batch.size

    def record_count(self) -> int:
        """Return the number of its records."""
        return self._batch.record_count

    def closed(self) -> bool:
        """Return whether the batch is closed."""
        return self._batch.is_closed

    def ours(self) -> OurBatch:
        """Return aioproduce's batch."""
        return self._batch


def future_of(deliveries: Deliveries) -> DeliveryFuture | asyncio.Future[None]:
    """Return the future of a batch, which is that of its first record.

    For an empty batch it is already done, with None as its result, as in aiokafka.
    """
    if not len(deliveries):
        nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nothing.set_result(None)
        return nothing
    first = deliveries[0]

    def settled(_: object) -> None:
        # The batch's outcome covers all of its records, so their failures do not count as unobserved.
        for delivery in deliveries[1:]:
            delivery.exception()

    first.add_done_callback(settled)
    return first
