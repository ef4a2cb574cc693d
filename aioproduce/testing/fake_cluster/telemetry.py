"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): the subscribed metrics, and the received ones.

Called by `model`. There is one subscription for all clients, as with `kafka-client-metrics.sh --alter` without
`--match`.

Invariants:
1. A client gets one id, in the order of the first requests, and keeps it; a changed subscription gets a new id.
2. The checks are those of Kafka's ClientMetricsManager: the client's id, the subscription's id, the codec, the
   size, and that a client pushes nothing after its last push. The interval is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final
from uuid import UUID

from kio.schema.errors import ErrorCode

from aioproduce.compression import CODECS, decompress
from aioproduce.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange


@final
@dataclass(frozen=True, slots=True)
class TelemetryPush:
    """Metrics that a client pushed and the cluster accepted.

    Attributes:
        client_id: The client's `client.id`.
        client_instance_id: The id that the cluster assigned to it.
        broker_id: The broker that received it.
        is_last: Whether the client announced its end.
        compression_type: The codec's id.
        metrics: OTLP's MetricsData, decompressed.
        at: Time of the push, in the event loop's clock.
    """

    client_id: str | None
    client_instance_id: UUID
    broker_id: int
    is_last: bool
    compression_type: int
    metrics: bytes
    at: float


@final
@dataclass(slots=True, eq=False, repr=False)
class TelemetryCollector:
    """The subscription, and the received metrics."""

    pushes: list[TelemetryPush] = field(default_factory=list)
    # For each client with an id, whether it has pushed for the last time.
    _instances: dict[UUID, bool] = field(default_factory=dict)
    _subscription_id: int = 1
    _prefixes: tuple[str, ...] = ()
    _interval: float = 300.0
    _is_delta: bool = False
    _codecs: tuple[int, ...] = ()
    _max_bytes: int = 1024 * 1024

    def subscribe(
        self,
        prefixes: Sequence[str],
        interval: float,
        *,
        is_delta: bool,
        codecs: Sequence[str],
        max_bytes: int,
    ) -> None:
        """Subscribe to these metrics from now on, instead of the previous ones."""
        self._prefixes = tuple(prefixes)
        self._interval = interval
        self._is_delta = is_delta
        self._codecs = tuple(CODECS[codec] for codec in codecs)
        self._max_bytes = max_bytes
        self._subscription_id += 1

    def get_subscriptions(self, exchange: Exchange, code: int) -> Body:
        """Answer GetTelemetrySubscriptions."""
        client_instance_id = exchange.body["client_instance_id"] or UUID(int=len(self._instances) + 1)
        if code == ErrorCode.none:
            self._instances.setdefault(client_instance_id, False)
        return {
            "error_code": code,
            "client_instance_id": client_instance_id,
            "subscription_id": self._subscription_id,
            "accepted_compression_types": self._codecs,
            "push_interval": self._interval,
            "telemetry_max_bytes": self._max_bytes,
            "delta_temporality": self._is_delta,
            "requested_metrics": self._prefixes,
        }

    def push(self, exchange: Exchange, code: int, now: float) -> Body:
        """Answer PushTelemetry."""
        body = exchange.body
        if code == ErrorCode.none:
            code = self._check(exchange)
        if code == ErrorCode.none:
            try:
                metrics = decompress(body["compression_type"], body["metrics"])
            except ProtocolError:
                return {"error_code": ErrorCode.invalid_record}
            is_last = self._instances[body["client_instance_id"]] = bool(body["terminating"])
            self.pushes.append(
                TelemetryPush(
                    exchange.client_id,
                    body["client_instance_id"],
                    exchange.broker_id,
                    is_last,
                    body["compression_type"],
                    metrics,
                    now,
                )
            )
        return {"error_code": code}

    def _check(self, exchange: Exchange) -> int:
        body = exchange.body
        has_ended = self._instances.get(body["client_instance_id"])
        if has_ended is None or has_ended:
            return ErrorCode.invalid_request
        if body["subscription_id"] != self._subscription_id:
            return ErrorCode.unknown_subscription_id
        if body["compression_type"] not in (0, *self._codecs):
            return ErrorCode.unsupported_compression_type
        if len(body["metrics"]) > self._max_bytes:
            return ErrorCode.telemetry_too_large
        return ErrorCode.none
