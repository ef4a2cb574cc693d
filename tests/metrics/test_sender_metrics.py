"""Kafka's sender, topic, network and node metrics, held against what the brokers' side saw and the clock said."""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from aioproduce.compression import codec_for
from aioproduce.wire import error_codes as codes
from tests.metrics.measured_harness import BATCH_HEADER, MeasuredHarness, record_sizes
from tests.unit.sender_wire import METADATA, TOPIC, Topic, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.metrics import MetricsSnapshot

OTHER = "other"

# Buckets of percentiles are a sixteenth of a power of two wide, and their upper end is told.
BUCKET = 2 ** (1 / 16)


def with_two_topics(**settings: object) -> MeasuredHarness:
    """Two brokers; partition 0 of `TOPIC` and of `OTHER` on node 0, partition 1 of `TOPIC` on node 1."""
    h = MeasuredHarness(brokers=2, **settings)
    h.topics[OTHER] = Topic(topic_id_of(7), [(0, 0)])
    h.move(1, 1)
    h.want(OTHER)
    h.refresh()
    return h


def append_all(h: MeasuredHarness) -> None:
    """Seven records of different sizes for the three partitions, in as many batches; not sent yet."""
    h.append(0, b"a" * 10)
    h.append(0, b"b" * 300, key=b"key")
    h.append(0, b"")
    h.append(1, b"c" * 77)
    h.append(1, None, key=b"tombstone")
    h.append(0, b"d" * 5, topic=OTHER)
    h.append(0, b"e" * 6, topic=OTHER)


def acknowledge_all(h: MeasuredHarness) -> None:
    while h.produces:
        h.acknowledge()


def assert_percentiles(snapshot: MetricsSnapshot, name: str, values: Sequence[float]) -> None:
    """Each at most a bucket above the exact one, and never above the maximum."""
    for suffix, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        exact = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
        found = snapshot.value(f"{name}-{suffix}")
        assert exact * (1 - 1e-9) <= found <= min(exact * BUCKET * (1 + 1e-9), max(values)), (name, suffix)


def test_batches_and_records_are_those_that_the_brokers_read() -> None:
    h = with_two_topics()
    append_all(h)
    h.run()
    acknowledge_all(h)
    append_all(h)
    h.run()
    acknowledge_all(h)

    found = h.read()
    sizes = [len(batch.content) for batch in h.batches]
    counts = [len(batch.values) for batch in h.batches]
    records = [size for batch in h.batches for size in record_sizes(batch.content)]
    per_request = [sum(len(batch.values) for batch in each.batches.values()) for each in h.attempts]
    assert (len(sizes), len(h.attempts), len(records)) == (6, 4, 14)
    assert found.value("batch-size-avg") == pytest.approx(fmean(sizes))
    assert found.value("batch-size-max") == max(sizes)
    assert_percentiles(found, "batch-size", sizes)
    assert found.value("record-send-total") == sum(counts) == len(records)
    assert found.value("records-per-request-avg") == pytest.approx(fmean(per_request))
    assert found.value("record-size-avg") == pytest.approx(fmean(records))
    assert found.value("record-size-max") == max(records)
    assert found.value("compression-rate-avg") == 1.0
    # All but one of the windows (2 of 30 s) is the least that a rate is over.
    assert found.value("record-send-rate") == pytest.approx(len(records) / 30)


def test_topics_have_their_own() -> None:
    h = with_two_topics()
    append_all(h)
    h.run()
    h.answer(codes={0: codes.NOT_ENOUGH_REPLICAS})  # partition 0 of both topics, in one request
    h.answer(codes={1: codes.TOPIC_AUTHORIZATION_FAILED})
    h.advance(0.05)
    acknowledge_all(h)

    found = h.read()
    of_topic: dict[str, list[bytes]] = defaultdict(list)
    sent: Counter[str] = Counter()
    for request in h.attempts:
        for topic_partition, batch in request.batches.items():
            of_topic[topic_partition.topic].append(batch.content)
            sent[topic_partition.topic] += len(batch.values)
    assert sent == {TOPIC: 8, OTHER: 4}
    for topic, retried, failed in ((TOPIC, 3, 2), (OTHER, 2, 0)):
        size = sum(map(len, of_topic[topic]))
        for name, total in (
            ("record-send", sent[topic]),
            ("byte", size),
            ("record-retry", retried),
            ("record-error", failed),
        ):
            assert found.value(f"{name}-total", topic=topic) == total, (topic, name)
            assert found.value(f"{name}-rate", topic=topic) == pytest.approx(total / 30, rel=0.005)
        assert found.value("compression-rate", topic=topic) == 1.0
    assert found.value("record-retry-total") == 5
    assert found.value("record-retry-rate") == pytest.approx(5 / 30, rel=0.005)
    assert found.value("record-error-total") == 2
    assert found.value("record-error-rate") == pytest.approx(2 / 30, rel=0.005)
    # Each attempt counts as sent.
    assert found.value("record-send-total") == 12


def test_compression_is_of_the_records_alone() -> None:
    """As MemoryRecordsBuilder.close(): bytes after compression over bytes before, both without the header."""
    h = MeasuredHarness(codec=codec_for("gzip", gzip_level=6, lz4_level=9, zstd_level=3))
    for partition, value in ((0, b"same " * 200), (1, bytes(range(256)))):
        h.append(partition, value)
    h.run()
    acknowledge_all(h)

    found = h.read()
    ratios = []
    for batch in h.batches:
        compressed = batch.content[BATCH_HEADER:]
        ratios.append(len(compressed) / len(gzip.decompress(compressed)))
    assert len(ratios) == 2
    assert min(ratios) < 0.2
    assert found.value("compression-rate-avg") == pytest.approx(fmean(ratios))
    assert found.value("compression-rate", topic=TOPIC) == pytest.approx(fmean(ratios))
    assert found.value("byte-total", topic=TOPIC) == sum(len(batch.content) for batch in h.batches)


def test_queue_time_is_from_the_first_record_to_the_sending() -> None:
    h = MeasuredHarness(linger_ms=100)
    for partition, late in ((0, 0.0), (0, 0.03), (1, 0.02)):
        h.advance(late)
        h.append(partition, b"x")
    began = {0: h.records[0].accepted_at, 1: h.records[2].accepted_at}
    h.advance(0.2)
    acknowledge_all(h)

    found = h.read()
    queued = [
        1000 * (request.sent_at - began[partition])
        for request in h.attempts
        for partition in request.partitions
    ]
    assert queued == pytest.approx([100.0, 100.0])
    assert found.value("record-queue-time-avg") == pytest.approx(fmean(queued))
    assert found.value("record-queue-time-max") == pytest.approx(max(queued))
    h.advance(0.05)
    h.append(0, b"y")
    h.jump(0.25)  # the loop was busy: it is sent late
    h.run()
    acknowledge_all(h)
    found = h.read()
    assert found.value("record-queue-time-max") == pytest.approx(250.0)
    assert_percentiles(found, "record-queue-time", [100.0, 100.0, 250.0])


def test_latency_is_of_produce_requests_by_broker() -> None:
    h = with_two_topics()
    waits: dict[int, list[float]] = {0: [], 1: []}
    for seconds in (0.005, 0.02, 0.4):
        h.append(0)
        h.append(1)
        h.run()
        assert len(h.produces) == 2
        for late in (seconds, 0.1):
            h.advance(late)
            waits[h.produces[0].node_id].append(1000 * (h.now - h.produces[0].sent_at))
            h.acknowledge()

    found = h.read()
    both = waits[0] + waits[1]
    assert found.value("request-latency-avg") == pytest.approx(fmean(both))
    assert found.value("request-latency-max") == pytest.approx(max(both))
    assert_percentiles(found, "request-latency", both)
    for node, its in waits.items():
        assert found.value("request-latency-avg", node_id=f"node-{node}") == pytest.approx(fmean(its))
        assert found.value("request-latency-max", node_id=f"node-{node}") == pytest.approx(max(its))
    assert found.histogram("request-latency").count == 6
    assert found.histogram("request-latency").total == pytest.approx(sum(both))


def test_with_acks_0_there_is_no_latency() -> None:
    h = MeasuredHarness(acks=0, enable_idempotence=False)
    h.send(0)
    found = h.read()
    assert found.value("record-send-total") == 1
    assert found.value("record-error-total") == 0
    assert math.isnan(found.value("request-latency-avg"))
    assert found.histogram("request-latency").count == 0
    assert found.histogram("delivery-time").count == 1


def test_throttling_is_what_the_brokers_told() -> None:
    h = MeasuredHarness()
    told = [0.0] * (h.count(METADATA) + 1)  # and InitProducerId; ApiVersions is the connection's own affair
    for seconds in (0.0, 0.25, 0.04):
        h.send(0)
        h.answer(throttle=seconds)
        told.append(1000 * seconds)
        h.advance(0.3)
    found = h.read()
    assert found.value("produce-throttle-time-max") == pytest.approx(250.0)
    assert found.value("produce-throttle-time-avg") == pytest.approx(fmean(told))
    for suffix in ("p99", "p999"):
        assert found.value(f"produce-throttle-time-{suffix}") == pytest.approx(250.0)
    assert found.value("produce-throttle-time-p50") < 1e-5
    assert found.histogram("produce-throttle-time").count == len(told)


def test_a_split_is_counted_and_its_records_are_sent_again() -> None:
    h = MeasuredHarness()
    for number in range(4):
        h.append(0, b"%d" % number)
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.answer(code=codes.MESSAGE_TOO_LARGE)  # the first half
    acknowledge_all(h)
    assert all(record.error is None for record in h.records)

    found = h.read()
    assert found.value("batch-split-total") == 2
    assert found.value("batch-split-rate") == pytest.approx(2 / 30)
    assert found.value("record-send-total") == sum(len(batch.values) for batch in h.batches)
    # Neither a retry nor an error: Java counts a split only.
    assert found.value("record-retry-total") == 0
    assert found.value("record-error-total") == 0


@pytest.mark.parametrize("how", ["refused", "timed out", "expired", "no retry left", "closed", "died"])
def test_every_way_to_fail_counts_each_record_once(how: str) -> None:
    h = MeasuredHarness(retries=0) if how == "no retry left" else MeasuredHarness()
    if how == "expired":
        h.move(0, -1)
        h.refresh()
    h.append(0, b"1")
    h.append(0, b"2")
    h.append(0, b"3")
    h.run()
    if how == "refused":
        h.answer(code=codes.INVALID_RECORD)
    elif how == "timed out":
        h.advance(1.6)  # in flight all the time: delivery.timeout.ms is 1500
    elif how == "expired":
        h.advance(1.6)
        assert not h.attempts
    elif how == "no retry left":
        h.lose()
    elif how == "closed":
        h.sender.abort(h.now)
        h.run()
    else:
        h.sender.die(RuntimeError("a bug"), "it died of a bug", h.now)
    assert all(record.delivery.done() for record in h.records)
    assert all(record.delivery.exception() is not None for record in h.records)

    found = h.read()
    assert found.value("record-error-total") == 3
    assert found.value("record-error-total", topic=TOPIC) == 3
    # request.timeout.ms passed before delivery.timeout.ms did: that was one attempt more.
    assert found.value("record-retry-total") == (3 if how == "timed out" else 0)


def test_what_fails_at_last_was_retried_before() -> None:
    h = MeasuredHarness(retries=2)
    h.append(0, b"1")
    h.append(0, b"2")
    h.run()
    for _ in range(3):
        h.answer(code=codes.NOT_ENOUGH_REPLICAS)
        h.advance(0.05)
    assert [type(record.error).__name__ for record in h.records] == ["BrokerRejectedError"] * 2

    found = h.read()
    assert found.value("record-retry-total") == 4
    assert found.value("record-error-total") == 2
    assert found.value("record-send-total") == 6 == sum(len(batch.values) for batch in h.batches)


def test_bytes_requests_and_answers_are_those_on_the_wire() -> None:
    h = with_two_topics()
    for _ in range(3):
        append_all(h)
        h.run()
        acknowledge_all(h)

    found = h.read()
    seen, written = h.requests_seen, h.answers_written
    sizes = [one.size for one in seen]
    assert found.value("request-total") == len(seen)
    assert found.value("outgoing-byte-total") == sum(sizes)
    assert found.value("request-size-avg") == pytest.approx(fmean(sizes))
    assert found.value("request-size-max") == max(sizes)
    assert found.value("response-total") == len(written) == len(seen)
    assert found.value("incoming-byte-total") == sum(one.size for one in written)
    # The harness hands over each request and each answer whole.
    assert found.value("network-io-total") == len(seen) + len(written)
    for name in ("request", "outgoing-byte", "response", "incoming-byte", "network-io"):
        assert found.value(f"{name}-rate") == pytest.approx(found.value(f"{name}-total") / 30, rel=0.01)
    nodes = {one.node_id for one in seen}
    assert nodes >= {0, 1}
    for node in (0, 1):
        # Node -1 was asked for metadata under the address of node 0.
        ids = {f"node-{node}"}
        its = [one.size for one in seen if one.node_id == node]
        back = [one.size for one in written if one.node_id == node]
        if node == 0:
            ids.add("node--1")

        def total(name: str, ids: set[str] = ids) -> float:
            return sum(found.value(name, node_id=each) for each in ids)

        assert total("request-total") == len(its)
        assert total("outgoing-byte-total") == sum(its)
        assert total("response-total") == len(back)
        assert total("incoming-byte-total") == sum(back)
        assert found.value("request-size-max", node_id=f"node-{node}") == max(its)
    its = [one.size for one in seen if one.node_id == 1]
    back = [one.size for one in written if one.node_id == 1]
    assert found.value("request-size-avg", node_id="node-1") == pytest.approx(fmean(its))
    for name, of_node in (
        ("request-rate", len(its)),
        ("outgoing-byte-rate", sum(its)),
        ("response-rate", len(back)),
        ("incoming-byte-rate", sum(back)),
    ):
        assert found.value(name, node_id="node-1") == pytest.approx(of_node / 30, rel=0.01)


def test_an_answer_in_pieces_is_one_answer_and_several_reads() -> None:
    h = MeasuredHarness()
    before = h.read()
    h.send(0)
    request = h.produce()
    original = h.sender.receive_data
    pieces: list[int] = []

    def in_pieces(connection_id: int, data: bytes, now: float) -> None:
        for place in range(0, len(data), 10):
            pieces.append(len(data[place : place + 10]))
            original(connection_id, data[place : place + 10], now)

    class Piecewise:
        """The core, but for how bytes come."""

        def __getattr__(self, name: str) -> object:
            return in_pieces if name == "receive_data" else getattr(sender, name)

    sender, h.sender = h.sender, Piecewise()  # type: ignore[assignment]
    h.acknowledge(request)
    after = h.read()

    def grew(name: str) -> float:
        return after.value(name) - before.value(name)

    assert len(pieces) > 3
    assert grew("incoming-byte-total") == sum(pieces)
    assert grew("response-total") == 1
    assert grew("network-io-total") == 1 + len(pieces)


def test_connections_that_come_and_go() -> None:
    h = MeasuredHarness()
    opened = len(h.connections)
    h.send(0)
    h.lose(0)  # its connection, and the batch is sent again on another
    h.advance(0.1)
    acknowledge_all(h)
    h.down.add(0)
    h.lose(0)
    h.advance(0.1)  # refused now: never open, so it is not closed either

    found = h.read()
    assert found.value("connection-creation-total") == opened + 1
    assert found.value("connection-close-total") == opened + 1 - len(h.connections)
    for name in ("connection-creation", "connection-close"):
        assert found.value(f"{name}-rate") == pytest.approx(found.value(f"{name}-total") / 30, rel=0.01)
