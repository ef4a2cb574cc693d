"""Client metrics for the cluster (KIP-714): requests for its subscriptions, and pushes of the metrics.

A `PayloadSource`, which lives above the core, makes the payload of a push.

Invariants:

1. Brokers that do not offer the two APIs get no request. A connection is opened only for a push that a broker has
   asked for, never for a subscription request.
2. The state moves only along `TELEMETRY_STATES`. In TERMINATED nothing is sent any more, and all waiters for the
   client's id were notified.
3. No answer of a broker, and no failure of the source, affects the records: at worst the pushes end.
4. The last push, on close, is sent when every record is settled. It delays the close for a second at most, and
   never beyond `delivery.timeout.ms` after the begin of the close.
5. At least 100 ms, usually the push interval, pass between a push and the next request, except for one subscription
   request after a push that the broker refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final

from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.core.state_table import StateTable
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import PushTelemetryResponse
from aioproduce.wire.requests import encode_get_telemetry_subscriptions, encode_push_telemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioproduce.config import ProducerConfig
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.wire.messages import GetTelemetrySubscriptionsResponse

_log = logging.getLogger("aioproduce.telemetry")

DEFAULT_PUSH_INTERVAL: Final = 300.0
"""Seconds until the next try if no broker has set an interval; Kafka's default."""

_SHORTEST_INTERVAL: Final = 0.1
"""The shortest interval that Kafka's own brokers accept."""

_FIRST_PUSH: Final = 0.5
"""The first push comes after 0.5 to 1.5 intervals, so that clients that start together do not push together."""

_LAST_PUSH_BOUND: Final = 1.0
"""Seconds that the last push may delay the close."""


class TelemetryState(Enum):
    """The state of subscription and pushes; the names are Kafka's."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    """The producer is closing: once all records are settled there is one more push."""
    TERMINATING_PUSH_IN_PROGRESS = "terminating push in progress"
    TERMINATED = "terminated"


_Event: TypeAlias = Literal[
    "asked", "ask again", "subscribed", "push sent", "push taken", "push put off", "closing", "ended"
]
_State = TelemetryState

TELEMETRY_STATES: Final[StateTable[TelemetryState, _Event]] = StateTable(
    "telemetry",
    {
        _State.SUBSCRIPTION_NEEDED: {"asked": _State.SUBSCRIPTION_IN_PROGRESS, "ended": _State.TERMINATED},
        _State.SUBSCRIPTION_IN_PROGRESS: {
            "subscribed": _State.PUSH_NEEDED,
            "ask again": _State.SUBSCRIPTION_NEEDED,
            "closing": _State.TERMINATING_PUSH_NEEDED,
            "ended": _State.TERMINATED,
        },
        _State.PUSH_NEEDED: {
            "push sent": _State.PUSH_IN_PROGRESS,
            "push put off": _State.PUSH_NEEDED,
            "closing": _State.TERMINATING_PUSH_NEEDED,
            "ended": _State.TERMINATED,
        },
        _State.PUSH_IN_PROGRESS: {
            "push taken": _State.PUSH_NEEDED,
            "ask again": _State.SUBSCRIPTION_NEEDED,
            "closing": _State.TERMINATING_PUSH_NEEDED,
            "ended": _State.TERMINATED,
        },
        _State.TERMINATING_PUSH_NEEDED: {
            "push sent": _State.TERMINATING_PUSH_IN_PROGRESS,
            "ended": _State.TERMINATED,
        },
        _State.TERMINATING_PUSH_IN_PROGRESS: {"ended": _State.TERMINATED},
        _State.TERMINATED: {},
    },
)

_ASK_AT_ONCE: Final = frozenset({codes.UNKNOWN_SUBSCRIPTION_ID, codes.UNSUPPORTED_COMPRESSION_TYPE})
"""Answers to a push that mean: the subscription has changed."""

_ASK_LATER: Final = frozenset({codes.TELEMETRY_TOO_LARGE, codes.THROTTLING_QUOTA_EXCEEDED})
"""Answers that mean: not now. All other non-retriable answers end the pushes, as in Java."""


@final
@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that the cluster wants.

    Attributes:
        client_instance_id: This client's id in the cluster.
        subscription_id: The id that each push contains.
        push_interval: Seconds from push to push.
        max_bytes: The largest push, compressed.
        is_delta: Whether totals count from push to push, not from the start.
        compression_types: Ids of codecs, the broker's favourite first, without those that it refused.
        prefixes: Prefixes of the names of the wanted metrics; empty: no metrics are wanted.
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
    """The content of a push: OTLP's MetricsData, compressed by the codec of this id."""

    compression_type: int
    data: bytes


class PayloadSource(Protocol):
    """The source of payloads, which keeps the totals of the last push for deltas."""

    def unavailable(self) -> str | None:
        """Return why there can be no payload, with the remedy, or `None`. Called once for each subscription."""

    def make(self, subscription: Subscription) -> Payload:
        """Return the metrics at present; if they exceed `max_bytes`, as small as possible."""

    def pushed(self) -> None:
        """Let deltas count from the last payload: the broker has it, or may have it."""

    def reset(self) -> None:
        """Forget the pushed totals: the subscription switched between deltas and totals."""


@final
class Telemetry(Exchange):
    """The exchange of telemetry subscriptions and pushes.

    Args:
        config: The settings.
        source: The source of payloads.
        metadata: The brokers.
        connections: The connections to them.
        random: Returns a number in [0, 1), for the instant of the first push.
        bounded_log: The log for warnings that may repeat.

    Attributes:
        state: See `TelemetryState`.
        client_instance_id: The id that a broker gave this client, for the client's life.
    """

    __slots__ = (
        "_bounded_log",
        "_codec",
        "_config",
        "_connections",
        "_due_at",
        "_ends_at",
        "_metadata",
        "_node_id",
        "_outstanding",
        "_random",
        "_refused_codecs",
        "_source",
        "_subscription",
        "_unoffered_at",
        "_waiters",
        "client_instance_id",
        "state",
    )

    awaits_connection: bool
    timer_at: float

    def __init__(
        self,
        config: ProducerConfig,
        source: PayloadSource,
        metadata: ClusterMetadata,
        connections: BrokerConnections,
        random: Callable[[], float],
        bounded_log: BoundedLog,
    ) -> None:
        super().__init__()
        self._config = config
        self._source = source
        self._metadata = metadata
        self._connections = connections
        self._random = random
        self._bounded_log = bounded_log
        self.state: TelemetryState = TelemetryState.SUBSCRIPTION_NEEDED
        self.client_instance_id: UUID | None = None
        # When the next request is due; infinity while an answer is awaited, and after the end.
        self._due_at = -inf
        self._ends_at = inf
        self._node_id: int | None = None
        self._outstanding = 0
        self._codec = 0
        self._refused_codecs: set[int] = set()
        self._subscription: Subscription | None = None
        # The count of negotiations when no connection offered telemetry; `None` if that has not happened.
        self._unoffered_at: int | None = None
        self._waiters: dict[Callable[[], None], None] = {}

    # -- who waits for the id ---

    def await_id(self, notify: Callable[[], None]) -> None:
        """Notify when the id is there, or will never be."""
        self._waiters[notify] = None

    def forget(self, notify: Callable[[], None]) -> None:
        """Remove a waiter."""
        self._waiters.pop(notify, None)

    def wake_all(self) -> None:
        """Notify all waiters."""
        waiters, self._waiters = self._waiters, {}
        for notify in waiters:
            notify()

    # -- requests ---

    def advance(self, now: float) -> None:
        """Send a subscription request or a push, if one is due and a broker can accept it."""
        if self._due_at > now or self._unoffered_at == self._connections.negotiations:
            return
        connection = self._choose(now, may_connect=self._wants_metrics)
        if connection is None:
            return
        if self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            self._ask(connection, now)
        else:
            self._push(connection, now)

    def _choose(self, now: float, *, may_connect: bool) -> BrokerConnection | None:
        """Return a connection that can send now: to the broker used last, else the least loaded one."""
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
            self._unoffered_at = self._connections.negotiations
            return None
        # No ready connection offers telemetry: this may connect to another broker, whose readiness causes a step.
        self._connections.least_loaded(self._metadata.brokers, now)
        return None

    def _ask(self, connection: BrokerConnection, now: float) -> None:
        connection.send(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            lambda version, correlation_id: [
                encode_get_telemetry_subscriptions(
                    version, correlation_id, self._config.client_id, self.client_instance_id
                )
            ],
            self,
            now,
        )
        self._sent(connection, "asked")

    def _push(self, connection: BrokerConnection, now: float) -> None:
        subscription = self._subscription
        is_last = self.state is TelemetryState.TERMINATING_PUSH_NEEDED
        assert subscription is not None, "a push without a subscription"
        try:
            payload = self._source.make(subscription)
        except Exception:
            # No error of the source may affect the records.
            _log.exception("the metrics cannot be encoded: no more are pushed to the cluster")
            self._end()
            return
        size = len(payload.data)
        if size > subscription.max_bytes > 0:
            self._bounded_log.warning(
                "telemetry size",
                now,
                "%d bytes of metrics were not pushed: the broker accepts %d (telemetry.max.bytes). Subscribe to "
                "fewer metrics, or raise that limit",
                size,
                subscription.max_bytes,
            )
            if is_last:
                self._end()
            else:
                self._schedule("push put off", now + subscription.push_interval, now)
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
                    terminating=is_last,
                    compression_type=payload.compression_type,
                    metrics=payload.data,
                )
            ],
            self,
            now,
        )
        self._codec = payload.compression_type
        self._sent(connection, "push sent")

    def _sent(self, connection: BrokerConnection, event: _Event) -> None:
        self._move(event)
        self._due_at = inf
        self.awaits_connection = False
        self._node_id = connection.node_id
        self._outstanding += 1

    # -- answers ---

    def _subscribed(self, response: GetTelemetrySubscriptionsResponse, now: float) -> None:
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
            self._schedule("ask again", now + subscription.push_interval, now)
            return
        problem = self._source.unavailable()
        if problem is not None:
            _log.warning("the cluster asks for this client's metrics, but they are not pushed: %s", problem)
            self._end()
            return
        wait = subscription.push_interval * (_FIRST_PUSH + self._random())
        self._schedule("subscribed", now + wait, now)

    def _pushed(self, response: PushTelemetryResponse, now: float) -> None:
        if response.error_code == codes.NONE:
            self._source.pushed()
        if self.state is not TelemetryState.PUSH_IN_PROGRESS:
            self._end_if_last()
        elif response.error_code != codes.NONE:
            self._refused(ApiKey.PUSH_TELEMETRY, response.error_code, now)
        else:
            self._schedule("push taken", now + self._interval, now)

    def answered(
        self, response: GetTelemetrySubscriptionsResponse | PushTelemetryResponse, now: float
    ) -> bool:
        """Handle the answer to a subscription request or to a push."""
        self._outstanding -= 1
        if isinstance(response, PushTelemetryResponse):
            self._pushed(response, now)
        else:
            self._subscribed(response, now)
        return False

    def lost(self, loss: Lost, now: float) -> None:
        """Ask again after an interval, as in Java: too much load may have caused the loss."""
        self._outstanding -= 1
        self._end_if_last()
        if self.state in (TelemetryState.SUBSCRIPTION_IN_PROGRESS, TelemetryState.PUSH_IN_PROGRESS):
            if self.state is TelemetryState.PUSH_IN_PROGRESS:
                # It may have arrived: a lost delta is better than one that counts twice.
                self._source.pushed()
            self._schedule("ask again", now + self._interval, now)

    def _refused(self, api: ApiKey, code: int, now: float) -> None:
        name, text = codes.name_of(code), codes.message_of(code)
        if code == codes.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self._codec)
        if code in _ASK_AT_ONCE or code in _ASK_LATER or codes.is_retriable(code):
            is_push = api is ApiKey.PUSH_TELEMETRY
            wait = 0.0 if is_push and code in _ASK_AT_ONCE else self._interval
            _log.debug("%s: %s: %s; asking again in %g s", api.display_name, name, text, wait)
            self._schedule("ask again", now + wait, now)
            return
        _log.warning("no more metrics are pushed to the cluster: %s: %s: %s", api.display_name, name, text)
        self._end()

    @property
    def _wants_metrics(self) -> bool:
        """Whether the cluster has asked for any metrics."""
        return self._subscription is not None and bool(self._subscription.prefixes)

    @property
    def _interval(self) -> float:
        return DEFAULT_PUSH_INTERVAL if self._subscription is None else self._subscription.push_interval

    # -- the end ---

    def begin_close(self, now: float) -> None:
        """Stop the regular pushes; the last one follows when all records are settled."""
        if self.state is TelemetryState.TERMINATED:
            return
        if not self._wants_metrics or self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            self._end()
            return
        self._move("closing")
        self._due_at = self.timer_at = inf
        self._ends_at = now + self._config.delivery_timeout
        self.wake_all()

    def finish(self, now: float) -> bool:
        """Send the last push; return whether nothing is left to wait for."""
        if self.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self._ends_at = min(self._ends_at, now + _LAST_PUSH_BOUND)
            connection = self._choose(now, may_connect=False) if now < self._ends_at else None
            if connection is not None:
                self._push(connection, now)
            elif not self.awaits_connection:
                self._end()
        if self.state is not TelemetryState.TERMINATED and now >= self._ends_at:
            self._end()
        if self.state is TelemetryState.TERMINATED:
            return True
        self.timer_at = self._ends_at
        return False

    def _end_if_last(self) -> None:
        """End if all requests, the last push included, were answered or lost during the close."""
        if self.state is TelemetryState.TERMINATING_PUSH_IN_PROGRESS and not self._outstanding:
            self._end()

    def _end(self) -> None:
        self._move("ended")
        self._due_at, self.timer_at, self.awaits_connection = inf, inf, False
        self.wake_all()

    # -- states ---

    def _schedule(self, event: _Event, at: float, now: float) -> None:
        self._move(event)
        self._due_at = at
        self.timer_at = at if at > now else inf

    def _move(self, event: _Event) -> None:
        self.state = TELEMETRY_STATES.after(self.state, event)


def _offers_telemetry(connection: BrokerConnection) -> bool:
    versions = connection.api_versions
    return (
        versions is not None
        and versions.supports(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
        and versions.supports(ApiKey.PUSH_TELEMETRY)
    )
