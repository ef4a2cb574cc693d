"""The common part of the runs of `aioproduce send` and `aioproduce perf`: producer, signals, and a bounded end.

One task sends. A signal cancels it wherever it waits; the producer guarantees that this loses no accepted record.

Invariant: every end (done, bad input, failure, signal, second signal) flushes within a bound, then closes, then
counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from aioproduce.cli.display import hushed_warnings
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.signals import Signals
from aioproduce.errors import FlushTimeoutError, ProducerError
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from aioproduce.config import ProducerConfig
    from aioproduce.metrics import MetricsSnapshot

_SIGNALLED: Final = {
    None: ExitCode.DONE,
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
}


class Run(ABC):
    """One run.

    Args:
        config: The producer's configuration.
        topic: The topic.
        timeout: Seconds to wait for cluster and topic at the start, and for acknowledgements after a signal.
        announce: Called with a line for the user after a signal.

    Attributes:
        signal: The first signal; `None` without one.
        metrics: After the run: the producer's metrics just before it was closed.
    """

    def __init__(
        self, config: ProducerConfig, topic: str, timeout: float, announce: Callable[[str], None]
    ) -> None:
        self._producer = Producer(config)
        self._topic = topic
        self._timeout = timeout
        self._announce = announce
        self._signals = Signals()
        self.signal: signal.Signals | None = None
        self.metrics: MetricsSnapshot | None = None

    async def run(self) -> None:
        """Send everything, and set the attributes to the result."""
        with self._signals.listening():
            await self._producer.start()
            work = asyncio.create_task(self._work(), name="aioproduce run")
            try:
                self.signal = await self._signals.during(work)
            finally:
                work.cancel()
                await asyncio.wait([work])
            try:
                await self._wind_up()
            finally:
                self.metrics = self._producer.metrics()
                await self._producer.close(0)
        self._end()
        if not work.cancelled():
            work.result()  # raises what only a bug can raise

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the process."""
        return self._failure() or _SIGNALLED[self.signal]

    async def _check_destination(self) -> int:
        """Check cluster and topic now: the first `send()` would fail only after `max.block.ms`.

        Returns:
            The number of the topic's partitions.
        """
        with hushed_warnings():
            await self._producer.check(self._timeout)
            return len(await self._producer.partitions_for(self._topic, self._timeout))

    async def _wind_up(self) -> None:
        """Wait for acknowledgements after a signal, within a bound and until a second signal."""
        outstanding = self._outstanding()
        if self.signal is None or not outstanding:
            return
        self._announce(
            f"{self.signal.name}: waiting at most {self._timeout:g} s for {outstanding} records that are not "
            "acknowledged yet; signal once more to give them up"
        )
        flush = asyncio.create_task(self._producer.flush(self._timeout))
        if await self._signals.during(flush) is not None:
            flush.cancel()
        with contextlib.suppress(asyncio.CancelledError, FlushTimeoutError, ProducerError):
            await flush  # close(0) fails the records that are left, each with its reason

    @abstractmethod
    async def _work(self) -> None:
        """Send everything, and flush."""

    @abstractmethod
    def _outstanding(self) -> int:
        """Return the number of accepted records whose outcome is not known yet."""

    @abstractmethod
    def _end(self) -> None:
        """Finish the counts: nothing more is sent, and every outcome is known."""

    @abstractmethod
    def _failure(self) -> ExitCode | None:
        """Return the exit code of a failed run; `None` if it succeeded, or if only a signal ended it."""


@contextlib.asynccontextmanager
async def meanwhile(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these until the end of the context, and raise there the error of any that failed."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                task.result()
