"""The broker model on the simulated network.

Created by `Simulation`. It passes facts from the endpoints to the model and the model's effects back, as
`fake_cluster.server` does with real sockets, and it stops and starts brokers.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.testing.fake_cluster.effects import Close, Effect, Send
from aioproduce.testing.fake_cluster.model import ClusterModel
from aioproduce.testing.fake_cluster.sasl_mechanisms import Users
from aioproduce.testing.fake_cluster.security import make_sasl
from aioproduce.testing.fake_cluster.state import BrokerState, ClusterState
from aioproduce.testing.simulation.stand_in_tls import StandInTls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.testing.fake_cluster.log import StoredBatch
    from aioproduce.testing.fake_cluster.security import FakeSecurity
    from aioproduce.testing.simulation.clock import Event
    from aioproduce.testing.simulation.endpoint import Address, Endpoint
    from aioproduce.testing.simulation.network import Network

PORT: Final = 9092
_SIZE: Final = 4
"""Size of the length field in front of a request, in bytes."""

EPOCH_MS: Final = 1_700_000_000_000
"""The wall clock of the brokers when a simulation begins."""


@final
class SimulatedCluster:
    """Brokers at `broker-0:9092`, `broker-1:9092` and so on.

    Args:
        network: The network on which they listen.
        brokers: The number of brokers.
        topics: Name -> number of partitions.
        service_time: Called with a broker's id and the bytes of a request; returns how many seconds the broker
            works on it, one request after the other. None: no time. Not with TLS.
        security: As for `FakeCluster`; `None`: none.
        seed: For the stand-in for TLS, and for the random numbers of SCRAM.
        **settings: As those of `ClusterState`.

    Attributes:
        model: The brokers: `model.faults`, `model.state`, `model.requests`.
        tls: If they use TLS: `tls.open(host)` makes a client's channel; else `None`.
        users: The users with passwords; `None` without security.
    """

    __slots__ = (
        "_busy_until",
        "_endpoints",
        "_network",
        "_received_bytes",
        "_service_time",
        "_timer",
        "_timer_at",
        "model",
        "state",
        "tls",
        "users",
    )

    def __init__(
        self,
        network: Network,
        brokers: int,
        topics: Mapping[str, int],
        *,
        service_time: Callable[[int, int], float] | None = None,
        security: FakeSecurity | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self._network = network
        self._service_time = service_time
        self._busy_until: dict[int, float] = {}
        self._received_bytes: dict[int, bytearray] = {}
        self.state: ClusterState = ClusterState(
            [BrokerState(broker_id, host_of(broker_id), PORT) for broker_id in range(brokers)],
            **settings,
        )
        for name, partitions in topics.items():
            self.state.create_topic(name, partitions)
        self.model: ClusterModel = ClusterModel(self.state, epoch_ms=EPOCH_MS)
        self.model.wake = self._arm
        self.tls: StandInTls | None = None
        self.users: Users | None = None
        if security is not None:
            self._secure(security, seed)
        self._endpoints: dict[int, Endpoint] = {}
        self._timer: Event | None = None
        self._timer_at = 0.0
        for broker_id in self.state.brokers:
            network.add_host(host_of(broker_id))
            network.listen(self.address(broker_id), partial(self._accept, broker_id))

    def _secure(self, security: FakeSecurity, seed: int) -> None:
        if security.has_tls:
            if self._service_time is not None:
                raise ValueError("service_time is by request, and a request is not seen through TLS")
            self.tls = StandInTls(seed)
        self.users = Users(
            dict(security.users), Random(f"security {seed}").randbytes, security.scram_iterations
        )
        self.model.secure(
            self.tls, make_sasl(security, self.users, self.model), asks_for_login=security.has_sasl
        )

    @property
    def bootstrap_servers(self) -> str:
        """The value for `Producer(...)`."""
        return ",".join(f"{host_of(broker_id)}:{PORT}" for broker_id in self.state.brokers)

    def address(self, broker_id: int) -> Address:
        """Return a broker's address."""
        return host_of(broker_id), PORT

    def log(self, topic: str, partition: int) -> list[StoredBatch]:
        """Return the batches of one partition."""
        return list(self.state.require_partition(topic, partition).log.batches)

    def values(self, topic: str, partition: int | None = None) -> Counter[bytes | None]:
        """Return how often each value is in the log of one partition, or of the whole topic."""
        partitions = range(len(self.state.topics[topic].partitions)) if partition is None else (partition,)
        return Counter(
            record.value
            for number in partitions
            for batch in self.log(topic, number)
            for record in batch.records()
        )

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker as SIGKILL does: connections are reset or refused, other brokers lead its partitions."""
        if self.state.brokers[broker_id].is_running:
            self._network.unlisten(self.address(broker_id))
            self.model.broker_stopped(broker_id, self._network.clock.now)
            self._settle()

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker."""
        if not self.state.brokers[broker_id].is_running:
            self._network.listen(self.address(broker_id), partial(self._accept, broker_id))
            self.model.broker_started(broker_id, self._network.clock.now)
            self._settle()

    # -- facts ---

    def _accept(self, broker_id: int, endpoint: Endpoint) -> None:
        connection_id = self.model.connection_opened(broker_id, self._network.clock.now)
        self._endpoints[connection_id] = endpoint
        endpoint.on_data = partial(self._received, broker_id, connection_id)
        endpoint.on_lost = partial(self._lost, connection_id)
        self._settle()

    def _received(self, broker_id: int, connection_id: int, data: bytes) -> None:
        if self._service_time is None:
            self._serve(connection_id, data)
            return
        clock = self._network.clock
        received = self._received_bytes.setdefault(connection_id, bytearray())
        received += data
        while len(received) >= _SIZE and len(received) >= (size := _SIZE + int.from_bytes(received[:_SIZE])):
            begin = max(clock.now, self._busy_until.get(broker_id, 0.0))
            self._busy_until[broker_id] = end = begin + self._service_time(broker_id, size)
            clock.call_at(end, self._serve, connection_id, bytes(received[:size]))
            del received[:size]

    def _serve(self, connection_id: int, data: bytes) -> None:
        if connection_id in self._endpoints:
            self.model.receive_data(connection_id, data, self._network.clock.now)
            self._settle()

    def _lost(self, connection_id: int, _error: Exception | None) -> None:
        self._endpoints.pop(connection_id, None)
        self._received_bytes.pop(connection_id, None)
        self.model.connection_closed(connection_id, self._network.clock.now)
        self._settle()

    def _tick(self) -> None:
        self._timer = None
        self.model.handle_timer(self._network.clock.now)
        self._settle()

    # -- effects ---

    def _settle(self) -> None:
        while self.model.effects:
            self._carry_out(self.model.effects.popleft())
        self._arm()

    def _carry_out(self, effect: Effect) -> None:
        endpoint = self._endpoints.get(effect.connection_id)
        if endpoint is None:
            return
        if isinstance(effect, Send):
            endpoint.write((effect.data,))
        elif isinstance(effect, Close):
            if effect.is_reset:
                endpoint.reset()
            else:
                endpoint.close()
        elif effect.is_reading:
            endpoint.resume_reading()
        else:
            endpoint.pause_reading()

    def _arm(self) -> None:
        at = self.model.next_timer()
        if self._timer is not None:
            if at == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer_at = at
            self._timer = self._network.clock.call_at(at, self._tick)


def host_of(broker_id: int) -> str:
    """Return the name of a broker's host."""
    return f"broker-{broker_id}"
