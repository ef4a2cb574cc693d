"""`FakeCluster`: the complete cluster, for tests and development.

Users import it from `aioproduce.testing`. It owns the model and its TCP server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    final,
)

from aioproduce.testing.fake_cluster.connections import BrokerSideConnection
from aioproduce.testing.fake_cluster.log import StoredBatch, TopicConfig
from aioproduce.testing.fake_cluster.model import ClusterModel
from aioproduce.testing.fake_cluster.security import ClusterSecurity, FakeSecurity, made_security
from aioproduce.testing.fake_cluster.server import ClusterServer
from aioproduce.testing.fake_cluster.state import BrokerState, ClusterState, TopicState
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from os import PathLike
    from ssl import SSLContext
    from types import TracebackType

    from aioproduce.testing.fake_cluster.certificates import Identity
    from aioproduce.testing.fake_cluster.connections import RequestLog
    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.partition import PartitionState, ReplicationConfig
    from aioproduce.testing.fake_cluster.telemetry import TelemetryPush
    from aioproduce.testing.fake_cluster.transaction_states import TransactionConfig


P = ParamSpec("P")
R = TypeVar("R")


class FakeRecord(NamedTuple):
    """One record in the log of a `FakeCluster`.

    Attributes:
        timestamp: Milliseconds since the epoch.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class FakeTransaction(NamedTuple):
    """One transactional id, as reported by its coordinator in a `FakeCluster`.

    Attributes:
        state: Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
        partitions: Those in the transaction, as (topic, partition); `__consumer_offsets` where it has offsets.
        started: Milliseconds since the epoch; `None` before the first transaction.
        timeout: `transaction.timeout.ms` of its producer, in seconds.
        coordinator: The broker that coordinates it, or -1.
        is_open: Whether it is neither committed nor aborted, or its markers are not written yet.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: tuple[tuple[str, int], ...]
    started: int | None
    timeout: float
    coordinator: int
    is_open: bool


IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]


def _of_the_state(
    method: Callable[Concatenate[ClusterState, P], R],
) -> Callable[Concatenate[FakeCluster, P], R]:
    """Return a method that calls the one of the cluster's state."""

    def call(cluster: FakeCluster, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(cluster._state, *args, **kwargs)

    return update_wrapper(call, method)


@final
class FakeCluster:
    """A Kafka cluster in memory, on loopback sockets, for development and tests, not for data that matters.

    Real clients can use it: this producer, aiokafka, librdkafka, Kafka's own console tools. It checks everything
    that a real broker checks (checksums, record counts, sizes, sequences and epochs of idempotent producers,
    leadership), and can simulate faults (`faults`).

    By default all replicas have everything at once, so that `acks=all` equals `acks=1`. With `replication`,
    followers lag, leave and join the ISR, and an unclean election loses records. If a leader stops, another one
    takes over at once.

    Transactions are those of Kafka 4.3.1, with `transaction.version` 1 and 2 (KIP-890): coordinators, markers,
    timeouts, offsets of groups. Each broker coordinates a share of the transactional ids.

    Not modelled: disk (everything is lost at the end), two-phase commit (KIP-939), authorization by user,
    compaction, static group membership, and the protocol of KIP-848. Offsets and times of a run depend on the
    clients; everything else is deterministic.

    Args:
        brokers: The number of brokers, with ids from 0.
        host: The loopback address to listen on.
        ports: One port per broker, in order of id; free ones by default.
        topics: Name -> number of partitions, created at the start.
        auto_create_topics: Whether a request for an unknown topic creates it (`default_partitions`).
        default_partitions: The number of partitions of topics created without a number.
        replication_factor: At most this many brokers have a partition; only leadership depends on it.
        log_append_time_topics: Those of `topics` with `message.timestamp.type=LogAppendTime`.
        topic_config: The default configuration of topics.
        announce_created_topics_late: Answer LEADER_NOT_AVAILABLE to the request that creates a topic.
        security: The required encryption (TLS) and login (SASL): a `FakeSecurity`, the name of a protocol
            (`"SASL_SSL"`), or the arguments of `FakeSecurity` as a mapping. By default none. TLS needs the extra
            `tls`.
        replication: How followers replicate; by default every replica has everything at once. `faults` pauses them.
        transaction_version: The finalized level of the feature `transaction.version`.
        transaction_config: The settings of transaction coordinators: timeouts, delays.

    Attributes:
        faults: Scripted faults.
        requests: The requests that the brokers received, and when (on the event loop's clock).
        ports: Broker id -> port.

    Example:
        >>> async with FakeCluster(brokers=3, topics={"orders": 6}) as cluster:
        ...     async with Producer(cluster.bootstrap_servers) as producer:
        ...         cluster.faults.reset_connections_on(ApiKey.PRODUCE)   # appended, and the answer lost
        ...         await producer.send_and_wait("orders", b"one")
        ...     assert [record.value for record in cluster.records("orders")] == [b"one"]
    """

    __slots__ = ("_host", "_model", "_security", "_server", "_state", "faults", "ports", "requests")

    def __init__(
        self,
        brokers: int = 3,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        topics: Mapping[str, int] | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 4,
        replication_factor: int = 3,
        log_append_time_topics: Collection[str] = (),
        topic_config: TopicConfig | None = None,
        announce_created_topics_late: bool = False,
        replication: ReplicationConfig | None = None,
        security: FakeSecurity | str | Mapping[str, Any] | None = None,
        transaction_version: int = 2,
        transaction_config: TransactionConfig | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError("a cluster needs at least one broker")
        if ports and len(ports) != brokers:
            raise ValueError(f"{brokers} brokers need {brokers} ports, not {len(ports)}")
        self._host = host
        self.ports: dict[int, int] = dict(enumerate(ports or [0] * brokers))
        self._state = ClusterState(
            [BrokerState(broker_id, host, 0) for broker_id in range(brokers)],
            default_partitions=default_partitions,
            replication_factor=replication_factor,
            default_config=topic_config,
            auto_create_topics=auto_create_topics,
            announce_created_topics_late=announce_created_topics_late,
            replication=replication,
            transaction_version=transaction_version,
            transactions=transaction_config,
        )
        # loop.time() is time.monotonic() under asyncio and a clock of the same rate under uvloop; `start()`
        # computes the difference to the wall clock.
        self._model = ClusterModel(self._state, epoch_ms=0)
        self.faults: Faults = self._model.faults
        self.requests: RequestLog = self._model.requests
        self._security: ClusterSecurity | None = None
        made = made_security(security)
        if made is not None:
            self._security = ClusterSecurity(made, host)
            self._security.install(self._model)
        self._server: ClusterServer | None = None
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)
            if name in log_append_time_topics:
                self.configure_topic(name, is_log_append_time=True)

    # Lifetime

    async def start(self) -> None:
        """Open the listeners. `async with` calls it."""
        if self._server is not None:
            raise RuntimeError("the cluster is already started")
        loop = asyncio.get_running_loop()
        self._model.epoch_ms = int((time.time() - loop.time()) * 1000)
        self._server = ClusterServer(self._model, self._host, self.ports)
        try:
            for broker in self._state.running_brokers:
                await self._server.listen(broker.broker_id)
                broker.port = self.ports[broker.broker_id]
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every socket; the records stay readable. A second call does nothing.

        Raises:
            Exception: If there was an error inside the model, which is a bug.
        """
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return ",".join(f"{host}:{self.ports[broker_id]}" for broker_id in self._state.brokers)

    # Security

    @property
    def security(self) -> FakeSecurity | None:
        """What it requires of clients; `None`: nothing."""
        return None if self._security is None else self._security.security

    @property
    def ca_certificate(self) -> str:
        """The certificate of the authority that clients trust, in PEM.

        Raises:
            ValueError: If the cluster does not use TLS.
        """
        return self._require_security().ca

    def client_settings(
        self,
        user: str | None = None,
        mechanism: str | None = None,
        *,
        directory: str | PathLike[str] | None = None,
    ) -> dict[str, str]:
        """Return a client's settings, with Kafka's keys; empty if the cluster is not secured.

        Args:
            user: One of the users with a password; the first by default.
            mechanism: One of the enabled mechanisms; the first by default.
            directory: Write certificates and keys there, `ca.pem` and `client.pem`, and return their locations; by
                default they are in the settings themselves.

        Raises:
            KeyError: If there is no such user.
        """
        return {} if self._security is None else self._security.client_settings(user, mechanism, directory)

    def client_context(self) -> SSLContext:
        """Return a context for clients such as aiokafka; it trusts the cluster, and has a certificate if required.

        Raises:
            ValueError: If the cluster does not use TLS.
        """
        return self._require_security().client_context()

    def client_identity(self, name: str = "client") -> Identity:
        """Return a certificate chain and a key for a client, in PEM, signed by the cluster's authority.

        Raises:
            ValueError: If the cluster does not use TLS.
        """
        return self._require_security().client_identity(name)

    def set_password(self, user: str, password: str) -> None:
        """Change a password, or add a user: it applies to logins from now on; sessions continue."""
        self._require_security().users.set(user, password)

    def remove_user(self, user: str) -> None:
        """Refuse further logins of a user; sessions continue."""
        self._require_security().users.remove(user)

    def set_certificate(self, kind: str) -> None:
        """Let brokers use another certificate from the next connection on: see `FakeTls`."""
        self._require_security().set_certificate(kind)

    # Events

    @property
    def connections(self) -> list[BrokerSideConnection]:
        """The open connections, oldest first."""
        return self._model.connections

    @property
    def connections_opened(self) -> int:
        """The total number of connections."""
        return self._model.connections_opened

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """All topics by name: ids, partitions, leaders."""
        return self._state.topics

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        isolation: IsolationLevel = "read_uncommitted",
    ) -> list[FakeRecord]:
        """Return every record of a topic, or of one partition of it: by partition, then by offset.

        Args:
            topic: The topic.
            partition: One partition; all by default.
            isolation: `"read_committed"` returns what a consumer with this `isolation.level` gets: no records of
                aborted transactions, and nothing from the first open transaction of a partition on.

        Raises:
            ValueError: If there is no such isolation level.
            KeyError: If there is no such topic or partition.
            RefusedError: If a batch that passed the checks on append has malformed records.
        """
        if partition is None:
            states = self._state.topics[topic].partitions
        else:
            states = [self._state.require_partition(topic, partition)]
        return [
            FakeRecord(state.partition, *record)
            for state in states
            for batch in _batches(state, isolation)
            for record in batch.records()
            if record.offset >= state.log.start_offset
        ]

    def log(self, topic: str, partition: int = 0) -> list[StoredBatch]:
        """Return the batches of one partition, with producer id, epoch and sequence."""
        return list(self._state.require_partition(topic, partition).log.batches)

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """Return where consumers with `isolation.level=read_committed` stop reading."""
        return self._state.require_partition(topic, partition).last_stable_offset

    @property
    def transactions(self) -> list[FakeTransaction]:
        """Every known transactional id, in order of its first InitProducerId."""
        model = self._model
        return [
            FakeTransaction(
                each.transactional_id,
                each.producer_id,
                each.epoch,
                each.state.value,
                tuple(each.partitions),
                None if each.started_at is None else model.wall_ms(each.started_at),
                each.timeout,
                model.transactions.coordinator(each.transactional_id),
                each.is_open,
            )
            for each in model.transactions.transactions.values()
        ]

    @property
    def open_transactions(self) -> list[FakeTransaction]:
        """Those of `transactions` that readers may have to wait for."""
        return [each for each in self.transactions if each.is_open]

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates a transactional id, or -1."""
        return self._model.transactions.coordinator(transactional_id)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """Return a consumer group's committed offset; `None` if there is none outside open transactions."""
        found = self._model.offsets.committed.get(group, {}).get((topic, partition))
        return None if found is None else found.offset

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads the partition, or -1."""
        return self._state.require_partition(topic, partition).leader_id

    # Changes of the cluster

    create_topic: Final = _of_the_state(ClusterState.create_topic)
    delete_topic: Final = _of_the_state(ClusterState.delete_topic)
    add_partitions: Final = _of_the_state(ClusterState.add_partitions)
    deny_topic: Final = _of_the_state(ClusterState.deny_topic)
    deny_group: Final = _of_the_state(ClusterState.deny_group)
    deny_transactional_id: Final = _of_the_state(ClusterState.deny_transactional_id)
    set_transaction_version: Final = _of_the_state(ClusterState.set_transaction_version)
    move_leader: Final = _of_the_state(ClusterState.move_leader)
    take_leader: Final = _of_the_state(ClusterState.take_leader)
    elect_leader: Final = _of_the_state(ClusterState.elect_leader)
    truncate: Final = _of_the_state(ClusterState.truncate)

    def move_transaction_coordinator(self, transactional_id: str, to_broker: int) -> None:
        """Make a running broker the coordinator of an id, and of all ids in the same partition of Kafka's topic.

        It loads for `TransactionConfig.load_time` seconds, and carries out its predecessor's decisions.

        Raises:
            ValueError: If the broker is not running.
        """
        self._model.transactions.move(transactional_id, to_broker)

    def take_transaction_coordinator(self, transactional_id: str) -> None:
        """Leave an id without a coordinator until it is elected (`elect_transaction_coordinator`) or moved."""
        self._model.transactions.take(transactional_id)

    def elect_transaction_coordinator(self, transactional_id: str) -> None:
        """Undo `take_transaction_coordinator`."""
        self._model.transactions.give_back(transactional_id)

    def configure_topic(self, name: str, **changes: object) -> None:
        """Change fields of a topic's `TopicConfig`, e.g. `max_message_bytes=1000`."""
        self._state.configure_topic(name, **changes)

    def elect_unclean(self, topic: str, partition: int, broker: int | None = None) -> int:
        """Make a running replica the leader, in sync or not; records that it lacks are lost. Return the leader.

        Without `broker`, it is the first other running replica. Without `replication`, nothing is lost.
        """
        return self._state.elect_unclean(topic, partition, broker)

    def isr(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the in-sync replicas."""
        return self._state.isr(self._state.require_partition(topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return where consumers stop reading: every in-sync replica has everything before it."""
        return self._state.require_partition(topic, partition).high_watermark

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Raise the start of a log, as retention does."""
        self._state.require_partition(topic, partition).log.delete_before(before_offset)

    def forget_producers(self, topic: str, partition: int) -> None:
        """Forget the partition's producer state, as `producer.id.expiration.ms` does."""
        self._state.require_partition(topic, partition).log.producers.forget()

    def set_api_versions(
        self, versions: Mapping[int, tuple[int, int] | None], broker: int | None = None
    ) -> None:
        """Change which versions brokers advertise and accept, from the next request on; `None` removes an API.

        `{ApiKey.API_VERSIONS: (0, 2)}` refuses v3 with UNSUPPORTED_VERSION in a v0 body. `{ApiKey.PRODUCE: (0, 2)}`
        simulates a broker before Kafka 0.11 (it is only advertised: no such Produce request is understood).
        """
        self._model.set_api_versions(versions, broker)

    def subscribe_metrics(
        self,
        prefixes: Sequence[str] = ("*",),
        *,
        interval: float = 300.0,
        is_delta: bool = False,
        codecs: Sequence[str] = ("zstd", "lz4", "gzip", "snappy"),
        max_bytes: int = 1024 * 1024,
    ) -> None:
        """Offer client telemetry (KIP-714) from the next connection on, and request these metrics of clients.

        Without this call the brokers behave like Kafka's without a telemetry plugin: they request nothing.

        Args:
            prefixes: Prefixes of the metrics' names, e.g. `("org.apache.kafka.producer.",)`; `("*",)` means all.
            interval: Seconds between pushes.
            is_delta: Whether totals count from push to push.
            codecs: The allowed codecs of a push, the preferred one first.
            max_bytes: The maximum size of a compressed push.
        """
        self._model.telemetry.subscribe(
            prefixes, interval, is_delta=is_delta, codecs=codecs, max_bytes=max_bytes
        )
        self.set_api_versions({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)})

    @property
    def pushed_metrics(self) -> list[TelemetryPush]:
        """The metrics that clients pushed, oldest first."""
        return self._model.telemetry.pushes

    def limit_produce(self, bytes_per_second: float | None) -> None:
        """Set a quota for every connection: beyond it, clients get `throttle_time_ms` and are not read (KIP-219).

        `None`, the default, means no limit.
        """
        self._model.produce_quota = bytes_per_second

    def delay_metadata(self, seconds: float) -> None:
        """Delay when brokers report changes (leaders, topics, brokers), in seconds; by default 0.

        Meanwhile they accept and refuse by the actual state. `faults.freeze_metadata` freezes the knowledge of one
        broker.
        """
        self._model.metadata_delay = seconds

    def advertise(self, broker: int, host: str, port: int) -> None:
        """Change the address that metadata shows for a broker, e.g. that of a proxy in front of it."""
        self._state.advertise(broker, host, port)

    async def stop_broker(self, broker: int) -> None:
        """Stop a broker like SIGKILL: connections reset, port closed; others lead its partitions at once."""
        server = self._require_server()
        await server.stop_listening(broker)
        server.feed(lambda now: self._model.broker_stopped(broker, now))

    async def start_broker(self, broker: int) -> None:
        """Start a stopped broker again, on the same port."""
        server = self._require_server()
        await server.listen(broker)
        server.feed(lambda now: self._model.broker_started(broker, now))

    def _require_security(self) -> ClusterSecurity:
        if self._security is None:
            raise ValueError("the cluster is not secured: FakeCluster(security=...)")
        return self._security

    def _require_server(self) -> ClusterServer:
        if self._server is None:
            raise RuntimeError("the cluster is not started")
        return self._server


def _batches(state: PartitionState, isolation: IsolationLevel) -> Iterable[StoredBatch]:
    """Return the batches of a partition that readers with this isolation level get."""
    if isolation == "read_uncommitted":
        return state.log.batches
    if isolation == "read_committed":
        return state.log.committed_batches(state.high_watermark)
    raise ValueError(f"isolation must be read_uncommitted or read_committed, not {isolation!r}")
