"""`ClusterThread`: a `FakeCluster` in a thread of its own, used with ordinary functions.

For tests whose own event loop is not asyncio's, does not exist yet, or should not run the cluster: the pytest
plugin's `kafka_cluster`, and tests of programs without coroutines. Users import it from `aioproduce.testing`.

Invariants:

1. A call on the running cluster is executed in its thread, between two iterations of its loop, and the caller waits
   for it. So the effect is complete, and visible to every client, when the call returns.
2. Before `start()` and after `stop()` there is no such thread, and calls are executed on the cluster directly:
   topics can be created beforehand, and records read afterwards.
3. After `stop()` no thread and no socket is left. `stop()` raises errors from inside the cluster.
4. A call that would wait for a client's records raises in a thread whose event loop may be the client's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial, update_wrapper
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast, final

from aioproduce.drivers.loop_thread import LoopThread
from aioproduce.testing.fake_cluster.cluster import FakeCluster
from aioproduce.testing.produced import ANY, Produced

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType

    from aioproduce.testing.fake_cluster.cluster import FakeTransaction, IsolationLevel
    from aioproduce.testing.fake_cluster.connections import BrokerSideConnection, RequestLog
    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.log import PartitionLog
    from aioproduce.testing.fake_cluster.security import FakeSecurity
    from aioproduce.testing.fake_cluster.state import TopicState
    from aioproduce.testing.fake_cluster.telemetry import TelemetryPush

P = ParamSpec("P")
R = TypeVar("R")
Target = TypeVar("Target")

# How often to check for the expected records: the waiting thread has nothing else to do.
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 30.0


class _Remote(Protocol[Target]):
    """A substitute for an object in the cluster's thread."""

    _target: Target

    def _call(self, function: Callable[[], R]) -> R: ...


def _on_its_thread(
    method: Callable[Concatenate[Target, P], R],
) -> Callable[Concatenate[_Remote[Target], P], R]:
    """Return a method that runs the real one in its thread: same arguments, same result, same errors."""

    def call(remote: _Remote[Target], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return remote._call(partial(method, remote._target, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _remote(target: Target, call: Callable[[Callable[[], Any]], Any]) -> Target:
    """Return an object with the methods of `target` that runs them in its thread."""
    kind = type(target)
    methods = {
        name: _on_its_thread(method)
        for name, method in vars(kind).items()
        if isfunction(method) and not name.startswith("_")
    }
    remote = type(f"Thread{kind.__name__}", (), methods)()
    remote._target, remote._call = target, call
    return cast("Target", remote)


def _made_as(
    kind: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Return an `__init__` with the arguments of another class."""
    return lambda initialise: update_wrapper(initialise, kind.__init__)


@final
class ClusterThread:
    """A `FakeCluster` in a thread and an event loop of its own.

    Clients may run anywhere: in this process on any event loop, or in another process. All methods of `FakeCluster`
    exist here as ordinary functions for any thread, and so do `faults` and `requests`.

    Args:
        *args: As for `FakeCluster`.
        **kwargs: As for `FakeCluster`.

    Attributes:
        faults: Scripted faults, as in `FakeCluster`.
        requests: The requests that the brokers received.

    Example:
        >>> with ClusterThread(topics={"orders": 6}) as cluster:
        ...     cluster.faults.fail_produce(6, topic="orders")     # NOT_LEADER_OR_FOLLOWER, once
        ...     run_the_program(cluster.bootstrap_servers)
        ...     cluster.assert_produced("orders", b"42", key=b"customer-7", count=1)
    """

    __slots__ = ("_target", "_thread", "faults", "requests")

    @_made_as(FakeCluster)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._target = FakeCluster(*args, **kwargs)
        self._thread: LoopThread | None = None
        self.faults: Faults = _remote(self._target.faults, self._call)
        self.requests: RequestLog = _remote(self._target.requests, self._call)

    # Lifetime

    def start(self) -> None:
        """Start the thread, and return when every broker listens. `with` calls it.

        Raises:
            RuntimeError: If it is already started.
            OSError: If it cannot listen on a port or the host.
        """
        if self._thread is not None:
            raise RuntimeError("the cluster is already started")
        # Not the policy's loop: the cluster must not depend on the program's choice.
        thread = LoopThread("aioproduce fake cluster", asyncio.SelectorEventLoop())
        try:
            thread.call(self._target.start)
        except BaseException:
            thread.stop()
            thread.join()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Close every socket and end the thread; the records stay readable. A second call does nothing.

        Raises:
            Exception: If there was an error inside the cluster, which is a bug.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._target.close)
            finally:
                thread.stop()
                thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "not running" if self._thread is None else "running"
        return f"<ClusterThread {self._target.bootstrap_servers}, {state}>"

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._thread is not None

    # Addresses and events

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas.

        Raises:
            RuntimeError: If it was never started, so that there are no ports.
        """
        if 0 in self._target.ports.values():
            raise RuntimeError("the cluster has no addresses before start()")
        return self._target.bootstrap_servers

    @property
    def ports(self) -> Mapping[int, int]:
        """Broker id -> port."""
        return dict(self._target.ports)

    @property
    def connections(self) -> list[BrokerSideConnection]:
        """The open connections, oldest first."""
        return self._call(lambda: self._target.connections)

    @property
    def connections_opened(self) -> int:
        """The total number of connections."""
        return self._target.connections_opened

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """All topics by name: ids, partitions, leaders."""
        return self._call(lambda: dict(self._target.topics))

    @property
    def pushed_metrics(self) -> list[TelemetryPush]:
        """The metrics that clients pushed, oldest first."""
        return self._call(lambda: list(self._target.pushed_metrics))

    @property
    def transactions(self) -> list[FakeTransaction]:
        """Every known transactional id, in order of its first InitProducerId."""
        return self._call(lambda: self._target.transactions)

    @property
    def open_transactions(self) -> list[FakeTransaction]:
        """Those of `transactions` that readers may have to wait for."""
        return self._call(lambda: self._target.open_transactions)

    records: Final = _on_its_thread(FakeCluster.records)
    log: Final = _on_its_thread(FakeCluster.log)
    leader: Final = _on_its_thread(FakeCluster.leader)
    isr: Final = _on_its_thread(FakeCluster.isr)
    high_watermark: Final = _on_its_thread(FakeCluster.high_watermark)
    last_stable_offset: Final = _on_its_thread(FakeCluster.last_stable_offset)
    transaction_coordinator: Final = _on_its_thread(FakeCluster.transaction_coordinator)
    committed_offset: Final = _on_its_thread(FakeCluster.committed_offset)

    # Changes of the cluster

    create_topic: Final = _on_its_thread(FakeCluster.create_topic)
    delete_topic: Final = _on_its_thread(FakeCluster.delete_topic)
    add_partitions: Final = _on_its_thread(FakeCluster.add_partitions)
    deny_topic: Final = _on_its_thread(FakeCluster.deny_topic)
    deny_group: Final = _on_its_thread(FakeCluster.deny_group)
    deny_transactional_id: Final = _on_its_thread(FakeCluster.deny_transactional_id)
    set_transaction_version: Final = _on_its_thread(FakeCluster.set_transaction_version)
    move_transaction_coordinator: Final = _on_its_thread(FakeCluster.move_transaction_coordinator)
    take_transaction_coordinator: Final = _on_its_thread(FakeCluster.take_transaction_coordinator)
    elect_transaction_coordinator: Final = _on_its_thread(FakeCluster.elect_transaction_coordinator)
    move_leader: Final = _on_its_thread(FakeCluster.move_leader)
    take_leader: Final = _on_its_thread(FakeCluster.take_leader)
    elect_leader: Final = _on_its_thread(FakeCluster.elect_leader)
    elect_unclean: Final = _on_its_thread(FakeCluster.elect_unclean)
    truncate: Final = _on_its_thread(FakeCluster.truncate)
    delete_records: Final = _on_its_thread(FakeCluster.delete_records)
    forget_producers: Final = _on_its_thread(FakeCluster.forget_producers)
    set_api_versions: Final = _on_its_thread(FakeCluster.set_api_versions)
    subscribe_metrics: Final = _on_its_thread(FakeCluster.subscribe_metrics)
    limit_produce: Final = _on_its_thread(FakeCluster.limit_produce)
    delay_metadata: Final = _on_its_thread(FakeCluster.delay_metadata)
    advertise: Final = _on_its_thread(FakeCluster.advertise)

    # Security

    client_settings: Final = _on_its_thread(FakeCluster.client_settings)
    client_context: Final = _on_its_thread(FakeCluster.client_context)
    client_identity: Final = _on_its_thread(FakeCluster.client_identity)
    set_password: Final = _on_its_thread(FakeCluster.set_password)
    remove_user: Final = _on_its_thread(FakeCluster.remove_user)
    set_certificate: Final = _on_its_thread(FakeCluster.set_certificate)

    @property
    def security(self) -> FakeSecurity | None:
        """What the cluster requires of clients; `None`: nothing."""
        return self._target.security

    @property
    def ca_certificate(self) -> str:
        """The certificate of the authority that clients trust, in PEM."""
        return self._target.ca_certificate

    def configure_topic(self, name: str, **changes: object) -> None:
        """Change fields of a topic's `TopicConfig`, e.g. `max_message_bytes=1000`."""
        self._call(partial(self._target.configure_topic, name, **changes))

    def stop_broker(self, broker: int) -> None:
        """Stop a broker like SIGKILL: connections reset, port closed; others lead its partitions at once."""
        self._run(self._target.stop_broker, broker)

    def start_broker(self, broker: int) -> None:
        """Start a stopped broker again, on the same port."""
        self._run(self._target.start_broker, broker)

    # Produced records

    def produced(
        self, topic: str, partition: int | None = None, *, isolation: IsolationLevel = "read_uncommitted"
    ) -> Produced:
        """Return the current records of a topic, or of one partition of it: by partition, then by offset.

        Args:
            topic: The topic.
            partition: One partition; all by default.
            isolation: `"read_committed"` omits the records that a consumer with this `isolation.level` does not
                get. The same holds for all assertions.

        Raises:
            KeyError: If there is no such topic or partition.
        """
        there = self.topics
        if topic not in there:
            raise KeyError(f"no topic {topic!r}: it was neither created nor sent to. {_names(there)}")
        return Produced(topic, self.records(topic, partition, isolation=isolation))

    def assert_produced(
        self,
        topic: str,
        value: object = ANY,
        *,
        key: object = ANY,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None = None,
        json: object = ANY,
        partition: int | None = None,
        timestamp: int | None = None,
        count: int | None = None,
        isolation: IsolationLevel = "read_uncommitted",
    ) -> Produced:
        """Assert that the topic has such a record: see `Produced.assert_has`, and `produced` for `isolation`.

        Returns:
            The matching records.

        Raises:
            AssertionError: If there is none, or not `count`. The message describes the existing records.

        Example:
            >>> cluster.assert_produced("orders", json={"id": 42}, key="customer-7", count=1)
        """
        __tracebackhide__ = True
        return self._read(topic, isolation=isolation).assert_has(
            value, key=key, headers=headers, json=json, partition=partition, timestamp=timestamp, count=count
        )

    def assert_produced_exactly(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int | None = None,
        isolation: IsolationLevel = "read_uncommitted",
    ) -> Produced:
        """Assert that the topic has exactly these values in this order: see `Produced.assert_exactly`.

        Raises:
            AssertionError: If one is missing, duplicated or in the wrong order, or if there are others.
        """
        __tracebackhide__ = True
        return self._read(topic, partition, isolation).assert_exactly(values)

    def assert_nothing_produced(
        self, topic: str | None = None, *, isolation: IsolationLevel = "read_uncommitted"
    ) -> None:
        """Assert that the topic (which need not exist), or all topics, are empty.

        Records that a producer has accepted and not yet sent are not in the log: call `flush()` first.

        Raises:
            AssertionError: If there are records.
        """
        __tracebackhide__ = True
        for name in self.topics if topic is None else (topic,):
            self._read(name, isolation=isolation).assert_empty()

    def wait_for_records(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout: float = _PATIENCE,
        isolation: IsolationLevel = "read_uncommitted",
    ) -> Produced:
        """Block until the topic has at least this many records, for programs in another thread or process.

        Args:
            topic: The topic; it need not exist yet.
            count: The minimum number.
            timeout: Seconds.
            isolation: As for `produced`.

        Raises:
            AssertionError: If they did not arrive in time. The message describes the existing records.
            RuntimeError: If this thread runs an event loop, which would be blocked: use `await until_produced()`
                there.
        """
        __tracebackhide__ = True
        if _runs_a_loop():
            raise RuntimeError(
                "wait_for_records() would block this thread's event loop, and with it a producer on that loop: "
                "use `await cluster.until_produced(...)`"
            )
        deadline = time.monotonic() + timeout
        while len(found := self._read(topic, isolation=isolation)) < count:
            if time.monotonic() >= deadline:
                found.fail_waiting(count, timeout)
            time.sleep(_LOOK_EVERY)
        return found

    async def until_produced(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout: float = _PATIENCE,
        isolation: IsolationLevel = "read_uncommitted",
    ) -> Produced:
        """Wait until the topic has at least this many records, on asyncio and on trio.

        If the test has the producer, `await producer.flush()` is simpler.

        Args:
            topic: The topic; it need not exist yet.
            count: The minimum number.
            timeout: Seconds.
            isolation: As for `produced`.

        Raises:
            AssertionError: If they did not arrive in time. The message describes the existing records.
        """
        __tracebackhide__ = True
        import anyio

        deadline = time.monotonic() + timeout
        while len(found := self._read(topic, isolation=isolation)) < count:
            if time.monotonic() >= deadline:
                found.fail_waiting(count, timeout)
            await anyio.sleep(_LOOK_EVERY)
        return found

    # The thread

    def _call(self, function: Callable[[], R]) -> R:
        """Run a function in the cluster's thread, and return its result."""
        thread = self._thread
        return function() if thread is None else thread.ask(function)

    def _run(self, method: Callable[[int], Coroutine[Any, Any, None]], broker: int) -> None:
        if self._thread is None:
            raise RuntimeError("the cluster is not started")
        self._thread.call(method, broker)

    def _read(
        self, topic: str, partition: int | None = None, isolation: IsolationLevel = "read_uncommitted"
    ) -> Produced:
        """Return the records of a topic that need not exist."""

        def read() -> Produced:
            there = self._target.topics
            is_there = topic in there
            records = self._target.records(topic, partition, isolation=isolation) if is_there else []
            return Produced(topic, records, among={name: _count(state) for name, state in there.items()})

        return self._call(read)


def _count(topic: TopicState) -> int:
    return sum(_count_records(each.log) for each in topic.partitions)


def _count_records(log: PartitionLog) -> int:
    if log.transactions.markers == 0:
        return log.end_offset - log.start_offset
    return sum(batch.record_count for batch in log.batches if batch.marker is None)


def _names(topics: Iterable[str]) -> str:
    return f"Topics: {', '.join(map(repr, topics)) or 'none'}"


def _runs_a_loop() -> bool:
    if asyncio._get_running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())
