"""A transactional Sender on a virtual clock, and its coordinators, played by hand at the level of the wire.

As `sender_harness`, with what brokers say of transactions. Coordinators answer at once, as Kafka 4.3 does, unless
the API is `held`; Produce is answered by the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.wire.api import ApiKey
from tests.unit.sender_harness import PRODUCER_ID, SenderHarness
from tests.unit.sender_wire import API_VERSIONS, INIT_PRODUCER_ID, PRODUCE, api_versions_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.core.transactions.operation import Operation
    from aioproduce.core.transactions.transaction_manager import TransactionManager
    from tests.unit.sender_harness import Record
    from tests.unit.sender_wire import Request

FIND_COORDINATOR = int(ApiKey.FIND_COORDINATOR)
ADD_PARTITIONS = int(ApiKey.ADD_PARTITIONS_TO_TXN)
ADD_OFFSETS = int(ApiKey.ADD_OFFSETS_TO_TXN)
END_TXN = int(ApiKey.END_TXN)
OFFSET_COMMIT = int(ApiKey.TXN_OFFSET_COMMIT)
DESCRIBE = int(ApiKey.DESCRIBE_TRANSACTIONS)

_OFFERED = {
    FIND_COORDINATOR: (0, 6),
    ADD_PARTITIONS: (0, 5),
    ADD_OFFSETS: (0, 4),
    END_TXN: (0, 5),
    OFFSET_COMMIT: (0, 5),
    DESCRIBE: (0, 0),
    INIT_PRODUCER_ID: (0, 5),
}


class TransactionHarness(SenderHarness):
    """One transactional Sender, which has a producer id unless `is_initialised` is false.

    Args:
        version: The cluster's finalized `transaction.version`; may be changed, with `features_epoch`.
        has_describe: Whether brokers know DescribeTransactions (Kafka 3.0).
        is_initialised: Whether to get the producer id at once.
        **settings: As `SenderHarness`.

    Attributes:
        coordinator: The node that coordinates the transactional id; `group_coordinator` every group.
        epoch: The producer's, as the coordinator has it.
    """

    def __init__(
        self, *, version: int = 2, is_initialised: bool = True, has_describe: bool = True, **settings: Any
    ) -> None:
        self.version = version
        self.has_describe = has_describe
        self.described_state = "CompleteAbort"
        self.features_epoch = 1
        self.coordinator = self.group_coordinator = 0
        self.epoch = -1
        self.producer_id = PRODUCER_ID
        super().__init__(
            **{"transactional_id": "orders-1", "transaction_timeout_ms": 60_000, "partitions": 2, **settings}
        )
        if is_initialised:
            operation = self.manager.init()
            self.run()
            assert operation.is_done
            assert operation.error is None

    @property
    def manager(self) -> TransactionManager:
        assert self.sender.transactions is not None
        return self.sender.transactions

    # -- what a producer does ---

    def begin(self) -> None:
        """Open a transaction, and let the pause before its first request pass."""
        self.manager.begin()
        self.advance(0.005)

    def begun_with(self, *partitions: int) -> list[Record]:
        """Open a transaction with a record for each of these partitions, not yet acknowledged."""
        self.begin()
        return [self.send(partition) for partition in partitions]

    def acknowledge_all(self) -> None:
        """Every Produce request that waits is answered: appended."""
        while self.produces:
            self.acknowledge()

    def next_place(self, partition: int = 0) -> tuple[int, int]:
        """Epoch and sequence of the first batch of a new transaction; nothing is held any more."""
        self.held.clear()
        self.begin()
        self.send(partition)
        (request,) = [each for each in self.produces if partition in each.partitions]
        return request.batch(partition).place

    def commit(self) -> Operation:
        operation = self.manager.commit(self.now)
        self.run()
        return operation

    def abort(self) -> Operation:
        operation = self.manager.abort(self.now)
        self.run()
        return operation

    # -- the coordinators ---

    def own_answer(self, request: Request) -> Mapping[str, Any]:
        if request.api == API_VERSIONS:
            return self._api_versions()
        if request.api in _ANSWERS:
            return self.body(request)
        return super().own_answer(request)

    def _api_versions(self) -> dict[str, Any]:
        body = api_versions_body(self.produce_versions)
        offered = {entry["api_key"]: entry for entry in body["api_keys"]}
        for api, (lowest, highest) in _OFFERED.items():
            offered[api] = {"api_key": api, "min_version": lowest, "max_version": highest}
        if not self.has_describe:
            del offered[DESCRIBE]
        features = [
            {
                "name": "transaction.version",
                "max_version_level": self.version,
                "min_version_level": self.version,
            }
        ]
        return body | {
            "api_keys": list(offered.values()),
            "finalized_features": features if self.version else [],
            "finalized_features_epoch": self.features_epoch,
        }

    def body(self, request: Request, code: int = 0, **fields: Any) -> dict[str, Any]:
        """An answer of a coordinator, with this code wherever it has one."""
        return _ANSWERS[request.api](self, request, code) | fields

    def answer_waiting(self, api: int, code: int = 0, **fields: Any) -> Request:
        """Answer the one request of a held API that waits."""
        (request,) = self.waiting(api)
        self.reply(request, self.body(request, code, **fields))
        return request

    def _found(self, request: Request, code: int) -> dict[str, Any]:
        key_type = request.body.get("key_type", 0)
        node = self.coordinator if key_type == 1 else self.group_coordinator
        host, port = self.brokers[node]
        place = {"node_id": node, "host": host, "port": port, "error_code": code, "error_message": None}
        keys = request.body.get("coordinator_keys") or [request.body.get("key")]
        return {**place, "coordinators": [{**place, "key": key} for key in keys]}

    def _given(self, request: Request, code: int) -> dict[str, Any]:
        if code:
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        self.epoch += 1
        return {"error_code": 0, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def _partitions_added(self, request: Request, code: int) -> dict[str, Any]:
        topics = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": partition, "partition_error_code": code}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request.body["v3_and_below_topics"]
        ]
        return {"error_code": 0, "results_by_topic_v3_and_below": topics, "results_by_transaction": []}

    def _offsets_added(self, request: Request, code: int) -> dict[str, Any]:
        return {"error_code": code}

    def _offsets_committed(self, request: Request, code: int) -> dict[str, Any]:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": entry["partition_index"], "error_code": code}
                    for entry in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
        return {"topics": topics}

    def _ended(self, request: Request, code: int) -> dict[str, Any]:
        if code or request.version < 5:
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        self.epoch = request.body["producer_epoch"] + 1
        return {"error_code": 0, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def _described(self, request: Request, code: int) -> dict[str, Any]:
        state = {
            "error_code": code,
            "transactional_id": "orders-1",
            "transaction_state": self.described_state,
            "transaction_timeout": 60.0,
            "transaction_start_time": -1,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch + 1,
            "topics": [],
        }
        return {"transaction_states": [state]}

    # -- what was sent ---

    @property
    def verdicts(self) -> list[tuple[bool, int]]:
        """(whether to commit, epoch) of every EndTxn that was ever sent."""
        return [
            (request.body["committed"], request.body["producer_epoch"])
            for request in self.history
            if request.api == END_TXN
        ]

    def apis(self) -> list[int]:
        """The APIs of a transaction in the order in which they were asked for, but for versions and metadata."""
        known = {PRODUCE, INIT_PRODUCER_ID, *_ANSWERS}
        return [request.api for request in self.history if request.api in known]


_ANSWERS = {
    FIND_COORDINATOR: TransactionHarness._found,
    INIT_PRODUCER_ID: TransactionHarness._given,
    ADD_PARTITIONS: TransactionHarness._partitions_added,
    ADD_OFFSETS: TransactionHarness._offsets_added,
    OFFSET_COMMIT: TransactionHarness._offsets_committed,
    END_TXN: TransactionHarness._ended,
    DESCRIBE: TransactionHarness._described,
}


class OldBrokers(TransactionHarness):
    """Kafka 2.4: offsets say nothing of members, and there is no new epoch of an old id but a new one."""

    def own_answer(self, request: Request) -> Mapping[str, Any]:
        answer = super().own_answer(request)
        if request.api != API_VERSIONS:
            return answer
        most = {OFFSET_COMMIT: 2, INIT_PRODUCER_ID: 1, END_TXN: 1, ADD_OFFSETS: 1, ADD_PARTITIONS: 1}
        keys = [
            key | {"max_version": min(key["max_version"], most.get(key["api_key"], key["max_version"]))}
            for key in answer["api_keys"]
        ]
        return {**answer, "api_keys": keys}
