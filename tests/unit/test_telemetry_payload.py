"""What is pushed to a cluster (KIP-714): names, kinds, temporality, sizes, read back by OpenTelemetry's classes."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioproduce.compression import CODECS, decompress
from aioproduce.core.exchanges.telemetry import Payload, Subscription
from aioproduce.metrics import Metric, MetricKind, MetricsSnapshot
from aioproduce.producer.telemetry_payload import TelemetryPayload, metric_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
else:
    otlp = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")

KAFKA = "org.apache.kafka.producer."
STARTED_MS = 1_700_000_000_000
CLIENT = UUID(int=5)


def metric(name: str, value: float | str, *, group: str = "producer-metrics", **tags: str) -> Metric:
    kind = MetricKind.GAUGE if isinstance(value, float) else MetricKind.TEXT
    if name.endswith("-total"):
        kind = MetricKind.TOTAL
    return Metric(group, name, {"client-id": "c", **tags}, "", "", kind, value)


class Source:
    """A TelemetryPayload of metrics that the test sets."""

    def __init__(self, *metrics: Metric, **labels: str) -> None:
        self.metrics: Iterable[Metric] = metrics
        self.now_ms = STARTED_MS + 1000
        self.payload = TelemetryPayload(
            lambda: MetricsSnapshot(list(self.metrics), taken_at_ms=self.now_ms), STARTED_MS, labels
        )

    def make(self, *prefixes: str, **changes: Any) -> Payload:
        settings: dict[str, Any] = {"is_delta": False, "max_bytes": 0, "compression_types": (), **changes}
        return self.payload.make(Subscription(CLIENT, 1, 1.0, prefixes=prefixes or ("*",), **settings))

    def data(self, *prefixes: str, **changes: Any) -> otlp.MetricsData:
        payload = self.make(*prefixes, **changes)
        return otlp.MetricsData.FromString(decompress(payload.compression_type, payload.data))


def by_name(data: otlp.MetricsData) -> dict[str, otlp.Metric]:
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def total_of(data: otlp.MetricsData, name: str) -> tuple[float, int, int]:
    """Value, start and end in milliseconds since the producer's start."""
    (point,) = by_name(data)[name].sum.data_points
    return (
        point.as_double,
        point.start_time_unix_nano // 10**6 - STARTED_MS,
        point.time_unix_nano // 10**6 - STARTED_MS,
    )


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        # KIP-714's own list of the metrics that producers have.
        (
            "producer-metrics",
            "connection-creation-rate",
            "org.apache.kafka.producer.connection.creation.rate",
        ),
        (
            "producer-metrics",
            "connection-creation-total",
            "org.apache.kafka.producer.connection.creation.total",
        ),
        (
            "producer-node-metrics",
            "request-latency-avg",
            "org.apache.kafka.producer.node.request.latency.avg",
        ),
        (
            "producer-metrics",
            "produce-throttle-time-max",
            "org.apache.kafka.producer.produce.throttle.time.max",
        ),
        ("producer-metrics", "record-queue-time-avg", "org.apache.kafka.producer.record.queue.time.avg"),
        # TelemetryMetricNamingConvention: "-metrics" goes wherever it stands.
        ("kafka-metrics-count", "count", "org.apache.kafka.kafka.count.count"),
        ("producer-topic-metrics", "byte-total", "org.apache.kafka.producer.topic.byte.total"),
        # What Kafka does not have is not under its name.
        ("producer-metrics", "event-loop-lag-avg", "aioproduce.producer.event.loop.lag.avg"),
        ("producer-metrics", "request-latency-p999", "aioproduce.producer.request.latency.p999"),
        (
            "producer-node-metrics",
            "requests-in-flight",
            "aioproduce.producer.node.requests.in.flight",
        ),
        ("producer-metrics", "silent-brokers", "aioproduce.producer.silent.brokers"),
        ("producer-node-metrics", "silent-time", "aioproduce.producer.node.silent.time"),
        ("producer-metrics", "connections", "aioproduce.producer.connections"),
        ("producer-metrics", "requests-in-flight", "org.apache.kafka.producer.requests.in.flight"),
    ],
)
def test_names(group: str, name: str, expected: str) -> None:
    assert metric_name(group, name) == expected


def test_totals_are_monotonic_sums_and_the_rest_gauges() -> None:
    source = Source(metric("record-send-total", 7.0), metric("batch-size-avg", 1.5))
    found = by_name(source.data())
    total, average = found[f"{KAFKA}record.send.total"], found[f"{KAFKA}batch.size.avg"]
    assert (total.WhichOneof("data"), average.WhichOneof("data")) == ("sum", "gauge")
    assert total.sum.is_monotonic
    assert total.sum.aggregation_temporality == otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = average.gauge.data_points
    assert (point.as_double, point.time_unix_nano) == (1.5, (STARTED_MS + 1000) * 10**6)
    assert total_of(source.data(), total.name) == (7.0, 0, 1000)


def test_what_is_no_number_is_left_out() -> None:
    source = Source(
        metric("version", "1.0", group="app-info"),
        metric("batch-size-avg", math.nan),
        metric("batch-size-max", 3.0),
    )
    assert by_name(source.data()).keys() == {f"{KAFKA}batch.size.max"}


def test_tags_are_attributes_but_for_the_client_id() -> None:
    group = "producer-node-metrics"
    source = Source(
        metric("request-total", 1.0, group=group, **{"node-id": "node-1"}),
        metric("request-total", 2.0, group=group, **{"node-id": "node-2"}),
    )
    points = by_name(source.data())[f"{KAFKA}node.request.total"].sum.data_points
    assert [
        (point.as_double, {one.key: one.value.string_value for one in point.attributes}) for point in points
    ] == [(1.0, {"node_id": "node-1"}), (2.0, {"node_id": "node-2"})]


def test_labels_are_the_resources() -> None:
    (resource,) = Source(metric("record-send-total", 1.0), client_rack="r1").data().resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == {"client_rack": "r1"}


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        (("*",), {"record.send.total", "record.error.total", "topic.byte.total"}),
        (("",), {"record.send.total", "record.error.total", "topic.byte.total"}),
        (("org.apache.kafka.producer.record.",), {"record.send.total", "record.error.total"}),
        ((f"{KAFKA}record.s", f"{KAFKA}topic"), {"record.send.total", "topic.byte.total"}),
        (("org.apache.kafka.consumer.",), set()),
        # Only alone a star means all, as in Java.
        (("*", "org.apache.kafka.producer.topic"), {"topic.byte.total"}),
    ],
)  # fmt: skip
def test_only_what_is_wanted(prefixes: tuple[str, ...], expected: set[str]) -> None:
    source = Source(
        metric("record-send-total", 1.0),
        metric("record-error-total", 1.0),
        metric("byte-total", 1.0, group="producer-topic-metrics", topic="t"),
    )
    assert by_name(source.data(*prefixes)).keys() == {KAFKA + name for name in expected}


# -- delta temporality ---


def test_a_delta_counts_from_the_push_before() -> None:
    source = Source(metric("record-send-total", 7.0))
    name = f"{KAFKA}record.send.total"
    first = source.data(is_delta=True)
    assert by_name(first)[name].sum.aggregation_temporality == otlp.AGGREGATION_TEMPORALITY_DELTA
    assert total_of(first, name) == (7.0, 0, 1000)
    source.payload.pushed()
    source.metrics, source.now_ms = [metric("record-send-total", 12.0)], STARTED_MS + 3000
    assert total_of(source.data(is_delta=True), name) == (5.0, 1000, 3000)


def test_a_delta_that_the_broker_refused_is_in_the_next() -> None:
    source = Source(metric("record-send-total", 7.0))
    name = f"{KAFKA}record.send.total"
    source.make(is_delta=True)
    source.metrics, source.now_ms = [metric("record-send-total", 12.0)], STARTED_MS + 3000
    assert total_of(source.data(is_delta=True), name) == (12.0, 0, 3000)


def test_after_a_change_of_temporality_deltas_count_from_the_start() -> None:
    source = Source(metric("record-send-total", 7.0))
    source.make(is_delta=True)
    source.payload.pushed()
    source.payload.reset()
    assert total_of(source.data(is_delta=True), f"{KAFKA}record.send.total") == (7.0, 0, 1000)


def test_a_total_that_was_left_out_keeps_its_delta() -> None:
    source = Source(metric("record-send-total", 7.0), metric("record-error-total", 3.0))
    source.make(f"{KAFKA}record.error", is_delta=True)
    source.payload.pushed()
    source.now_ms += 1000
    data = source.data(is_delta=True)
    assert total_of(data, f"{KAFKA}record.send.total") == (7.0, 0, 2000)
    assert total_of(data, f"{KAFKA}record.error.total") == (0.0, 1000, 2000)


def test_each_topic_has_its_own_delta() -> None:
    def topics(**counts: float) -> list[Metric]:
        return [
            metric("byte-total", count, group="producer-topic-metrics", topic=topic)
            for topic, count in counts.items()
        ]

    source = Source(*topics(a=5.0))
    source.make(is_delta=True)
    source.payload.pushed()
    source.metrics = topics(a=6.0, b=9.0)
    points = by_name(source.data(is_delta=True))[f"{KAFKA}topic.byte.total"].sum.data_points
    assert [point.as_double for point in points] == [1.0, 9.0]


# -- size and codecs ---


def test_what_is_too_large_goes_without_topics_then_without_nodes() -> None:
    topics = [
        metric("byte-total", 1.0, group="producer-topic-metrics", topic=f"topic-{number}")
        for number in range(50)
    ]
    nodes = [
        metric("request-total", 1.0, group="producer-node-metrics", **{"node-id": f"node-{number}"})
        for number in range(20)
    ]
    source = Source(metric("record-send-total", 1.0), *topics, *nodes)
    sizes = {}
    for name, metrics in {"all": [*topics, *nodes], "nodes": nodes, "none": []}.items():
        sizes[name] = len(Source(metric("record-send-total", 1.0), *metrics).make().data)
    assert sizes["all"] > sizes["nodes"] > sizes["none"]
    all_names = {f"{KAFKA}{name}" for name in ("record.send.total", "topic.byte.total", "node.request.total")}
    for limit, missing in {
        sizes["all"]: set(),
        sizes["all"] - 1: {"topic.byte.total"},
        sizes["nodes"]: {"topic.byte.total"},
        sizes["nodes"] - 1: {"topic.byte.total", "node.request.total"},
    }.items():
        found = by_name(source.data(max_bytes=limit)).keys()
        assert found == all_names - {KAFKA + name for name in missing}
    # Not smaller than that: the core does not push it.
    assert len(source.make(max_bytes=10).data) == sizes["none"]


def test_topics_that_were_left_out_are_in_the_next_delta() -> None:
    topic = metric("byte-total", 4.0, group="producer-topic-metrics", topic="t" * 200)
    source = Source(metric("record-send-total", 1.0), topic)
    source.make(is_delta=True, max_bytes=200)
    source.payload.pushed()
    data = source.data(is_delta=True)
    assert total_of(data, f"{KAFKA}topic.byte.total")[0] == 4.0
    assert total_of(data, f"{KAFKA}record.send.total")[0] == 0.0


@pytest.mark.parametrize(
    ("accepted", "used"),
    [((4, 3), 4), ((3, 4), 3), ((1,), 1), ((2, 1), 2), ((), 0), ((0, 4), 0), ((17, 3), 3), ((17, -1), 0)],
)
def test_the_brokers_first_codec_that_is_known(accepted: tuple[int, ...], used: int) -> None:
    source = Source(metric("record-send-total", 1.0))
    payload = source.make(compression_types=accepted)
    assert payload.compression_type == used
    assert used in CODECS.values()
    assert total_of(source.data(compression_types=accepted), f"{KAFKA}record.send.total")[0] == 1.0


# -- the extra ---


def test_with_the_extra_there_is_nothing_to_say() -> None:
    assert Source().payload.unavailable() is None


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1.metrics_pb2", None)
    problem = Source().payload.unavailable()
    assert problem is not None
    assert "pip install 'aioproduce[telemetry]'" in problem
    assert "enable.metrics.push=false" in problem


def test_a_protobuf_that_does_not_fit_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Misfit:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name.startswith("opentelemetry.proto"):
                raise TypeError("Descriptors cannot be created directly")

    for name in [name for name in sys.modules if name.startswith("opentelemetry.proto.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Misfit, *sys.meta_path])
    problem = Source().payload.unavailable()
    assert problem is not None
    assert "TypeError: Descriptors cannot be created directly" in problem
