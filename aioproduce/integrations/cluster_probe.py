"""Checks whether the cluster has been reachable since the service started, for its readiness.

Created by `ProducerService`. A producer connects when there is a record to send, but a service must know earlier.

Invariants:

1. Once the cluster was reachable, the result stays: readiness means accepting records, and an outage does not
   prevent that.
2. The tasks end with the producer or by `cancel()`. Their errors are logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import MaxBlockTimeoutError, NoBrokerAvailableError, ProducerError, ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproduce.producer.producer import Producer

_log = logging.getLogger("aioproduce.service")

# How long one request waits; then the reason is logged, and the request is repeated.
_PROBE_SECONDS: Final = 10.0


@final
class ClusterProbe:
    """Asks until a broker has answered, and until each topic is known.

    Args:
        producer: A running producer.
        topics: The topics.
    """

    __slots__ = ("_bounded_log", "_has_seen_broker", "_loop", "_tasks", "_unseen")

    def __init__(self, producer: Producer[Any, Any], topics: Sequence[str]) -> None:
        self._bounded_log = BoundedLog(_log)
        self._has_seen_broker = False
        self._unseen = set(topics)
        self._loop = asyncio.get_running_loop()
        self._tasks = [
            self._loop.create_task(self._look_for_broker(producer), name="aioproduce: look for a broker")
        ]
        for topic in self._unseen:
            looking = self._look_for_topic(producer, topic)
            self._tasks.append(self._loop.create_task(looking, name=f"aioproduce: look for {topic}"))

    def missing(self) -> list[str]:
        """Return what is missing as texts; empty if nothing is."""
        missing = [] if self._has_seen_broker else ["no broker has answered yet"]
        if self._unseen:
            missing.append(f"{len(self._unseen)} topic(s) are not known yet")
        return missing

    def cancel(self) -> None:
        """Stop asking."""
        for task in self._tasks:
            task.cancel()

    async def _look_for_broker(self, producer: Producer[Any, Any]) -> None:
        await self._ask("", lambda: producer.check(_PROBE_SECONDS))
        self._has_seen_broker = True

    async def _look_for_topic(self, producer: Producer[Any, Any], topic: str) -> None:
        await self._ask(topic, lambda: producer.partitions_for(topic, _PROBE_SECONDS))
        self._unseen.discard(topic)

    async def _ask(self, topic: str, question: Callable[[], Awaitable[object]]) -> None:
        """Ask until there is an answer."""
        while True:
            try:
                await question()
            except (NoBrokerAvailableError, MaxBlockTimeoutError) as error:
                self._bounded_log.warning(topic, self._loop.time(), "not ready: %s", error)
            except ProducerStateError:
                raise asyncio.CancelledError from None  # closed or failed: readiness reports that itself
            except ProducerError as error:
                _log.error("not ready, and retrying will not help: %s", error)
                raise asyncio.CancelledError from None
            else:
                return
