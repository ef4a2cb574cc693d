"""`ClusterThread`: a `FakeCluster` on a thread of its own, driven from ordinary functions.

For tests whose own event loop is not asyncio's, is not there yet, or is none of the cluster's business: the pytest
plugin's `kafka_cluster`, and any test of a program that is no coroutine. Users import it from `aioproduce.testing`.

Invariants:

1. What the cluster is asked and told while it runs happens on its thread, between two turns of its loop; the caller
   waits for it, which takes as long as one turn. So a call is done, and seen by every client, when it returns.
2. Before `start()` and after `stop()` there is no such thread, and calls work on the cluster directly: topics can
   be made beforehand, and records read afterwards.
3. After `stop()` nothing is left: no thread, no socket. What went wrong inside the cluster is raised there.
4. What would wait for a client's records refuses to do so in a thread whose event loop may be the client's.
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

# How often it is looked whether the records that are waited for have come: the waiter has nothing else to do.
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 30.0


class _Remote(Protocol[Target]):
    """Something of which the real thing is on the cluster's thread."""

    _target: Target

    def _call(self, function: Callable[[], R]) -> R: ...


def _on_its_thread(
    method: Callable[Concatenate[Target, P], R],
) -> Callable[Concatenate[_Remote[Target], P], R]:
    """The method of the real thing, run on its thread: same arguments, same result, same errors."""

    def call(remote: _Remote[Target], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return remote._call(partial(method, remote._target, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _remote(target: Target, call: Callable[[Callable[[], Any]], Any]) -> Target:
    """What has the methods of `target`, and runs them on its thread."""
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
    """The `__init__` of something that takes the arguments of another class."""
    return lambda initialise: update_wrapper(initialise, kind.__init__)


@final
class ClusterThread:
    """A `FakeCluster` on a thread and an event loop of its own.

    Clients may be anywhere: in this process on any event loop, in another one. All methods of `FakeCluster` are
    here as ordinary functions, for any thread, and `faults` and `requests` as well.

    Args:
        *args: As for `FakeCluster`.
        **kwargs: Likewise.

    Attributes:
        faults: Scripted misbehaviour, as in `FakeCluster`.
        requests: What the brokers were asked.

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

    # Life

    def start(self) -> None:
        """Start the thread, and return when every broker listens. `with` does it.

        Raises:
            RuntimeError: It is started already.
            OSError: A port or the host cannot be listened on.
        """
        if self._thread is not None:
            raise RuntimeError("the cluster is started already")
        # Not the policy's choice: the cluster needs nothing of it, and must not depend on the program's.
        thread = LoopThread("aioproduce fake cluster", asyncio.SelectorEventLoop())
        try:
            thread.call(self._target.start)
        except BaseException:
            thread.stop()
            thread.join()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Close every socket and end the thread; the records can still be looked at. A second call does nothing.

        Raises:
            Exception: What went wrong inside the cluster (a bug of it), if anything did.
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
        """Whether it is between `start()` and `stop()`."""
        return self._thread is not None

    # Where it is, and what happened

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas.

        Raises:
            RuntimeError: It was never started: there are no ports yet.
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
        """The connections that are open, oldest first."""
        return self._call(lambda: self._target.connections)

    @property
    def connections_opened(self) -> int:
        """How many connections there ever were."""
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
        """Every transactional id that is known, in order of its first InitProducerId."""
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

    # What happens to the cluster

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

    # How it is secured

    client_settings: Final = _on_its_thread(FakeCluster.client_settings)
    client_context: Final = _on_its_thread(FakeCluster.client_context)
    client_identity: Final = _on_its_thread(FakeCluster.client_identity)
    set_password: Final = _on_its_thread(FakeCluster.set_password)
    remove_user: Final = _on_its_thread(FakeCluster.remove_user)
    set_certificate: Final = _on_its_thread(FakeCluster.set_certificate)

    @property
    def security(self) -> FakeSecurity | None:
        """What the cluster asks of clients; `None`: nothing."""
        return self._target.security

    @property
    def ca_certificate(self) -> str:
        """The certificate of the authority that clients trust, in PEM."""
        return self._target.ca_certificate

    def configure_topic(self, name: str, **changes: object) -> None:
        """Change fields of a topic's `TopicConfig`, e.g. `max_message_bytes=1000`."""
        self._call(partial(self._target.configure_topic, name, **changes))

    def stop_broker(self, broker: int) -> None:
        """End a broker as SIGKILL does: connections reset, port closed; others lead its partitions at once."""
        self._run(self._target.stop_broker, broker)

    def start_broker(self, broker: int) -> None:
        """Start a stopped broker again, on the same port."""
        self._run(self._target.start_broker, broker)

    # What was produced

    def produced(
        self, topic: str, partition: int | None = None, *, isolation: IsolationLevel = "read_uncommitted"
    ) -> Produced:
        """The records of a topic, or of one partition of it, as they are now: by partition, then by offset.

        Args:
            topic: The topic.
            partition: One partition; all by default.
            isolation: `"read_committed"` leaves out what a consumer with this `isolation.level` is not given. So it
                does in all assertions.

        Raises:
            KeyError: There is no such topic, or no such partition.
        """
        there = self.topics
        if topic not in there:
            raise KeyError(f"no topic {topic!r}: nothing was sent to it, nor was it created. {_names(there)}")
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
        """Assert that such a record is in the topic: see `Produced.assert_has`, and `produced` for `isolation`.

        Returns:
            The records that are such.

        Raises:
            AssertionError: There is none, or not `count`; it tells what is there instead.

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
        """Assert that these values are in the topic and no others, in this order: see `Produced.assert_exactly`.

        Raises:
            AssertionError: One is missing, is there too often or too late, or others are there.
        """
        __tracebackhide__ = True
        return self._read(topic, partition, isolation).assert_exactly(values)

    def assert_nothing_produced(
        self, topic: str | None = None, *, isolation: IsolationLevel = "read_uncommitted"
    ) -> None:
        """Assert that nothing is in the topic (which need not exist), or in any topic at all.

        What a producer has accepted and not sent yet is not in the log: `flush()` first.

        Raises:
            AssertionError: Something is.
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
        """Block until the topic has at least so many records, for programs in another thread or process.

        Args:
            topic: The topic; it need not exist yet.
            count: At least so many.
            timeout: Seconds.
            isolation: As for `produced`.

        Raises:
            AssertionError: They did not come in time; it tells what is there.
            RuntimeError: This thread runs an event loop, which would stand still: `await until_produced()` there.
        """
        __tracebackhide__ = True
        if _runs_a_loop():
            raise RuntimeError(
                "wait_for_records() would stop this thread's event loop, and with it a producer that runs there: "
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
        """Wait until the topic has at least so many records, on asyncio and on trio.

        Where the producer is at hand, `await producer.flush()` is the shorter way.

        Args:
            topic: The topic; it need not exist yet.
            count: At least so many.
            timeout: Seconds.
            isolation: As for `produced`.

        Raises:
            AssertionError: They did not come in time; it tells what is there.
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
        """Run a function where the cluster lives, and give what it gives."""
        thread = self._thread
        return function() if thread is None else thread.ask(function)

    def _run(self, method: Callable[[int], Coroutine[Any, Any, None]], broker: int) -> None:
        if self._thread is None:
            raise RuntimeError("the cluster is not started")
        self._thread.call(method, broker)

    def _read(
        self, topic: str, partition: int | None = None, isolation: IsolationLevel = "read_uncommitted"
    ) -> Produced:
        """The records of a topic that need not exist."""

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
