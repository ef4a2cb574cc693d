"""Consumer groups in the broker model, on a clock of the test's; CreateTopics and DeleteTopics too."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from aioproduce.testing import ClusterModel
from tests.unit.fake_broker_peer import Peer, model

SESSION, REBALANCE = 10, 30


def schema(api: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.request")


def join(member_id: str = "", *, protocols: dict[str, bytes] | None = None, version: int = 5) -> Any:
    messages = schema("join_group", version)
    return messages.JoinGroupRequest(
        group_id="g",
        session_timeout=timedelta(seconds=SESSION),
        rebalance_timeout=timedelta(seconds=REBALANCE),
        member_id=member_id,
        protocol_type="consumer",
        protocols=tuple(
            messages.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in (protocols or {"range": b"r", "roundrobin": b"rr"}).items()
        ),
    )


def sync(member_id: str, generation: int, **assignments: bytes) -> Any:
    messages = schema("sync_group", 3)
    return messages.SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=tuple(
            messages.SyncGroupRequestAssignment(member_id=name.replace("_", "-"), assignment=assignment)
            for name, assignment in assignments.items()
        ),
    )


def heartbeat(member_id: str, generation: int) -> Any:
    return schema("heartbeat", 3).HeartbeatRequest(
        group_id="g", generation_id=generation, member_id=member_id
    )


def leave(member_id: str) -> Any:
    return schema("leave_group", 2).LeaveGroupRequest(group_id="g", member_id=member_id)


def commit(offset: int, *, member_id: str = "", generation: int = -1, partition: int = 0) -> Any:
    messages = schema("offset_commit", 7)
    return messages.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(
            messages.OffsetCommitRequestTopic(
                name="t",
                partitions=(
                    messages.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata="note"
                    ),
                ),
            ),
        ),
    )


def committed(peer: Peer, *, everything: bool = False) -> dict[tuple[str, int], int]:
    messages = schema("offset_fetch", 7)
    topics = (messages.OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)
    answer = peer.ask(
        messages.OffsetFetchRequest(group_id="g", topics=None if everything else topics, require_stable=False)
    )
    assert answer.error_code.value == 0
    return {
        (topic.name, entry.partition_index): entry.committed_offset
        for topic in answer.topics
        for entry in topic.partitions
    }


@pytest.fixture
def cluster() -> ClusterModel:
    return model(2, topics={"t": 2})


def joined(peer: Peer, *, now: float = 0.0) -> Any:
    """One member alone: the answer to its second JoinGroup."""
    named = peer.ask(join(), now=now)
    assert named.error_code.value == 79
    return peer.ask(join(named.member_id), now=now)


def two_members(cluster: ClusterModel) -> tuple[Peer, Any, Peer, Any]:
    """Two members, both assigned, in generation 2."""
    first, second = Peer(cluster), Peer(cluster)
    alone = joined(first)
    first.ask(sync(alone.member_id, 1, **{alone.member_id.replace("-", "_"): b"all"}))
    named = second.ask(join())
    second.send(join(named.member_id))
    assert first.ask(heartbeat(alone.member_id, 1)).error_code.value == 27
    leader = first.ask(join(alone.member_id))
    (follower,) = second.answers()
    second.send(sync(follower.member_id, 2))
    first.send(
        sync(
            leader.member_id,
            2,
            **{
                leader.member_id.replace("-", "_"): b"one",
                follower.member_id.replace("-", "_"): b"two",
            },
        )
    )
    assert [first.answers()[0].assignment, second.answers()[0].assignment] == [b"one", b"two"]
    return first, leader, second, follower


def test_a_member_alone(cluster: ClusterModel) -> None:
    peer = Peer(cluster)
    answer = joined(peer)

    assert (answer.error_code.value, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"r")]
    assigned = peer.ask(sync(answer.member_id, 1, **{answer.member_id.replace("-", "_"): b"all"}))
    assert (assigned.error_code.value, assigned.assignment) == (0, b"all")
    assert peer.ask(heartbeat(answer.member_id, 1)).error_code.value == 0


def test_before_v4_a_member_gets_its_id_at_once(cluster: ClusterModel) -> None:
    answer = Peer(cluster).ask(join(version=3))

    assert (answer.error_code.value, answer.generation_id) == (0, 1)
    assert answer.member_id == answer.leader


def test_two_members_share(cluster: ClusterModel) -> None:
    _, leader, _, follower = two_members(cluster)

    assert leader.generation_id == follower.generation_id == 2
    assert leader.leader == follower.leader == leader.member_id
    assert len(leader.members) == 2
    assert follower.members == ()


def test_only_protocols_that_all_have_are_chosen(cluster: ClusterModel) -> None:
    first, second = Peer(cluster), Peer(cluster)
    alone = joined(first)
    named = second.ask(join())
    second.send(join(named.member_id, protocols={"sticky": b"s", "roundrobin": b"x"}))
    answer = first.ask(join(alone.member_id))

    assert answer.protocol_name == "roundrobin"
    assert [member.metadata for member in answer.members] == [b"rr", b"x"]
    stranger = Peer(cluster).ask(join(version=3, protocols={"other": b""}))
    assert stranger.error_code.value == 23


def test_who_leaves_makes_the_others_rejoin(cluster: ClusterModel) -> None:
    first, leader, second, follower = two_members(cluster)

    assert first.ask(leave(leader.member_id)).error_code.value == 0

    assert second.ask(heartbeat(follower.member_id, 2)).error_code.value == 27
    answer = second.ask(join(follower.member_id))
    assert (answer.generation_id, answer.leader) == (3, follower.member_id)
    assert first.ask(heartbeat(leader.member_id, 2)).error_code.value == 25
    assert second.ask(leave(follower.member_id)).error_code.value == 0
    assert cluster.groups.groups["g"].members == {}
    assert second.ask(leave("nobody")).error_code.value == 25


def test_who_is_silent_is_removed(cluster: ClusterModel) -> None:
    _, leader, second, follower = two_members(cluster)
    second.ask(heartbeat(follower.member_id, 2), now=SESSION - 1)

    cluster.handle_timer(SESSION)

    assert leader.member_id not in cluster.groups.groups["g"].members
    assert second.ask(heartbeat(follower.member_id, 2), now=SESSION + 1).error_code.value == 27
    answer = second.ask(join(follower.member_id), now=SESSION + 2)
    assert answer.leader == follower.member_id


def test_who_does_not_rejoin_in_time_is_dropped(cluster: ClusterModel) -> None:
    first, leader, second, follower = two_members(cluster)
    third = Peer(cluster)
    named = third.ask(join())
    third.send(join(named.member_id), now=1.0)
    for now in range(5, 1 + REBALANCE, 5):
        # Alive, and deaf to REBALANCE_IN_PROGRESS.
        assert first.ask(heartbeat(leader.member_id, 2), now=now).error_code.value == 27
        assert second.ask(heartbeat(follower.member_id, 2), now=now).error_code.value == 27
    assert third.frames() == []

    cluster.handle_timer(1.0 + REBALANCE)

    (answer,) = third.answers()
    assert (answer.error_code.value, answer.generation_id, len(answer.members)) == (0, 3, 1)
    assert first.ask(heartbeat(leader.member_id, 2), now=32).error_code.value == 25


def test_followers_wait_for_the_leaders_assignment(cluster: ClusterModel) -> None:
    first, second = Peer(cluster), Peer(cluster)
    alone = joined(first)
    named = second.ask(join())
    second.send(join(named.member_id))
    leader = first.ask(join(alone.member_id))
    second.answers()
    second.send(sync(named.member_id, 2))
    assert second.frames() == []
    # A third member arrives first: the round is over before it was complete.
    third = Peer(cluster)
    third_named = third.ask(join())
    third.send(join(third_named.member_id))

    assert second.answers()[0].error_code.value == 27
    assert first.ask(sync(leader.member_id, 2)).error_code.value == 27


def test_strangers_and_old_generations(cluster: ClusterModel) -> None:
    peer = Peer(cluster)
    answer = joined(peer)

    assert peer.ask(join("made-up")).error_code.value == 25
    assert peer.ask(heartbeat("made-up", 1)).error_code.value == 25
    assert peer.ask(heartbeat(answer.member_id, 7)).error_code.value == 22
    assert peer.ask(sync(answer.member_id, 7)).error_code.value == 22
    assert peer.ask(sync("made-up", 1)).error_code.value == 25


def test_only_the_coordinator_answers_and_it_can_be_found(cluster: ClusterModel) -> None:
    elsewhere = Peer(cluster, broker=1)
    find = schema("find_coordinator", 2).FindCoordinatorRequest(key="g", key_type=0)

    found = elsewhere.ask(find)
    assert (found.error_code.value, found.node_id, found.port) == (0, 0, 9000)
    assert elsewhere.ask(join()).error_code.value == 16
    assert elsewhere.ask(heartbeat("x", 1)).error_code.value == 16
    several = schema("find_coordinator", 4).FindCoordinatorRequest(key_type=0, coordinator_keys=("g", "h"))
    assert [(entry.key, entry.node_id) for entry in elsewhere.ask(several).coordinators] == [
        ("g", 0),
        ("h", 0),
    ]

    cluster.broker_stopped(0, 0.0)
    assert elsewhere.ask(find).node_id == 1
    assert elsewhere.ask(join()).error_code.value == 79


def test_offsets_of_members(cluster: ClusterModel) -> None:
    peer = Peer(cluster)
    member = joined(peer)

    answer = peer.ask(commit(5, member_id=member.member_id, generation=1))
    assert answer.topics[0].partitions[0].error_code.value == 0
    assert committed(peer) == {("t", 0): 5, ("t", 1): -1}
    assert committed(peer, everything=True) == {("t", 0): 5}
    for stranger, code in ((commit(9), 25), (commit(9, member_id=member.member_id, generation=4), 22)):
        assert peer.ask(stranger).topics[0].partitions[0].error_code.value == code
    assert committed(peer)["t", 0] == 5


def test_offsets_without_a_group(cluster: ClusterModel) -> None:
    peer = Peer(cluster)

    assert peer.ask(commit(3, partition=1)).topics[0].partitions[0].error_code.value == 0
    assert peer.ask(commit(3, partition=9)).topics[0].partitions[0].error_code.value == 3
    assert committed(peer) == {("t", 0): -1, ("t", 1): 3}


def create(*names: str, partitions: int = 2, replication: int = 1, **settings: str) -> Any:
    messages = schema("create_topics", 7)
    return messages.CreateTopicsRequest(
        topics=tuple(
            messages.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication,
                assignments=(),
                configs=tuple(
                    messages.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in settings.items()
                ),
            )
            for name in names
        ),
        validate_only=settings.get("validate") == "yes",
    )


def test_topics_are_created_and_deleted(cluster: ClusterModel) -> None:
    peer = Peer(cluster)
    (created,) = peer.ask(
        create("new", max_message_bytes="500", message_timestamp_type="LogAppendTime")
    ).topics

    assert (created.error_code.value, created.num_partitions) == (0, 2)
    topic = cluster.state.topics["new"]
    assert created.topic_id == topic.topic_id
    assert (topic.config.max_message_bytes, topic.config.is_log_append_time) == (500, True)
    messages = schema("delete_topics", 6)
    request = messages.DeleteTopicsRequest(
        topics=(
            messages.DeleteTopicState(name=None, topic_id=topic.topic_id),
            messages.DeleteTopicState(name="nope", topic_id=None),
        ),
        timeout=timedelta(seconds=1),
    )
    assert [entry.error_code.value for entry in peer.ask(request).responses] == [0, 3]
    assert "new" not in cluster.state.topics


@pytest.mark.parametrize(
    ("request_entity", "code"),
    [
        (create("t"), 36),
        (create("no/slash"), 17),
        (create("x", partitions=0), 37),
        (create("x", partitions=10_001), 44),
        (create("x", replication=3), 38),
        (create("x", max_message_bytes="many"), 40),
        (create("x", validate="yes"), 0),
    ],
    ids=["exists", "name", "no partitions", "too many", "replication", "config", "dry run"],
)
def test_topics_that_are_not_created(cluster: ClusterModel, request_entity: Any, code: int) -> None:
    assert Peer(cluster).ask(request_entity).topics[0].error_code.value == code
    assert list(cluster.state.topics) == ["t"]
