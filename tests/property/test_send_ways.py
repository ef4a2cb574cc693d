"""The short way of `send()` and the long one do the same: any script gives the same bytes at the same time.

Both ways are those of one Producer. With an interceptor that changes nothing, `send()` takes the long way for each
record, and the accumulator opens every batch. Without one, `SendPath` appends, and `Admission.append_plain()`
opens. The simulation makes both runs from one seed. So all that differs is the way, and all else is compared:
each request, the bytes in the logs, and what each call was answered.

The short way counts turns of the loop by callbacks, so it may have a turn more or less. A simulation's turn lasts
a microsecond, which would change the order of events; here it lasts next to nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce import Producer
from aioproduce.errors import ProducerError
from aioproduce.testing.simulation import Simulation, clock

if TYPE_CHECKING:
    from aioproduce import DeliveryFuture, ProducerRecord, RecordMetadata
    from aioproduce.testing.fake_cluster.connections import ReceivedRequest

TOPICS = {"one": 1, "three": 3}

payload = st.none() | st.binary(max_size=300)
record = st.tuples(
    st.just("send"),
    st.sampled_from([*TOPICS, "unknown"]),
    payload,
    payload,
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 2**40),
    st.none() | st.lists(st.tuples(st.text(max_size=3), payload), max_size=2),
)
step = st.one_of(
    record,
    record,
    record,
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.0013, 0.0217, 0.5119, 3.0071])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("burst"), st.integers(1, 30), st.binary(max_size=100)),
    st.tuples(st.just("move"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("stop"), st.integers(0, 2), st.sampled_from([0.01, 1.0, 4.0])),
)
options = st.fixed_dictionaries(
    {
        "linger_ms": st.sampled_from([0, 5, 50]),
        "batch_size": st.sampled_from([0, 256, 1024]),
        "buffer_memory": st.sampled_from([2048, 8192]),
        "max_block_ms": st.sampled_from([50, 5000]),
        "compression_type": st.sampled_from(["none", "gzip"]),
    }
)


class Nothing:
    """An interceptor that changes nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Nothing."""


class Run:
    """One run of a script: what `send()` answered, and the simulation with its requests and logs."""

    def __init__(self, script: list[tuple[Any, ...]], options: dict[str, Any], *, is_long: bool) -> None:
        self.answers: list[object] = []
        self._script = script
        self._options = options | ({"interceptors": [Nothing()]} if is_long else {})
        self._simulation = Simulation(seed=5, topics=TOPICS, auto_create_topics=False)
        with patch.object(clock, "TURN", 1e-12):
            self._simulation.run(self._play())

    async def _play(self) -> None:
        simulation = self._simulation
        async with Producer(
            simulation.bootstrap_servers, client_id="ways", delivery_timeout_ms=20_000,
            request_timeout_ms=2000, **self._options,
        ) as producer:  # fmt: skip
            deliveries: list[DeliveryFuture] = []
            for name, *arguments in self._script:
                await getattr(self, f"_{name}")(producer, deliveries, *arguments)
            simulation.heal()
            for delivery in deliveries:
                try:
                    self.answers.append(await delivery)
                except ProducerError as error:
                    self.answers.append(repr(error))

    async def _send(
        self,
        producer: Producer,
        deliveries: list[DeliveryFuture],
        topic: str,
        key: Any,
        value: Any,
        *more: Any,
    ) -> None:
        partition, timestamp, headers = more
        try:
            deliveries.append(
                await producer.send(
                    topic, value, key, partition=partition, timestamp=timestamp, headers=headers
                )
            )
        except ProducerError as error:
            self.answers.append((round(self._simulation.clock.now, 3), repr(error)))

    async def _burst(
        self, producer: Producer, deliveries: list[DeliveryFuture], count: int, value: bytes
    ) -> None:
        """Tasks that send at once."""
        sends = [
            self._send(producer, deliveries, "three", None, value, None, None, None) for _ in range(count)
        ]
        await asyncio.gather(*sends)

    async def _pass(self, producer: Producer, deliveries: list[DeliveryFuture], seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _flush(self, producer: Producer, deliveries: list[DeliveryFuture]) -> None:
        await producer.flush()

    async def _move(
        self, producer: Producer, deliveries: list[DeliveryFuture], partition: int, broker: int
    ) -> None:
        if self._simulation.cluster.state.brokers[broker].is_running:
            self._simulation.cluster.state.move_leader("three", partition, broker)

    async def _stop(
        self, producer: Producer, deliveries: list[DeliveryFuture], broker: int, seconds: float
    ) -> None:
        cluster = self._simulation.cluster
        if cluster.state.brokers[broker].is_running:
            cluster.stop_broker(broker)
            self._simulation.clock.call_later(seconds, self._start, broker)

    def _start(self, broker: int) -> None:
        if not self._simulation.cluster.state.brokers[broker].is_running:
            self._simulation.cluster.start_broker(broker)

    @property
    def logs(self) -> list[list[Any]]:
        """Every batch in every log, with all of its bytes."""
        cluster = self._simulation.cluster
        return [cluster.log(topic, number) for topic, count in TOPICS.items() for number in range(count)]

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request that the brokers received, in order; without its time."""
        return [entry._replace(at=0.0) for entry in self._simulation.cluster.model.requests.entries()]

    @property
    def times(self) -> list[float]:
        """When they arrived."""
        return self._simulation.cluster.model.requests.times()


@settings(max_examples=60)
@given(st.lists(step, max_size=25), options)
def test_both_ways_send_the_same_requests_at_the_same_time(
    script: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    short, long = (Run(script, options, is_long=is_long) for is_long in (False, True))
    assert short.answers == long.answers
    assert short.logs == long.logs
    assert short.requests == long.requests
    assert short.times == pytest.approx(long.times, abs=1e-6)
