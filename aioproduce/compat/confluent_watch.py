"""Calls `error_cb` when no broker can be reached, and for errors that end the producer.

Run by `confluent.AIOProducer` if there is an `error_cb`. librdkafka calls it from its own threads; here one task
watches the connections at a bounded rate and calls it.

Invariants:

1. A reported problem is not reported again before a recovery.
2. An exception of `error_cb` goes to the event loop's exception handler and has no other effect.
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
    """Watches the connections of one producer.

    Args:
        error_cb: Called, and awaited if it is async, with a KafkaError.
        interval: Seconds between two checks.
    """

    def __init__(self, error_cb: Callable[[KafkaError], object], interval: float = _INTERVAL) -> None:
        self._error_cb = error_cb
        self._interval = interval
        self._errors: deque[KafkaError] = deque()
        self._is_fatal = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, producer: Producer[Any, Any]) -> None:
        """Watch this producer, and stop watching any other."""
        self.end()
        self._task = asyncio.get_running_loop().create_task(
            self._look_after(producer), name="aioproduce: error_cb"
        )

    def end(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def heard_of(self, error: KafkaError) -> None:
        """Report a message's error once if it is fatal."""
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
        """Look for brokers, and report why there are none; return whether there are none."""
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
            return was_down  # the messages' outcomes report the producer's end
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
