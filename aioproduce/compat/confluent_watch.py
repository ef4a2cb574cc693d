"""`error_cb`: told when no broker can be reached, and of what ends the producer.

Run by `confluent.AIOProducer` where there is an `error_cb`. librdkafka calls it from its own threads; here one task
looks after the connections, at a bounded rate, and calls it.

Invariants:

1. What is told once is not told again before it was well in between.
2. What `error_cb` raises goes to the event loop's exception handler, and nothing else is harmed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.compat.confluent_errors import KafkaError
from aioproduce.errors import NoBrokerAvailableError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.producer.producer import Producer

# Reading the metrics costs 0.4 ms.
_INTERVAL: Final = 1.0


@final
class ErrorWatch:
    """Looks after the connections of one producer.

    Args:
        error_cb: Called, and awaited if it is async, with a KafkaError.
        interval: Seconds between two looks.
    """

    def __init__(self, error_cb: Callable[[KafkaError], object], interval: float = _INTERVAL) -> None:
        self._error_cb = error_cb
        self._interval = interval
        self._errors: deque[KafkaError] = deque()
        self._is_fatal = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, producer: Producer[Any, Any]) -> None:
        """Look after this producer, and no other any longer."""
        self.end()
        self._task = asyncio.get_running_loop().create_task(
            self._look_after(producer), name="aioproduce: error_cb"
        )

    def end(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def heard_of(self, error: KafkaError) -> None:
        """A message's error; only a fatal one is told, once."""
        if error.fatal() and not self._is_fatal:
            self._is_fatal = True
            self._errors.append(KafkaError(KafkaError._FATAL, error.str(), True))
            self._wake.set()

    async def _look_after(self, producer: Producer[Any, Any]) -> None:
        is_down = False
        while True:
            await self._tell_all()
            if not producer.metrics().value("connection-count"):
                is_down = await self._look_for_brokers(producer, is_down)
                await self._tell_all()
            else:
                is_down = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._interval)

    async def _look_for_brokers(self, producer: Producer[Any, Any], was_down: bool) -> bool:
        """Ask for brokers, and tell why there are none; whether there are none."""
        try:
            await producer.check(self._interval)
        except NoBrokerAvailableError as error:
            if not error.causes:
                return was_down  # still trying
            if not was_down:
                self._errors.extend(
                    KafkaError(KafkaError._TRANSPORT, f"{address}: {cause}")
                    for address, cause in error.causes.items()
                )
                self._errors.append(KafkaError(KafkaError._ALL_BROKERS_DOWN, str(error)))
            return True
        except ProducerError:
            return was_down  # of the producer's end its messages tell
        return False

    async def _tell_all(self) -> None:
        self._wake.clear()
        while self._errors:
            try:
                answer: Any = self._error_cb(self._errors.popleft())
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "error_cb raised", "exception": error}
                )
