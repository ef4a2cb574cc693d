"""`Simulation`: a service, its producer, a network and a Kafka cluster in virtual time, from one seed.

Users import it from `aioproduce.testing.simulation`.
"""

from __future__ import annotations

import asyncio
import random
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, final

from aioproduce.testing.fake_cluster.partition import NO_LEADER
from aioproduce.testing.fake_cluster.security import made_security
from aioproduce.testing.simulation.clock import VirtualClock
from aioproduce.testing.simulation.cluster import SimulatedCluster
from aioproduce.testing.simulation.event_loop import SimulationLoop
from aioproduce.testing.simulation.network import Network
from aioproduce.testing.simulation.schedule import EVERY_KIND, check_kinds
from aioproduce.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from aioproduce.testing.fake_cluster.security import FakeSecurity
    from aioproduce.testing.simulation.schedule import ScheduledFault


T = TypeVar("T")


@final
class Simulation:
    """Virtual time, a simulated network, and brokers on it.

    An hour of time-outs and outages takes a second or less, and the same seed gives the same run. The producer, its
    asyncio driver and your service are real; only the sockets, the brokers and the time are simulated.

    For runs to be equal, nothing in the service may depend on the wall clock, on threads, or on the order of sets.
    Records without a timestamp get the simulation's time; use it (`wall_ms()`) also for those with one.

    Args:
        seed: Determines everything random, including the module `random`.
        brokers: The number of brokers.
        topics: Name -> number of partitions.
        trace: How many lines of the trace to keep; `None` keeps all.
        security: As for `FakeCluster`; TLS is a stand-in (`stand_in_tls`), whose client side is `cluster.tls`. Its
            random numbers are not from `random`, so they do not change the rest of a run.
        **settings: As for `ClusterState`: `auto_create_topics`, `replication_factor`, ...

    Raises:
        ValueError: If there is no broker, or a topic has no partition.

    Attributes:
        clock: `clock.now`, `clock.call_at(...)`: the time, and planned events.
        network: Latencies, black holes, resets: `network.hold("broker-0")`.
        cluster: The brokers: `cluster.stop_broker(0)`, `cluster.model.faults`.
        random: A source of random numbers for the simulation.
        trace: The log of the run.

    Example:
        >>> simulation = Simulation(seed=7, topics={"orders": 3})
        >>> async def service():
        ...     async with Producer(simulation.bootstrap_servers) as producer:
        ...         simulation.clock.call_later(1.0, simulation.cluster.stop_broker, 0)
        ...         for number in range(60):
        ...             await producer.send_and_wait("orders", b"%d" % number)
        ...             await asyncio.sleep(1)              # virtual: a minute passes at once
        >>> simulation.run(service())
    """

    __slots__ = ("_seed", "clock", "cluster", "network", "random", "trace")

    clock: VirtualClock
    network: Network
    cluster: SimulatedCluster
    random: Random
    trace: Trace

    def __init__(
        self,
        seed: int = 0,
        *,
        brokers: int = 3,
        topics: Mapping[str, int] | None = None,
        trace: int | None = 0,
        security: FakeSecurity | str | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster must have at least one broker, not {brokers}")
        self._seed = seed
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.trace = Trace(self.clock, trace)
        self.network = Network(self.clock, Random(self.random.getrandbits(64)), self.trace)
        self.cluster = SimulatedCluster(
            self.network, brokers, topics or {}, security=made_security(security), seed=seed, **settings
        )

    @property
    def bootstrap_servers(self) -> str:
        """The value for `Producer(...)`."""
        return self.cluster.bootstrap_servers

    def wall_ms(self) -> int:
        """The brokers' wall clock, in milliseconds since the epoch."""
        return self.cluster.model.epoch_ms + int(self.clock.now * 1000)

    def plan(self, faults: Iterable[ScheduledFault]) -> None:
        """Plan these faults (`random_faults()`, or your own).

        Args:
            faults: In any order; past ones begin at once.

        Raises:
            ValueError: If a fault's kind is not in `EVERY_KIND`, or its broker does not exist; then none is
                planned.

        Example:
            >>> simulation.plan([ScheduledFault(at=60.0, kind="black hole", seconds=45.0, broker=1)])
        """
        planned = list(faults)
        check_kinds(fault.kind for fault in planned)
        for fault in planned:
            if fault.broker not in self.cluster.state.brokers:
                raise ValueError(f"there is no broker {fault.broker}: {fault}")
        for fault in planned:
            self.clock.call_at(fault.at, self._begin, fault)

    def heal(self) -> None:
        """End all present faults; those planned for later still happen."""
        self.cluster.model.faults.clear()
        for broker_id, broker in self.cluster.state.brokers.items():
            if not broker.is_running:
                self.cluster.start_broker(broker_id)
        for partition in self.cluster.state.partitions():
            if partition.leader_id == NO_LEADER:
                self.cluster.state.elect_leader(partition.topic, partition.partition)
        self.cluster.model.transactions.places.give_all_back()
        for host in self.network.links:
            self.network.heal(host)

    def _begin(self, fault: ScheduledFault) -> None:
        kind = EVERY_KIND[fault.kind]
        self.trace.add(f"fault {fault}")
        kind.begin(self, fault)
        if kind.end is not None:
            self.clock.call_later(fault.seconds, self._end, fault)

    def _end(self, fault: ScheduledFault) -> None:
        end = EVERY_KIND[fault.kind].end
        assert end is not None
        self.trace.add(f"end of {fault}")
        end(self, fault)

    def _make_loop(self) -> SimulationLoop:
        return SimulationLoop(self.clock, self.network, self.wall_ms)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in virtual time, as `asyncio.run()` does.

        An open producer always has a planned event (it refreshes its metadata every five minutes), so a wait for
        something that never happens is no deadlock while a producer is open, and would never end: use
        `asyncio.timeout()`, which is also virtual, or set `clock.limit`.

        Raises:
            SimulationDeadlockError: If it waits for something that can no longer happen.
            SimulationLivelockError: If it took more steps than `clock.limit`.
        """
        former = random.getstate()
        random.seed(self._seed)
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                return runner.run(main)
        finally:
            random.setstate(former)
