"""The closing mark of a task: how many rows it numbered, which of them failed, how many are in each topic.

Called by `task` after its last row is acknowledged. With it an audit sees a loss at the end of a task, which the
numbers of the rows alone cannot show.

Invariants:

1. A mark is acknowledged before its task ends, so a batch that Spark has committed has all of its marks.
2. A replay writes a mark with the same `producer_id`, `next` and `failed`; the audit takes either. Refused rows are
   in `failed`, so they are no loss.
3. A topic that is not there, or denied, is an error where the user named it. Of the default one it is a warning,
   once a minute and producer, and the rows count all the same.
4. A producer waits once for a topic that is not there. It goes on asking beside its records, so a task after that
   one finds the topic when it is made, and waits for nothing until then.
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

# That a topic is missing a broker says at once; the rest is for a leader to be found.
_PATIENCE: Final = 2.0
_WARN_AGAIN_AFTER: Final = 60.0

# Producers whose cluster has no default topic for them, and when that was told last. By producer: what one cluster
# lacks another may have.
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
        producer: What sends it.
        topic: The audit topic.
        mark: The mark.
        is_named: Whether the user named the topic.

    Returns:
        Whether it was; False where the default topic is missing or denied.

    Raises:
        TopicError: the topic that was named is not there, or denied.
        DeliveryError: it was not acknowledged.
    """
    try:
        await _deliver(producer, topic, mark)
    except (MetadataTimeoutError, TopicAuthorizationError, BrokerRejectedError) as error:
        why = _why_unusable(error)
        if why is None:
            raise
        if is_named:
            raise TopicError(
                f"audit topic {topic!r} {why}, or name another by option 'audit.topic'",
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
            # No broker answered, or none leads it yet: that does not say that there is no such topic.
            if error.code == UNKNOWN_TOPIC_OR_PARTITION or patience is None:
                raise
        else:
            await delivery
            return


def _why_unusable(error: ProducerError) -> str | None:
    """What is the matter with the topic, and the remedy; None where it is something else."""
    if isinstance(error, MetadataTimeoutError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
        return "is not there: make it"
    is_denied = isinstance(error, BrokerRejectedError) and error.code == TOPIC_AUTHORIZATION_FAILED
    if is_denied or isinstance(error, TopicAuthorizationError):
        return "is denied: have the cluster's administrator allow Describe and Write"
    return None


def _warn(producer: Producer[Any, Any], topic: str, why: str) -> None:
    now = time.monotonic()
    told_at = _unusable.get(producer)
    if told_at is not None and now - told_at < _WARN_AGAIN_AFTER:
        return
    _unusable[producer] = now
    _log.warning(
        "topic %r %s, or name another by option 'audit.topic', or set 'stamp' to 'off'. Until then no closing "
        "marks are written, and an audit cannot see what is missing at the end of a task",
        topic,
        why,
    )
