"""Produce in the broker model: what is around the batch, and what becomes of it in the log.

The batch itself and the sequences are in `test_fake_broker_scripts`, with Kafka's own answers.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from aiokafka.record import MemoryRecords
from crc32c import crc32c

from aioproduce.testing import ClusterModel, TopicConfig
from aioproduce.testing.fake_cluster.failures import RefusedError
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import (
    ANSWERS_TO_TWICE,
    EPOCH_MS,
    TIMESTAMP,
    Peer,
    answers_to_twice,
    batch,
    fetch_request,
    init_producer_id,
    model,
    produce_request,
    tampered,
)


def stored(cluster: ClusterModel, topic: str = "t", partition: int = 0) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what is in the log."""
    log = cluster.state.require_partition(topic, partition).log
    return [(record.offset, record.value) for kept in log.batches for record in kept.records()]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_answers(version: int) -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    topic: Any = "t" if version < 13 else cluster.state.topics["t"].topic_id

    peer.ask(produce_request(topic, {0: batch(b"a", b"b")}, version=version))
    answer = peer.ask(produce_request(topic, {0: batch(b"c")}, version=version))

    (response,) = answer.responses
    assert getattr(response, "name", None) == ("t" if version < 13 else None)
    assert getattr(response, "topic_id", None) == (None if version < 13 else topic)
    (partition,) = response.partition_responses
    assert (partition.index, partition.error_code.value, partition.base_offset) == (0, 0, 2)
    assert partition.log_append_time is None
    assert stored(cluster) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize(
    ("version", "topic", "partition", "code"),
    [
        (8, "nope", 0, 3),
        (8, "t", 1, 3),
        (8, "t", -1, 3),
        (13, uuid.UUID(int=7), 0, 100),
        (13, None, 0, 100),
    ],
    ids=["unknown topic", "unknown partition", "negative partition", "unknown id", "zero id"],
)
def test_unknown_places(version: int, topic: Any, partition: int, code: int) -> None:
    answer = Peer(model(topics={"t": 1})).ask(
        produce_request(topic, {partition: batch(b"v")}, version=version)
    )

    assert answer.responses[0].partition_responses[0].error_code.value == code


def test_an_unknown_partition_of_a_known_id() -> None:
    cluster = model(topics={"t": 1})
    request = produce_request(cluster.state.topics["t"].topic_id, {5: batch(b"v")}, version=13)

    assert Peer(cluster).ask(request).responses[0].partition_responses[0].error_code.value == 3


def test_a_deleted_and_recreated_topic_has_another_id_and_an_empty_log() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    old = cluster.state.topics["t"].topic_id
    peer.produce("t", batch(b"old", producer=(7, 0, 0)))
    cluster.state.delete_topic("t")
    cluster.state.create_topic("t", 1)

    by_old_id = peer.ask(produce_request(old, {0: batch(b"lost")}, version=13))
    by_name = peer.produce("t", batch(b"new", producer=(7, 0, 1)))

    assert by_old_id.responses[0].partition_responses[0].error_code.value == 100
    assert (by_name.error_code.value, by_name.base_offset) == (0, 0)
    assert stored(cluster) == [(0, b"new")]


def test_not_the_leader_with_the_hints_of_kip_951() -> None:
    cluster = model(3, topics={"t": 1})
    cluster.state.move_leader("t", 0, 2)
    peer = Peer(cluster, broker=0)

    old = peer.ask(produce_request("t", {0: batch(b"v")}, version=9))
    new = peer.ask(produce_request("t", {0: batch(b"v")}, version=10))

    assert old.responses[0].partition_responses[0].error_code.value == 6
    (partition,) = new.responses[0].partition_responses
    assert partition.error_code.value == 6
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)
    assert [(node.node_id, node.host, node.port) for node in new.node_endpoints] == [(2, "127.0.0.1", 9002)]
    assert stored(cluster) == []


def test_without_a_leader_the_hint_names_none() -> None:
    cluster = model(3, topics={"t": 1})
    cluster.state.take_leader("t", 0)

    answer = Peer(cluster).ask(produce_request("t", {0: batch(b"v")}, version=12))

    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code.value == 6
    assert partition.current_leader.leader_id == -1
    assert answer.node_endpoints == ()


def test_a_refusal_of_one_partition_does_not_touch_the_others() -> None:
    cluster = model(topics={"t": 3})
    request = produce_request("t", {0: batch(b"a"), 1: b"", 2: batch(b"c")})

    partitions = Peer(cluster).ask(request).responses[0].partition_responses

    assert [(entry.index, entry.error_code.value) for entry in partitions] == [(0, 0), (1, 87), (2, 0)]
    assert [stored(cluster, partition=index) for index in range(3)] == [[(0, b"a")], [], [(0, b"c")]]


def test_of_two_batches_of_a_partition_in_a_request_the_last_is_kept() -> None:
    cluster = model(topics={"t": 1})

    assert answers_to_twice(Peer(cluster).ask, "t") == ANSWERS_TO_TWICE
    assert stored(cluster) == [(0, b"c"), (1, b"d")]


def test_acks_0_is_never_answered() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)

    peer.send(produce_request("t", {0: batch(b"a")}, acks=0))
    peer.send(produce_request("t", {0: batch(b"b")}, acks=0))

    assert peer.frames() == []
    assert not peer.is_closed
    assert stored(cluster) == [(0, b"a"), (1, b"b")]


def test_acks_0_gone_wrong_closes_the_connection() -> None:
    peer = Peer(model(topics={"t": 1}))

    peer.send(produce_request("nope", {0: batch(b"a")}, acks=0))

    assert peer.frames() == []
    assert peer.is_closed
    assert not peer.is_reset


def test_a_denied_topic() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    cluster.state.deny_topic("t", True)
    denied = peer.produce("t", batch(b"v"))
    cluster.state.deny_topic("t", False)
    allowed = peer.produce("t", batch(b"v"))

    assert (denied.error_code.value, allowed.error_code.value) == (29, 0)


def test_transactional_batches_without_a_transactional_id_are_refused() -> None:
    cluster = model(topics={"t": 1})
    content = batch(b"v", producer=(7, 0, 0), is_transactional=True)

    assert Peer(cluster).produce("t", content).error_code.value == 53
    assert stored(cluster) == []


def test_log_append_time_is_the_brokers_and_the_checksum_right() -> None:
    cluster = model()
    cluster.state.create_topic("t", 1, config=TopicConfig(is_log_append_time=True))
    peer = Peer(cluster)

    answer = peer.produce("t", batch(b"a", b"b"), now=5.5)

    assert answer.log_append_time.timestamp() * 1000 == EPOCH_MS + 5500
    (kept,) = cluster.state.require_partition("t", 0).log.batches
    assert [record.timestamp for record in kept.records()] == [EPOCH_MS + 5500] * 2
    judged = MemoryRecords(kept.content).next_batch()
    assert judged.validate_crc()
    assert [(record.timestamp, record.timestamp_type) for record in judged] == [(EPOCH_MS + 5500, 1)] * 2


def test_create_time_leaves_every_byte_but_offset_and_epoch() -> None:
    cluster = model(3, topics={"t": 1})
    cluster.state.move_leader("t", 0, 1)
    peer = Peer(cluster, broker=1)
    content = batch(b"a", b"b", key=b"k", headers=(("h", b"x"), ("n", None)))
    peer.produce("t", content)
    peer.produce("t", content)

    second = cluster.state.require_partition("t", 0).log.batches[1].content

    assert struct.unpack_from(">qii", second) == (2, len(content) - 12, 1)
    assert second[16:] == content[16:]
    assert struct.unpack_from(">I", second, 17) == (crc32c(second[21:]),)


def test_a_client_may_not_claim_log_append_time() -> None:
    answer = Peer(model(topics={"t": 1})).produce("t", tampered(batch(b"v"), ">h", 21, 0x08))

    assert answer.error_code.value == 32


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    cluster = model()
    cluster.state.create_topic("t", 1, config=TopicConfig(is_compacted=True))
    peer = Peer(cluster)

    refused = peer.produce("t", batch(b"a", b"b"))
    accepted = peer.produce("t", batch(b"a", key=b"k"))

    assert refused.error_code.value == 87
    assert [error.batch_index for error in refused.record_errors] == [0, 1]
    assert refused.error_message == "One or more records have been rejected"
    assert (accepted.error_code.value, accepted.base_offset) == (0, 0)


def test_the_future_is_refused_record_by_record() -> None:
    peer = Peer(model(topics={"t": 1}))
    hour = 3_600_000

    # The clock stands at EPOCH_MS: the first record is exactly an hour ahead, the second a millisecond more.
    answer = peer.produce("t", batch(b"a", b"b", timestamp=EPOCH_MS + hour))

    assert answer.error_code.value == 32
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_the_size_limit_is_the_topics() -> None:
    cluster = model(topics={"t": 1})
    content = batch(b"v" * 100)
    cluster.state.configure_topic("t", max_message_bytes=len(content) - 1)
    peer = Peer(cluster)
    too_large = peer.produce("t", content)
    cluster.state.configure_topic("t", max_message_bytes=len(content))
    fits = peer.produce("t", content)

    assert (too_large.error_code.value, fits.error_code.value) == (10, 0)


def test_offset_deltas_are_looked_at_with_check_records_and_on_reading() -> None:
    """Kafka looks at them on append for compressed batches; the model, to be fast, when told to."""
    content = bytearray(batch(b"a", b"b"))
    # The second record: length, attributes, timestamp delta, offset delta (zigzag 1).
    position = content.index(b"\x02\x02\x01\x02b")
    content[position + 1] = 0x06
    wrong = tampered(bytes(content), ">h", 21, 0)
    quick = model(topics={"t": 1})
    thorough = model()
    thorough.state.create_topic("t", 1, config=TopicConfig(check_records=True))

    assert Peer(quick).produce("t", wrong).error_code.value == 0
    assert Peer(thorough).produce("t", wrong).error_code.value == 87
    with pytest.raises(RefusedError, match="offset delta 3"):
        stored(quick)


def test_a_duplicate_is_answered_and_not_appended() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    content = batch(b"a", b"b", producer=(7, 0, 0))
    first, second = peer.produce("t", content), peer.produce("t", content)

    assert (first.base_offset, second.base_offset) == (0, 0)
    # As Kafka: `tests/integration/test_fake_broker_against_kafka.py`.
    assert first.log_append_time is None
    assert second.log_append_time.timestamp() * 1000 == TIMESTAMP + 1
    assert stored(cluster) == [(0, b"a"), (1, b"b")]


def test_forgotten_producers_start_anywhere() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    peer.produce("t", batch(b"a", producer=(7, 3, 0)))
    cluster.state.require_partition("t", 0).log.producers.forget()

    answer = peer.produce("t", batch(b"b", producer=(7, 0, 55)))

    assert (answer.error_code.value, answer.base_offset) == (0, 1)


def test_truncation_rebuilds_the_producer_state() -> None:
    """An unclean election lost the third batch: its sequence is next, and the fourth is a gap."""
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    for sequence in range(3):
        peer.produce("t", batch(b"v%d" % sequence, producer=(7, 0, sequence)))
    cluster.state.require_partition("t", 0).log.truncate_to(2)

    gap = peer.produce("t", batch(b"v3", producer=(7, 0, 3)))
    duplicate = peer.produce("t", batch(b"v1", producer=(7, 0, 1)))
    again = peer.produce("t", batch(b"v2", producer=(7, 0, 2)))

    assert [answer.error_code.value for answer in (gap, duplicate, again)] == [45, 0, 0]
    assert (duplicate.base_offset, again.base_offset) == (1, 2)
    assert stored(cluster) == [(0, b"v0"), (1, b"v1"), (2, b"v2")]


def test_retention_drops_the_oldest_batches_and_says_so() -> None:
    cluster = model()
    size = len(batch(b"v0"))
    cluster.state.create_topic("t", 1, config=TopicConfig(retention_bytes=2 * size))
    peer = Peer(cluster)

    answers = [peer.produce("t", batch(b"v%d" % n)) for n in range(4)]

    assert [answer.log_start_offset for answer in answers] == [0, 0, 1, 2]
    assert stored(cluster) == [(2, b"v2"), (3, b"v3")]


def test_retention_by_time_goes_by_the_newest_record_of_a_batch() -> None:
    cluster = model()
    cluster.state.create_topic("t", 1, config=TopicConfig(retention_seconds=60))
    peer = Peer(cluster)
    for n in range(3):
        # Each in the last millisecond that counts: 0.000, 20.000 and 40.000.
        peer.produce("t", batch(b"v%d" % n, timestamp=EPOCH_MS + 20_000 * n), now=20.0 * n)

    assert peer.produce("t", batch(b"w", timestamp=EPOCH_MS + 60_000), now=60.0).log_start_offset == 0
    assert peer.produce("t", batch(b"x", timestamp=EPOCH_MS + 60_001), now=60.001).log_start_offset == 1
    assert stored(cluster) == [(1, b"v1"), (2, b"v2"), (3, b"w"), (4, b"x")]
    late = peer.ask(fetch_request(cluster), now=1000.0).responses[0].partitions[0]
    assert (late.error_code.value, late.log_start_offset) == (1, -1)
    assert stored(cluster) == []


def test_retention_does_not_touch_the_producer_state() -> None:
    """Since KIP-360 a producer is forgotten by time only, not with its last record."""
    cluster = model()
    cluster.state.create_topic("t", 1, config=TopicConfig(retention_seconds=60))
    peer = Peer(cluster)
    peer.produce("t", batch(b"a", producer=(7, 0, 0), timestamp=EPOCH_MS))
    peer.produce("t", batch(b"other", timestamp=EPOCH_MS + 100_000), now=100.0)
    assert stored(cluster) == [(1, b"other")]

    gap = peer.produce("t", batch(b"c", producer=(7, 0, 2), timestamp=EPOCH_MS + 100_000), now=100.0)
    following = peer.produce("t", batch(b"b", producer=(7, 0, 1), timestamp=EPOCH_MS + 100_000), now=100.0)

    assert [(answer.error_code.value, answer.base_offset) for answer in (gap, following)] == [
        (45, -1),
        (0, 2),
    ]


def test_producers_expire_by_the_time_of_their_last_batch() -> None:
    cluster = model()
    cluster.state.create_topic("t", 1, config=TopicConfig(producer_expiration_seconds=60))
    peer = Peer(cluster)
    peer.produce("t", batch(b"a", producer=(7, 0, 0), timestamp=EPOCH_MS))

    in_time = peer.produce("t", batch(b"c", producer=(7, 0, 2), timestamp=EPOCH_MS + 60_000), now=60.0)
    too_late = peer.produce("t", batch(b"c", producer=(7, 0, 2), timestamp=EPOCH_MS + 60_001), now=60.001)

    assert [(answer.error_code.value, answer.base_offset) for answer in (in_time, too_late)] == [
        (45, -1),
        (0, 1),
    ]


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_gives_everybody_another_id(version: int) -> None:
    peer = Peer(model())
    naming_one = {} if version < 3 else {"producer": (1000, 0)}
    first: Any = peer.ask(_init(version))
    second: Any = peer.ask(_init(version, **naming_one))

    assert [(answer.error_code.value, answer.producer_epoch) for answer in (first, second)] == [(0, 0)] * 2
    assert first.producer_id != second.producer_id
    assert peer.cluster.requests.count(ApiKey.INIT_PRODUCER_ID) == 2


def test_the_last_epoch_leads_to_another_id() -> None:
    cluster = model()
    peer = Peer(cluster)
    first = peer.ask(init_producer_id("tx"))
    cluster.transactions.transactions["tx"].epoch = 32765

    last, answer = (peer.ask(init_producer_id("tx")) for _ in range(2))

    assert (last.producer_id, last.producer_epoch) == (first.producer_id, 32766)
    assert answer.producer_epoch == 0
    assert answer.producer_id != first.producer_id


def _init(version: int, **settings: Any) -> Any:
    if version >= 3:
        return init_producer_id(version=version, **settings)
    import importlib
    from datetime import timedelta

    schema: Any = importlib.import_module(f"kio.schema.init_producer_id.v{version}.request")
    return schema.InitProducerIdRequest(transactional_id=None, transaction_timeout=timedelta(seconds=60))
