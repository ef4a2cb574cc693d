"""Offsets of consumer groups in a transaction: whole transactions, and what the coordinators' refusals call for.

Scenarios of Java's TransactionManagerTest (tests/README.md says which test stands for which).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionsUnavailableError,
)
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.unit.sender_harness import PRODUCER_ID
from tests.unit.sender_wire import INIT_PRODUCER_ID, PRODUCE
from tests.unit.transaction_harness import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    TransactionHarness,
)

if TYPE_CHECKING:
    from aioproduce.core.transactions.operation import Operation

ABORTED, COMMITTED = TransactionOutcome.ABORTED, TransactionOutcome.COMMITTED
GROUP = GroupMetadata("group-1", 5, "member-1", "instance-1")
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(39)}


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


def sending_offsets(h: TransactionHarness, *held: int, group: GroupMetadata = GROUP) -> Operation:
    """A transaction is open, and offsets are asked to go with it; the test answers what is held."""
    h.held |= set(held)
    h.begin()
    operation = h.manager.send_offsets(OFFSETS, group, h.now)
    h.run()
    return operation


def ended(operation: Operation) -> bool:
    """Read again each time, for type checkers; so are the next two."""
    return operation.is_done


def lets_records_in(h: TransactionHarness) -> bool:
    return h.manager.is_open


def has_transaction(h: TransactionHarness) -> bool:
    return h.manager.transaction is not None


# -- whole transactions ---


def test_records_and_offsets_are_committed_together(h: TransactionHarness) -> None:
    """With version 1 each partition and group is announced; with version 2 the request itself does it."""
    h.held |= {ADD_PARTITIONS, ADD_OFFSETS, OFFSET_COMMIT, END_TXN}
    h.begin()
    record = h.append(0)
    h.run()
    if h.version == 1:
        assert h.produces == []
        h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge()
    assert record.offset == 0
    operation = h.manager.send_offsets(OFFSETS, GROUP, h.now)
    h.run()
    if h.version == 1:
        assert h.waiting(OFFSET_COMMIT) == []
        h.answer_waiting(ADD_OFFSETS)
    assert not ended(operation), "not before the group's coordinator has taken them"
    h.answer_waiting(OFFSET_COMMIT)
    assert ended(operation)
    ending = h.commit()
    h.answer_waiting(END_TXN)
    assert ending.outcome is COMMITTED
    announced = [ADD_PARTITIONS, PRODUCE, ADD_OFFSETS] if h.version == 1 else [PRODUCE]
    start = [FIND_COORDINATOR, INIT_PRODUCER_ID]
    assert h.apis() == [*start, *announced, FIND_COORDINATOR, OFFSET_COMMIT, END_TXN]
    assert h.manager.state is TransactionState.READY
    assert h.manager.producer.epoch == (0 if h.version == 1 else 1)


def test_brokers_of_version_2_in_a_cluster_of_version_1() -> None:
    """What the requests can do does not matter, only what the cluster has finalized."""
    h = TransactionHarness(version=1)
    sending_offsets(h)
    h.send(0)
    h.acknowledge()
    assert h.commit().outcome is COMMITTED
    versions = {request.api: request.version for request in h.history}
    assert versions[ADD_PARTITIONS] == 3
    assert versions[OFFSET_COMMIT] == 4
    assert versions[END_TXN] == 4
    assert versions[PRODUCE] == 11


# -- the group refuses ---


@pytest.mark.parametrize(
    ("code", "group", "remedy"),
    [
        (codes.FENCED_INSTANCE_ID, GROUP, "give each consumer a group.instance.id of its own"),
        (codes.UNKNOWN_MEMBER_ID, GroupMetadata("group-1", 5, "gone"), "the consumer has left its group"),
        (
            codes.ILLEGAL_GENERATION,
            GroupMetadata("group-1", 1, "member-1"),
            "the consumer group has rebalanced",
        ),
    ],
    ids=["FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"],
)
def test_a_member_that_the_group_does_not_have_aborts_the_transaction(
    h: TransactionHarness, code: int, group: GroupMetadata, remedy: str
) -> None:
    operation = sending_offsets(h, OFFSET_COMMIT, group=group)
    request = h.answer_waiting(OFFSET_COMMIT, code)
    body = request.body
    assert (body["group_id"], body["generation_id"]) == ("group-1", group.generation_id)
    assert (body["member_id"], body["group_instance_id"]) == (group.member_id, group.group_instance_id)
    assert (body["producer_id"], body["producer_epoch"]) == (PRODUCER_ID, 0)
    assert isinstance(operation.error, TransactionFailedError)
    assert (operation.error.code, operation.error.recover) == (code, "abort")
    assert remedy in str(operation.error)
    with pytest.raises(TransactionFailedError):
        h.manager.commit(h.now)
    h.held.clear()
    assert h.abort().outcome is ABORTED
    h.begun_with(0)
    ending = h.commit()
    h.acknowledge_all()
    assert ending.outcome is COMMITTED
    assert h.count(OFFSET_COMMIT) == 1


# -- nothing more can be done ---


@pytest.mark.parametrize(
    ("api", "code", "versions"),
    [
        (OFFSET_COMMIT, codes.UNSUPPORTED_FOR_MESSAGE_FORMAT, (1, 2)),
        (OFFSET_COMMIT, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, (1, 2)),
        (ADD_OFFSETS, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, (1,)),
        (ADD_OFFSETS, codes.INVALID_TXN_STATE, (1,)),
    ],
    ids=lambda value: ApiKey(value).name if value in (OFFSET_COMMIT, ADD_OFFSETS) else None,
)
def test_refusals_that_end_the_producer(api: int, code: int, versions: tuple[int, ...]) -> None:
    for version in versions:
        h = TransactionHarness(version=version)
        operation = sending_offsets(h, api)
        unsent = h.append(0)
        h.answer_waiting(api, code)
        assert isinstance(operation.error, TransactionsUnavailableError)
        assert (operation.error.code, operation.error.recover) == (code, "new producer")
        assert operation.error is h.manager.error
        assert unsent.is_done
        for call in (h.manager.commit, h.manager.abort):
            with pytest.raises(TransactionsUnavailableError):
                call(h.now)
        assert h.verdicts == []


def test_a_record_of_a_producer_id_that_the_transactional_id_has_no_more(h: TransactionHarness) -> None:
    (record,) = h.begun_with(0)
    h.answer(code=codes.INVALID_PRODUCER_ID_MAPPING)
    assert record.error.code == codes.INVALID_PRODUCER_ID_MAPPING
    assert h.manager.state is TransactionState.FATAL_ERROR
    assert h.manager.error is not None
    assert h.manager.error.recover == "new producer"
    with pytest.raises(type(h.manager.error)):
        h.manager.begin()


# -- which calls are legal when ---


def test_what_may_be_called_while_a_transaction_goes_its_way(h: TransactionHarness) -> None:
    """From before the producer id to after the commit: what is open, and what a call at the wrong time hears."""
    h = TransactionHarness(version=h.version, is_initialised=False)
    manager = h.manager

    def refused(match: str, *calls: str) -> None:
        for call in calls:
            with pytest.raises(TransactionStateError, match=match):
                manager.begin() if call == "begin" else getattr(manager, call)(h.now)
        assert match.replace("\\", "") in str(manager.refusal())

    refused("there is no producer id", "begin", "commit", "abort")
    manager.init()
    h.run()
    refused("no transaction is open", "commit", "abort")
    assert not lets_records_in(h)
    h.begin()
    refused("a transaction is open", "begin")
    assert lets_records_in(h)
    h.held.add(END_TXN)
    h.send(0)
    operation = h.commit()
    h.acknowledge_all()
    refused("the outcome of a commit is awaited", "begin", "abort")
    assert not lets_records_in(h), "no record is let in any more"
    assert has_transaction(h)
    h.answer_waiting(END_TXN)
    assert operation.outcome is COMMITTED
    refused("no transaction is open", "commit", "abort")
    assert not has_transaction(h)


def test_a_failed_transaction_is_there_until_its_abort_is_confirmed(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    assert lets_records_in(h)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert not lets_records_in(h), "no record is let in any more"
    refusal = h.manager.refusal()
    assert isinstance(refusal, TransactionStateError)
    assert "the transaction has failed: abort it" in str(refusal)
    assert isinstance(refusal.__cause__, TransactionFailedError)
    operation = h.abort()
    assert has_transaction(h)
    with pytest.raises(TransactionStateError, match="the outcome of an abort is awaited"):
        h.manager.begin()
    h.answer_waiting(END_TXN)
    assert operation.outcome is ABORTED
    assert not has_transaction(h)


def test_after_a_fatal_error_every_call_hears_of_it(h: TransactionHarness) -> None:
    h.begun_with(0)
    h.answer(code=codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error = h.manager.error
    assert error is not None
    assert error.is_fatal
    assert not lets_records_in(h)
    calls = (
        h.manager.init,
        h.manager.begin,
        lambda: h.manager.send_offsets(OFFSETS, GROUP, h.now),
        lambda: h.manager.prepare(h.now),
        lambda: h.manager.commit(h.now),
        lambda: h.manager.abort(h.now),
    )
    for call in calls:
        with pytest.raises(type(error), match="Make another producer"):
            call()
    assert str(h.manager.refusal()) == str(error)
