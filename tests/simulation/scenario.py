"""One scenario: a cluster, a producer and a story of what happens to them, judged by the whole oracle.

For `test_scenarios_*.py`. A test makes a `Scenario`, writes its story as a coroutine, and plays it:

    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.reset_connections_on()
        [entry] = await scene.send()
        await scene.side.flush()
        assert scene.copies([entry]) == [1]

    scene.play(story())

After the story everything is healed, the same producer sends to every partition again and is closed, and the ledger
is held against the logs. Times are virtual: the time-outs are the real defaults.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import ProducerError
from aioproduce.testing.simulation import Simulation
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire.api import ApiKey
from tests.simulation.case import KEYLESS, MODES, TOPIC, Case
from tests.simulation.ledger import Ledger
from tests.simulation.run import Run
from tests.simulation.securing import client_security, fake_security, watched
from tests.simulation.sides import AsyncioSide, BareSide
from tests.simulation.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from aioproduce.core.sender import Sender
    from aioproduce.testing.fake_cluster.connections import ReceivedRequest
    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.log import StoredBatch
    from aioproduce.testing.simulation import Network, ScheduledFault, SimulatedCluster
    from tests.simulation.ledger import Entry
    from tests.simulation.sides import Side

SIDES = ("core", "asyncio")

DEFAULTS: dict[str, Any] = {
    "delivery_timeout_ms": 120_000,
    "request_timeout_ms": 30_000,
    "max_in_flight_requests_per_connection": 5,
}
"""Kafka's own."""

_STEPS = 2_000_000


def in_modes(*modes: str) -> pytest.MarkDecorator:
    """Play it with these kinds of producer (all by default), with the core alone and on asyncio."""
    return pytest.mark.parametrize(
        ("mode", "side"), [(mode, side) for mode in modes or MODES for side in SIDES]
    )


class Scenario:
    """A cluster and one producer.

    Args:
        mode: One of `case.MODES`.
        side: One of `SIDES`.
        settings: Of the producer, beyond the defaults.
        faults: What happens by schedule; the ledger takes account of elections and of a blocked loop.
        lag: As in `Case`; `None` without replication.
        min_insync: `min.insync.replicas`.
        topics: Topics that there are from the start; the one that is written to by default.
        security: As in `Case`; nothing by default.
        **cluster: Further settings of `Simulation`.
    """

    def __init__(
        self,
        mode: str,
        side: str,
        settings: dict[str, Any] | None = None,
        *,
        seed: int = 1,
        brokers: int = 3,
        partitions: int = 3,
        faults: Sequence[ScheduledFault] = (),
        lag: float | None = None,
        min_insync: int = 1,
        topics: dict[str, int] | None = None,
        security: str = "",
        **cluster: Any,
    ) -> None:
        self.case = Case(
            seed=seed,
            weather="scenario",
            is_bare=side == "core",
            settings=DEFAULTS | MODES[mode] | (settings or {}),
            bursts=(),
            faults=tuple(faults),
            seconds=0.0,
            lag=lag,
            min_insync=min_insync,
            partitions=partitions,
            brokers=brokers,
            security=security,
        )
        self.is_idempotent = self.case.is_idempotent
        self.simulation = Simulation(
            seed,
            brokers=brokers,
            topics={TOPIC: partitions} if topics is None else topics,
            trace=400,
            security=fake_security(self.case),
            **self.case.cluster_settings() | cluster,
        )
        self.ledger = Ledger(self.simulation, self.case)
        self.side: Side = (BareSide if self.case.is_bare else AsyncioSide)(
            self.simulation,
            self.case.settings,
            client_security(self.simulation, self.case, self.ledger.accuse),
        )
        self._run = Run(self.simulation, self.side, self.ledger, self.case)

    # -- what there is ---

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.simulation.clock.now

    @property
    def network(self) -> Network:
        return self.simulation.network

    @property
    def cluster(self) -> SimulatedCluster:
        return self.simulation.cluster

    @property
    def faults(self) -> Faults:
        return self.cluster.model.faults

    @property
    def sender(self) -> Sender:
        """The producer's core."""
        return self.side.sender

    def leader(self, partition: int = 0) -> int:
        """Who leads a partition."""
        return self.cluster.state.require_partition(TOPIC, partition).leader_id

    def host(self, partition: int = 0) -> str:
        """The host of a partition's leader."""
        return host_of(self.leader(partition))

    # -- the story's verbs ---

    async def sleep(self, seconds: float) -> None:
        await self.side.sleep_until(self.now + seconds)

    async def until(self, condition: Callable[[], object], within: float) -> None:
        """Wait for a condition; that it comes true in time is part of the story."""
        deadline = self.now + within
        while not condition():
            assert self.now < deadline, f"not within {within} s"
            await self.sleep(min(within / 500, 0.05))

    def later(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        """Have something happen meanwhile."""
        self.simulation.clock.call_later(seconds, action, *arguments)

    async def warm_up(self) -> None:
        """One record to each partition: connections, producer id and sequences are there from now on."""
        for partition in range(self.case.partitions):
            await self.send(partition)
        await self.side.flush()

    async def send(
        self,
        partition: int = 0,
        count: int = 1,
        *,
        size: int = 10,
        apart: float | None = None,
        is_stamped: bool = True,
    ) -> list[Entry]:
        """Send numbered records; what is not `apart` goes into one batch, as far as it fits.

        Args:
            partition: Where to; `KEYLESS` leaves it to the partitioner.
            count: How many.
            size: Bytes of each value.
            apart: Seconds between two of them.
            is_stamped: With timestamps; otherwise the producer asks the wall clock.
        """
        entries = []
        for number in range(count):
            entry = self.ledger.offer(partition, size)
            entries.append(entry)
            if not is_stamped:
                entry.timestamp = self.simulation.wall_ms()
            await self._send(entry, is_stamped=is_stamped)
            if apart is not None and number < count - 1:
                await self.sleep(apart)
        return entries

    async def _send(self, entry: Entry, *, is_stamped: bool = True) -> None:
        timestamp = entry.timestamp if is_stamped else None
        try:
            partition = None if entry.writer == KEYLESS else entry.writer
            delivery = await self.side.send(TOPIC, entry.value, partition, timestamp)
        except ProducerError as error:
            self.ledger.refuse(entry, error)
            return
        self.ledger.accept(entry)
        delivery._add_delivery_callback(lambda metadata, error: self.ledger.settle(entry, metadata, error))

    async def send_in_flight(self, count: int = 5, partition: int = 0, *, records: int = 1) -> list[Entry]:
        """Have so many requests with batches of one partition on their way; the link must be slow enough."""
        connection = self.sender.connections.connection(self.leader(partition))
        assert connection is not None
        before = len(connection.in_flight)
        entries = []
        for _ in range(count):
            entries += await self.send(partition, records)
            await self.sleep(0.02)
        assert len(connection.in_flight) == before + count
        return entries

    # -- what became of it ---

    def copies(self, entries: Iterable[Entry]) -> list[int]:
        """How often each record is in the logs."""
        values = Counter(
            record.value
            for partition in self.cluster.state.partitions()
            for batch in partition.log.batches
            for record in batch.records()
        )
        return [values[entry.value] for entry in entries]

    def log(self, partition: int = 0) -> list[StoredBatch]:
        """The batches of a partition."""
        return self.cluster.log(TOPIC, partition)

    def requests(self, api: ApiKey = ApiKey.PRODUCE, since: float = 0.0) -> list[ReceivedRequest]:
        """What the brokers were asked."""
        return [request for request in self.cluster.model.requests.entries(api) if request.at >= since]

    def has_reconnected(self, partition: int = 0) -> bool:
        """Whether the last two Produce requests to a partition's leader came over two connections."""
        first, second = [r for r in self.requests() if r.broker_id == self.leader(partition)][-2:]
        return first.connection_id != second.connection_id

    def assert_acknowledged(self, entries: Iterable[Entry], *copies: int) -> None:
        """All of them; and each is so often in the log: with idempotence once, else as given, or once."""
        entries = list(entries)
        assert [failure_of(entry) for entry in entries] == [None] * len(entries)
        expected = 1 if self.is_idempotent or not copies else copies[0]
        assert self.copies(entries) == [expected] * len(entries)

    # -- playing ---

    def play(
        self, story: Coroutine[Any, Any, None], *, is_closed: bool = False, death: str | None = None
    ) -> None:
        """Play the story, heal, send again, close, and judge.

        Args:
            story: What happens.
            is_closed: The story itself closes the producer: nothing follows but the verdict.
            death: The story kills the sender, and this is what is logged. A core that is not trusted any more gives
                its memory back with itself.
        """
        heard: list[str] = []
        self.simulation.clock.limit = _STEPS
        with watching(heard), self.ledger.watching(), watched(self.ledger.accuse):
            self.side.run(self._main(story, is_closed, death is not None))
        troubles = [*self.side.troubles, *heard]
        if death is not None:
            assert any(death in trouble for trouble in troubles)
            troubles = [trouble for trouble in troubles if death not in trouble]
        for trouble in troubles:
            self.ledger.accuse("L", trouble)
        self.ledger.check()
        assert not self.ledger.violations, "\n".join((*self.ledger.violations, *self.simulation.trace.lines))

    async def _main(self, story: Coroutine[Any, Any, None], is_closed: bool, is_dead: bool) -> None:
        self.simulation.plan(self.case.faults)
        await self.side.start()
        await story
        if is_dead:
            return
        if not is_closed:
            self.simulation.heal()
            await self._run.recover()
            await self._run.close()
        else:
            self._run.check_memory()


def failure_of(entry: Entry) -> BaseException | None:
    """Why a record failed; fails itself where it is not settled."""
    if entry.refusal is not None:
        return entry.refusal
    assert entry.outcomes, f"{entry} is not settled"
    return entry.outcomes[0][1]


def offsets_of(entries: Iterable[Entry]) -> list[int]:
    """The offsets that were told."""
    return [entry.outcomes[0][0].offset for entry in entries]
