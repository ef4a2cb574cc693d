"""KIP-714: asking the cluster which metrics of this client it wants, and pushing them to it.

What is pushed is made by a `PayloadSource`, which lives above the core.

Invariants:

1. Brokers that do not offer the two APIs are asked nothing, and no connection is opened for a question: only for
   a push that a broker has asked for.
2. The state moves only along `TELEMETRY_STATES`. In TERMINATED nothing is sent any more; who waits for the
   client's id has been told.
3. Nothing that a broker answers, and no failure of the source, reaches the records: at worst the pushing ends.
4. The last push, on close, goes when every record is settled. It holds the close up for a second at most, and never
   beyond `delivery.timeout.ms` from the close on.
5. Nothing is sent twice at once: an interval, of 100 ms at least, lies between a push and what follows it, but for
   one question after a push that the broker refused.
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
class Telemetry(Exchange):
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
        # When something is to be asked or pushed; at infinity while an answer is awaited, and after the end.
        self._due_at = -inf
        self._ends_at = inf
        self._node_id: int | None = None
        self._outstanding = 0
        self._codec = 0
        self._refused_codecs: set[int] = set()
        self._subscription: Subscription | None = None
        # How many negotiations there had been when no connection offered telemetry; `None`: one did.
        self._unoffered_at: int | None = None
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

    def advance(self, now: float) -> None:
        """Ask or push, if something is due and a broker can take it."""
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
            self._unoffered_at = self._connections.negotiations
            return None
        # Those that are ready do not offer it: this has another broker connected to, and its readiness wakes us.
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
            _log.warning("the cluster asks for this client's metrics, and they are not pushed: %s", problem)
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
        """Take an answer in, to a question or to a push."""
        self._outstanding -= 1
        if isinstance(response, PushTelemetryResponse):
            self._pushed(response, now)
        else:
            self._subscribed(response, now)
        return False

    def lost(self, loss: Lost, now: float) -> None:
        """The connection was lost before the answer came.

        Asked again is after an interval, as in Java: a broker that the request is too much for is left alone.
        """
        self._outstanding -= 1
        self._end_if_last()
        if self.state in (TelemetryState.SUBSCRIPTION_IN_PROGRESS, TelemetryState.PUSH_IN_PROGRESS):
            if self.state is TelemetryState.PUSH_IN_PROGRESS:
                # It may have arrived: rather counted not at all than twice.
                self._source.pushed()
            self._schedule("ask again", now + self._interval, now)

    def _refused(self, api: ApiKey, code: int, now: float) -> None:
        name, text = codes.name_of(code), codes.message_of(code)
        if code == codes.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self._codec)
        if code in _ASK_AT_ONCE or code in _ASK_LATER or codes.is_retriable(code):
            is_push = api is ApiKey.PUSH_TELEMETRY
            wait = 0.0 if is_push and code in _ASK_AT_ONCE else self._interval
            _log.debug("%s: %s: %s; asked again in %g s", api.display_name, name, text, wait)
            self._schedule("ask again", now + wait, now)
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
        self._move("closing")
        self._due_at = self.timer_at = inf
        self._ends_at = now + self._config.delivery_timeout
        self.wake_all()

    def finish(self, now: float) -> bool:
        """All records are settled: push for the last time; says whether nothing is left to wait for."""
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
        """An answer came while closing, or will not come: the last push's, or that of what was sent before it."""
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
