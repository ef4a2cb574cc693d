"""What brokers say of the cluster when they know it late, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from aioproduce.testing import ClusterModel
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import Peer, batch, model, produce_request
from tests.unit.test_fake_broker_connections import metadata


@pytest.fixture
def cluster() -> ClusterModel:
    return model(3, topics={"t": 1}, default_partitions=1)


def leader(peer: Peer, now: float, topic: str = "t") -> tuple[int, int, int]:
    """(topic's error code, leader, its epoch) as the peer's broker says."""
    (found,) = peer.ask(metadata(topic), now=now).topics
    if not found.partitions:
        return found.error_code.value, -1, -1
    (partition,) = found.partitions
    return found.error_code.value, partition.leader_id, partition.leader_epoch


def nodes(peer: Peer, now: float) -> list[int]:
    return [broker.node_id for broker in peer.ask(metadata("t"), now=now).brokers]


@pytest.mark.scenario(21, "S")
def test_a_frozen_broker_goes_on_saying_what_it_knew(cluster: ClusterModel) -> None:
    stale, fresh = Peer(cluster, 1), Peer(cluster, 2)
    cluster.state.move_leader("t", 0, 1)
    cluster.faults.freeze_metadata(1)
    cluster.state.move_leader("t", 0, 2)
    cluster.broker_stopped(0, 1.0)
    cluster.state.create_topic("new", 1)

    assert [leader(peer, 1.0) for peer in (stale, fresh)] == [(0, 1, 1), (0, 2, 2)]
    assert [nodes(peer, 1.0) for peer in (stale, fresh)] == [[0, 1, 2], [1, 2]]
    assert leader(stale, 1.0, "new")[0] == 3
    assert [topic.name for topic in stale.ask(metadata(everything=True), now=1.0).topics] == ["t"]

    cluster.faults.unfreeze_metadata(1)
    assert leader(stale, 1.0) == (0, 2, 2)
    assert nodes(stale, 1.0) == [1, 2]


def test_a_frozen_broker_refuses_by_the_truth_and_hints_at_what_it_knew(cluster: ClusterModel) -> None:
    peer = Peer(cluster, 0)
    cluster.faults.freeze_metadata(0)
    cluster.state.move_leader("t", 0, 2)

    answer = peer.ask(produce_request("t", {0: batch(b"v")}, version=10))

    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code.value == 6
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (0, 0)


def test_a_frozen_broker_creates_topics_that_it_does_not_see(cluster: ClusterModel) -> None:
    peer = Peer(cluster, 0)
    cluster.faults.freeze_metadata(0)

    assert [leader(peer, 0.0, "auto")[0] for _ in range(2)] == [5, 3]
    assert "auto" in cluster.state.topics
    cluster.faults.clear()
    assert leader(peer, 0.0, "auto")[0] == 0


def test_changes_show_after_the_delay(cluster: ClusterModel) -> None:
    peer = Peer(cluster, 0)
    cluster.handle_timer(10.0)
    cluster.metadata_delay = 2.0
    assert leader(peer, 10.0) == (0, 0, 0)
    cluster.state.move_leader("t", 0, 1)
    cluster.handle_timer(11.0)
    cluster.state.move_leader("t", 0, 2)
    cluster.handle_timer(12.0)
    cluster.broker_stopped(2, 12.5)
    cluster.handle_timer(12.5)

    seen = [leader(peer, now)[1:] for now in (12.5, 12.999, 13.0, 13.999, 14.0, 14.499, 14.5)]

    # The first change was made at 11.0 at the latest, which is when the model heard of the time again.
    assert seen == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (2, 2), (0, 3)]
    assert nodes(peer, 14.5) == [0, 1]
    cluster.metadata_delay = 0.0
    cluster.state.move_leader("t", 0, 1)
    assert leader(peer, 14.5) == (0, 1, 4)


def test_frozen_with_a_delay_keeps_what_the_broker_had_heard(cluster: ClusterModel) -> None:
    peer = Peer(cluster, 0)
    cluster.metadata_delay = 1.0
    cluster.state.move_leader("t", 0, 1)
    cluster.handle_timer(0.0)
    cluster.faults.freeze_metadata(0)
    cluster.handle_timer(0.5)

    assert leader(peer, 9.0) == (0, 0, 0)
    cluster.faults.unfreeze_metadata(0)
    assert leader(peer, 9.0) == (0, 1, 1)


@pytest.mark.parametrize("version", [0, 4, 8, 9, 12, 13])
def test_every_version_can_be_stale(cluster: ClusterModel, version: int) -> None:
    cluster.faults.freeze_metadata(0)
    cluster.state.move_leader("t", 0, 1)

    answer: Any = Peer(cluster, 0).ask(metadata("t", version=version))

    assert answer.topics[0].partitions[0].leader_id == 0
    assert cluster.requests.count(ApiKey.METADATA) == 1
