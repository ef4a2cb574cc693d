"""Finding coordinators and getting a producer id: lost, moved, forbidden, too old; and the calls around it.

Scenarios of Java's TransactionManagerTest (tests/README.md says which test stands for which).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import TransactionOutcome, TransactionStateError, TransactionsUnavailableError
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.unit.sender_harness import PRODUCER_ID
from tests.unit.sender_wire import API_VERSIONS, INIT_PRODUCER_ID
from tests.unit.transaction_harness import ADD_PARTITIONS, END_TXN, FIND_COORDINATOR, TransactionHarness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.core.transactions.operation import Operation
    from tests.unit.sender_wire import Request

COMMITTED = TransactionOutcome.COMMITTED


class BrokersWithout(TransactionHarness):
    """Brokers that do not know one API."""

    def __init__(self, api: int) -> None:
        self._api = api
        super().__init__(is_initialised=False)

    def own_answer(self, request: Request) -> Mapping[str, Any]:
        body = super().own_answer(request)
        if request.api != API_VERSIONS:
            return body
        return {**body, "api_keys": [entry for entry in body["api_keys"] if entry["api_key"] != self._api]}


def starting(*held: int, version: int = 2) -> tuple[TransactionHarness, Operation]:
    """A producer id is asked for; node 1 coordinates, and the test answers what is held."""
    h = TransactionHarness(version=version, brokers=2, is_initialised=False)
    h.coordinator = 1
    h.held |= set(held)
    operation = h.manager.init()
    h.run()
    return h, operation


def assert_works(h: TransactionHarness, operation: Operation) -> None:
    """The producer has its id, and commits."""
    assert operation.is_done
    assert operation.error is None
    assert h.manager.producer.producer_id == PRODUCER_ID
    h.held.clear()
    h.begun_with(0)
    ending = h.commit()
    h.acknowledge_all()
    assert ending.outcome is COMMITTED


# -- lost ---


def test_the_connection_is_lost_while_the_coordinator_is_asked_for() -> None:
    h, operation = starting(FIND_COORDINATOR)
    (request,) = h.waiting(FIND_COORDINATOR)
    assert (request.body["key_type"], request.body["coordinator_keys"]) == (1, ["orders-1"])
    h.lose(request.node_id)
    h.advance(0.2)
    assert not operation.is_done
    h.answer_waiting(FIND_COORDINATOR)
    assert h.waiting(FIND_COORDINATOR) == []
    assert_works(h, operation)


def test_the_connection_is_lost_while_the_producer_id_is_asked_for() -> None:
    h, operation = starting(INIT_PRODUCER_ID)
    (request,) = h.waiting(INIT_PRODUCER_ID)
    assert request.node_id == 1
    h.coordinator = 0
    h.lose(1)
    h.advance(0.2)
    assert h.count(FIND_COORDINATOR) == 2
    assert not operation.is_done
    (request,) = h.waiting(INIT_PRODUCER_ID)
    assert request.node_id == 0
    h.answer_waiting(INIT_PRODUCER_ID)
    assert_works(h, operation)


def test_the_coordinator_is_gone_before_the_producer_id_is_asked_for() -> None:
    h, operation = starting(FIND_COORDINATOR)
    h.down.add(1)
    h.answer_waiting(FIND_COORDINATOR)
    h.advance(0.2)
    assert h.count(INIT_PRODUCER_ID) == 0
    assert not operation.is_done
    # It was not there, so it is looked up again: it may be another one.
    h.coordinator = 0
    h.answer_waiting(FIND_COORDINATOR)
    assert [request.node_id for request in h.history if request.api == INIT_PRODUCER_ID] == [0]
    assert_works(h, operation)


def test_another_one_is_coordinator_by_now() -> None:
    h, operation = starting(INIT_PRODUCER_ID)
    h.coordinator = 0
    h.answer_waiting(INIT_PRODUCER_ID, codes.NOT_COORDINATOR)
    assert not operation.is_done
    h.advance(0.051)
    assert h.count(FIND_COORDINATOR) == 2
    (request,) = h.waiting(INIT_PRODUCER_ID)
    assert request.node_id == 0
    h.answer_waiting(INIT_PRODUCER_ID)
    assert_works(h, operation)


@pytest.mark.parametrize(
    "code",
    [
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.REQUEST_TIMED_OUT,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.CONCURRENT_TRANSACTIONS,
    ],
)
def test_codes_after_which_each_request_is_asked_again(code: int) -> None:
    h, operation = starting(FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, version=1)
    for api in (FIND_COORDINATOR, INIT_PRODUCER_ID):
        h.answer_waiting(api, code)
        assert not operation.is_done
        h.advance(0.051)
        h.answer_waiting(api)
    assert operation.error is None
    h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, code)
    h.advance(0.051)
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge_all()
    ending = h.commit()
    h.answer_waiting(END_TXN, code)
    assert not ending.is_done
    h.advance(0.051)
    h.answer_waiting(END_TXN)
    assert (ending.error, ending.outcome) == (None, COMMITTED)


# -- refused ---


@pytest.mark.parametrize("api", [FIND_COORDINATOR, INIT_PRODUCER_ID], ids=lambda api: ApiKey(api).name)
def test_brokers_that_are_too_old(api: int) -> None:
    h = BrokersWithout(api)
    operation = h.manager.init()
    h.run()
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert operation.error.code == codes.UNSUPPORTED_VERSION
    assert operation.error.recover == "new producer"
    assert "Kafka 0.11" in str(operation.error)
    assert h.manager.state is TransactionState.FATAL_ERROR
    with pytest.raises(TransactionsUnavailableError):
        h.manager.init()


def test_no_right_to_know_of_the_transactional_id_ends_the_producer() -> None:
    h, operation = starting(FIND_COORDINATOR)
    h.answer_waiting(FIND_COORDINATOR, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert operation.error.code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert operation.error.recover == "new producer"
    for call in (h.manager.init, h.manager.begin):
        with pytest.raises(TransactionsUnavailableError, match="orders-1"):
            call()


def test_no_right_to_use_the_transactional_id_may_be_granted_later() -> None:
    h, operation = starting(INIT_PRODUCER_ID)
    h.answer_waiting(INIT_PRODUCER_ID, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert operation.error.recover == "init"
    assert h.manager.state is TransactionState.UNINITIALIZED
    with pytest.raises(TransactionStateError, match=r"init_transactions\(\) first"):
        h.manager.begin()
    again = h.manager.init()
    h.run()
    h.answer_waiting(INIT_PRODUCER_ID)
    assert_works(h, again)


# -- the calls around it ---


def test_initialised_twice() -> None:
    h = TransactionHarness()
    with pytest.raises(TransactionStateError) as raised:
        h.manager.init()
    assert raised.value.recover == "begin"
    assert h.count(INIT_PRODUCER_ID) == 1
    assert h.manager.state is TransactionState.READY


def test_whoever_stopped_waiting_for_the_producer_id_asks_for_the_same_again() -> None:
    """In Java nothing else may be called before the call is repeated; here the id is there, and that is enough."""
    h, operation = starting(INIT_PRODUCER_ID)
    assert h.manager.init() is operation
    calls = (
        h.manager.begin,
        lambda: h.manager.commit(h.now),
        lambda: h.manager.abort(h.now),
    )
    for call in calls:
        with pytest.raises(TransactionStateError, match="a producer id was requested"):
            call()
    assert not h.manager.is_open
    assert h.count(INIT_PRODUCER_ID) == 1
    h.answer_waiting(INIT_PRODUCER_ID)
    assert_works(h, operation)
