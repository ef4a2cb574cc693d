"""Samples and their history: time is an argument, nothing waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.dashboard import Feed
from aioproduce.dashboard.reading import MOST_BROKERS, MOST_TOPICS, STAGES, Reader
from aioproduce.errors import TransactionError
from aioproduce.producer.transaction_status import TransactionStatus
from aioproduce.records import SilentBroker
from aioproduce.spool import SpooledProducer
from tests.dashboard.scripted import ScriptedSource

WALL = 1_700_000_000.0


def read(feed: Feed, source: ScriptedSource, now: float) -> dict[str, Any]:
    source.now = now
    reading = feed.sample(now, WALL + now).content["producers"][0]
    assert isinstance(reading, dict)
    return reading


def test_rates_are_those_since_the_last_sample() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    source.sensors.batches.records.record(1000, 5.0)
    first = read(feed, source, 10.0)
    assert (first["records_per_s"], first["totals"]["records"]) == (None, 1000.0)

    source.sensors.batches.records.record(300, 11.0)
    source.sensors.all_nodes.outgoing.record(50_000, 11.0)
    source.sensors.batches.retries.record(8, 11.0)
    source.sensors.batches.errors.record(2, 11.0)
    second = read(feed, source, 12.0)
    assert (second["records_per_s"], second["bytes_per_s"]) == (150.0, 25_000.0)
    assert (second["retries_per_s"], second["errors_per_s"]) == (4.0, 1.0)
    assert second["totals"] == {
        "records": 1300.0,
        "retries": 8.0,
        "errors": 2.0,
        "unobserved": 0.0,
        "exhausted": 0.0,
    }
    assert read(feed, source, 13.0)["records_per_s"] == 0.0


def test_averages_are_of_the_time_since_the_last_sample_and_maxima_of_the_window() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    for milliseconds in (10.0, 20.0, 600.0):
        source.sensors.request_latency.record(milliseconds, 1.0)
    read(feed, source, 2.0)
    for milliseconds in (1.0, 3.0):
        source.sensors.request_latency.record(milliseconds, 2.5)
    latency = read(feed, source, 3.0)["latency"]
    assert (latency["avg"], latency["max"]) == (2.0, 600.0)
    idle = read(feed, source, 4.0)["latency"]
    assert (idle["avg"], idle["max"]) == (None, 600.0)
    forgotten = read(feed, source, 90.0)["latency"]
    assert forgotten == {"avg": None, "p50": None, "p99": None, "p999": None, "max": None}


def test_the_stages_and_what_they_are_seen_against() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    source.sensors.waited_for_memory(0.25, 1.0)
    source.sensors.batches.batching_time.record(5.0, 1.0)
    source.sensors.batches.retry_time.record(1500.0, 1.0)
    reading = read(feed, source, 2.0)
    assert list(reading["stages"]) == list(STAGES)
    assert {stage: times["avg"] for stage, times in reading["stages"].items()} == {
        "send-wait": 250.0,
        "batching": 5.0,
        "await-send": None,
        "in-flight": None,
        "retry": 1500.0,
        "delivery": None,
    }
    assert reading["limits"] == {
        "linger": 5.0,
        "request_timeout": 30_000.0,
        "delivery_timeout": 90_000.0,
        "max_block": 60_000.0,
        "window": 60_000.0,
    }


def test_the_buffer() -> None:
    source = ScriptedSource()
    source.gauges |= {"buffer-total-bytes": 1000, "buffer-available-bytes": 250, "waiting-tasks": 7}
    reading = read(Feed([source]), source, 1.0)
    assert reading["buffer"] == {"total": 1000, "used": 750, "waiting": 7}


def test_a_broker_that_stopped_answering_is_named() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    assert read(feed, source, 1.0)["warnings"] == []
    source.silent = [
        SilentBroker(2, "kafka-2.example", 9092, 1.4, 3, 1200),
        SilentBroker(-1, "10.0.0.7", 9092, 31.0, 1, 0),
    ]
    assert read(feed, source, 2.0)["warnings"] == [
        "Broker 2 (kafka-2.example:9092) has not answered for 1 s: 3 requests and 1200 records wait for it.",
        "The bootstrap server 10.0.0.7:9092 has not answered for 31 s: 1 requests wait for it.",
    ]


@pytest.mark.parametrize(
    ("gauge", "limit", "which", "text"),
    [
        ("oldest-record-age", 90_000.0, "record", "After delivery.timeout.ms (90 s) it fails."),
        ("oldest-send-wait", 60_000.0, "send", "After max.block.ms (60 s) it fails."),
    ],
)
def test_what_has_waited_for_half_of_its_time_is_late(
    gauge: str, limit: float, which: str, text: str
) -> None:
    source = ScriptedSource()
    feed = Feed([source])
    source.gauges[gauge] = limit / 2
    punctual = read(feed, source, 1.0)
    assert punctual["ages"][which] == {"ms": limit / 2, "is_late": False}
    assert punctual["warnings"] == []
    source.gauges[gauge] = limit / 2 + 1
    late = read(feed, source, 2.0)
    assert late["ages"][which] == {"ms": limit / 2 + 1, "is_late": True}
    [warning] = late["warnings"]
    assert warning.endswith(text)


def test_brokers_without_those_that_are_only_addresses() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    source.sensors.node(-1).sent(60, 1.0)
    source.sensors.node(10).sent(500, 1.0)
    read(feed, source, 2.0)
    source.sensors.node(10).sent(400, 2.5)
    source.sensors.node(9).sent(300, 2.5)
    source.sensors.node(9).in_flight = lambda: 4
    source.sensors.node(9).silent_for = lambda now: now - 1.5
    source.sensors.node(10).answered(0.040, 2.5)
    brokers = read(feed, source, 4.0)["brokers"]
    assert brokers == [
        {
            "name": "9",
            "requests_per_s": 0.5,
            "bytes_per_s": 150.0,
            "in_flight": 4.0,
            "latency_avg": None,
            "latency_max": None,
            "silent_ms": 2500.0,
        },
        {
            "name": "10",
            "requests_per_s": 0.5,
            "bytes_per_s": 200.0,
            "in_flight": 0.0,
            "latency_avg": 40.0,
            "latency_max": 40.0,
            "silent_ms": 0.0,
        },
    ]


def test_of_many_topics_and_brokers_the_busiest_and_the_sum_of_the_others() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    read(feed, source, 0.0)
    for number in range(500):
        source.sensors.batches.topic(f"t{number}").records.record(number, 0.5)
        source.sensors.node(number).sent(100, 0.5)
        source.sensors.node(number).answered(number / 1e3, 0.5)
    reading = read(feed, source, 1.0)
    topics, brokers = reading["topics"], reading["brokers"]
    assert (len(topics), len(brokers)) == (MOST_TOPICS + 1, MOST_BROKERS + 1)
    named = {f"t{number}" for number in range(500 - MOST_TOPICS, 500)}
    assert {row["name"] for row in topics[:-1]} == named
    others = topics[-1]
    assert (others["name"], others["count"]) == ("(others)", 500 - MOST_TOPICS)
    assert others["records_per_s"] == sum(range(500 - MOST_TOPICS))
    assert brokers[-1]["requests_per_s"] == 500 - MOST_BROKERS
    assert brokers[-1]["latency_max"] == 499.0
    assert len(feed.since(0)[-1].encoded) < 16_000


def test_the_history_is_bounded_and_numbered() -> None:
    first, second = ScriptedSource("a"), ScriptedSource("b")
    feed = Feed([first, second], history=3)
    assert (feed.since(0), feed.last_number) == ([], 0)
    for number in range(1, 6):
        feed.sample(float(number), WALL + number)
    kept = feed.since(0)
    assert [sample.number for sample in kept] == [3, 4, 5]
    assert [sample.number for sample in feed.since(4)] == [5]
    assert feed.since(5) == []
    assert feed.since(99) == []
    sample = kept[-1]
    assert json.loads(sample.encoded, parse_constant=pytest.fail) == sample.content
    assert (sample.content["at_ms"], sample.content["interval_s"]) == (1_700_000_005_000, 1.0)
    assert [reading["client_id"] for reading in sample.content["producers"]] == ["a", "b"]
    assert kept[0].encoded.count(b"\n") == 0
    assert Feed([first]).run != feed.run


def test_a_sample_is_taken_once_an_interval_whoever_asks() -> None:
    feed = Feed([ScriptedSource()], interval=1.0)
    assert feed.sample_if_due(100.0, WALL) == 1.0
    assert feed.sample_if_due(100.25, WALL) == 0.75
    assert feed.last_number == 1
    # Late by a little: the next is due at its old instant.
    assert feed.sample_if_due(101.25, WALL) == 0.75
    assert feed.last_number == 2
    # Late by more than an interval, as after a time when nobody looked: nothing is to be caught up with.
    assert feed.sample_if_due(107.5, WALL) == 1.0
    assert feed.last_number == 3


@pytest.mark.parametrize("settings", [{"interval": 0}, {"interval": float("nan")}, {"history": 0}])
def test_impossible_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="interval must be above 0 and history at least 1"):
        Feed([ScriptedSource()], **settings)


def test_nothing_to_look_at() -> None:
    with pytest.raises(ValueError, match="at least one producer"):
        Feed([])


def test_only_a_transactional_producer_tells_of_transactions() -> None:
    source = ScriptedSource()
    feed = Feed([source])
    assert read(feed, source, 1.0)["transactions"] is None
    source.status = TransactionStatus("orders-1", TransactionState.IN_TRANSACTION, 0.25, None)
    assert read(feed, source, 2.0)["transactions"] == {
        "id": "orders-1",
        "state": "in transaction",
        "open_ms": 250.0,
        "error": None,
        "committed_per_s": 0.0,
        "aborted_per_s": 0.0,
        "commit_avg": None,
        "totals": {"committed": 0.0, "aborted": 0.0, "unknown": 0.0},
    }
    source.gauges |= {"txn-committed-total": 8, "txn-aborted-total": 2, "txn-unknown-total": 1}
    source.sensors.spent("txn-commit", 0.02)
    error = TransactionError("another producer has it", recover="new producer")
    source.status = TransactionStatus("orders-1", TransactionState.FATAL_ERROR, 0.0, error)
    assert read(feed, source, 4.0)["transactions"] == {
        "id": "orders-1",
        "state": "fatal error",
        "open_ms": 0.0,
        "error": str(error),
        "committed_per_s": 4.0,
        "aborted_per_s": 1.0,
        "commit_avg": 2.5,
        "totals": {"committed": 8.0, "aborted": 2.0, "unknown": 1.0},
    }
    # Nobody waited for these, as for a group's: that is no commit in no time.
    source.gauges["txn-committed-total"] = 9
    assert read(feed, source, 5.0)["transactions"]["commit_avg"] is None


def test_only_a_producer_with_a_queue_on_disk_reports_one(tmp_path: Path) -> None:
    source = ScriptedSource()
    assert read(Feed([source]), source, 1.0)["spool"] is None
    spooled = SpooledProducer("localhost:9092", directory=tmp_path / "spool", delivery_timeout_ms=40_000)
    content = Reader(spooled).read(1.0)
    assert content["spool"]["takes_records"] is False
    assert (content["spool"]["records"], content["spool"]["topics"]) == (0, [])
    assert content["limits"]["delivery_timeout"] is None
    assert content["warnings"][0].startswith("The queue on disk takes no records")
    json.dumps(content, allow_nan=False)
