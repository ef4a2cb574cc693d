"""Exporters take a `SpooledProducer` as they take a `Producer`: its queue has series of its own."""

from __future__ import annotations

import io
import json
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from aioproduce.reporters.json_lines import JsonLinesReporter
from aioproduce.reporters.opentelemetry import ProducerMeter
from aioproduce.reporters.prometheus import ProducerCollector
from aioproduce.spool import SpooledProducer
from aioproduce.testing import FakeCluster


async def _sent(producer: SpooledProducer) -> None:
    await producer.send_many("orders", [b"x"] * 30)
    await producer.flush()


async def test_prometheus(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        SpooledProducer(
            cluster.bootstrap_servers, directory=tmp_path / "spool", client_id="shop"
        ) as producer,
    ):
        registry.register(ProducerCollector(producer))
        await _sent(producer)

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, {"client_id": "shop", "client_type": "producer", **labels})

        assert value("kafka_producer_spool_metrics_spool_append_total") == 30
        assert value("kafka_producer_spool_topic_metrics_spool_forward_total", topic="orders") == 30
        assert value("kafka_producer_spool_metrics_spool_takes_records") == 1
        assert value("kafka_producer_producer_metrics_record_send_total") == 30
        syncs = value("aioproduce_spool_sync_time_seconds_count")
        assert syncs == value("kafka_producer_spool_metrics_spool_sync_total")
        generate_latest(registry)  # raises if a family is there twice, or a value is none


async def test_opentelemetry(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        SpooledProducer(
            cluster.bootstrap_servers, directory=tmp_path / "spool", client_id="shop"
        ) as producer,
    ):
        ProducerMeter(producer, meter_provider=MeterProvider([reader]))
        await _sent(producer)
        collected = reader.get_metrics_data()
    assert collected is not None
    points = {
        metric.name: [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
        for metric in collected.resource_metrics[0].scope_metrics[0].metrics
    }
    ((append,), (free,)) = (
        points["kafka.producer.spool_append_total"],
        points["kafka.producer.spool_free_bytes"],
    )
    assert (append.value, append.attributes) == (30, {"client-id": "shop", "topic": "orders"})
    assert free.attributes == {"client-id": "shop"}
    assert free.value > 0


async def test_json_lines(tmp_path: Path) -> None:
    lines = io.StringIO()
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        SpooledProducer(cluster.bootstrap_servers, directory=tmp_path / "spool") as producer,
        JsonLinesReporter(producer, lines),
    ):
        await _sent(producer)
    metrics = json.loads(lines.getvalue().splitlines()[-1])["metrics"]
    assert metrics["spool-metrics"]["spool-append-total"] == 30
    assert metrics["spool-topic-metrics"]["spool-append-total{topic=orders}"] == 30
