"""What real Kafka 4.3.1 answers to transactional producers, case by case, at `transaction.version` 1 and 2.

Every case is one script of hand-made requests. `test_fake_broker_transactions` runs it against the model,
`tests/integration/test_transactions_against_kafka.py` against the real thing; both give what `CASES` says. Requests
are made by kio, batches by aiokafka's builder: nothing of ours judges itself here.

Answers are (error code, epoch): the epoch is -1 where an answer has none. A new transactional id begins at epoch 0.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from tests.unit.fake_broker_peer import TIMESTAMP, batch, find_transaction_coordinator, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = tuple[int, int]

# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: a coordinator that is not ready.
NOT_READY = (14, 15, 16)
NONE, UNKNOWN_TOPIC, METADATA_TOO_LARGE, PRODUCER_EPOCH = 0, 3, 12, 47
TXN_STATE, TIMEOUT_TOO_LARGE, CONCURRENT, UNSTABLE, FENCED, ABORTABLE = 48, 50, 51, 88, 90, 120


class TransactionPeer(Protocol):
    """A connection to the one broker of a cluster."""

    def ask(self, request: Any) -> Any:
        """The answer, decoded by kio; `None` if the broker closes the connection instead."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""


def schema(api: str, version: int) -> Any:
    """kio's module of a request."""
    return importlib.import_module(f"kio.schema.{api}.v{version}.request")


@dataclass(frozen=True)
class Producer:
    """What a client goes on with: its transactional id, producer id and epoch."""

    transactional_id: str
    producer_id: int
    epoch: int

    def at(self, epoch: int) -> Producer:
        """The same with another epoch."""
        return Producer(self.transactional_id, self.producer_id, epoch)


class Script:
    """A case's requests, in the way of one `transaction.version`.

    Args:
        peer: The broker.
        version: The finalized `transaction.version`.
        topic: A topic of one partition, for this case alone; ids and groups are called after it.
    """

    def __init__(self, peer: TransactionPeer, version: int, topic: str) -> None:
        self.peer = peer
        self.version = version
        self.topic = topic

    # Requests

    def init(
        self, name: str = "a", producer: Producer | None = None, *, timeout: float = 60.0, version: int = 5
    ) -> Any:
        """InitProducerId, once."""
        named = (-1, -1) if producer is None else (producer.producer_id, producer.epoch)
        request = schema("init_producer_id", version).InitProducerIdRequest(
            transactional_id=f"{self.topic}-{name}",
            transaction_timeout=timedelta(seconds=timeout),
            producer_id=named[0],
            producer_epoch=named[1],
        )
        return self.until_ready(request)

    def new(self, name: str = "a", *, timeout: float = 60.0) -> Producer:
        """A client with an id of its own; an open transaction of another one is aborted by it."""
        self.until_ready(find_transaction_coordinator(f"{self.topic}-{name}"))
        while (answer := self.init(name, timeout=timeout)).error_code.value == CONCURRENT:
            self.peer.pause(0.005)
        assert answer.error_code.value == 0, answer
        return Producer(f"{self.topic}-{name}", answer.producer_id, answer.producer_epoch)

    def add(self, producer: Producer) -> int:
        """AddPartitionsToTxn v3, of the case's partition."""
        messages = schema("add_partitions_to_txn", 3)
        answer = self.peer.ask(
            messages.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=(messages.AddPartitionsToTxnTopic(name=self.topic, partitions=(0,)),),
            )
        )
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.value
        return code

    def produce(self, producer: Producer, sequence: int = 0, *, version: int | None = None) -> int:
        """One record by Produce v11 or v12, as the version has it; the code."""
        content = batch(
            b"v",
            producer=(producer.producer_id, producer.epoch, sequence),
            is_transactional=True,
            timestamp=TIMESTAMP,
        )
        request = produce_request(
            self.topic,
            {0: content},
            version=version or (11 if self.version == 1 else 12),
            timeout=20.0,
            transactional_id=producer.transactional_id,
        )
        code: int = self.peer.ask(request).responses[0].partition_responses[0].error_code.value
        return code

    def write(self, producer: Producer, sequence: int = 0) -> None:
        """One record, its partition added before where that is the client's business."""
        if self.version == 1:
            assert self.add(producer) == NONE
        assert self.produce(producer, sequence) == NONE

    def end(self, producer: Producer, *, commit: bool, version: int | None = None) -> Answer:
        """EndTxn v4 or v5, asked again while markers are written."""
        request = schema("end_txn", version or (4 if self.version == 1 else 5)).EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        while (answer := self.until_ready(request)).error_code.value == CONCURRENT:
            self.peer.pause(0.002)
        told = getattr(answer, "producer_id", -1)
        assert told in (-1, producer.producer_id), "the epochs of these cases are far from their end"
        return answer.error_code.value, getattr(answer, "producer_epoch", -1)

    def ended(self, producer: Producer, *, commit: bool) -> Producer:
        """End a transaction and wait for its markers; the producer that goes on."""
        code, epoch = self.end(producer, commit=commit)
        assert code == NONE
        self.settle(producer)
        return producer.at(epoch if self.version == 2 else producer.epoch)

    def state(self, producer: Producer) -> tuple[str, int]:
        """The transaction's state and epoch, by DescribeTransactions."""
        request = schema("describe_transactions", 0).DescribeTransactionsRequest(
            transactional_ids=(producer.transactional_id,)
        )
        (found,) = self.peer.ask(request).transaction_states
        return found.transaction_state, found.producer_epoch

    def settle(self, *producers: Producer, first: str = "Prepare") -> None:
        """Wait until no transaction is in a state that begins thus."""
        for producer in producers:
            while self.state(producer)[0].startswith(first):
                self.peer.pause(0.002)

    def time_out(self, *producers: Producer) -> None:
        """Wait until the coordinator has aborted them."""
        self.peer.pause(0.2)
        self.settle(*producers, first="Ongoing")
        self.settle(*producers)

    def commit_offset(
        self,
        producer: Producer,
        offset: int = 7,
        *,
        topic: str | None = None,
        metadata: str = "",
        group: str = "g",
    ) -> int:
        """TxnOffsetCommit v4, after AddOffsetsToTxn v3, or v5; of a group without members."""
        version = 4 if self.version == 1 else 5
        self.until_ready(
            schema("find_coordinator", 2).FindCoordinatorRequest(key=f"{self.topic}-{group}", key_type=0)
        )
        if version == 4:
            self._add_offsets(producer, group)
        messages = schema("txn_offset_commit", version)
        request = messages.TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=f"{self.topic}-{group}",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=(
                messages.TxnOffsetCommitRequestTopic(
                    name=topic or self.topic,
                    partitions=(
                        messages.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=metadata
                        ),
                    ),
                ),
            ),
        )
        while (code := self.peer.ask(request).topics[0].partitions[0].error_code.value) in (
            *NOT_READY,
            CONCURRENT,
        ):
            self.peer.pause(0.02)
        return int(code)

    def committed(self, group: str = "g") -> tuple[int, int]:
        """OffsetFetch v7 with require_stable: (error code, offset)."""
        messages = schema("offset_fetch", 7)
        request = messages.OffsetFetchRequest(
            group_id=f"{self.topic}-{group}",
            topics=(messages.OffsetFetchRequestTopic(name=self.topic, partition_indexes=(0,)),),
            require_stable=True,
        )
        found = self.until_ready(request).topics[0].partitions[0]
        return found.error_code.value, found.committed_offset

    def until_ready(self, request: Any) -> Any:
        """Ask while the coordinator is not ready (pytest's time-out bounds it)."""
        while (answer := self.peer.ask(request)) is not None and answer.error_code.value in NOT_READY:
            self.peer.pause(0.02)
        return answer

    def _add_offsets(self, producer: Producer, group: str) -> None:
        request = schema("add_offsets_to_txn", 3).AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=f"{self.topic}-{group}",
        )
        while (answer := self.peer.ask(request)).error_code.value == CONCURRENT:
            self.peer.pause(0.02)
        assert answer.error_code.value == NONE


def told(answer: Any) -> Answer:
    """Code and epoch of an answer to InitProducerId."""
    return answer.error_code.value, answer.producer_epoch


# The cases. Each gives what it was answered.


def advertised_versions(s: Script) -> Any:
    messages = schema("api_versions", 4)
    answer = s.peer.ask(
        messages.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    )
    ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    wanted = {22, 24, 25, 26, 27, 28, 61, 65, 66}
    return (
        {api: ranges[api] for api in sorted(wanted)},
        finalized,
        supported,
        answer.finalized_features_epoch >= 0,
    )


def end_by_another_client(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    other = Script(s.peer, s.version, s.topic)
    return other.end(Producer(producer.transactional_id, producer.producer_id, 0), commit=True)


def commit_repeated(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    return [s.end(producer, commit=True) for _ in range(3)]


def abort_after_commit(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    s.ended(producer, commit=True)
    return s.end(producer, commit=False)


def commit_after_abort(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    s.ended(producer, commit=False)
    return s.end(producer, commit=True)


def commit_after_somebody_initialised(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    s.new()
    return s.end(producer, commit=True)


def commit_of_nothing(s: Script) -> Any:
    return s.end(s.new(), commit=True)


def abort_of_nothing(s: Script) -> Any:
    return s.end(s.new(), commit=False)


def own_time_out(s: Script) -> Any:
    first, second = s.new("a", timeout=0.15), s.new("b", timeout=0.15)
    s.write(first)
    s.write(second)
    s.time_out(first, second)
    answers = [
        ("produce", s.produce(first, 1)),
        ("commit", s.end(first, commit=True)),
        ("abort", s.end(first, commit=False)),
        ("initialise", told(s.init("b", second))),
    ]
    if s.version == 1:
        answers.insert(0, ("add", s.add(first)))
    return answers


def goes_on_after_own_time_out(s: Script) -> Any:
    producer = s.new(timeout=0.15)
    s.write(producer)
    s.time_out(producer)
    code, epoch = s.end(producer, commit=False)
    if code != NONE:
        return code
    later = producer.at(epoch)
    s.write(later)
    return s.end(later, commit=True)


def fenced_by_a_new_client(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    s.ended(s.new(), commit=False) if s.version == 2 else s.new()
    return [
        s.end(producer, commit=True),
        s.end(producer, commit=False),
        told(s.init(producer=producer)),
        s.produce(producer, 1),
    ]


def delayed_commit(s: Script) -> Any:
    """Jepsen's: a copy of the first transaction's commit comes while the second one is open."""
    first = s.new()
    s.write(first)
    second = s.ended(first, commit=True)
    s.write(second, 0 if s.version == 2 else 1)
    copy = s.end(first, commit=True)
    s.settle(first)
    return [copy, s.end(second, commit=False)]


def straggling_produce(s: Script) -> Any:
    producer = s.new()
    s.write(producer)
    s.ended(producer, commit=True)
    return s.produce(producer, 1)


def straggling_duplicate(s: Script) -> Any:
    """The batch itself again, after the end of its transaction."""
    producer = s.new()
    s.write(producer)
    s.ended(producer, commit=True)
    return s.produce(producer, 0)


def produce_without_adding(s: Script) -> Any:
    producer = s.new()
    return [s.produce(producer, version=11), s.produce(producer, version=10)]


def produce_that_adds(s: Script) -> Any:
    producer = s.new()
    code = s.produce(producer, version=12)
    return code, s.end(producer, commit=True, version=5)


def sequence_of_a_new_epoch(s: Script) -> Any:
    """Version 2: sequences begin at 0 again; version 1: they go on, and the last ones are known as duplicates."""
    producer = s.new()
    s.write(producer)
    later = s.ended(producer, commit=True)
    if s.version == 1:
        assert s.add(later) == NONE
    return [s.produce(later, 1), s.produce(later, 0)]


def sequence_of_an_unknown_producer(s: Script) -> Any:
    """Version 2: 0 alone begins, where the partition knows nothing of the producer; version 1: any number does."""
    producer = s.new()
    if s.version == 1:
        assert s.add(producer) == NONE
    return [s.produce(producer, 3), s.produce(producer, 0), s.produce(producer, 1)]


def offsets_of_a_group_without_members(s: Script) -> Any:
    return s.commit_offset(s.new())


def offsets_of_an_unknown_topic(s: Script) -> Any:
    return s.commit_offset(s.new(), topic=f"{s.topic}-missing")


def offsets_with_too_much_metadata(s: Script) -> Any:
    producer = s.new()
    return [s.commit_offset(producer, metadata="m" * 4097), s.commit_offset(producer, metadata="m" * 4096)]


def stable_offsets(s: Script) -> Any:
    producer = s.new()
    assert s.commit_offset(producer, 7) == NONE
    before = s.committed()
    later = s.ended(producer, commit=True)
    after = s.committed()
    assert s.commit_offset(later, 9) == NONE
    s.ended(later, commit=False)
    return [before, after, s.committed()]


def offsets_of_two_producers(s: Script) -> Any:
    first, second = s.new("a"), s.new("b")
    assert s.commit_offset(first, 5) == s.commit_offset(second, 6) == NONE
    s.ended(second, commit=True)
    pending = s.committed()
    s.ended(first, commit=False)
    return [pending, s.committed()]


def the_later_offset_counts(s: Script) -> Any:
    """Two commit one after the other; the one whose offset came later was decided first."""
    first, second = s.new("a"), s.new("b")
    assert s.commit_offset(first, 5) == s.commit_offset(second, 6) == NONE
    s.ended(second, commit=True)
    s.ended(first, commit=True)
    return s.committed()


def time_out_that_is_too_large(s: Script) -> Any:
    return told(s.init(timeout=901.0)), told(s.init(timeout=0.0))


def two_phase_commit(s: Script) -> Any:
    return s.init(version=6)


_APIS = {
    22: (0, 5),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
}
_SUPPORTED = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}


def _features(transaction_version: int) -> Any:
    finalized = {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": transaction_version,
    }
    return _APIS, finalized, _SUPPORTED, True


CASES: tuple[tuple[Callable[[Script], Any], Any, Any], ...] = (
    (advertised_versions, _features(1), _features(2)),
    (end_by_another_client, (NONE, -1), (NONE, 1)),
    (commit_repeated, [(NONE, -1)] * 3, [(NONE, 1)] * 3),
    (abort_after_commit, (TXN_STATE, -1), (TXN_STATE, -1)),
    (commit_after_abort, (TXN_STATE, -1), (TXN_STATE, -1)),
    (commit_after_somebody_initialised, (FENCED, -1), (FENCED, -1)),
    (commit_of_nothing, (TXN_STATE, -1), (TXN_STATE, -1)),
    (abort_of_nothing, (TXN_STATE, -1), (NONE, 1)),
    (
        own_time_out,
        [
            ("add", FENCED),
            ("produce", PRODUCER_EPOCH),
            ("commit", (FENCED, -1)),
            ("abort", (FENCED, -1)),
            ("initialise", (FENCED, -1)),
        ],
        [
            ("produce", PRODUCER_EPOCH),
            ("commit", (TXN_STATE, -1)),
            ("abort", (NONE, 1)),
            ("initialise", (NONE, 1)),
        ],
    ),
    (goes_on_after_own_time_out, FENCED, (NONE, 2)),
    (
        fenced_by_a_new_client,
        [(FENCED, -1), (FENCED, -1), (FENCED, -1), PRODUCER_EPOCH],
        [(FENCED, -1), (FENCED, -1), (FENCED, -1), PRODUCER_EPOCH],
    ),
    (delayed_commit, [(NONE, -1), (TXN_STATE, -1)], [(FENCED, -1), (NONE, 2)]),
    (straggling_produce, ABORTABLE, PRODUCER_EPOCH),
    (straggling_duplicate, ABORTABLE, PRODUCER_EPOCH),
    (produce_without_adding, [ABORTABLE, TXN_STATE], [ABORTABLE, TXN_STATE]),
    (produce_that_adds, (NONE, (NONE, 1)), (NONE, (NONE, 1))),
    (sequence_of_a_new_epoch, [NONE, NONE], [45, NONE]),
    (sequence_of_an_unknown_producer, [NONE, 45, 45], [45, NONE, NONE]),
    (offsets_of_a_group_without_members, NONE, NONE),
    (offsets_of_an_unknown_topic, UNKNOWN_TOPIC, UNKNOWN_TOPIC),
    (offsets_with_too_much_metadata, [METADATA_TOO_LARGE, NONE], [METADATA_TOO_LARGE, NONE]),
    (stable_offsets, [(UNSTABLE, -1), (NONE, 7), (NONE, 7)], [(UNSTABLE, -1), (NONE, 7), (NONE, 7)]),
    (offsets_of_two_producers, [(UNSTABLE, -1), (NONE, 6)], [(UNSTABLE, -1), (NONE, 6)]),
    (the_later_offset_counts, (NONE, 6), (NONE, 6)),
    (time_out_that_is_too_large, ((TIMEOUT_TOO_LARGE, -1),) * 2, ((TIMEOUT_TOO_LARGE, -1),) * 2),
    (two_phase_commit, None, None),
)
"""A case, and the answers at `transaction.version` 1 and at 2."""
