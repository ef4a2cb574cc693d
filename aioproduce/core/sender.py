"""The producer without its event loop: facts go in, effects come out, `now` is an argument.

Called by a driver, which reports what happened on the sockets and carries out the effects, and by the Producer,
which appends records and asks for flush and close.

    facts:    connection_made, receive_data, connection_lost, writable, handle_timer
    requests: append, await_topic, begin_flush, begin_close, abort
    effects:  next_effect(now) -> Connect | Send | Close | None, and next_timer() -> instant | None

Invariants:

1. After any fact or request, `next_effect(now)` until it gives None brings the core to rest: nothing more can
   be done before the next fact or `next_timer()`.
2. Everything that waits (for a topic, for memory, for a flush) is woken by what it waits for, by `abort()` and
   by close; nothing waits on the core without a bound that the waiter keeps.
3. A batch drained from the accumulator is in flight on exactly one connection until that connection's answer
   or loss.
4. Nothing here imports a loop, a clock, a socket or a random source.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.broker_connection import LossCause
from aioproduce.core.broker_connections import BrokerConnections
from aioproduce.core.buffer_pool import BufferPool
from aioproduce.core.cluster_metadata import ClusterMetadata
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.produce_completion import ProduceCompletion
from aioproduce.core.record_accumulator import RecordAccumulator
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.core.transaction_manager import TransactionManager
from aioproduce.errors import ProducerFatalError, UnsupportedVersionError
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import InitProducerIdResponse, MetadataResponse, ProduceResponse
from aioproduce.wire.requests import encode_init_producer_id, encode_metadata, encode_produce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce._native.delivery import BatchResult, DeliveryRuntime
    from aioproduce.compression import Codec
    from aioproduce.config import ProducerConfig
    from aioproduce.core.broker_connection import BrokerConnection
    from aioproduce.core.effects import Buffer, Effect
    from aioproduce.core.in_flight_request import Completed
    from aioproduce.core.producer_batch import ProducerBatch
    from aioproduce.errors import DeliveryError

_log = logging.getLogger("aioproduce.sender")

# Java gives the idempotent producer the largest time-out there is: it has no transaction to time out.
_NO_TRANSACTION_TIMEOUT: Final = (2**31 - 1) / 1000
_LAST_PRODUCE_VERSION_BY_NAME: Final = 12
_ANY_TOPIC: Final = ""
"""No topic has this name: those who wait for it wait for any metadata."""


class Random(Protocol):
    """A source of randomness, as `random.Random` is one."""

    def random(self) -> float:
        """One of [0, 1)."""

    def randrange(self, stop: int, /) -> int:
        """One of 0 to stop - 1."""


class _Request(Enum):
    """The context of requests that carry no batches."""

    METADATA = auto()
    INIT_PRODUCER_ID = auto()


class SenderState(Enum):
    """Whether the core still sends."""

    RUNNING = auto()
    CLOSING = auto()
    """No more records come in; those accepted are being sent."""
    CLOSED = auto()
    """Every future is settled; connections may still be on their way down."""


@final
class TopicWaiter:
    """Someone who waits for news of a topic."""

    __slots__ = ("notify", "topic")

    def __init__(self, topic: str, notify: Callable[[], None]) -> None:
        self.topic = topic
        self.notify = notify


@final
class Sender:
    """Owns the pool, the accumulator, the metadata and the connections, and makes them work together.

    Args:
        config: The settings.
        codec: The compression, or `None`.
        runtime: What deliveries need of the driver.
        random: Jitter, and the choice among equals.
        now: The current instant.
    """

    __slots__ = (
        "_bounded_log",
        "_completion",
        "_config",
        "_flushes",
        "_has_work",
        "_init_failures",
        "_retry",
        "_state",
        "_timers",
        "_topic_waiters",
        "accumulator",
        "connections",
        "metadata",
        "pool",
        "transactions",
    )

    def __init__(
        self,
        config: ProducerConfig,
        *,
        codec: Codec | None,
        runtime: DeliveryRuntime,
        random: Random,
        now: float,
    ) -> None:
        self._config = config
        retry = ExponentialBackoff(config.retry_backoff, config.retry_backoff_max, random=random.random)
        self._retry = retry
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.metadata = ClusterMetadata(
            bootstrap=config.bootstrap_servers,
            max_age=config.metadata_max_age,
            max_idle=config.metadata_max_idle,
            backoff=retry,
            recovery_strategy=config.metadata_recovery_strategy,
            rebootstrap_trigger=config.metadata_rebootstrap_trigger,
            now=now,
        )
        self.transactions = TransactionManager() if config.enable_idempotence else None
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            metadata=self.metadata,
            transactions=self.transactions,
            runtime=runtime,
            codec=codec,
            batch_size=config.batch_size,
            linger=config.linger,
            delivery_timeout=config.delivery_timeout,
            max_request_size=config.max_request_size,
            backoff=retry,
            random=random.randrange,
            ignore_keys=config.partitioner_ignore_keys,
        )
        self.connections = BrokerConnections(
            client_id=config.client_id,
            max_in_flight=config.max_in_flight,
            request_timeout=config.request_timeout,
            connections_max_idle=config.connections_max_idle,
            setup_backoff=ExponentialBackoff(
                config.socket_connection_setup_timeout,
                config.socket_connection_setup_timeout_max,
                random=random.random,
            ),
            reconnect_backoff=ExponentialBackoff(
                config.reconnect_backoff, config.reconnect_backoff_max, random=random.random
            ),
            random=random.randrange,
        )
        self._completion = ProduceCompletion(config, self.accumulator, self.metadata, self.transactions)
        self._bounded_log = BoundedLog(_log)
        self._state = SenderState.RUNNING
        self._timers: Deadlines[_Request] = Deadlines()
        self._topic_waiters: dict[str, dict[TopicWaiter, None]] = {}
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._init_failures = 0
        self._has_work = True

    # -- what the Producer asks ---

    @property
    def has_work(self) -> bool:
        """Whether `next_effect()` has something to look at: the driver shall be woken."""
        return self._has_work or self.accumulator.has_news or bool(self.connections.effects)

    @property
    def is_closed(self) -> bool:
        """Whether everything is settled and every connection is gone."""
        return self._state is SenderState.CLOSED and len(self.connections) == 0

    @property
    def is_accepting(self) -> bool:
        """Whether records may be appended."""
        return self._state is SenderState.RUNNING

    @property
    def settled(self) -> deque[BatchResult]:
        """Results whose delivery callbacks the driver shall run, in order."""
        return self._completion.settled

    def await_metadata(self, notify: Callable[[], None], now: float) -> TopicWaiter:
        """Fetch metadata anew, and be told when any answer came (or the core closed)."""
        waiter = TopicWaiter(_ANY_TOPIC, notify)
        self._topic_waiters.setdefault(_ANY_TOPIC, {})[waiter] = None
        self.request_metadata(now)
        return waiter

    def await_topic(self, topic: str, notify: Callable[[], None], now: float) -> TopicWaiter:
        """Have metadata of a topic fetched, and be told when an answer about it came (or the core closed)."""
        waiter = TopicWaiter(topic, notify)
        self._topic_waiters.setdefault(topic, {})[waiter] = None
        self.metadata.want_topic(topic, now)
        self._has_work = True
        return waiter

    def forget_topic_waiter(self, waiter: TopicWaiter) -> None:
        """The waiter waits no longer; nothing happens if it was told already."""
        waiters = self._topic_waiters.get(waiter.topic)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._topic_waiters[waiter.topic]

    def request_metadata(self, now: float) -> None:
        """What is known may be out of date: fetch it again, within the back-off."""
        self.metadata.request_update(now)
        self._has_work = True

    def memory_exhausted(self, now: float) -> None:
        """Someone waits for memory: what lingers goes."""
        self.accumulator.memory_exhausted(now)
        self._has_work = True

    def begin_flush(self, notify: Callable[[], None], now: float) -> None:
        """Send all that is accepted without lingering; `notify` is called when it is settled."""
        self._flushes.append((self.accumulator.begin_flush(now), notify))
        self._has_work = True
        self._check_flushes()

    def begin_close(self, now: float) -> None:
        """Take no more records; send what is there, then close the connections."""
        if self._state is not SenderState.RUNNING:
            return
        self._state = SenderState.CLOSING
        self._wake_all_topic_waiters()
        self.pool.close()
        self.accumulator.begin_close(now)
        self._has_work = True

    def abort(self, now: float, make_error: Callable[[ProducerBatch], DeliveryError] | None = None) -> None:
        """Fail what is not settled, now, and drop the connections.

        Args:
            now: The current instant.
            make_error: Why, for each batch; a `ForcedCloseError` by default.
        """
        self.begin_close(now)
        if self._state is SenderState.CLOSING:
            self._completion.fail_all(make_error or self._completion.forced_close, now)
            self._finish_close(now)
        self._check_flushes()

    def die(self, cause: BaseException) -> None:
        """The task that drove this core ended by a bug: settle everything without trusting the core's state."""
        self._state = SenderState.CLOSED
        for batch in self.accumulator.incomplete:
            if not batch.result.is_done:
                batch.result.fail(self._completion.sender_died(batch, cause), batch.record_count)
                if batch.result.has_callbacks:
                    self.settled.append(batch.result)
        self._wake_all_topic_waiters()
        flushes, self._flushes = self._flushes, deque()
        for _, notify in flushes:
            notify()
        self.pool.close()

    # -- facts ---

    def connection_made(self, connection_id: int, now: float) -> None:
        """The transport is there."""
        self.connections.connection_made(connection_id, now)
        self._has_work = True

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Bytes came from a broker."""
        for completed in self.connections.receive_data(connection_id, data, now):
            self._handle_answer(connection_id, completed, now)
        if self.connections.fatal_error is not None:
            self._wake_all_topic_waiters()
        self._check_flushes()
        self._has_work = True

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """A transport is gone, or an attempt to open one failed."""
        lost = self.connections.connection_lost(connection_id, error, now)
        if lost is None:
            return
        if lost.cause not in (LossCause.IDLE, LossCause.REQUESTED):
            self._bounded_log.warning(
                ("lost", lost.connection.node_id), now, "lost the connection: %s", lost.reason
            )
            # A broker that goes away is the commonest reason for a leader to move.
            self.metadata.request_update(now)
        for request in lost.requests:
            if request.context is _Request.METADATA:
                self.metadata.update_failed(now)
            elif request.context is _Request.INIT_PRODUCER_ID:
                self._init_failed(None, now)
            else:
                self._completion.unanswered(
                    _batches_of(request.context),
                    lost.reason,
                    timed_out=lost.cause is LossCause.REQUEST_TIMEOUT,
                    now=now,
                )
        self._check_flushes()
        self._has_work = True

    def writable(self, connection_id: int, now: float) -> None:
        """A transport holds none of our bytes any more."""
        for request in self.connections.writable(connection_id, now):
            self._completion.written(_batches_of(request.context), now)
        self._check_flushes()
        self._has_work = True

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        timer = self.next_timer()
        if timer is None or timer > now:
            return
        self._completion.expire(now)
        self.accumulator.handle_timer(now)
        self.connections.handle_timer(now)
        self._timers.pop_due(now)
        self._check_flushes()
        self._has_work = True

    # -- effects ---

    def next_timer(self) -> float | None:
        """The next instant at which `handle_timer()` has something to do."""
        first = self.accumulator.next_timer()
        for at in (self.connections.next_timer(), self._timers.next_at()):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def next_effect(self, now: float) -> Effect | None:
        """What the driver shall do next; None when the core is at rest."""
        effects = self.connections.effects
        if not effects and self.has_work:
            self._advance(now)
        return effects.popleft() if effects else None

    def _advance(self, now: float) -> None:
        self._has_work = False
        self.accumulator.has_news = False
        if self._state is SenderState.CLOSED:
            return
        if self.transactions is not None:
            for topic_partition in self.transactions.settle_sequences():
                self.accumulator.unblock(topic_partition, now)
        self._update_metadata(now)
        self._init_producer_id(now)
        self._send_ready(now)
        if self._state is SenderState.CLOSING and not self.accumulator.has_incomplete:
            self._finish_close(now)

    def _finish_close(self, now: float) -> None:
        self._state = SenderState.CLOSED
        self.connections.close_all("the producer is closing", now)
        self._check_flushes()

    def _check_flushes(self) -> None:
        oldest = self.accumulator.oldest_incomplete_id
        while self._flushes and self._flushes[0][0] <= oldest:
            self._flushes.popleft()[1]()

    # -- metadata ---

    def _update_metadata(self, now: float) -> None:
        metadata = self.metadata
        if self.accumulator.has_new_leaderless:
            self.accumulator.has_new_leaderless = False
            self._ask_for_leaders(now)
        if metadata.needs_rebootstrap(now):
            self._rebootstrap("no metadata for metadata.recovery.rebootstrap.trigger.ms", now)
        due_at = metadata.next_update_at()
        if due_at is None:
            return
        if due_at > now:
            self._timers.reschedule(_Request.METADATA, due_at)
            return
        connection = self.connections.least_loaded(metadata.brokers, now)
        if (
            connection is None
            and metadata.can_rebootstrap
            and self.connections.all_unavailable(metadata.brokers, now)
        ):
            self._rebootstrap("none of the known brokers can be reached", now)
            connection = self.connections.least_loaded(metadata.brokers, now)
        if connection is None:
            # The connections wake us when one is ready or may be tried; time alone may call for a re-bootstrap.
            rebootstrap_at = metadata.rebootstrap_at()
            if rebootstrap_at is not None:
                self._timers.reschedule(_Request.METADATA, rebootstrap_at)
            return
        query = metadata.begin_update(now)
        connection.send(
            ApiKey.METADATA,
            lambda version, correlation_id: [
                encode_metadata(
                    version,
                    correlation_id,
                    self._config.client_id,
                    query.topics,
                    allow_auto_topic_creation=True,
                )
            ],
            _Request.METADATA,
            now,
            timeout=self._config.request_timeout,
        )

    def _ask_for_leaders(self, now: float) -> None:
        topics = self.accumulator.leaderless_topics
        for topic in topics:
            self.metadata.want_topic(topic, now)
        if topics:
            self.metadata.request_update(now)

    def _rebootstrap(self, reason: str, now: float) -> None:
        self._bounded_log.warning("rebootstrap", now, "starting again from bootstrap.servers: %s", reason)
        for broker in self.metadata.brokers:
            connection = self.connections.connection(broker.node_id)
            if connection is not None:
                self.connections.close(connection.connection_id, reason, now)
        for topic_partition in self.metadata.rebootstrap(now).leaders:
            self.accumulator.leader_changed(topic_partition, now)

    def _metadata_answered(self, response: MetadataResponse, now: float) -> None:
        change = self.metadata.update(response, now)
        for topic in (*change.topics, *change.dropped):
            self.accumulator.topic_changed(topic)
        for topic_partition in change.leaders:
            self.accumulator.leader_changed(topic_partition, now)
        if self.accumulator.leaderless_topics:
            self._ask_for_leaders(now)
        if not self.metadata.is_bootstrapping:
            # Bootstrap connections go when idle; the brokers' own are used from here on.
            self.connections.retain([broker.node_id for broker in self.metadata.brokers])
        for topic in (*change.topics, _ANY_TOPIC):
            for waiter in self._topic_waiters.pop(topic, ()):
                waiter.notify()

    def _wake_all_topic_waiters(self) -> None:
        waiting, self._topic_waiters = self._topic_waiters, {}
        for waiters in waiting.values():
            for waiter in waiters:
                waiter.notify()

    # -- producer id ---

    def _init_producer_id(self, now: float) -> None:
        transactions = self.transactions
        if transactions is None or not transactions.needs_producer_id:
            return
        if self._timers.at(_Request.INIT_PRODUCER_ID) is not None:
            return  # backing off
        connection = self.connections.least_loaded(self.metadata.brokers, now)
        if connection is None:
            return
        try:
            connection.send(
                ApiKey.INIT_PRODUCER_ID,
                lambda version, correlation_id: [
                    encode_init_producer_id(
                        version,
                        correlation_id,
                        self._config.client_id,
                        transaction_timeout=_NO_TRANSACTION_TIMEOUT,
                    )
                ],
                _Request.INIT_PRODUCER_ID,
                now,
                timeout=self._config.request_timeout,
            )
        except UnsupportedVersionError:
            # Cannot happen with a broker that takes record batches v2; such a broker is refused when connecting.
            self._init_failed(codes.UNSUPPORTED_VERSION, now)
            return
        transactions.init_begun()

    def _init_answered(self, response: InitProducerIdResponse, now: float) -> None:
        if response.error_code != codes.NONE:
            self._init_failed(response.error_code, now)
            return
        assert self.transactions is not None
        self._init_failures = 0
        self.transactions.init_succeeded(response.producer_id, response.producer_epoch)
        self.accumulator.unblock_all(now)

    def _init_failed(self, code: int | None, now: float) -> None:
        """`code` is the broker's answer, or `None` where none came."""
        assert self.transactions is not None
        if not self.transactions.needs_producer_id:
            self.transactions.init_failed(is_fatal=False)
        self._timers.reschedule(_Request.INIT_PRODUCER_ID, now + self._retry.backoff(self._init_failures))
        self._init_failures += 1
        if code is None or codes.is_retriable(code):
            return
        # Records that wait for the id cannot be sent; later ones try anew, as the right may be granted.
        name, text = codes.name_of(code), codes.message_of(code)
        self._bounded_log.warning(("init", code), now, "no producer id: %s: %s", name, text)
        self._completion.fail_all(
            lambda batch: ProducerFatalError(
                f"the cluster gives this producer no id, which enable.idempotence=true needs: {name}: {text}. "
                "Grant IdempotentWrite on the cluster (or Write on a topic), or set enable.idempotence=false",
                code=code,
                name=name,
                topic_partition=batch.topic_partition,
                possibly_written=batch.possibly_written,
                attempts=batch.attempts,
                retriable=False,
            ),
            now,
        )

    # -- produce ---

    def _send_ready(self, now: float) -> None:
        if self.transactions is not None and not self.transactions.is_ready:
            return
        for node in list(self.accumulator.ready_nodes):
            address = self.metadata.broker(node)
            if address is None:
                self.metadata.request_update(now)
                continue
            connection = self.connections.ensure(address, now)
            if connection is not None and connection.can_send(now):
                batches = self.accumulator.drain(node, now)
                if batches:
                    self._send_batches(connection, batches, now)

    def _send_batches(
        self, connection: BrokerConnection, batches: Sequence[ProducerBatch], now: float
    ) -> None:
        config = self._config

        def encode(version: int, correlation_id: int) -> Sequence[Buffer]:
            return encode_produce(
                version,
                correlation_id,
                config.client_id,
                acks=config.acks,
                timeout=config.request_timeout,
                batches=batches,
            )

        if self._completion.keeps_order_by_muting:
            for batch in batches:
                self.accumulator.mute(batch.topic_partition)
        has_ids = all(batch.topic_id is not None for batch in batches)
        connection.send(
            ApiKey.PRODUCE,
            encode,
            batches,
            now,
            timeout=config.request_timeout,
            expects_response=config.acks != 0,
            max_version=None if has_ids else _LAST_PRODUCE_VERSION_BY_NAME,
        )

    # -- answers ---

    def _handle_answer(self, connection_id: int, completed: Completed, now: float) -> None:
        response = completed.response
        if isinstance(response, ProduceResponse):
            connection = self.connections.connection_by_id(connection_id)
            peer = "the broker" if connection is None else connection.peer
            self._completion.answered(_batches_of(completed.request.context), response, peer, now)
        elif isinstance(response, MetadataResponse):
            self._metadata_answered(response, now)
        elif isinstance(response, InitProducerIdResponse):
            self._init_answered(response, now)
        else:
            raise TypeError(f"no request of ours is answered by {type(response).__name__}")

    def connection_errors(self) -> dict[str, str]:
        """Address -> what went wrong there last, for every broker that is known and cannot be reached."""
        errors: dict[str, str] = {}
        for broker in self.metadata.brokers:
            error = self.connections.last_error(broker.node_id)
            if error is not None:
                errors[f"{broker.host}:{broker.port}"] = error
        return errors


def _batches_of(context: object) -> Sequence[ProducerBatch]:
    assert isinstance(context, list)
    return context
