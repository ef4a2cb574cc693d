"""The part of a service that has a queue on disk: its sends, its health, and what it reports at the end.

Used by `ProducerService` if it was given a `Spool`.

Invariants:

1. A send has succeeded when the record is on disk. The cluster need not be there.
2. A record that may be on disk is never reported as not written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import MaxBlockTimeoutError, OutcomeUnknownError
from aioproduce.integrations.service_values import Health
from aioproduce.records import RecordMetadata
from aioproduce.spool import SpooledProducer, SpoolState

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.config import ProducerConfig
    from aioproduce.integrations.service_values import Deadline
    from aioproduce.spool.settings import SpoolLike

_log = logging.getLogger("aioproduce.service")

_REASONS = {
    SpoolState.CLOSED: "the producer is not running",
    SpoolState.FAILED: "the disk of the queue failed",
    SpoolState.FULL: "the queue on disk has no room",
}


@final
class SpooledSends:
    """Sends of a service into a queue on disk.

    Args:
        spool: The queue.
        config: The settings of the producer.

    Attributes:
        producer: The producer.

    Raises:
        ConfigError: If a spooled producer refuses a setting.
    """

    __slots__ = ("_bounded_log", "_late", "producer")

    def __init__(self, spool: SpoolLike, config: ProducerConfig) -> None:
        self.producer: SpooledProducer = SpooledProducer.of(spool, config)
        self._bounded_log = BoundedLog(_log)
        self._late: set[asyncio.Task[RecordMetadata]] = set()

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        *,
        on_delivery: DeliveryCallback | None = None,
        **settings: Any,
    ) -> RecordMetadata:
        """Put a record on disk.

        Args:
            topic: The topic; all arguments as for `Producer.send()`.
            value: Its value.
            key: Its key.
            on_delivery: Called when it is on disk.
            **settings: Its partition, its timestamp and its headers.

        Returns:
            Metadata without a partition and an offset: both are -1, as the cluster has not chosen them yet.

        Raises:
            ProducerError: If `SpooledProducer.send()` raises it.
        """
        delivery = await self.producer.send(topic, value, key, **settings)
        metadata = RecordMetadata(delivery.topic, -1, -1, -1, -1, -1)
        if on_delivery is not None:
            on_delivery(metadata, None)
        return metadata

    async def send_within(
        self, deadline: Deadline, topic: str, value: Any, key: Any, **settings: Any
    ) -> RecordMetadata:
        """Put a record on disk within the time of a request; see `ProducerService.send()`.

        Raises:
            MaxBlockTimeoutError: If the time is over before; nothing was queued.
            OutcomeUnknownError: If it is not on disk in time. It may still come to be there.
            ProducerError: If `send()` raises it.
        """
        remaining = deadline.remaining()
        if remaining <= 0:
            raise MaxBlockTimeoutError(
                "the request's time was over before the send: nothing was queued", waited=0.0
            )
        loop = asyncio.get_running_loop()
        storing = loop.create_task(self.send(topic, value, key, timeout=remaining, **settings))
        try:
            await asyncio.wait((storing,), timeout=remaining)
        except BaseException:
            storing.cancel()
            raise
        if storing.done():
            return storing.result()
        self._late.add(storing)
        storing.add_done_callback(self._ended_late)
        waited = loop.time() - deadline.began_at
        raise OutcomeUnknownError(
            f"the record for {topic!r} was not on disk within the {waited:.3f} s of the request: it may come to be",
            topic=topic,
            waited=waited,
            delivery=storing,
        )

    def _ended_late(self, storing: asyncio.Task[RecordMetadata]) -> None:
        self._late.discard(storing)
        if not storing.cancelled() and (error := storing.exception()) is not None:
            now = storing.get_loop().time()
            self._bounded_log.warning(type(error).__name__, now, "a record was not stored: %s", error)

    # -- health ---

    def readiness(self, reasons: list[str]) -> Health:
        """Return whether the queue takes records, whatever the cluster does.

        Args:
            reasons: Why the service is not ready, apart from the queue.
        """
        health = self.producer.health()
        if not health.takes_records:
            reasons = [*reasons, _REASONS[health.state]]
        silent = tuple(broker.node_id for broker in self.producer.silent_brokers())
        return Health(not reasons, tuple(reasons), health.oldest_age or 0.0, 0.0, silent, health)

    def liveness(self) -> Health:
        """Return whether no part of the producer has ended by a bug."""
        failure = self.producer._failure
        return Health(failure is None, () if failure is None else ("a part of the producer failed",))

    def waiting_records(self) -> int:
        """Return the records in the queue; 0 if that is not known."""
        return self.producer.health().backlog_records or 0

    def report_end(self, never_accepted: int) -> None:
        """Log what stays on disk, and what was not accepted.

        Args:
            never_accepted: Background records that were not stored.
        """
        if never_accepted:
            _log.error(
                "%d background record(s) were not stored on disk when the service ended, and are lost. Check the "
                "disk, or raise drain_timeout",
                never_accepted,
            )
        waiting = self.waiting_records()
        if waiting:
            _log.warning(
                "ended: %d record(s) are on disk and not acknowledged; the next start sends them",
                waiting,
            )
        else:
            _log.info("ended: every accepted record has its outcome")
