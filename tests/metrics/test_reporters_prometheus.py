"""Prometheus: the names that dashboards for Java producers ask for, read by prometheus_client's own parser.

The names are those that a Java producer has under jmx_exporter (`tests/vectors/jmx_exporter.txt` says how they were
taken), and of the queries of a public Grafana dashboard for Kafka's producers (Confluent's jmx-monitoring-stacks,
"Kafka Producer - v2"), written out.
"""

from __future__ import annotations

import asyncio
import math
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from aioproduce import Producer
from aioproduce.errors import ListenError, PortInUseError
from aioproduce.metrics import Histogram, Metric, MetricKind, MetricsSnapshot
from aioproduce.reporters import sources
from aioproduce.reporters.prometheus import MetricsServer, ProducerCollector
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family
    from prometheus_client.samples import Sample

DASHBOARD = {
    "kafka_producer_producer_metrics_": (
        "batch_size_avg batch_size_max batch_split_rate buffer_available_bytes buffer_total_bytes "
        "bufferpool_wait_ratio compression_rate_avg connection_close_rate connection_count "
        "connection_creation_rate "
        "incoming_byte_rate io_ratio io_time_ns_avg io_wait_ratio io_wait_time_ns_avg "
        "metadata_age outgoing_byte_rate produce_throttle_time_avg produce_throttle_time_max record_error_rate "
        "record_queue_time_avg record_queue_time_max record_retry_rate record_send_rate record_size_avg "
        "record_size_max records_per_request_avg request_rate requests_in_flight select_rate waiting_threads"
    ),
    "kafka_producer_producer_node_metrics_": (
        "incoming_byte_rate outgoing_byte_rate request_latency_avg request_latency_max request_rate response_rate"
    ),
    "kafka_producer_producer_topic_metrics_": (
        "byte_rate compression_rate record_send_rate record_retry_rate record_error_rate"
    ),
}
"""What the dashboard's queries name."""

TOTALS = [
    # Of alerts and of guides to Kafka's metrics: rate(..._total[5m]).
    "kafka_producer_producer_metrics_record_send_total",
    "kafka_producer_producer_metrics_record_error_total",
    "kafka_producer_producer_metrics_record_retry_total",
    "kafka_producer_producer_metrics_outgoing_byte_total",
    "kafka_producer_producer_topic_metrics_record_send_total",
    "kafka_producer_producer_topic_metrics_byte_total",
    "kafka_producer_producer_node_metrics_request_total",
]


@pytest.fixture
async def producer() -> AsyncIterator[Producer]:
    async with (
        FakeCluster() as cluster,
        Producer(cluster.bootstrap_servers, client_id="checkout", linger_ms=0) as producer,
    ):
        for number in range(300):
            await producer.send("orders", b"%d" % number)
        await producer.send_and_wait("refunds", b"1", partition=0)
        await producer.flush()
        yield producer


def registry_of(*collectors: ProducerCollector) -> CollectorRegistry:
    registry = prometheus_client.CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def read(registry: CollectorRegistry) -> dict[str, Family]:
    """As Prometheus would read the exposition."""
    text = prometheus_client.generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family comes once"
    return {family.name: family for family in families}


def value(registry: CollectorRegistry, name: str, labels: Mapping[str, str]) -> float:
    found = registry.get_sample_value(name, {**labels, "client_type": "producer"})
    assert found is not None, (name, labels)
    return found


async def test_the_queries_of_a_dashboard_for_java_producers_find_their_series(producer: Producer) -> None:
    leaders = set()
    for _, number, leader, *_ in await producer.partitions_for("refunds"):
        await producer.send_and_wait("refunds", b"1", partition=number)
        leaders.add(f"node-{leader}")
    samples = [
        sample
        for family in read(registry_of(ProducerCollector(producer))).values()
        for sample in family.samples
    ]
    for prefix, names in DASHBOARD.items():
        for name in names.split():
            found = [sample for sample in samples if sample.name == prefix + name]
            assert found, prefix + name
            for sample in found:
                wanted = {"client_id": "checkout", "client_type": "producer"}
                assert wanted.items() <= sample.labels.items()
    topics = {sample.labels.get("topic") for sample in samples if "_topic_metrics_" in sample.name}
    assert topics == {"orders", "refunds"}
    nodes = {sample.labels.get("node_id") for sample in samples if "_node_metrics_" in sample.name}
    assert len(leaders) > 1
    assert leaders <= nodes


async def test_every_series_of_a_java_producer_is_there_with_its_labels(producer: Producer) -> None:
    """And NaN where Java's are: nothing authenticated again, no batch went to a bootstrap server."""
    taken = (Path(__file__).parents[1] / "vectors" / "jmx_exporter.txt").read_text()
    java = [sample for family in text_string_to_metric_families(numbered(taken)) for sample in family.samples]
    assert len(java) > 100
    ours: dict[tuple[str, frozenset[str], bool], float] = {}
    for family in read(registry_of(ProducerCollector(producer, labels={}))).values():
        ours |= {place(sample): sample.value for sample in family.samples}
    # An MBean of its own, with `id` for `client-id`; its attribute is start-time-ms once more.
    missing = {sample.name for sample in java if place(sample) not in ours}
    assert missing == {"kafka_producer_app_info_StartTimeMs"}
    of_nothing = [place(sample) for sample in java if math.isnan(sample.value)]
    assert len({name for name, *_ in of_nothing}) == 4
    assert all(math.isnan(ours[at]) for at in of_nothing)


def place(sample: Sample) -> tuple[str, frozenset[str], bool]:
    """Which series it is, and whether of a broker or of a bootstrap server: the brokers' numbers may differ."""
    return sample.name, frozenset(sample.labels), sample.labels.get("node_id", "").startswith("node--")


def numbered(series: str) -> str:
    """A series needs a value to be parsed."""
    lines = (line if line.endswith("NaN") else f"{line} 0" for line in series.splitlines() if line[0] != "#")
    return "\n".join(lines) + "\n"


async def test_totals_are_counters_and_all_else_are_gauges(producer: Producer) -> None:
    families = read(registry_of(ProducerCollector(producer)))
    for name in TOTALS:
        # The parser takes the suffix off a counter's name, and leaves that of its samples.
        family = families[name.removesuffix("_total")]
        assert family.type == "counter"
        assert {sample.name for sample in family.samples} == {name}
    for name in ("record_send_rate", "batch_size_max", "requests_in_flight", "bufferpool_wait_ratio"):
        assert families[f"kafka_producer_producer_metrics_{name}"].type == "gauge"


async def test_values_are_those_of_what_was_sent(producer: Producer) -> None:
    registry = registry_of(ProducerCollector(producer))
    client = {"client_id": "checkout"}
    assert value(registry, "kafka_producer_producer_metrics_record_send_total", client) == 301
    by_topic = "kafka_producer_producer_topic_metrics_record_send_total"
    assert value(registry, by_topic, {**client, "topic": "orders"}) == 300
    assert value(registry, by_topic, {**client, "topic": "refunds"}) == 1
    assert value(registry, "kafka_producer_producer_metrics_buffer_total_bytes", client) == 32 * 2**20
    await producer.send_and_wait("refunds", b"2")
    assert value(registry, "kafka_producer_producer_metrics_record_send_total", client) == 302


async def test_app_info_is_as_the_default_format_and_as_the_rules_for_clients_have_it(
    producer: Producer,
) -> None:
    registry = registry_of(ProducerCollector(producer))
    started = value(registry, "kafka_producer_app_info_start_time_ms", {"client_id": "checkout"})
    assert started == producer.metrics().value("start-time-ms")
    families = read(registry)
    # count(kafka_producer_app_info{client_id=~"$client_id", version!=""}) by (version)
    (info,) = families["kafka_producer_app_info"].samples
    assert info.value == 1
    assert info.labels["client_id"] == "checkout"
    assert info.labels["version"] == "0.1.0"
    counted = families["kafka_producer_kafka_metrics_count_count"].samples[0].value
    assert counted == len(producer.metrics())


async def test_labels_are_the_users_choice(producer: Producer) -> None:
    plain = registry_of(ProducerCollector(producer, labels={}))
    name = "kafka_producer_producer_metrics_record_send_total"
    assert plain.get_sample_value(name, {"client_id": "checkout"}) == 301
    named = registry_of(ProducerCollector(producer, labels={"service": "shop"}))
    assert named.get_sample_value(name, {"client_id": "checkout", "service": "shop"}) == 301
    for wrong in ("topic", "client-type", "le", "1st", "client_id", ""):
        with pytest.raises(ValueError, match="cannot be a label"):
            ProducerCollector(producer, labels={wrong: "x"})


class Told:
    """A producer whose metrics are written by hand."""

    def __init__(self, producer: Producer, snapshot: MetricsSnapshot) -> None:
        self.config = producer.config
        self._snapshot = snapshot

    def metrics(self) -> MetricsSnapshot:
        return self._snapshot


async def test_histograms_are_in_base_units(producer: Producer) -> None:
    tags = {"client-id": "checkout"}
    told = Told(
        producer,
        MetricsSnapshot(
            [Metric("producer-metrics", "request-latency-avg", tags, "", "ms", MetricKind.GAUGE, math.nan)],
            [
                Histogram("request-latency", tags, "Time", "ms", (0.5, 250.0), (1, 4, 5), 1234.0),
                Histogram("batch-size", tags, "Size", "bytes", (64.0, 1024.0), (0, 2, 3), 3000.0),
            ],
        ),
    )
    families = read(registry_of(ProducerCollector(told, labels={})))
    latency = families["aioproduce_request_latency_seconds"]
    assert latency.type == "histogram"
    assert [(sample.name[35:], sample.labels.get("le"), sample.value) for sample in latency.samples] == [
        ("bucket", "0.0005", 1.0),
        ("bucket", "0.25", 4.0),
        ("bucket", "+Inf", 5.0),
        ("count", None, 5.0),
        ("sum", None, 1.234),
    ]
    sizes = families["aioproduce_batch_size_bytes"].samples
    assert [(sample.labels.get("le"), sample.value) for sample in sizes] == [
        ("64.0", 0.0),
        ("1024.0", 2.0),
        ("+Inf", 3.0),
        (None, 3.0),
        (None, 3000.0),
    ]
    # As jmx_exporter has it of Java: an average of nothing is NaN, and its series is there.
    (average,) = families["kafka_producer_producer_metrics_request_latency_avg"].samples
    assert math.isnan(average.value)


async def test_the_exposition_is_openmetrics_too(producer: Producer) -> None:
    text = openmetrics.generate_latest(registry_of(ProducerCollector(producer))).decode()
    families = {family.name: family.type for family in parse_openmetrics(text)}
    assert families["kafka_producer_producer_metrics_record_send"] == "counter"
    assert families["kafka_producer_app"] == "info"
    assert families["aioproduce_delivery_time_seconds"] == "histogram"


async def test_producers_come_and_go(producer: Producer) -> None:
    collector = ProducerCollector(producer)
    registry = registry_of(collector)
    name = "kafka_producer_producer_metrics_record_send_total"
    async with (
        FakeCluster() as cluster,
        Producer(cluster.bootstrap_servers, client_id="other") as other,
        Producer(cluster.bootstrap_servers, client_id="checkout") as same,
    ):
        collector.add(other)
        await other.send_and_wait("t", b"v")
        assert value(registry, name, {"client_id": "other"}) == 1
        assert value(registry, name, {"client_id": "checkout"}) == 301
        with pytest.raises(ValueError, match=r"client\.id 'checkout'.*remove"):
            collector.add(same)
        with pytest.raises(ValueError, match="was not added"):
            collector.remove(same)
    assert value(registry, name, {"client_id": "other"}) == 1, "a closed one is still read"
    collector.remove(other)
    assert registry.get_sample_value(name, {"client_id": "other", "client_type": "producer"}) is None
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(ProducerCollector(producer))


async def test_a_producer_that_was_not_started_is_shown() -> None:
    collector = ProducerCollector(Producer("localhost:1", client_id="early"))
    assert (
        value(
            registry_of(collector),
            "kafka_producer_producer_metrics_record_send_total",
            {"client_id": "early"},
        )
        == 0
    )


async def test_a_scrape_from_another_thread_while_topics_appear(producer: Producer) -> None:
    """The sensors have no locks: what is read must not change under the reader."""
    registry = registry_of(ProducerCollector(producer))
    with MetricsServer(0, "127.0.0.1", registry=registry) as server:
        for number in range(20):
            sent = asyncio.create_task(producer.send_and_wait(f"topic-{number}", b"v"))
            text = await asyncio.to_thread(fetch, server.port)
            await sent
            assert "kafka_producer_producer_metrics_record_send_total{" in text
    text = prometheus_client.generate_latest(registry).decode()
    assert 'topic="topic-19"' in text


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


async def test_a_blocked_event_loop_is_scraped_all_the_same(producer: Producer) -> None:
    registry = registry_of(ProducerCollector(producer))
    texts: list[str] = []
    with MetricsServer(0, "127.0.0.1", registry=registry) as server:
        scrape = threading.Thread(target=lambda: texts.append(fetch(server.port)))
        scrape.start()
        scrape.join()  # this blocks the loop that the producer runs on
    assert 'kafka_producer_producer_metrics_record_send_total{client_id="checkout"' in texts[0]


async def test_a_blocked_event_loop_of_many_producers_is_waited_for_once(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a scrape takes a second for each, and Prometheus gives up after ten."""
    asked: list[float] = []

    class Told(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            assert timeout is not None
            asked.append(timeout)
            return super().result(timeout)

    monkeypatch.setattr(sources, "Future", Told)
    monkeypatch.setattr(sources, "_PATIENCE", 0.2)
    others = [Producer("localhost:1", client_id=f"other-{number}") for number in range(20)]
    registry = registry_of(ProducerCollector(producer, *others))
    texts: list[bytes] = []
    scrape = threading.Thread(target=lambda: texts.append(prometheus_client.generate_latest(registry)))
    scrape.start()
    scrape.join()  # this blocks the loop
    assert b'record_send_total{client_id="checkout"' in texts[0]
    assert b'record_send_total{client_id="other-19"' in texts[0]
    assert len(asked) == 21
    assert sum(asked) < 0.2 + 20 * 0.01 + 0.01


def test_a_port_in_use_is_told_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PortInUseError, match=f"port {port} of 127.0.0.1 is in use: choose another"
        ) as caught:
            MetricsServer(port, "127.0.0.1")
    assert (caught.value.port, caught.value.host) == (port, "127.0.0.1")
    assert isinstance(caught.value, OSError)
    with MetricsServer(port, "127.0.0.1") as server:  # free again, and free again after a close
        assert server.port == port
    with MetricsServer(port, "127.0.0.1"):
        pass
    for wrong_port, host in ((port, "192.0.2.1"), (70_000, "127.0.0.1"), (port, "no such host")):
        with pytest.raises(
            ListenError, match=rf"cannot listen on port {wrong_port} .*use an address of this machine"
        ) as other:
            MetricsServer(wrong_port, host)
        assert not isinstance(other.value, PortInUseError)


FORKS = """
import os, signal
import prometheus_client
from aioproduce.reporters.prometheus import MetricsServer

registry = prometheus_client.CollectorRegistry()
server = MetricsServer(0, "127.0.0.1", registry=registry)
port = server.port
child = os.fork()
if child == 0:
    server.close()
    signal.pause()
try:
    # A worker may outlive the process that it was forked from; here, its server.
    server.close()
    MetricsServer(port, "127.0.0.1", registry=registry).close()
    print("listens again")
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_forked_worker_does_not_keep_the_port() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "listens again\n"), ended.stderr
