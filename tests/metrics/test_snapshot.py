"""`MetricsSnapshot`: looking up, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from aioproduce.metrics import Histogram, Metric, MetricKind, MetricsSnapshot
from tests.dashboard.scripted import ScriptedSource

ME = {"client-id": "me"}


def metric(name: str, value: float | str, *, group: str = "producer-metrics", **tags: str) -> Metric:
    kind = MetricKind.TEXT if isinstance(value, str) else MetricKind.GAUGE
    return Metric(group, name, {**ME, **tags}, "A thing", "", kind, value)


@pytest.fixture
def snapshot() -> MetricsSnapshot:
    node = {"group": "producer-node-metrics"}
    return MetricsSnapshot(
        [
            metric("record-send-total", 30.0),
            metric("record-send-total", 10.0, group="producer-topic-metrics", topic="a"),
            metric("record-send-total", 20.0, group="producer-topic-metrics", topic="b"),
            metric("request-latency-max", nan),
            metric("request-latency-max", 5.0, **node, **{"node-id": "node-1"}),
            metric("version", "1.2", group="app-info"),
        ],
        [Histogram("request-latency", ME, "Latency", "ms", (1.0, 2.0), (3, 4, 9), 42.5)],
        1234,
    )


def test_it_is_a_sequence(snapshot: MetricsSnapshot) -> None:
    assert len(snapshot) == 6
    assert [each.name for each in snapshot][:2] == ["record-send-total"] * 2
    assert snapshot[5].value == "1.2"
    assert [each.value for each in snapshot[:2]] == [30.0, 10.0]
    assert snapshot[0] in snapshot
    assert repr(snapshot) == "<MetricsSnapshot of 6 metrics>"
    assert snapshot.taken_at_ms == 1234


def test_find_gives_all_that_have_these_tags(snapshot: MetricsSnapshot) -> None:
    assert [each.value for each in snapshot.find("record-send-total")] == [30.0, 10.0, 20.0]
    assert [each.value for each in snapshot.find("record-send-total", topic="b")] == [20.0]
    assert [each.value for each in snapshot.find("request-latency-max", node_id="node-1")] == [5.0]
    assert [each.value for each in snapshot.find("record-send-total", client_id="me", topic="a")] == [10.0]
    assert snapshot.find("record-send-total", topic="c") == []
    assert snapshot.find("no-such-thing") == []


def test_value_gives_the_one_number(snapshot: MetricsSnapshot) -> None:
    assert snapshot.value("record-send-total") == 30.0
    assert snapshot.value("record-send-total", topic="a") == 10.0
    assert snapshot.value("request-latency-max", node_id="node-1") == 5.0


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("no-such-thing", {}),
        ("record-send-total", {"topic": "c"}),
        ("record-send-total", {"node_id": "node-1"}),
        ("version", {}),
    ],
)
def test_there_is_no_such_number(snapshot: MetricsSnapshot, name: str, tags: dict[str, str]) -> None:
    with pytest.raises(KeyError, match=name) as caught:
        snapshot.value(name, **tags)
    assert all(value in str(caught.value) for value in tags.values())


def test_histograms_by_name(snapshot: MetricsSnapshot) -> None:
    found = snapshot.histogram("request-latency")
    assert (found.count, found.total) == (9, 42.5)
    with pytest.raises(KeyError, match="the histograms are request-latency"):
        snapshot.histogram("batch-size")


def test_as_json(snapshot: MetricsSnapshot) -> None:
    # Strict JSON has no NaN: allow_nan=False raises where one is left.
    assert json.loads(json.dumps(snapshot.as_dict(), allow_nan=False)) == {
        "taken_at_ms": 1234,
        "metrics": {
            "producer-metrics": {"record-send-total": 30.0, "request-latency-max": None},
            "producer-topic-metrics": {
                "record-send-total{topic=a}": 10.0,
                "record-send-total{topic=b}": 20.0,
            },
            "producer-node-metrics": {"request-latency-max{node-id=node-1}": 5.0},
            "app-info": {"version": "1.2"},
        },
    }


def test_topics_and_brokers_may_appear_while_it_is_read() -> None:
    """As they do where another thread reads, which a scrape does when it does not know the event loop."""
    source = ScriptedSource()
    batches: Any = source.sensors.batches
    nodes: Any = source.sensors.nodes

    class Appearing:
        """Each look at one brings another."""

        def __init__(self, sensors: Any, appear: Callable[[], object]) -> None:
            self._sensors, self._appear = sensors, appear

        def __getattr__(self, name: str) -> Any:
            self._appear()
            return getattr(self._sensors, name)

    batches.topics["orders"] = Appearing(
        batches.topic("orders"), lambda: batches.topic(f"t{len(batches.topics)}")
    )
    nodes[1] = Appearing(source.sensors.node(1), lambda: source.sensors.node(len(nodes) + 1))
    taken = source.metrics()
    assert [metric.tags["topic"] for metric in taken.find("byte-total")] == ["orders"]
    assert len(list(taken.find("request-total", node_id="node-1"))) == 1
    assert len(batches.topics) > 1
    assert len(nodes) > 1
