"""The two ways to run a case: the core alone, and the producer on asyncio. One interface for both.

For `tests.simulation.run`.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Protocol
from unittest.mock import patch

from aioproduce import Producer, ProducerConfig
from aioproduce._native.stats import Windows
from aioproduce.compression import codec_for
from aioproduce.config import dotted_keys
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.sender import Sender
from aioproduce.metrics import ProducerMetrics
from aioproduce.producer.admission import Admission
from aioproduce.producer.life import ProducerLife
from tests.simulation.bare import BareDriver, BareLoop, BareTask

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.security.security import Security
    from aioproduce.testing.simulation import Simulation

# The compiled DeliveryFuture calls back with (metadata, error).


class Side(Protocol):
    """What a case is run on."""

    troubles: list[str]
    """What nobody caught."""

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run in virtual time."""

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        """Run at the same time as the others."""

    async def join(self, task: Any) -> None:
        """Wait for what was spawned; raises what it raised."""

    async def sleep_until(self, at: float) -> None:
        """Wait for an instant."""

    async def start(self) -> None:
        """Start the producer."""

    async def send(
        self, topic: str, value: bytes, partition: int | None, timestamp: int | None
    ) -> DeliveryFuture:
        """As `Producer.send()`."""

    async def flush(self) -> None:
        """As `Producer.flush()`."""

    async def close(self, timeout: float | None = None) -> None:
        """As `Producer.close()`."""

    @property
    def sender(self) -> Sender:
        """The core."""


def config_of(simulation: Simulation, settings: dict[str, Any]) -> ProducerConfig:
    return ProducerConfig.from_mapping(
        {"bootstrap.servers": simulation.bootstrap_servers, "client.id": "simulated", **dotted_keys(settings)}
    )


class AsyncioSide:
    """`Producer` on a simulated asyncio loop."""

    def __init__(
        self, simulation: Simulation, settings: dict[str, Any], security: Security | None = None
    ) -> None:
        self._security = security
        self._simulation = simulation
        self.troubles: list[str] = []
        self.producer = Producer(config_of(simulation, settings))

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self._simulation.run(self._guarded(main))

    async def _guarded(self, main: Coroutine[Any, Any, Any]) -> Any:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.troubles.append(f"{context['message']}: {context.get('exception')!r}")
        )
        before = asyncio.all_tasks()
        result = await main
        left = asyncio.all_tasks() - before
        if left:
            self.troubles.append(f"tasks are left: {left}")
        return result

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine, name=name)

    async def join(self, task: asyncio.Task[Any]) -> None:
        await task

    async def sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(at - self._simulation.clock.now, 0))

    async def start(self) -> None:
        # The stand-in, which no setting names.
        with patch.object(ProducerLife, "_security", lambda _: self._security):
            await self.producer.start()

    async def send(
        self, topic: str, value: bytes, partition: int | None, timestamp: int | None
    ) -> DeliveryFuture:
        return await self.producer.send(topic, value, partition=partition, timestamp=timestamp)

    async def flush(self) -> None:
        await self.producer.flush()

    async def close(self, timeout: float | None = None) -> None:
        await self.producer.close(timeout)

    @property
    def sender(self) -> Sender:
        return self.producer._life.sender


class BareSide:
    """Admission, core and wire on nothing but virtual time."""

    sender: Sender

    def __init__(
        self, simulation: Simulation, settings: dict[str, Any], security: Security | None = None
    ) -> None:
        self._security = security
        self._simulation = simulation
        self._config = config_of(simulation, settings)
        self._loop = BareLoop(simulation)
        self.driver = BareDriver(simulation, self._loop)
        self.troubles: list[str] = []

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        result = self._loop.run(main)
        if self._loop.tasks:
            self.troubles.append(f"tasks are left: {[task.name for task in self._loop.tasks]}")
        return result

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> BareTask:
        return self._loop.spawn(coroutine, name)

    async def join(self, task: BareTask) -> None:
        await task.ended
        if task.error is not None:
            raise task.error

    async def sleep_until(self, at: float) -> None:
        await self._loop.sleep_until(at)

    async def start(self) -> None:
        config = self._config
        metrics = ProducerMetrics(Windows())
        self.sender = Sender(
            config,
            codec=codec_for(
                config.compression_type,
                gzip_level=config.compression_gzip_level,
                lz4_level=config.compression_lz4_level,
                zstd_level=config.compression_zstd_level,
            ),
            runtime=self.driver.runtime,
            random=Random(self._simulation.random.getrandbits(64)),
            metrics=metrics,
            now=self.driver.now(),
            security=self._security,
            wall=lambda: self._simulation.wall_ms() / 1000,
        )
        self._admission = Admission(config, self.driver, self.sender, lambda: None, metrics)  # type: ignore[arg-type]
        self.driver.start(self.sender)

    async def send(
        self, topic: str, value: bytes, partition: int | None, timestamp: int | None
    ) -> DeliveryFuture:
        at = self._simulation.wall_ms() if timestamp is None else timestamp
        record = SerializedRecord(topic, None, value, None, partition, at)
        delivery = self._admission.append_at_once(record)
        return delivery if delivery is not None else await self._admission.append_waiting(record, None)

    async def flush(self) -> None:
        waiter = self.driver.make_waiter()
        self.sender.begin_flush(waiter.notify, self.driver.now())
        self.driver.wake()
        await waiter.wait(float("inf"))
        self.driver.run_callbacks()

    async def close(self, timeout: float | None = None) -> None:
        self.sender.begin_close(self.driver.now())
        self.driver.wake()
        if timeout is not None:
            self._loop.call_at(self.driver.now() + timeout, self._abort)
        await self.driver.ended

    def _abort(self) -> None:
        self.sender.abort(self.driver.now())
        self.driver.wake()
