"""KIP-714: asking the cluster which metrics of this client it wants, and pushing them to it.

Owned and called by the Sender, as `ProducerIdRequests` is. What is pushed is made by a `PayloadSource`, which lives
above the core.

Invariants:

1. Brokers that do not offer the two APIs are asked nothing, and no connection is opened for a question: only for
   a push that a broker has asked for.
2. The state moves only along `_TRANSITIONS`. In TERMINATED nothing is sent any more; who waits for the client's id
   has been told.
3. Nothing that a broker answers, and no failure of the source, reaches the records: at worst the pushing ends.
4. The last push, on close, goes when every record is settled. It holds the close up for a second at most, and never
   beyond `delivery.timeout.ms` from the close on.
5. Nothing is sent twice at once: an interval, of 100 ms at least, lies between a push and what follows it, but for
   one question after a push that the broker refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, final

from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_get_telemetry_subscriptions, encode_push_telemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioproduce.config import ProducerConfig
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.wire.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse

_log = logging.getLogger("aioproduce.telemetry")

DEFAULT_PUSH_INTERVAL: Final = 300.0
"""Seconds until the next try where no broker has told an interval; Kafka's default."""

_SHORTEST_INTERVAL: Final = 0.1
"""What Kafka's own brokers take as an interval at the least."""

_FIRST_PUSH: Final = 0.5
"""The first push comes after 0.5 to 1.5 intervals: clients that were started together do not push together."""

_LAST_PUSH_BOUND: Final = 1.0
"""Seconds that the last push may hold the close up."""


class TelemetryState(Enum):
    """Where the client is in asking, waiting and pushing; Kafka's names."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    """The producer is closing: once all records are settled there is one more push."""
    TERMINATING_PUSH_IN_PROGRESS = "terminating push in progress"
    TERMINATED = "terminated"


_State = TelemetryState

_AFTER_AN_ANSWER: Final = frozenset(
    {_State.PUSH_NEEDED, _State.SUBSCRIPTION_NEEDED, _State.TERMINATING_PUSH_NEEDED, _State.TERMINATED}
)

_TRANSITIONS: Final[Mapping[TelemetryState, frozenset[TelemetryState]]] = MappingProxyType(
    {
        _State.SUBSCRIPTION_NEEDED: frozenset({_State.SUBSCRIPTION_IN_PROGRESS, _State.TERMINATED}),
        _State.SUBSCRIPTION_IN_PROGRESS: _AFTER_AN_ANSWER,
        _State.PUSH_NEEDED: frozenset(
            {
                _State.PUSH_NEEDED,
                _State.PUSH_IN_PROGRESS,
                _State.TERMINATING_PUSH_NEEDED,
                _State.TERMINATED,
            }
        ),
        _State.PUSH_IN_PROGRESS: _AFTER_AN_ANSWER,
        _State.TERMINATING_PUSH_NEEDED: frozenset({_State.TERMINATING_PUSH_IN_PROGRESS, _State.TERMINATED}),
        _State.TERMINATING_PUSH_IN_PROGRESS: frozenset({_State.TERMINATED}),
        _State.TERMINATED: frozenset(),
    }
)

_ASK_AT_ONCE: Final = frozenset({codes.UNKNOWN_SUBSCRIPTION_ID, codes.UNSUPPORTED_COMPRESSION_TYPE})
"""Answers to a push that mean: what is wanted has changed."""

_ASK_LATER: Final = frozenset({codes.TELEMETRY_TOO_LARGE, codes.THROTTLING_QUOTA_EXCEEDED})
"""Answers that mean: not now. All others that no time cures end the pushing, as in Java."""


@final
@dataclass(frozen=True, slots=True)
class Subscription:
    """What the cluster wants.

    Attributes:
        client_instance_id: Who we are to it.
        subscription_id: What a push names.
        push_interval: Seconds from push to push.
        max_bytes: The largest push, as compressed.
        is_delta: Whether totals count from push to push, not from the start.
        compression_types: Ids of codecs, the broker's favourite first, without those that it refused.
        prefixes: What the names of the wanted metrics begin with; empty: none are wanted.
    """

    client_instance_id: UUID
    subscription_id: int
    push_interval: float
    max_bytes: int
    is_delta: bool
    compression_types: tuple[int, ...]
    prefixes: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Payload:
    """What is pushed: OTLP's MetricsData, compressed by the codec of this id."""

    compression_type: int
    data: bytes


class PayloadSource(Protocol):
    """Makes payloads, and keeps what deltas count from."""

    def unavailable(self) -> str | None:
        """Why there can be no payload, with the remedy; `None` where there can. Asked once a subscription."""

    def make(self, subscription: Subscription) -> Payload:
        """The metrics of now; as small as it can be made where `max_bytes` is exceeded."""

    def pushed(self) -> None:
        """The broker has, or may have, the payload made last: deltas count from there."""

    def reset(self) -> None:
        """What totals count from has changed: forget what was pushed."""


@final
class Telemetry:
    """Asks for subscriptions, and pushes what they want.

    Args:
        config: The settings.
        source: Makes what is pushed.
        metadata: The brokers.
        connections: The ways to them.
        random: One of [0, 1), for when the first push comes.
        bounded_log: For what may come again and again.

    Attributes:
        state: See `TelemetryState`.
        client_instance_id: The id that a broker gave this client; kept for its life.
        timer_at: When to look again, if nothing happens before.
        awaits_connection: Whether something is due, and the connections that offer telemetry are busy.
        due_at: When something is to be asked or pushed; at infinity while an answer is awaited, and after the end.
        unoffered_at: How many negotiations there had been when no connection offered telemetry; -1: one did.
    """

    __slots__ = (
        "_bounded_log",
        "_codec",
        "_config",
        "_connections",
        "_ends_at",
        "_metadata",
        "_node_id",
        "_outstanding",
        "_random",
        "_refused_codecs",
        "_source",
        "_subscription",
        "_waiters",
        "awaits_connection",
        "client_instance_id",
        "due_at",
        "state",
        "timer_at",
        "unoffered_at",
    )

    def __init__(
        self,
        config: ProducerConfig,
        source: PayloadSource,
        metadata: ClusterMetadata,
        connections: BrokerConnections,
        random: Callable[[], float],
        bounded_log: BoundedLog,
    ) -> None:
        self._config = config
        self._source = source
        self._metadata = metadata
        self._connections = connections
        self._random = random
        self._bounded_log = bounded_log
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.client_instance_id: UUID | None = None
        self.timer_at: float | None = None
        self.awaits_connection = False
        self.due_at = -inf
        self._ends_at = inf
        self._node_id: int | None = None
        self._outstanding = 0
        self._codec = 0
        self._refused_codecs: set[int] = set()
        self._subscription: Subscription | None = None
        self.unoffered_at = -1
        self._waiters: dict[Callable[[], None], None] = {}

    # -- who waits for the id ---

    def await_id(self, notify: Callable[[], None]) -> None:
        """Tell when the id is there, or will never be."""
        self._waiters[notify] = None

    def forget(self, notify: Callable[[], None]) -> None:
        """This one waits no longer."""
        self._waiters.pop(notify, None)

    def wake_all(self) -> None:
        """Tell everyone who waits."""
        waiters, self._waiters = self._waiters, {}
        for notify in waiters:
            notify()

    # -- asking and pushing ---

    def advance(self, now: float, context: object) -> None:
        """Ask or push, if a broker can take it; `context` comes back with the request's end.

        To be called when `due_at` has come and `unoffered_at` says that it is worth a look.
        """
        self.timer_at = None
        connection = self._choose(now, may_connect=self._wants_metrics)
        if connection is None:
            return
        if self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            self._ask(connection, context, now)
        else:
            self._push(connection, TelemetryState.PUSH_IN_PROGRESS, context, now)

    def _choose(self, now: float, *, may_connect: bool) -> BrokerConnection | None:
        """A connection that can send now: to the broker that answered last, else the one with the least to do."""
        self.awaits_connection = False
        best: BrokerConnection | None = None
        for connection in self._connections.ready():
            if not _offers_telemetry(connection):
                continue
            self.awaits_connection = True
            if not connection.can_send(now):
                continue
            if connection.node_id == self._node_id:
                return connection
            if best is None or len(connection.in_flight) < len(best.in_flight):
                best = connection
        if best is not None or self.awaits_connection:
            return best
        if not may_connect:
            self.unoffered_at = self._connections.negotiations
            return None
        opened = self._connections.least_loaded(self._metadata.brokers, now)
        return opened if opened is not None and _offers_telemetry(opened) else None

    def _ask(self, connection: BrokerConnection, context: object, now: float) -> None:
        connection.send(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            lambda version, correlation_id: [
                encode_get_telemetry_subscriptions(
                    version, correlation_id, self._config.client_id, self.client_instance_id
                )
            ],
            context,
            now,
            timeout=self._config.request_timeout,
        )
        self._sent(connection, TelemetryState.SUBSCRIPTION_IN_PROGRESS)

    def _push(self, connection: BrokerConnection, state: TelemetryState, context: object, now: float) -> None:
        subscription = self._subscription
        assert subscription is not None, "nothing is pushed that nobody wants"
        try:
            payload = self._source.make(subscription)
        except Exception:
            # Whatever it is, records must not suffer from it.
            _log.exception("the metrics cannot be encoded: no more are pushed to the cluster")
            self._end()
            return
        size = len(payload.data)
        if size > subscription.max_bytes > 0:
            self._bounded_log.warning(
                "telemetry size",
                now,
                "%d bytes of metrics were not pushed: the broker takes %d (telemetry.max.bytes). Subscribe to "
                "fewer metrics, or raise it",
                size,
                subscription.max_bytes,
            )
            if state is TelemetryState.PUSH_IN_PROGRESS:
                self._schedule(TelemetryState.PUSH_NEEDED, now + subscription.push_interval, now)
            else:
                self._end()
            return
        connection.send(
            ApiKey.PUSH_TELEMETRY,
            lambda version, correlation_id: [
                encode_push_telemetry(
                    version,
                    correlation_id,
                    self._config.client_id,
                    client_instance_id=subscription.client_instance_id,
                    subscription_id=subscription.subscription_id,
                    terminating=state is TelemetryState.TERMINATING_PUSH_IN_PROGRESS,
                    compression_type=payload.compression_type,
                    metrics=payload.data,
                )
            ],
            context,
            now,
            timeout=self._config.request_timeout,
        )
        self._codec = payload.compression_type
        self._sent(connection, state)

    def _sent(self, connection: BrokerConnection, state: TelemetryState) -> None:
        self._move_to(state)
        self.due_at = inf
        self.awaits_connection = False
        self._node_id = connection.node_id
        self._outstanding += 1

    # -- answers ---

    def subscribed(self, response: GetTelemetrySubscriptionsResponse, now: float) -> None:
        """Take the answer to a question in."""
        self._outstanding -= 1
        if self.state is not TelemetryState.SUBSCRIPTION_IN_PROGRESS:
            self._end_if_last()
            return
        client_instance_id = response.client_instance_id or self.client_instance_id
        if response.error_code != codes.NONE or client_instance_id is None:
            self._refused(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, response.error_code, now)
            return
        self.client_instance_id = client_instance_id
        self.wake_all()
        interval = response.push_interval
        before, self._subscription = (
            self._subscription,
            Subscription(
                client_instance_id,
                response.subscription_id,
                max(interval, _SHORTEST_INTERVAL) if interval > 0 else DEFAULT_PUSH_INTERVAL,
                response.telemetry_max_bytes,
                response.delta_temporality,
                tuple(one for one in response.accepted_compression_types if one not in self._refused_codecs),
                response.requested_metrics,
            ),
        )
        subscription = self._subscription
        if before is not None and before.is_delta != subscription.is_delta:
            self._source.reset()
        if not subscription.prefixes:
            self._schedule(TelemetryState.SUBSCRIPTION_NEEDED, now + subscription.push_interval, now)
            return
        problem = self._source.unavailable()
        if problem is not None:
            _log.warning("the cluster asks for this client's metrics, and they are not pushed: %s", problem)
            self._end()
            return
        wait = subscription.push_interval * (_FIRST_PUSH + self._random())
        self._schedule(TelemetryState.PUSH_NEEDED, now + wait, now)

    def pushed(self, response: PushTelemetryResponse, now: float) -> None:
        """Take the answer to a push in."""
        self._outstanding -= 1
        if response.error_code == codes.NONE:
            self._source.pushed()
        if self.state is not TelemetryState.PUSH_IN_PROGRESS:
            self._end_if_last()
        elif response.error_code != codes.NONE:
            self._refused(ApiKey.PUSH_TELEMETRY, response.error_code, now)
        else:
            self._schedule(TelemetryState.PUSH_NEEDED, now + self._interval, now)

    def failed(self, now: float) -> None:
        """The connection was lost before the answer came.

        Asked again is after an interval, as in Java: a broker that the request is too much for is left alone.
        """
        self._outstanding -= 1
        self._end_if_last()
        if self.state in (TelemetryState.SUBSCRIPTION_IN_PROGRESS, TelemetryState.PUSH_IN_PROGRESS):
            if self.state is TelemetryState.PUSH_IN_PROGRESS:
                # It may have arrived: rather counted not at all than twice.
                self._source.pushed()
            self._schedule(TelemetryState.SUBSCRIPTION_NEEDED, now + self._interval, now)

    def _refused(self, api: ApiKey, code: int, now: float) -> None:
        name, text = codes.name_of(code), codes.message_of(code)
        if code == codes.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self._codec)
        if code in _ASK_AT_ONCE or code in _ASK_LATER or codes.is_retriable(code):
            is_push = api is ApiKey.PUSH_TELEMETRY
            wait = 0.0 if is_push and code in _ASK_AT_ONCE else self._interval
            _log.debug("%s: %s: %s; asked again in %g s", api.display_name, name, text, wait)
            self._schedule(TelemetryState.SUBSCRIPTION_NEEDED, now + wait, now)
            return
        _log.warning("no more metrics are pushed to the cluster: %s: %s: %s", api.display_name, name, text)
        self._end()

    @property
    def _wants_metrics(self) -> bool:
        """Whether the cluster has asked for any."""
        return self._subscription is not None and bool(self._subscription.prefixes)

    @property
    def _interval(self) -> float:
        return DEFAULT_PUSH_INTERVAL if self._subscription is None else self._subscription.push_interval

    # -- the end ---

    def begin_close(self, now: float) -> None:
        """The producer closes: the one push that is left comes when the records are settled."""
        if self.state is TelemetryState.TERMINATED:
            return
        if not self._wants_metrics or self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            self._end()
            return
        self._move_to(TelemetryState.TERMINATING_PUSH_NEEDED)
        self.due_at, self.timer_at = inf, None
        self._ends_at = now + self._config.delivery_timeout
        self.wake_all()

    def finish(self, now: float, context: object) -> bool:
        """All records are settled: push for the last time; says whether nothing is left to wait for."""
        if self.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self._ends_at = min(self._ends_at, now + _LAST_PUSH_BOUND)
            connection = self._choose(now, may_connect=False) if now < self._ends_at else None
            if connection is not None:
                self._push(connection, TelemetryState.TERMINATING_PUSH_IN_PROGRESS, context, now)
            elif not self.awaits_connection:
                self._end()
        if self.state is not TelemetryState.TERMINATED and now >= self._ends_at:
            self._end()
        if self.state is TelemetryState.TERMINATED:
            return True
        self.timer_at = self._ends_at
        return False

    def _end_if_last(self) -> None:
        """An answer came while closing, or will not come: the last push's, or that of what was sent before it."""
        if self.state is TelemetryState.TERMINATING_PUSH_IN_PROGRESS and not self._outstanding:
            self._end()

    def _end(self) -> None:
        self._move_to(TelemetryState.TERMINATED)
        self.due_at, self.timer_at, self.awaits_connection = inf, None, False
        self.wake_all()

    # -- states ---

    def _schedule(self, state: TelemetryState, at: float, now: float) -> None:
        self._move_to(state)
        self.due_at = at
        self.timer_at = at if at > now else None

    def _move_to(self, state: TelemetryState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise RuntimeError(f"telemetry: {self.state.value} cannot become {state.value}")
        self.state = state


def _offers_telemetry(connection: BrokerConnection) -> bool:
    versions = connection.api_versions
    return (
        versions is not None
        and versions.supports(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
        and versions.supports(ApiKey.PUSH_TELEMETRY)
    )
