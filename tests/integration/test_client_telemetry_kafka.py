"""Client telemetry (KIP-714) against a real broker: what its plugin gets is what the producer did.

The plugin is `TelemetryToFile.java`, compiled here; Kafka's own ClientMetricsCommand subscribes. What Java's
producer pushes to the same plugin says which names there are and which of them are sums.

1. Payloads are decoded by OpenTelemetry's classes, as they are after the broker has decompressed them.
2. Each test has a client id of its own, and the subscription is for that alone.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioproduce import Producer
from tests.drivers.producing import until
from tests.kafka_ask import wanted_metrics
from tests.kafka_cluster import BROKER_JVM_FLAGS, KafkaCluster
from tests.kafka_tools import KafkaTools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint

PLUGIN = Path(__file__).with_name("TelemetryToFile.java")
KAFKA = "org.apache.kafka.producer."
INTERVAL_MS = 100
"""The shortest that Kafka takes."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Push:
    """One push, as the broker's plugin got it."""

    client_id: str
    instance_id: UUID
    is_last: bool
    content_type: str
    data: MetricsData

    @property
    def metrics(self) -> dict[str, Metric]:
        """By name; Java's pushes have a metric of each point."""
        found: dict[str, Metric] = {}
        for resource in self.data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found.setdefault(metric.name, metric)
        return found

    def points(self, name: str) -> list[NumberDataPoint]:
        return list(self.metrics[name].sum.data_points)

    def total(self, name: str, **attributes: str) -> float:
        return sum(
            point.as_double
            for point in self.points(name)
            if {one.key: one.value.string_value for one in point.attributes} == attributes
        )


class Telemetry:
    """A broker with the plugin, and what it got."""

    def __init__(self, cluster: KafkaCluster, file: Path) -> None:
        self.cluster = cluster
        self._file = file

    def subscribe(self, client_id: str, metrics: str) -> None:
        """Have the broker ask a client for metrics; returns when it does."""
        self.cluster.tools.run(
            "org.apache.kafka.tools.ClientMetricsCommand",
            *("--bootstrap-server", self.cluster.bootstrap_servers, "--alter", "--name", client_id),
            *("--metrics", metrics, "--interval", str(INTERVAL_MS), "--match", f"client_id={client_id}"),
        )
        (node,) = self.cluster.nodes.values()
        deadline = time.monotonic() + PATIENCE
        while wanted_metrics(node.port, client_id) != set(metrics.split(",")):
            assert time.monotonic() < deadline, "the broker does not know of the subscription"
            time.sleep(0.05)

    def pushes(self, client_id: str) -> list[Push]:
        if not self._file.exists():
            return []
        # Whole lines: the plugin may be writing one.
        lines = self._file.read_text().split("\n")[:-1]
        return [push for push in map(_push, lines) if push.client_id == client_id]

    async def pushed(self, client_id: str, count: int) -> list[Push]:
        """Wait for so many pushes."""
        await until(lambda: len(self.pushes(client_id)) >= count)
        return self.pushes(client_id)


def _push(line: str) -> Push:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    client_id, instance_id, is_last, content_type, payload = line.split(" ")
    return Push(
        client_id,
        UUID(bytes=urlsafe_b64decode(instance_id + "==")),
        is_last == "true",
        content_type,
        MetricsData.FromString(bytes.fromhex(payload)),
    )


@pytest.fixture(scope="module")
def telemetry(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telemetry]:
    pytest.importorskip("opentelemetry.proto", reason="needs the extra aioproduce[telemetry]")
    folder = tmp_path_factory.mktemp("plugin")
    plain = kafka_tools.install
    compile_it = [plain.java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-d", str(folder)]
    jars = os.pathsep.join(map(str, plain.libs.glob("kafka-clients-*.jar")))
    answer = subprocess.run(
        [*compile_it, "-cp", jars, str(PLUGIN)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "jdk.compiler not found" in answer.stderr + answer.stdout:
        pytest.skip(f"no real Kafka with a plugin: {plain.java} is a runtime alone; install a JDK")
    assert answer.returncode == 0, answer.stderr
    file = tmp_path_factory.mktemp("pushes") / "pushes.txt"
    with KafkaCluster(
        KafkaTools(replace(plain, classes=folder)),
        tmp_path_factory.mktemp("kafka-telemetry"),
        properties={"metric.reporters": "TelemetryToFile"},
        jvm_flags=(*BROKER_JVM_FLAGS, f"-Dtelemetry.file={file}"),
    ) as cluster:
        yield Telemetry(cluster, file)


def _sum_of(pushes: Iterable[Push], name: str, **attributes: str) -> float:
    return sum(push.total(name, **attributes) for push in pushes)


@pytest.mark.kafka
async def test_the_deltas_of_all_pushes_are_what_was_sent(telemetry: Telemetry, topic_name: str) -> None:
    client_id, other = topic_name, f"{topic_name}-other"
    for topic in (topic_name, other):
        await asyncio.to_thread(telemetry.cluster.create_topic, topic)
    await asyncio.to_thread(telemetry.subscribe, client_id, KAFKA)
    async with Producer(
        telemetry.cluster.bootstrap_servers, client_id=client_id, client_rack="r1"
    ) as producer:
        instance_id = await producer.client_instance_id(PATIENCE)
        await asyncio.gather(*[await producer.send(topic_name, b"%d" % number) for number in range(300)])
        await telemetry.pushed(client_id, 2)
        await asyncio.gather(*[await producer.send(other, b"%d" % number) for number in range(77)])
        # Accepted, and only sent by close(): the last push has them.
        for number in range(23):
            await producer.send(other, b"late %d" % number)
    pushes = telemetry.pushes(client_id)
    assert len(pushes) >= 3
    assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {push.instance_id for push in pushes} == {instance_id}
    assert {push.content_type for push in pushes} == {"OTLP"}
    assert _sum_of(pushes, f"{KAFKA}record.send.total") == 400
    with_topic = [push for push in pushes if f"{KAFKA}topic.record.send.total" in push.metrics]
    assert _sum_of(with_topic, f"{KAFKA}topic.record.send.total", topic=topic_name) == 300
    assert _sum_of(with_topic, f"{KAFKA}topic.record.send.total", topic=other) == 100
    assert _sum_of(pushes, f"{KAFKA}record.error.total") == 0
    for push in pushes:
        assert all(name.startswith(KAFKA) for name in push.metrics)
        (resource,) = push.data.resource_metrics
        labels = {label.key: label.value.string_value for label in resource.resource.attributes}
        assert labels == {"client_rack": "r1"}
    # Each delta begins where the one before it ended.
    spans = [push.points(f"{KAFKA}record.send.total")[0] for push in pushes]
    assert [point.start_time_unix_nano for point in spans[1:]] == [
        point.time_unix_nano for point in spans[:-1]
    ]


@pytest.mark.kafka
async def test_a_changed_subscription_is_followed(telemetry: Telemetry, topic_name: str) -> None:
    await asyncio.to_thread(telemetry.cluster.create_topic, topic_name)
    await asyncio.to_thread(telemetry.subscribe, topic_name, f"{KAFKA}record.send")
    async with Producer(telemetry.cluster.bootstrap_servers, client_id=topic_name) as producer:
        await producer.send_and_wait(topic_name, b"v")
        first = await telemetry.pushed(topic_name, 1)
        assert first[0].metrics.keys() == {f"{KAFKA}record.send.total", f"{KAFKA}record.send.rate"}
        await asyncio.to_thread(telemetry.subscribe, topic_name, f"{KAFKA}node.,{KAFKA}request.total")
        seen = len(telemetry.pushes(topic_name))
        async with asyncio.timeout(PATIENCE):
            while f"{KAFKA}request.total" not in (await telemetry.pushed(topic_name, seen + 1))[-1].metrics:
                seen += 1
        latest = telemetry.pushes(topic_name)[-1]
    assert f"{KAFKA}record.send.total" not in latest.metrics
    (node,) = telemetry.cluster.nodes
    attributes = {
        attribute.value.string_value
        for point in latest.points(f"{KAFKA}node.request.total")
        for attribute in point.attributes
    }
    assert f"node-{node}" in attributes


@pytest.mark.kafka
@pytest.mark.extended("starts a JVM with Java's producer")
async def test_names_and_kinds_are_those_of_javas_producer(telemetry: Telemetry, topic_name: str) -> None:
    await asyncio.to_thread(telemetry.cluster.create_topic, topic_name)
    clients = {name: f"{topic_name}-{name}" for name in ("java", "here")}
    for client_id in clients.values():
        await asyncio.to_thread(telemetry.subscribe, client_id, "*")
    # Four seconds: Java's last push may not get away before its close does, and those before must have it all.
    await asyncio.to_thread(
        telemetry.cluster.tools.run,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic_name, "--num-records", "1000", "--record-size", "10", "--throughput", "250"),
        *("--bootstrap-server", telemetry.cluster.bootstrap_servers),
        *("--command-property", f"client.id={clients['java']}"),
    )
    async with Producer(telemetry.cluster.bootstrap_servers, client_id=clients["here"]) as producer:
        for number in range(100):
            await producer.send_and_wait(topic_name, b"%d" % number)
    java, here = (_kinds(telemetry.pushes(client_id)) for client_id in clients.values())
    assert len(java) > 80
    own = {name for name in here if name.startswith("aioproduce.")}
    assert here.keys() - java.keys() == own
    # An average of nothing, which Java pushes as NaN.
    assert java.keys() - here.keys() <= {f"{KAFKA}reauthentication.latency.{of}" for of in ("avg", "max")}
    assert {name: here[name] for name in here.keys() & java.keys()} == {
        name: java[name] for name in here.keys() & java.keys()
    }


def _kinds(pushes: Iterable[Push]) -> Mapping[str, str | None]:
    """Name -> whether it is a sum or a gauge."""
    assert pushes
    return {name: metric.WhichOneof("data") for push in pushes for name, metric in push.metrics.items()}
