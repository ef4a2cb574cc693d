"""Fetch and ListOffsets in the broker model, read by kio and aiokafka."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.record import MemoryRecords

from aioproduce.testing import ClusterModel
from tests.unit.fake_broker_peer import TIMESTAMP, Peer, batch, fetch_request, model


def list_offsets(timestamp: int, *, version: int = 9, partition: int = 0, leader_epoch: int = -1) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.list_offsets.v{version}.request")
    epoch = {} if version < 4 else {"current_leader_epoch": leader_epoch}
    isolation = {} if version < 2 else {"isolation_level": 0}
    timeout = {} if version < 10 else {"timeout": timedelta(seconds=1)}
    return schema.ListOffsetsRequest(
        replica_id=-1,
        topics=(
            schema.ListOffsetsTopic(
                name="t",
                partitions=(
                    schema.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **epoch),
                ),
            ),
        ),
        **isolation,
        **timeout,
    )


def only(answer: Any) -> Any:
    """The answer's only partition."""
    ((partition,),) = [response.partitions for response in answer.responses]
    return partition


def values(partition: Any) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what was fetched, as aiokafka reads it, checksums looked at."""
    records = MemoryRecords(partition.records)
    found = []
    while (kept := records.next_batch()) is not None:
        assert kept.validate_crc()
        found += [(record.offset, record.value) for record in kept]
    return found


def filled(*batches: bytes, partitions: int = 1) -> tuple[ClusterModel, Peer]:
    cluster = model(topics={"t": partitions})
    peer = Peer(cluster)
    for content in batches:
        assert peer.produce("t", content).error_code.value == 0
    return cluster, peer


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_back(version: int) -> None:
    cluster, peer = filled(batch(b"a", b"b"), batch(b"c"))

    answer = peer.ask(fetch_request(cluster, version=version))

    partition = only(answer)
    assert (partition.error_code.value, partition.high_watermark, partition.last_stable_offset) == (0, 3, 3)
    assert values(partition) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_the_broker_and_by_a_foreign_client(codec: int) -> None:
    cluster, peer = filled(
        batch(b"a" * 1000, None, b"", codec=codec, key=b"k", headers=(("h", b"x"), ("n", None)))
    )

    ours = cluster.state.require_partition("t", 0).log.batches[0].records()
    theirs = values(only(peer.ask(fetch_request(cluster))))

    assert [(record.offset, record.value) for record in ours] == theirs
    assert [record.value for record in ours] == [b"a" * 1000, None, b""]
    assert {record.key for record in ours} == {b"k"}
    assert {record.headers for record in ours} == {(("h", b"x"), ("n", None))}
    assert [record.timestamp for record in ours] == [TIMESTAMP, TIMESTAMP + 1, TIMESTAMP + 2]


def test_reading_begins_with_the_batch_that_holds_the_offset() -> None:
    cluster, peer = filled(batch(b"a", b"b"), batch(b"c", b"d"), batch(b"e"))

    assert values(only(peer.ask(fetch_request(cluster, 3)))) == [(2, b"c"), (3, b"d"), (4, b"e")]
    assert values(only(peer.ask(fetch_request(cluster, 5)))) == []


def test_limits_cut_between_batches_and_never_below_one() -> None:
    contents = [batch(b"a"), batch(b"b"), batch(b"c")]
    cluster, peer = filled(*contents)
    size = len(contents[0])

    def fetched(**limits: Any) -> int:
        return len(values(only(peer.ask(fetch_request(cluster, **limits)))))

    assert fetched(partition_max_bytes=1) == 1
    assert fetched(partition_max_bytes=2 * size - 1) == 1
    assert fetched(partition_max_bytes=2 * size) == 2
    assert fetched(max_bytes=0) == 1
    assert fetched(max_bytes=3 * size) == 3


def test_the_limit_of_the_whole_answer_holds_over_partitions() -> None:
    cluster = model(topics={"t": 2})
    peer = Peer(cluster)
    for partition in (0, 1):
        peer.produce("t", batch(b"v"), partition=partition)

    answer = peer.ask(fetch_request(cluster, partitions=(0, 1), max_bytes=1))

    assert [len(values(partition)) for partition in answer.responses[0].partitions] == [1, 0]


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"offset": 2}, 1),
        ({"offset": -1}, 1),
        ({"partitions": (7,)}, 3),
        ({"leader_epoch": 1}, 74),
        ({"leader_epoch": 3}, 75),
        ({"leader_epoch": 2}, 0),
    ],
    ids=["beyond the end", "below the start", "no such partition", "old epoch", "future epoch", "epoch"],
)
def test_refusals_are_answered_at_once(request_fields: dict[str, Any], code: int) -> None:
    cluster = model(3, topics={"t": 1})
    cluster.state.move_leader("t", 0, 1)
    cluster.state.move_leader("t", 0, 0)
    peer = Peer(cluster)
    peer.produce("t", batch(b"v"))

    answer = peer.ask(fetch_request(cluster, **request_fields, max_wait=0 if code == 0 else 100))

    assert only(answer).error_code.value == code


def test_only_the_leader_answers_and_says_who_it_is() -> None:
    cluster = model(3, topics={"t": 1})
    cluster.state.move_leader("t", 0, 2)

    partition = only(Peer(cluster, broker=0).ask(fetch_request(cluster, max_wait=100)))

    assert partition.error_code.value == 6
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)


def test_an_unknown_topic_id() -> None:
    cluster, peer = filled(batch(b"v"))
    request = fetch_request(cluster, version=13, max_wait=100)
    cluster.state.delete_topic("t")

    assert only(peer.ask(request)).error_code.value == 100


def test_sessions_are_not_granted() -> None:
    cluster, peer = filled(batch(b"v"))

    assert peer.ask(fetch_request(cluster, session_id=0, session_epoch=0)).session_id == 0
    assert peer.ask(fetch_request(cluster, session_id=5, session_epoch=1)).error_code.value == 70


def test_an_empty_fetch_waits_for_an_append() -> None:
    cluster, writer = filled()
    reader = Peer(cluster)
    reader.send(fetch_request(cluster, max_wait=10), now=1)
    assert reader.frames() == []
    assert cluster.next_timer() == 11

    writer.produce("t", batch(b"v"), now=2)

    (answer,) = reader.answers()
    assert values(only(answer)) == [(0, b"v")]
    assert cluster.next_timer() is None


def test_it_waits_for_min_bytes() -> None:
    cluster, writer = filled()
    reader = Peer(cluster)
    reader.send(fetch_request(cluster, max_wait=10, min_bytes=len(batch(b"v")) + 1))

    writer.produce("t", batch(b"v"))
    assert reader.frames() == []
    writer.produce("t", batch(b"v"))

    assert len(values(only(reader.answers()[0]))) == 2


def test_it_answers_with_what_there_is_when_the_wait_is_over() -> None:
    cluster, writer = filled()
    reader = Peer(cluster)
    reader.send(fetch_request(cluster, max_wait=10, min_bytes=1000))
    writer.produce("t", batch(b"v"))

    cluster.handle_timer(9.9)
    assert reader.frames() == []
    cluster.handle_timer(10)

    assert values(only(reader.answers()[0])) == [(0, b"v")]


def test_a_fetch_whose_client_is_gone_is_forgotten_in_time() -> None:
    cluster, writer = filled()
    reader = Peer(cluster)
    reader.send(fetch_request(cluster, max_wait=10))
    cluster.connection_closed(reader.connection_id, 1)

    writer.produce("t", batch(b"v"), now=2)

    assert reader.frames() == []
    assert cluster.next_timer() is None


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_by_version(version: int) -> None:
    _, peer = filled(batch(b"a", b"b"), batch(b"c", timestamp=TIMESTAMP + 100))

    def offset(timestamp: int) -> tuple[int, int]:
        answer = peer.ask(list_offsets(timestamp, version=version)).topics[0].partitions[0]
        assert answer.error_code.value == 0
        return answer.offset, answer.timestamp

    assert offset(-1) == (3, -1)
    assert offset(-2) == (0, -1)
    assert offset(TIMESTAMP) == (0, TIMESTAMP)
    assert offset(TIMESTAMP + 1) == (1, TIMESTAMP + 1)
    assert offset(TIMESTAMP + 2) == (2, TIMESTAMP + 100)
    assert offset(TIMESTAMP + 101) == (-1, -1)
    assert offset(-3) == (2, TIMESTAMP + 100)


def test_deleted_records_are_gone() -> None:
    cluster, peer = filled(batch(b"a", b"b"), batch(b"c"))
    log = cluster.state.require_partition("t", 0).log
    log.delete_before(1)

    assert peer.ask(list_offsets(-2)).topics[0].partitions[0].offset == 1
    assert peer.ask(list_offsets(TIMESTAMP)).topics[0].partitions[0].offset == 1
    assert only(peer.ask(fetch_request(cluster, 0))).error_code.value == 1
    assert only(peer.ask(fetch_request(cluster, 1))).log_start_offset == 1
    assert log.size == len(batch(b"a", b"b")) + len(batch(b"c"))
    log.delete_before(2)
    assert log.size == len(batch(b"c"))


def test_offsets_of_partitions_led_elsewhere() -> None:
    cluster = model(2, topics={"t": 1})
    elsewhere = Peer(cluster, broker=1)

    assert elsewhere.ask(list_offsets(-1)).topics[0].partitions[0].error_code.value == 6
    assert elsewhere.ask(list_offsets(-1, partition=9)).topics[0].partitions[0].error_code.value == 3
