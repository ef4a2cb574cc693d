"""Reads a producer's metrics from any thread: Prometheus and OpenTelemetry use threads of their own.

Used by the collectors. The sensors belong to the event loop's thread and have no locks.

Invariants:

1. While the loop runs, its own thread reads. Another thread waits for that, at most `_PATIENCE` for all producers.
2. A loop that is blocked for longer does not fail a scrape. Its thread is in the blocking code, so the sensors do
   not change, and the calling thread reads them. If the loop resumes meanwhile, they are read again.
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
"""Seconds to wait for the loop; Prometheus's default scrape timeout is 10."""

_LEAST_PATIENCE: Final = 0.01
"""Seconds to wait for each producer's loop after that: it may be another loop, which is not blocked."""

_TRIES: Final = 10


class Measured(Protocol):
    """An object with metrics: a Producer."""

    @property
    def config(self) -> ProducerConfig:
        """Its settings, for the client.id."""

    def metrics(self) -> MetricsSnapshot:
        """Return its current metrics."""


@final
class Source:
    """A producer to read.

    Args:
        producer: The producer; a currently running loop is assumed to be the producer's.
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
        """Return the current metrics, from any thread.

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
        except (NotInTimeError, RuntimeError):  # blocked, or just closed
            answer.cancel()
            return self._read_here()

    def _read_here(self) -> MetricsSnapshot:
        for _ in range(_TRIES - 1):
            # "dictionary changed size during iteration": the loop's thread resumed.
            with contextlib.suppress(RuntimeError):
                return self.producer.metrics()
        return self.producer.metrics()


class Sources:
    """Producers by their client ids: the base of the collector and the meter.

    Args:
        *producers: The first producers.

    Raises:
        ValueError: If two producers have the same client.id.
    """

    def __init__(self, *producers: Measured) -> None:
        self._sources: dict[str, Source] = {}
        for producer in producers:
            self.add(producer)

    def add(self, producer: Measured) -> None:
        """Add a producer.

        Raises:
            ValueError: If another producer has its client.id, so that their series would be the same.
        """
        source = Source(producer)
        if source.client_id in self._sources:
            raise ValueError(
                f"another producer has the client.id {source.client_id!r}, so their series would be the same: "
                "give each a client_id of its own, or remove() the one that ended"
            )
        self._sources[source.client_id] = source

    def remove(self, producer: Measured) -> None:
        """Remove a producer.

        Raises:
            ValueError: If it was not added.
        """
        source = self._sources.get(producer.config.client_id)
        if source is None or source.producer is not producer:
            raise ValueError(f"the producer with client.id {producer.config.client_id!r} was not added here")
        del self._sources[source.client_id]

    def _read(self) -> list[MetricsSnapshot]:
        """Return the current snapshots of all producers."""
        until = time.monotonic() + _PATIENCE
        return [
            source.read(max(until - time.monotonic(), _LEAST_PATIENCE))
            for source in list(self._sources.values())
        ]


def _answer(answer: Future[MetricsSnapshot], read: Callable[[], MetricsSnapshot]) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # the caller has given up
    try:
        answer.set_result(read())
    except Exception as error:
        answer.set_exception(error)
