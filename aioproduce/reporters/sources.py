"""Reading a producer's metrics from any thread: Prometheus and OpenTelemetry ask from threads of their own.

Called by the collectors. The sensors belong to the event loop's thread and have no locks.

Invariants:

1. While the loop runs, its own thread reads; who asks from another waits for that, at most `_PATIENCE` for all
   of them.
2. A loop that is blocked for longer does not fail a scrape: its thread is in the code that blocks it, so the
   sensors stand still and are read from here. Should it go on in that moment, they are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.metrics import MetricsSnapshot

_PATIENCE: Final = 1.0
"""Seconds to wait for the loop; Prometheus gives up a scrape after 10 by default."""

_LEAST_PATIENCE: Final = 0.01
"""Seconds to wait for each producer's loop when that is over: it may be another loop, which is not blocked."""

_TRIES: Final = 10


class Measured(Protocol):
    """What has metrics: a Producer."""

    @property
    def config(self) -> ProducerConfig:
        """Its settings, of which the client.id is read."""

    def metrics(self) -> MetricsSnapshot:
        """Its metrics at this instant."""


@final
class Source:
    """A producer to be read from.

    Args:
        producer: Whose metrics; where a loop runs now, it is taken for the producer's.
    """

    __slots__ = ("_loop", "producer")

    def __init__(self, producer: Measured) -> None:
        self.producer: Measured = producer
        self._loop = asyncio._get_running_loop()

    @property
    def client_id(self) -> str:
        """The producer's client.id."""
        return self.producer.config.client_id

    def read(self, patience: float = _PATIENCE) -> MetricsSnapshot:
        """The metrics at this instant, from whatever thread.

        Args:
            patience: Seconds to wait for the loop.
        """
        loop = self._loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            return self._read_here()
        answer: Future[MetricsSnapshot] = Future()
        try:
            loop.call_soon_threadsafe(_answer, answer, self.producer.metrics)
            return answer.result(patience)
        except (NotInTimeError, RuntimeError):  # blocked, or closed in this moment
            answer.cancel()
            return self._read_here()

    def _read_here(self) -> MetricsSnapshot:
        for _ in range(_TRIES - 1):
            # "dictionary changed size during iteration": the loop's thread went on.
            with contextlib.suppress(RuntimeError):
                return self.producer.metrics()
        return self.producer.metrics()


class Sources:
    """What shows producers, by their client ids: the base of the collector and the meter.

    Args:
        *producers: Those that are there from the start.

    Raises:
        ValueError: as `add()`.
    """

    def __init__(self, *producers: Measured) -> None:
        self._sources: dict[str, Source] = {}
        for producer in producers:
            self.add(producer)

    def add(self, producer: Measured) -> None:
        """Show this producer, too.

        Raises:
            ValueError: another one has its client.id, so that all series would be the same.
        """
        source = Source(producer)
        if source.client_id in self._sources:
            raise ValueError(
                f"there is a producer with client.id {source.client_id!r} already, and its series would be the "
                "same: give each a client_id of its own, or remove() the one that ended"
            )
        self._sources[source.client_id] = source

    def remove(self, producer: Measured) -> None:
        """Show this producer no more.

        Raises:
            ValueError: it is not shown.
        """
        source = self._sources.get(producer.config.client_id)
        if source is None or source.producer is not producer:
            raise ValueError(f"the producer with client.id {producer.config.client_id!r} was not added here")
        del self._sources[source.client_id]

    def _read(self) -> list[MetricsSnapshot]:
        """What each tells now."""
        until = time.monotonic() + _PATIENCE
        return [
            source.read(max(until - time.monotonic(), _LEAST_PATIENCE))
            for source in list(self._sources.values())
        ]


def _answer(answer: Future[MetricsSnapshot], read: Callable[[], MetricsSnapshot]) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # whoever asked has given up
    try:
        answer.set_result(read())
    except Exception as error:
        answer.set_exception(error)
