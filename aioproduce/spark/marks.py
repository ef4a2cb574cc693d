"""The closing mark of a task: how many rows it numbered, which of them failed, how many are in each topic.

Called by `task` after its last row is acknowledged. With it an audit sees a loss at the end of a task, which the
numbers of the rows alone cannot show.

Invariants:

1. A mark is acknowledged before its task ends, so a batch that Spark has committed has all of its marks.
2. A replay writes a mark with the same `producer_id`, `next` and `failed`; the audit takes either.
3. A topic that is not there is an error where the user named it. Of the default one it is a warning, once a
   minute and process, and the rows count all the same.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from aioproduce.audit.mark import MAX_FAILED_RANGES, Mark
from aioproduce.errors import MetadataTimeoutError
from aioproduce.spark.errors import TopicError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioproduce.producer import Producer
    from aioproduce.spark.ids import TaskIdentity

_log = logging.getLogger("aioproduce.spark")

# That a topic is missing a broker says at once; the rest is for a leader to be found.
_PATIENCE: Final = 2.0
_ASK_AGAIN_AFTER: Final = 60.0

_missing_since: dict[str, float] = {}


def ranges_of(rows: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ranges, first and last, ascending."""
    ranges: list[tuple[int, int]] = []
    for row in sorted(set(rows)):
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return tuple(ranges)


def closing_mark(
    producer_id: bytes,
    identity: TaskIdentity,
    run: str,
    *,
    next_row: int,
    failed: Iterable[int],
    topics: Mapping[str, int],
    client_id: str,
) -> Mark:
    """The closing mark of a task.

    Args:
        producer_id: Under which the rows are numbered.
        identity: The task's.
        run: The query's id, or the write's.
        next_row: The first number that no row has.
        failed: Rows that were refused.
        topics: How many rows each topic acknowledged.
        client_id: The producer's `client.id`.
    """
    ranges = ranges_of(failed)
    kept, more = ranges[:MAX_FAILED_RANGES], ranges[MAX_FAILED_RANGES:]
    return Mark(
        kind="closing",
        producer_id=producer_id,
        next=next_row,
        acknowledged=sum(topics.values()),
        failed=kept,
        failed_more=sum(last - first + 1 for first, last in more),
        topics=dict(topics),
        at=time.time_ns() // 1_000_000,
        client_id=client_id,
        run={
            "query": run,
            "batch": identity.batch_id or 0,
            "partition": identity.partition_id,
            "attempt": identity.attempt,
            **({} if identity.write is None else {"write": identity.write}),
        },
    )


async def publish(producer: Producer, topic: str, mark: Mark, *, is_named: bool) -> bool:
    """Send a mark, and wait until it is acknowledged.

    Args:
        producer: What sends it.
        topic: The audit topic.
        mark: The mark.
        is_named: Whether the user named the topic.

    Returns:
        Whether it was; False where the default topic is missing.

    Raises:
        TopicError: the topic that was named is not there.
        DeliveryError: it was not acknowledged.
    """
    now = time.monotonic()
    if not is_named and now - _missing_since.get(topic, -_ASK_AGAIN_AFTER) < _ASK_AGAIN_AFTER:
        return False
    try:
        try:
            delivery = await producer.send(topic, mark.to_json(), mark.key, timeout=_PATIENCE)
        except MetadataTimeoutError as error:
            if error.code != 0:
                raise
            # No broker answered, which says nothing of the topic.
            delivery = await producer.send(topic, mark.to_json(), mark.key)
    except MetadataTimeoutError as error:
        if error.code == 0:
            raise
        if is_named:
            raise TopicError(
                f"audit topic {topic!r} is not there: make it, or name another by option 'audit.topic'",
                topic=topic,
                is_missing=True,
            ) from error
        _missing_since[topic] = now
        _log.warning(
            "topic %r is not there, so no closing marks are written and an audit cannot see what is missing at the "
            "end of a task: make it, or name another by option 'audit.topic', or set 'stamp' to 'off'",
            topic,
        )
        return False
    _missing_since.pop(topic, None)
    await delivery
    return True
