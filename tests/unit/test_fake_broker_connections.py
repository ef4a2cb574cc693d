"""How the broker model serves a connection: versions, order, framing, metadata, and what it remembers."""

from __future__ import annotations

import importlib
import struct
from typing import Any

import pytest

from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import Peer, batch, fetch_request, model, produce_request
from tests.wire_oracle import request_frame


def api_versions(version: int, name: str = "tests") -> Any:
    schema: Any = importlib.import_module(f"kio.schema.api_versions.v{version}.request")
    if version < 3:
        return schema.ApiVersionsRequest()
    return schema.ApiVersionsRequest(client_software_name=name, client_software_version="1.0")


def metadata(*topics: str | None, version: int = 12, everything: bool = False, **fields: Any) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.metadata.v{version}.request")
    ids = {"topic_id": None} if version >= 10 else {}
    named = tuple(schema.MetadataRequestTopic(name=topic, **ids) for topic in topics)
    if version >= 8:
        fields.setdefault("include_topic_authorized_operations", False)
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    return schema.MetadataRequest(topics=None if everything else named, **fields)


@pytest.mark.parametrize("version", range(5))
def test_api_versions(version: int) -> None:
    answer = Peer(model()).ask(api_versions(version))

    assert answer.error_code.value == 0
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert offered == {int(api): versions for api, versions in BROKER_VERSIONS.items()}


def test_api_versions_that_are_too_new_are_answered_in_v0_with_the_own_range() -> None:
    cluster = model()
    cluster.set_api_versions({ApiKey.API_VERSIONS: (0, 2)})
    peer = Peer(cluster)

    peer.send(api_versions(3))

    (frame,) = peer.frames()
    # Correlation id, error 35, one entry: api 18, v0 to v2. No throttle time, no tags: that is v0.
    assert frame == struct.pack(">ihihhh", 1, 35, 1, 18, 0, 2)
    assert not peer.is_closed


def test_software_without_a_legal_name_is_refused() -> None:
    assert Peer(model()).ask(api_versions(3, "-bad-")).error_code.value == 42


def test_brokers_can_differ_in_versions() -> None:
    cluster = model(2)
    cluster.set_api_versions({ApiKey.PRODUCE: (0, 2), ApiKey.FETCH: None}, broker=1)

    def offered(broker: int) -> dict[int, tuple[int, int]]:
        answer = Peer(cluster, broker).ask(api_versions(0))
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    assert offered(0)[0] == (3, 13)
    assert offered(1)[0] == (0, 2)
    assert 1 in offered(0)
    assert 1 not in offered(1)


@pytest.mark.parametrize(("api", "version"), [(0, 2), (0, 14), (99, 0), (36, 2), (-1, 0)], ids=str)
def test_what_is_not_spoken_closes_the_connection(api: int, version: int) -> None:
    peer = Peer(model())
    peer.send_bytes(struct.pack(">ihhihh", 12, api, version, 1, -1, 0))

    assert peer.is_closed
    assert peer.frames() == []


def test_bytes_one_by_one() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    frame = request_frame(produce_request("t", {0: batch(b"v")}), 1)
    for position in range(len(frame)):
        assert peer.frames() == []
        peer.send_bytes(frame[position : position + 1])

    assert len(peer.frames()) == 1


def test_many_requests_in_one_piece_are_answered_in_order() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    peer.send_bytes(b"".join(request_frame(produce_request("t", {0: batch(b"v")}), n) for n in range(500)))

    assert [struct.unpack_from(">i", frame)[0] for frame in peer.frames()] == list(range(500))


def test_a_request_waits_for_the_one_before_it() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    peer.send(fetch_request(cluster, max_wait=10))
    peer.send(produce_request("t", {0: batch(b"v")}))
    assert cluster.state.require_partition("t", 0).log.end_offset == 0

    Peer(cluster).produce("t", batch(b"w"))

    fetched, produced = peer.answers()
    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert produced.responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(version: int) -> None:
    cluster = model(2, topics={"t": 2})

    answer = Peer(cluster).ask(metadata("t", version=version))

    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [
        (0, "127.0.0.1", 9000),
        (1, "127.0.0.1", 9001),
    ]
    (topic,) = answer.topics
    assert (topic.error_code.value, topic.name) == (0, "t")
    assert [(entry.partition_index, entry.leader_id) for entry in topic.partitions] == [(0, 0), (1, 1)]
    assert [entry.replica_nodes for entry in topic.partitions] == [(0, 1), (1, 0)]
    if version >= 10:
        assert topic.topic_id == cluster.state.topics["t"].topic_id


def test_all_topics_or_none() -> None:
    cluster = model(topics={"a": 1, "b": 1})
    peer = Peer(cluster)

    assert [topic.name for topic in peer.ask(metadata(everything=True)).topics] == ["a", "b"]
    assert peer.ask(metadata()).topics == ()
    assert [topic.name for topic in peer.ask(metadata(version=0)).topics] == ["a", "b"]


def test_topics_are_created_on_demand() -> None:
    cluster = model(default_partitions=3)

    (topic,) = Peer(cluster).ask(metadata("new")).topics

    assert (topic.error_code.value, len(topic.partitions)) == (0, 3)


def test_topics_are_not_created_when_nobody_wants_it() -> None:
    unwilling = model(auto_create_topics=False)
    willing = model()

    assert Peer(unwilling).ask(metadata("new")).topics[0].error_code.value == 3
    assert Peer(willing).ask(metadata("new", allow_auto_topic_creation=False)).topics[0].error_code.value == 3
    assert dict(willing.state.topics) == {}


def test_a_created_topic_can_be_announced_late() -> None:
    peer = Peer(model(announce_created_topics_late=True))

    codes = [peer.ask(metadata("new")).topics[0].error_code.value for _ in range(2)]

    assert codes == [5, 0]


def test_topics_that_metadata_refuses() -> None:
    cluster = model(topics={"secret": 1})
    cluster.state.deny_topic("secret", True)
    peer = Peer(cluster)

    answer = peer.ask(metadata("secret", "no/slash", ".."))

    assert [topic.error_code.value for topic in answer.topics] == [29, 17, 17]
    assert peer.ask(metadata(everything=True)).topics == ()


def test_topics_by_id() -> None:
    cluster = model(topics={"t": 1})
    schema: Any = importlib.import_module("kio.schema.metadata.v12.request")
    ids = [cluster.state.topics["t"].topic_id, cluster.state.topics["t"].topic_id.__class__(int=5)]
    request = schema.MetadataRequest(
        topics=tuple(schema.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
        include_topic_authorized_operations=False,
    )

    known, unknown = Peer(cluster).ask(request).topics

    assert (known.error_code.value, known.name) == (0, "t")
    assert (unknown.error_code.value, unknown.name) == (100, None)


def test_leaders_follow_the_brokers_that_run() -> None:
    cluster = model(3, topics={"t": 3})
    peer = Peer(cluster)

    def leaders() -> list[tuple[int, int]]:
        partitions = peer.ask(metadata("t")).topics[0].partitions
        return [(entry.leader_id, entry.leader_epoch) for entry in partitions]

    assert leaders() == [(0, 0), (1, 0), (2, 0)]
    cluster.broker_stopped(1, 0.0)
    assert leaders() == [(0, 0), (2, 1), (2, 0)]
    assert [node.node_id for node in peer.ask(metadata()).brokers] == [0, 2]
    cluster.broker_stopped(2, 0.0)
    assert leaders() == [(0, 0), (0, 2), (0, 1)]
    cluster.broker_started(1, 0.0)
    assert leaders() == [(0, 0), (0, 2), (0, 1)]


def test_a_partition_without_a_leader_says_so() -> None:
    cluster = model(2, topics={"t": 1})
    peer = Peer(cluster)
    cluster.state.take_leader("t", 0)

    (entry,) = peer.ask(metadata("t")).topics[0].partitions
    assert (entry.error_code.value, entry.leader_id, entry.leader_epoch) == (5, -1, 1)
    cluster.broker_stopped(1, 0.0)
    assert peer.ask(metadata("t")).topics[0].partitions[0].leader_id == -1
    cluster.state.elect_leader("t", 0)
    (entry,) = peer.ask(metadata("t")).topics[0].partitions
    assert (entry.error_code.value, entry.leader_id, entry.leader_epoch) == (0, 0, 2)


def test_the_only_replica_gone_and_back() -> None:
    cluster = model(2, topics={"t": 1}, replication_factor=1)
    peer = Peer(cluster, broker=1)
    cluster.broker_stopped(0, 0.0)
    assert peer.ask(metadata("t")).topics[0].partitions[0].leader_id == -1
    cluster.broker_started(0, 0.0)
    assert peer.ask(metadata("t")).topics[0].partitions[0].leader_id == 0


def test_a_stopped_brokers_connections_are_reset() -> None:
    cluster = model(2)
    stopped, other = Peer(cluster, 0), Peer(cluster, 1)

    cluster.broker_stopped(0, 0.0)
    stopped.drain()
    other.drain()

    assert (stopped.is_closed, stopped.is_reset) == (True, True)
    assert not other.is_closed
    assert [connection.broker_id for connection in cluster.connections] == [1]


def test_partitions_can_be_added() -> None:
    cluster = model(2, topics={"t": 1})
    cluster.state.add_partitions("t", 3)

    partitions = Peer(cluster).ask(metadata("t")).topics[0].partitions

    assert [entry.leader_id for entry in partitions] == [0, 1, 0]
    with pytest.raises(ValueError, match="already 3 partitions"):
        cluster.state.add_partitions("t", 3)


def test_requests_are_counted_and_the_last_remembered() -> None:
    cluster = model(topics={"t": 1})
    peer = Peer(cluster)
    peer.ask(metadata("t"), now=1.0)
    for at in (2.0, 3.5):
        peer.produce("t", batch(b"v"), now=at)

    assert cluster.requests.count() == 3
    assert cluster.requests.count(ApiKey.PRODUCE) == 2
    assert cluster.requests.times(ApiKey.PRODUCE) == [2.0, 3.5]
    (asked,) = cluster.requests.entries(ApiKey.METADATA)
    assert (asked.api_version, asked.broker_id, asked.client_id, asked.at) == (12, 0, "tests", 1.0)
    (connection,) = cluster.connections
    assert (connection.client_id, connection.requests, connection.opened_at) == ("tests", 3, 0.0)
    cluster.requests.clear()
    assert cluster.requests.count() == 0


def test_the_same_facts_give_the_same_bytes() -> None:
    def run() -> bytes:
        cluster = model(3, topics={"t": 3, "u": 1})
        peer = Peer(cluster)
        peer.send(metadata(everything=True))
        peer.send(produce_request("t", {0: batch(b"v", producer=(5, 0, 0)), 2: batch(b"w")}, version=12))
        peer.send(fetch_request(cluster, max_wait=1))
        cluster.broker_stopped(2, 0.5)
        peer.send(metadata("x", "y", "z"))
        cluster.handle_timer(1.0)
        peer.drain()
        return bytes(peer.received)

    assert run() == run()
