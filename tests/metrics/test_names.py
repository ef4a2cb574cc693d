"""No name of the list is missing, none is there that no list has, each has its group's tags and its unit."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from aioproduce import Producer
from aioproduce.metrics import MetricKind, MetricsSnapshot
from aioproduce.testing.simulation import Simulation
from aioproduce.version import VERSION
from tests.metrics.names import KAFKAS, OF_KAFKAS_WITH_PERCENTILES, OUR_TIMES, OURS, TAGS

if TYPE_CHECKING:
    from aioproduce.metrics import Metric


@pytest.fixture(scope="module")
def snapshot() -> MetricsSnapshot:
    """Of a producer that sent to two topics on two brokers."""
    simulation = Simulation(1, brokers=2, topics={"orders": 2, "bills": 2})

    async def main() -> MetricsSnapshot:
        async with Producer(simulation.bootstrap_servers, client_id="me") as producer:
            for number in range(20):
                await producer.send("orders" if number % 2 else "bills", b"x", partition=number // 2 % 2)
            await producer.flush()
            return producer.metrics()

    return simulation.run(main())


def by_group(snapshot: MetricsSnapshot) -> dict[str, list[Metric]]:
    groups: dict[str, list[Metric]] = defaultdict(list)
    for metric in snapshot:
        groups[metric.group].append(metric)
    return groups


def test_every_name_is_there_with_its_unit_and_no_other(snapshot: MetricsSnapshot) -> None:
    found = {
        group: {metric.name: metric.unit for metric in metrics}
        for group, metrics in by_group(snapshot).items()
    }
    assert found.keys() == KAFKAS.keys()
    for group, names in KAFKAS.items():
        assert found[group] == {**names, **OURS.get(group, {})}, group


def test_every_metric_has_the_tags_of_its_group(snapshot: MetricsSnapshot) -> None:
    for metric in snapshot:
        expected = TAGS[metric.group]
        if metric.name == "connections":
            expected = expected | {"clientSoftwareName", "clientSoftwareVersion"}
        assert metric.tags.keys() == expected, metric
        assert metric.tags["client-id"] == "me"
    groups = by_group(snapshot)
    # Once for each topic, and for each broker: those of bootstrap.servers are known by negative numbers until then.
    topics = Counter(metric.tags["topic"] for metric in groups["producer-topic-metrics"])
    assert topics == dict.fromkeys(("orders", "bills"), len(KAFKAS["producer-topic-metrics"]))
    nodes = Counter(metric.tags["node-id"] for metric in groups["producer-node-metrics"])
    of_a_node = len(KAFKAS["producer-node-metrics"]) + len(OURS["producer-node-metrics"])
    assert {"node-0", "node-1"} < nodes.keys() <= {"node-0", "node-1", "node--1", "node--2"}
    assert set(nodes.values()) == {of_a_node}
    for group in ("producer-metrics", "app-info", "kafka-metrics-count"):
        assert all(count == 1 for count in Counter(metric.name for metric in groups[group]).values())


def test_kinds_descriptions_and_histograms(snapshot: MetricsSnapshot) -> None:
    for metric in snapshot:
        # Text is app-info's; what only grows is called a total, as in Kafka.
        is_text = metric.name in ("version", "commit-id")
        assert metric.kind is (
            MetricKind.TEXT
            if is_text
            else MetricKind.TOTAL
            if metric.name.endswith("-total")
            else MetricKind.GAUGE
        ), metric
        assert isinstance(metric.value, str) == is_text
        assert len(metric.description) > 10
        assert metric.description[0].isupper()
    assert [one.name for one in snapshot.histograms] == [*OF_KAFKAS_WITH_PERCENTILES, *OUR_TIMES]
    for one in snapshot.histograms:
        assert one.tags == {"client-id": "me"}
        assert one.unit == ("bytes" if one.name == "batch-size" else "ms")
        assert list(one.bounds) == sorted(one.bounds)
        assert len(one.counts) == len(one.bounds) + 1
        assert list(one.counts) == sorted(one.counts)


def test_app_info_and_the_count(snapshot: MetricsSnapshot) -> None:
    assert snapshot.find("version")[0].value == VERSION
    assert snapshot.find("commit-id")[0].value == "unknown"
    # A simulation's wall clock begins here, and the producer is started at once.
    assert snapshot.value("start-time-ms") == 1_700_000_000_000
    assert snapshot.value("count") == len(snapshot)


def test_what_this_client_does_not_do_is_told_to_be_nothing(snapshot: MetricsSnapshot) -> None:
    for name in (
        "successful-authentication-total", "successful-authentication-rate",
        "successful-authentication-no-reauth-total", "successful-reauthentication-total",
        "successful-reauthentication-rate", "failed-authentication-total",
        "failed-authentication-rate", "failed-reauthentication-total", "failed-reauthentication-rate",
        "txn-init-time-ns-total", "txn-begin-time-ns-total", "txn-send-offsets-time-ns-total",
        "txn-prepare-time-ns-total", "txn-commit-time-ns-total", "txn-abort-time-ns-total",
    ):  # fmt: skip
        assert snapshot.value(name) == 0.0, name
    assert math.isnan(snapshot.value("reauthentication-latency-avg"))
    assert math.isnan(snapshot.value("reauthentication-latency-max"))
