"""A consumer group's offsets in a transaction: whom they are sent to, what they say, what a refusal makes of them.

The cases of Kafka's TransactionManagerTest, at the level of the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    ProducerFencedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionsUnavailableError,
    TransactionTimedOutError,
)
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.transaction_harness import (
    DESCRIBE,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OldBrokers,
    TransactionHarness,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.core.transactions.operation import Operation
    from tests.unit.sender_wire import Request

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
OFFSETS = {FIRST: OffsetAndMetadata(7), SECOND: OffsetAndMetadata(9)}
MEMBER = GroupMetadata("group-1", 5, "member-1", "instance-1")
VERSIONS = pytest.mark.parametrize("version", [1, 2])
FENCES = pytest.mark.parametrize("code", [codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH])


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


def sent_offsets(h: TransactionHarness, group: GroupMetadata = MEMBER) -> Operation:
    operation = h.manager.send_offsets(OFFSETS, group, h.now)
    h.run()
    return operation


def answer_each(h: TransactionHarness, by_partition: Mapping[int, int]) -> None:
    """Answer the TxnOffsetCommit that waits, each partition with a code of its own."""
    (request,) = h.waiting(OFFSET_COMMIT)
    body = h.body(request)
    for topic in body["topics"]:
        for entry in topic["partitions"]:
            entry["error_code"] = by_partition[entry["partition_index"]]
    h.reply(request, body)


def asked_for(request: Request) -> list[int]:
    """The partitions whose offsets a TxnOffsetCommit has."""
    return [entry["partition_index"] for topic in request.body["topics"] for entry in topic["partitions"]]


# -- what is said ---


def test_the_whole_of_the_members_metadata_is_sent(h: TransactionHarness) -> None:
    h.begin()
    assert sent_offsets(h).error is None
    (request,) = [request for request in h.history if request.api == OFFSET_COMMIT]
    said = {key: request.body[key] for key in ("group_id", "generation_id", "member_id", "group_instance_id")}
    assert said == {
        "group_id": "group-1",
        "generation_id": 5,
        "member_id": "member-1",
        "group_instance_id": "instance-1",
    }
    assert h.commit().outcome is COMMITTED


def test_a_group_by_its_name_alone(h: TransactionHarness) -> None:
    h.begin()
    assert sent_offsets(h, GroupMetadata("group-1")).error is None
    (request,) = [request for request in h.history if request.api == OFFSET_COMMIT]
    assert (request.body["generation_id"], request.body["member_id"]) == (-1, "")
    assert request.body["group_instance_id"] is None


@pytest.mark.parametrize(
    "group",
    [
        GroupMetadata("group-1", 5, "member-1"),
        GroupMetadata("group-1", group_instance_id="instance-1"),
        GroupMetadata("group-1", 0),
    ],
    ids=["member", "static member", "generation"],
)
def test_old_brokers_are_not_sent_a_members_offsets(group: GroupMetadata) -> None:
    """They would take them of a member that has lost its partitions, too."""
    h = OldBrokers(version=0)
    h.begin()
    operation = sent_offsets(h, group)
    assert isinstance(operation.error, TransactionFailedError)
    assert (operation.error.code, operation.error.recover) == (codes.UNSUPPORTED_VERSION, "abort")
    assert "before Kafka 2.5" in str(operation.error)
    assert h.count(OFFSET_COMMIT) == 0
    assert h.abort().outcome is ABORTED
    # By its name alone it is what they can do.
    h.begin()
    assert sent_offsets(h, GroupMetadata("group-1")).error is None
    assert h.commit().outcome is COMMITTED
    assert h.verdicts[-1][0]


# -- asked again ---


@pytest.mark.parametrize(
    "code",
    [
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.NETWORK_EXCEPTION,
        codes.CONCURRENT_TRANSACTIONS,
        codes.NOT_COORDINATOR,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.REQUEST_TIMED_OUT,
    ],
)
def test_what_was_not_taken_is_sent_again(h: TransactionHarness, code: int) -> None:
    h.begin()
    h.held.add(OFFSET_COMMIT)
    operation = sent_offsets(h)
    found = h.count(FIND_COORDINATOR)
    answer_each(h, {0: codes.NONE, 1: code})
    assert not operation.is_done
    assert h.waiting(OFFSET_COMMIT) == []
    h.advance(0.06)
    (request,) = h.waiting(OFFSET_COMMIT)
    assert asked_for(request) == [1]
    is_lost = code in (codes.NOT_COORDINATOR, codes.COORDINATOR_NOT_AVAILABLE, codes.REQUEST_TIMED_OUT)
    assert h.count(FIND_COORDINATOR) == found + is_lost
    answer_each(h, {1: codes.NONE})
    assert (operation.is_done, operation.error) == (True, None)
    assert h.commit().outcome is COMMITTED


def test_a_partition_left_out_of_the_answer_is_sent_again(h: TransactionHarness) -> None:
    h.begin()
    h.held.add(OFFSET_COMMIT)
    operation = sent_offsets(h)
    (request,) = h.waiting(OFFSET_COMMIT)
    h.reply(
        request,
        {"topics": [{"name": "in", "partitions": [{"partition_index": 1, "error_code": codes.NONE}]}]},
    )
    assert not operation.is_done
    h.advance(0.06)
    (request,) = h.waiting(OFFSET_COMMIT)
    assert asked_for(request) == [0]
    answer_each(h, {0: codes.NONE})
    assert operation.error is None


def test_a_groups_coordinator_that_is_lost_is_found_anew() -> None:
    h = TransactionHarness(brokers=2)
    h.group_coordinator = 1
    h.begin()
    h.held.add(OFFSET_COMMIT)
    operation = sent_offsets(h)
    assert h.waiting(OFFSET_COMMIT)[0].node_id == 1
    h.lose(1)
    h.down.add(1)
    h.group_coordinator = 0
    h.advance(0.2)
    assert h.waiting(OFFSET_COMMIT)[0].node_id == 0
    answer_each(h, {0: codes.NONE, 1: codes.NONE})
    assert operation.error is None
    assert h.commit().outcome is COMMITTED


def test_the_commit_waits_for_offsets(h: TransactionHarness) -> None:
    h.begin()
    h.held.add(OFFSET_COMMIT)
    sending = sent_offsets(h)
    operation = h.commit()
    assert h.verdicts == []
    h.answer_waiting(OFFSET_COMMIT)
    assert sending.error is None
    assert operation.outcome is COMMITTED


# -- refused ---


@pytest.mark.parametrize(
    "code",
    [
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        codes.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_refusal_that_is_the_end_of_the_producer(h: TransactionHarness, code: int) -> None:
    h.begin()
    h.held.add(OFFSET_COMMIT)
    operation = sent_offsets(h)
    answer_each(h, {0: codes.NONE, 1: code})
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert (operation.error.code, operation.error.recover) == (code, "new producer")
    assert h.manager.state is TransactionState.FATAL_ERROR
    for call in (h.manager.begin, h.commit, h.abort):
        with pytest.raises(TransactionsUnavailableError):
            call()


@FENCES
def test_a_fenced_part_is_told_from_a_time_out_by_the_abort(h: TransactionHarness, code: int) -> None:
    """Java dies at once, and so would who was only too slow."""
    h.begin()
    h.held |= {OFFSET_COMMIT, END_TXN}
    operation = sent_offsets(h)
    answer_each(h, {0: codes.NONE, 1: code})
    assert isinstance(operation.error, TransactionFailedError)
    assert (operation.error.code, operation.error.recover) == (code, "abort")
    assert h.manager.state is TransactionState.ABORTABLE_ERROR
    h.described_state = "Ongoing"  # somebody else's
    ending = h.abort()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    assert isinstance(ending.error, ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        h.manager.begin()


@FENCES
def test_who_was_only_too_slow_goes_on(h: TransactionHarness, code: int) -> None:
    h.begin()
    h.held |= {OFFSET_COMMIT, END_TXN}
    sent_offsets(h)
    answer_each(h, {0: codes.NONE, 1: code})
    ending = h.abort()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED if h.version == 1 else codes.NONE)
    assert ending.outcome is ABORTED
    if h.version == 1:
        assert h.count(DESCRIBE) == 1
        assert isinstance(ending.error, TransactionTimedOutError)
        assert h.manager.init().error is None
        h.run()
    h.held.clear()
    h.begin()
    assert sent_offsets(h).error is None
    assert h.commit().outcome is COMMITTED


@VERSIONS
def test_offsets_that_an_abort_overtakes_are_not_sent_later(version: int) -> None:
    h = TransactionHarness(version=version)
    h.begin()
    h.held.add(FIND_COORDINATOR)
    operation = sent_offsets(h)
    ending = h.abort()
    assert isinstance(operation.error, TransactionFailedError)
    h.unhold(FIND_COORDINATOR)
    assert ending.outcome is ABORTED
    h.begin()
    assert h.commit().outcome is COMMITTED
    assert h.count(OFFSET_COMMIT) == 0
