"""The closing mark of a task: how many rows it numbered, which of them failed, and how many each topic has.

Used by `task` after its last row is acknowledged. It shows an audit a loss at the end of a task, which the numbers
of the rows alone cannot show.

Invariants:

1. A mark is acknowledged before its task ends, so a batch that Spark has committed has all of its marks.
2. A replay writes a mark with the same `producer_id`, `next` and `failed`; the audit accepts either. Refused rows
   are in `failed`, so they do not count as lost.
3. A missing or denied topic is an error if the user named it. For the default topic it is a warning, once a minute
   per producer, and the rows still count.
4. A producer waits only once for a missing topic. It then asks in the background, so a later task finds the topic
   once it is created, and does not wait until then.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from aioproduce.audit.mark import MAX_FAILED_RANGES, Mark
from aioproduce.errors import (
    BrokerRejectedError,
    MetadataTimeoutError,
    ProducerError,
    TopicAuthorizationError,
)
from aioproduce.spark.errors import TopicError
from aioproduce.spark.ranges import count, union
from aioproduce.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioproduce.producer.producer import Producer
    from aioproduce.spark.ids import TaskIdentity

_log = logging.getLogger("aioproduce.spark")

# A broker reports a missing topic at once; the rest of this time is for finding a leader.
_PATIENCE: Final = 2.0
_WARN_AGAIN_AFTER: Final = 60.0

# Producers whose cluster lacks the default topic, and when that was last reported. By producer, because another
# cluster may have it.
_unusable: WeakKeyDictionary[Producer[Any, Any], float] = WeakKeyDictionary()


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
    """Return the closing mark of a task.

    Args:
        producer_id: The id under which the rows are numbered.
        identity: The task's identity.
        run: The id of the query or of the write.
        next_row: The first number without a row.
        failed: Rows that were refused.
        topics: How many rows were acknowledged in each topic.
        client_id: The producer's `client.id`.
    """
    ranges = union((row, row) for row in failed)
    kept, more = ranges[:MAX_FAILED_RANGES], ranges[MAX_FAILED_RANGES:]
    return Mark(
        kind="closing",
        producer_id=producer_id,
        next=next_row,
        acknowledged=sum(topics.values()),
        failed=kept,
        failed_more=count(more),
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


async def publish(producer: Producer[Any, Any], topic: str, mark: Mark, *, is_named: bool) -> bool:
    """Send a mark, and wait until it is acknowledged.

    Args:
        producer: The producer.
        topic: The audit topic.
        mark: The mark.
        is_named: Whether the user named the topic.

    Returns:
        Whether it was acknowledged; False if the default topic is missing or denied.

    Raises:
        TopicError: If the named topic is missing or denied.
        DeliveryError: If it was not acknowledged.
    """
    try:
        await _deliver(producer, topic, mark)
    except (MetadataTimeoutError, TopicAuthorizationError, BrokerRejectedError) as error:
        why = _why_unusable(error)
        if why is None:
            raise
        if is_named:
            raise TopicError(
                f"audit topic {topic!r} {why}, or name another in the option 'audit.topic'",
                topic=topic,
                is_missing=isinstance(error, MetadataTimeoutError),
            ) from error
        _warn(producer, topic, why)
        return False
    _unusable.pop(producer, None)
    return True


async def _deliver(producer: Producer[Any, Any], topic: str, mark: Mark) -> None:
    for patience in (*((0.0,) if producer in _unusable else ()), _PATIENCE, None):
        try:
            delivery = await producer.send(topic, mark.to_json(), mark.key, timeout=patience)
        except MetadataTimeoutError as error:
            # No broker answered, or there is no leader yet: the topic may still exist.
            if error.code == UNKNOWN_TOPIC_OR_PARTITION or patience is None:
                raise
        else:
            await delivery
            return


def _why_unusable(error: ProducerError) -> str | None:
    """Return what is wrong with the topic, and the remedy; None for another error."""
    if isinstance(error, MetadataTimeoutError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
        return "does not exist: create it"
    is_denied = isinstance(error, BrokerRejectedError) and error.code == TOPIC_AUTHORIZATION_FAILED
    if is_denied or isinstance(error, TopicAuthorizationError):
        return "is denied: ask the cluster's administrator to allow Describe and Write"
    return None


def _warn(producer: Producer[Any, Any], topic: str, why: str) -> None:
    now = time.monotonic()
    told_at = _unusable.get(producer)
    if told_at is not None and now - told_at < _WARN_AGAIN_AFTER:
        return
    _unusable[producer] = now
    _log.warning(
        "topic %r %s, or name another in the option 'audit.topic', or set 'stamp' to 'off'. Until then no closing "
        "marks are written, and an audit cannot detect missing rows at the end of a task",
        topic,
        why,
    )
