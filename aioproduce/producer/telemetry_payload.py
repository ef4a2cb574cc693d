"""The payload that is pushed to the cluster (KIP-714): the producer's metrics as OTLP's MetricsData.

The ProducerLife makes it for the core (`core.exchanges.telemetry`), which decides when. Protobuf of the extra
`telemetry` encodes it. Without the extra nothing is pushed, and the log says so once.

Names follow KIP-714: `record-send-total` of the group `producer-metrics` is
`org.apache.kafka.producer.record.send.total`, and tags have underscores for dashes. Metrics that Kafka's producer
does not have begin with `aioproduce.` instead.

A payload of 135 metrics takes about 2 ms to make, in the event loop, once per interval.

Differences from Java: Java makes one resource per metric, this module one for all, which takes less room. Java
sends NaN for a gauge without a value (an average without a sample), this module omits it.

Invariants:

1. A total is a monotonic sum, counted from the producer's start or, as a delta, from the last payload that a broker
   accepted. All other metrics are gauges.
2. A delta gets a new start only when a broker has, or may have, the payload. The next payload includes the delta of
   a refused one.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final, final

from aioproduce.compression import CODECS, codec_for
from aioproduce.core.exchanges.telemetry import Payload
from aioproduce.metrics import MetricKind, is_own
from aioproduce.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

    from aioproduce.core.exchanges.telemetry import Subscription
    from aioproduce.metrics import Metric, MetricsSnapshot

_KAFKA: Final = "org.apache.kafka."
_OWN: Final = "aioproduce."
_ALL: Final = "*"
_SPARED: Final = (frozenset[str](), frozenset({"topic"}), frozenset({"topic", "node-id"}))
"""Tags whose metrics are left out of a payload that is too large, since there may be many of them."""

_NANOSECONDS: Final = 1_000_000
_NOT_SENT: Final = ("client-id",)
"""Tags that are not sent: the broker knows the client's id from the request."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


@cache
def metric_name(group: str, name: str) -> str:
    """Return KIP-714's name of a metric.

    Example:
        >>> metric_name("producer-topic-metrics", "record-send-total")
        'org.apache.kafka.producer.topic.record.send.total'
    """
    prefix = _OWN if is_own(group, name) else _KAFKA
    return f"{prefix}{_dotted(group).replace('.metrics', '')}.{_dotted(name)}"


def _dotted(text: str) -> str:
    return text.lower().replace("-", ".")


@final
class TelemetryPayload:
    """Makes payloads of one producer's metrics.

    Args:
        read: Returns the current metrics.
        started_at_ms: The producer's start in milliseconds since the epoch; totals count from it.
        labels: KIP-714's labels of the client, e.g. `client_rack`.
    """

    __slots__ = ("_labels", "_made", "_pushed", "_read", "_started_at_ms")

    def __init__(
        self, read: Callable[[], MetricsSnapshot], started_at_ms: int, labels: Mapping[str, str]
    ) -> None:
        self._read = read
        self._started_at_ms = started_at_ms
        self._labels = dict(labels)
        # The last value of each total and its time: in the payload pushed last, and in the payload made last.
        self._pushed: dict[_Key, tuple[float, int]] = {}
        self._made: dict[_Key, tuple[float, int]] = {}

    def unavailable(self) -> str | None:
        """Load the encoder (about 30 ms, once per process); return why it is unavailable, or None."""
        try:
            import opentelemetry.proto.metrics.v1.metrics_pb2  # noqa: F401
        except Exception as error:
            # Not only ImportError: protobuf refuses generated code of another version with its own errors.
            return (
                f"{type(error).__name__}: {error}. pip install 'aioproduce[telemetry]', or set "
                "enable.metrics.push=false"
            )
        return None

    def make(self, subscription: Subscription) -> Payload:
        """Return the wanted metrics, compressed; a too large payload omits those of each topic or broker."""
        snapshot = self._read()
        wanted = [metric for metric in snapshot if _is_wanted(metric, subscription.prefixes)]
        codec_id, compress = _codec(subscription.compression_types)
        data = b""
        for spared in _SPARED:
            data = compress(
                self._encode(
                    [metric for metric in wanted if spared.isdisjoint(metric.tags)],
                    snapshot.taken_at_ms,
                    is_delta=subscription.is_delta,
                )
            )
            if len(data) <= subscription.max_bytes or subscription.max_bytes <= 0:
                break
        return Payload(codec_id, data)

    def pushed(self) -> None:
        """Count deltas from the payload made last."""
        self._pushed |= self._made
        self._made = {}

    def reset(self) -> None:
        """Count deltas from the start."""
        self._pushed, self._made = {}, {}

    def _encode(self, metrics: Iterable[Metric], now_ms: int, *, is_delta: bool) -> bytes:
        from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
        from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

        data = otlp.MetricsData()
        resource = data.resource_metrics.add()
        for key, value in self._labels.items():
            resource.resource.attributes.add(key=key).value.string_value = value
        scope = resource.scope_metrics.add(scope=InstrumentationScope(name="aioproduce", version=VERSION))
        temporality = (
            otlp.AGGREGATION_TEMPORALITY_DELTA if is_delta else otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        by_name: dict[str, otlp.Metric] = {}
        self._made = {}
        for metric in metrics:
            name = metric_name(metric.group, metric.name)
            found = by_name.get(name)
            if found is None:
                found = by_name[name] = scope.metrics.add(name=name)
                if metric.kind is MetricKind.TOTAL:
                    found.sum.aggregation_temporality = temporality
                    found.sum.is_monotonic = True
            if metric.kind is MetricKind.TOTAL:
                self._add_total(found.sum.data_points.add(), name, metric, now_ms, is_delta=is_delta)
            else:
                _fill(found.gauge.data_points.add(), metric, float(metric.value), now_ms)
        return data.SerializeToString()

    def _add_total(
        self, point: NumberDataPoint, name: str, metric: Metric, now_ms: int, *, is_delta: bool
    ) -> None:
        total, since_ms = float(metric.value), self._started_at_ms
        value = total
        if is_delta:
            key = (name, tuple(metric.tags.items()))
            before, since_ms = self._pushed.get(key, (0.0, self._started_at_ms))
            value = total - before
            self._made[key] = (total, now_ms)
        _fill(point, metric, value, now_ms)
        point.start_time_unix_nano = since_ms * _NANOSECONDS


def _fill(point: NumberDataPoint, metric: Metric, value: float, now_ms: int) -> None:
    point.as_double = value
    point.time_unix_nano = now_ms * _NANOSECONDS
    for tag, of_tag in _sent_tags(metric):
        point.attributes.add(key=tag).value.string_value = of_tag


def _sent_tags(metric: Metric) -> Iterator[tuple[str, str]]:
    for tag, value in metric.tags.items():
        if tag not in _NOT_SENT:
            yield tag.lower().replace("-", "_"), value


def _is_wanted(metric: Metric, prefixes: tuple[str, ...]) -> bool:
    if isinstance(metric.value, str) or math.isnan(metric.value):
        return False
    return prefixes == (_ALL,) or metric_name(metric.group, metric.name).startswith(prefixes)


def _codec(accepted: Iterable[int]) -> tuple[int, Callable[[bytes], bytes]]:
    """Return the first codec of the broker's list that this client has."""
    names = {codec_id: name for name, codec_id in CODECS.items()}
    for codec_id in accepted:
        if codec_id in names:
            codec = codec_for(names[codec_id])
            return (0, bytes) if codec is None else (codec_id, codec.compress)
    return 0, bytes
