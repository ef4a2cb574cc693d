"""Sends rows that can never be sent as records to the dead-letter topic.

Used by `sending` in the loop thread. A dead letter has the key and the value of its row, the row's own headers, and
headers `ap.dead.*` with the reason and the origin.

Invariants:

1. A dead letter is acknowledged before its task ends; if that is not possible, the task fails.
2. It has the id of its row in `ap.dead.id`, never in `ap.id`: it is not a record of the intended topic, and an
   audit counts that row as failed.
3. A row that was too large is cut to `KEPT_VALUE` and `KEPT_KEY` bytes, and `ap.dead.cut` says what is missing. The
   same applies to a row that is too large only as a dead letter, because of its additional headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import BrokerRejectedError, DeliveryError, ProducerError, RecordTooLargeError
from aioproduce.spark.errors import WriteError
from aioproduce.wire.error_codes import MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.producer import Producer
    from aioproduce.spark.ids import TaskIdentity

KEPT_VALUE: Final = 65_536
"""Bytes that are kept of the value of a too large record: below any sensible limit of a topic."""
KEPT_KEY: Final = 1_024
"""Bytes that are kept of its key."""
_KEPT_TEXT: Final = 1_000
_PREFIX: Final = "ap.dead."


@final
@dataclass(frozen=True, slots=True)
class DeadRow:
    """A refused row.

    Attributes:
        row: Its number within the task's partition.
        error: The reason.
        topic: The intended topic, or None if it names none.
        partition: The requested partition, or None.
        key: Its key.
        value: Its value.
        headers: Its own headers.
        stamp: Its id, or None if records are not stamped.
    """

    row: int
    error: ProducerError
    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    stamp: bytes | None


def is_too_large(error: ProducerError) -> bool:
    """Return whether the producer or the broker refused a record for its size."""
    if isinstance(error, BrokerRejectedError):
        return error.code in (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE)
    return isinstance(error, RecordTooLargeError)


def dead_letter(
    dead: DeadRow, identity: TaskIdentity, run: str, *, kept: int | None
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return the key, the value and the headers of a row's dead letter.

    Args:
        dead: The row.
        identity: The task's identity.
        run: The id of the query or of the write.
        kept: Bytes to keep of the value, and a quarter of that of the key; None for all.
    """
    key, value, own = dead.key, dead.value, list(dead.headers)
    cut: list[str] = []
    if kept is not None:
        kept_key = min(KEPT_KEY, kept // 4)
        if value is not None and len(value) > kept:
            cut.append(f"value: the first {kept} of {len(value)} bytes")
            value = value[:kept]
        if key is not None and len(key) > kept_key:
            cut.append(f"key: the first {kept_key} of {len(key)} bytes")
            key = key[:kept_key]
        if own:
            cut.append(f"headers: none of {len(own)}")
            own = []
    told: dict[str, str | bytes] = {
        "error": type(dead.error).__name__,
        "message": str(dead.error)[:_KEPT_TEXT],
        "run": run,
        "batch": str(identity.batch_id or 0),
        "task": str(identity.partition_id),
        "attempt": str(identity.attempt),
        "row": str(dead.row),
    }
    if dead.topic is not None:
        told["topic"] = dead.topic
    if dead.partition is not None:
        told["partition"] = str(dead.partition)
    if dead.stamp is not None:
        told["id"] = dead.stamp
    if cut:
        told["cut"] = "; ".join(cut)
    added = [
        (_PREFIX + name, said.encode() if isinstance(said, str) else said) for name, said in told.items()
    ]
    return key, value, [*own, *added]


@final
@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Sends the dead letters of one task.

    Attributes:
        producer: The producer.
        topic: The dead-letter topic.
        identity: The task's identity.
        run: The id of the query or of the write.
    """

    producer: Producer[Any, Any]
    topic: str
    identity: TaskIdentity
    run: str

    async def send(self, rows: Sequence[DeadRow]) -> None:
        """Send dead letters, and wait until all are acknowledged.

        Raises:
            WriteError: If one was not acknowledged; `__cause__` is the reason.
        """
        try:
            deliveries = [await self._queue(dead, is_cut=is_too_large(dead.error)) for dead in rows]
            for dead, delivery in zip(rows, deliveries, strict=True):
                try:
                    await delivery
                except BrokerRejectedError as error:
                    if not is_too_large(error) or is_too_large(dead.error):
                        raise
                    await (await self._queue(dead, is_cut=True))
        except (ProducerError, DeliveryError) as error:
            raise WriteError(
                f"dead-letter topic {self.topic!r} did not accept a row of {self.identity}: {error}. Create the "
                "topic, or find out why it refuses; until then the write fails, in order not to lose rows",
                partition=self.identity.partition_id,
            ) from error

    async def _queue(self, dead: DeadRow, *, is_cut: bool) -> DeliveryFuture:
        half = self.producer.config.max_request_size // 2
        cuts = [*([] if is_cut else [None]), KEPT_VALUE, *([half] if half < KEPT_VALUE else [])]
        for kept in cuts:
            key, value, headers = dead_letter(dead, self.identity, self.run, kept=kept)
            try:
                return await self.producer.send(self.topic, value, key, headers=headers)
            except RecordTooLargeError:
                if kept == cuts[-1]:
                    raise
        raise AssertionError("the last cut returns or raises")
