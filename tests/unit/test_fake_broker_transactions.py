"""Transactions in the broker model: the scripts that real Kafka answers alike, and what only a model can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.memory_records import MemoryRecords

from aioproduce.testing import ReplicationConfig, TransactionConfig
from aioproduce.testing.fake_cluster.coordinator_places import partition_of
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import Peer, fetch_request, find_transaction_coordinator, model
from tests.unit.transaction_script import CASES, Producer, Script, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.testing import ClusterModel

# By Java 21.
JAVA_HASHES = {
    "orders": 1008770331,
    "polygenelubricants": 0,
    "": 0,
    "\u00e4-\U0001f600": 8608492,
    "copier-t-0": 1715803236,
}
_NAMES = [case.__name__ for case, _, _ in CASES]


class FakePeer:
    """A connection to the one broker of a model, with a clock that moves when somebody waits."""

    def __init__(self, cluster: ClusterModel) -> None:
        self.cluster = cluster
        self.now = 0.0
        self._peer = Peer(cluster)

    def ask(self, request: Any) -> Any:
        self._peer.send(request, now=self.now)
        while not (answers := self._peer.answers()):
            if self._peer.is_closed:
                self._peer = Peer(self.cluster, now=self.now)
                return None
            at = self.cluster.next_timer()
            assert at is not None, "nobody will ever answer"
            self.pause(max(0.0, at - self.now))
        return answers[0]

    def pause(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self.cluster.next_timer()) is not None and at <= until:
            self.now = max(self.now, at)
            self.cluster.handle_timer(self.now)
        self.now = until


def script(version: int = 2, *, brokers: int = 1, **settings: Any) -> Script:
    """A script against broker 0 of a model of its own, which leads the topic."""
    cluster = model(
        brokers, topics={"t": 1}, transaction_version=version, auto_create_topics=False, **settings
    )
    return Script(FakePeer(cluster), version, "t")


@pytest.mark.parametrize(("case", "_", "expected"), CASES, ids=_NAMES)
def test_version_2(case: Callable[[Script], Any], _: Any, expected: Any) -> None:
    assert case(script(2)) == expected


@pytest.mark.parametrize(("case", "expected", "_"), CASES, ids=_NAMES)
def test_version_1(case: Callable[[Script], Any], expected: Any, _: Any) -> None:
    assert case(script(1)) == expected


# What a model alone can be put to: its own time, moves, and epochs at their end.


def peer_of(s: Script) -> FakePeer:
    assert isinstance(s.peer, FakePeer)
    return s.peer


def end_once(s: Script, producer: Producer, *, commit: bool = True) -> tuple[int, int]:
    """EndTxn v5, asked once."""
    request = schema("end_txn", 5).EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    answer = s.peer.ask(request)
    return answer.error_code.value, answer.producer_epoch


def markers(s: Script) -> list[str]:
    log = peer_of(s).cluster.state.require_partition("t", 0).log
    return [batch.marker for batch in log.batches if batch.marker is not None]


def test_clients_are_told_concurrent_transactions_while_markers_are_written() -> None:
    s = script(transactions=TransactionConfig(marker_delay=0.05))
    producer = s.new()
    s.write(producer)

    assert end_once(s, producer) == (0, 1)
    assert (markers(s), s.state(producer)) == ([], ("PrepareCommit", 1))
    assert end_once(s, producer) == (51, -1)
    assert end_once(s, producer, commit=False) == (51, -1)
    assert s.init().error_code.value == 51
    peer_of(s).pause(0.05)
    assert (markers(s), s.state(producer)) == (["COMMIT"], ("CompleteCommit", 1))
    assert end_once(s, producer) == (0, 1)


@pytest.mark.parametrize(("delay", "code", "waited"), [(0.05, 0, 0.06), (0.5, 51, 0.1)])
def test_the_broker_asks_again_before_it_tells_concurrent_transactions(
    delay: float, code: int, waited: float
) -> None:
    s = script(transactions=TransactionConfig(marker_delay=delay))
    producer = s.new()
    s.write(producer)
    end_once(s, producer)
    before = peer_of(s).now

    assert s.produce(producer.at(1), 0) == code
    assert peer_of(s).now - before == pytest.approx(waited)


def test_in_version_1_the_client_asks_again() -> None:
    s = script(1, transactions=TransactionConfig(marker_delay=9.0))
    producer = s.new()
    s.write(producer)
    request = schema("end_txn", 4).EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=0,
        committed=True,
    )
    peer_of(s).cluster.state.create_topic("u", 1)

    assert s.peer.ask(request).error_code.value == 0
    assert s.add(producer) == 51
    # NOT_ENOUGH_REPLICAS, which old clients retry, for CONCURRENT_TRANSACTIONS.
    assert Script(s.peer, 1, "u").produce(producer, 0) == 19


@pytest.mark.parametrize("commit", [True, False])
def test_after_the_last_epoch_comes_another_producer_id(commit: bool) -> None:
    s = script()
    first = s.new()
    peer_of(s).cluster.transactions.transactions[first.transactional_id].epoch = 32766
    last = first.at(32766)
    s.write(last)

    request = schema("end_txn", 5).EndTxnRequest(
        transactional_id=last.transactional_id,
        producer_id=last.producer_id,
        producer_epoch=last.epoch,
        committed=commit,
    )
    answer = s.peer.ask(request)
    s.settle(last)
    again = s.peer.ask(request)

    assert (answer.error_code.value, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != first.producer_id
    assert again == answer
    entry = peer_of(s).cluster.state.require_partition("t", 0).log.producers.entry(first.producer_id)
    assert entry is not None
    assert entry.epoch == 32767


def test_another_coordinator_writes_the_markers_that_are_left() -> None:
    s = script(brokers=2, transactions=TransactionConfig(marker_delay=1.0, load_time=2.0))
    cluster = peer_of(s).cluster
    id_here = next(name for name in "abcdefgh" if cluster.transactions.coordinator(f"t-{name}") == 0)
    producer = s.new(id_here)
    s.write(producer)
    end_once(s, producer)

    cluster.transactions.move(producer.transactional_id, 1)
    assert end_once(s, producer) == (16, -1)
    peer_of(s).pause(1.5)
    other = Peer(cluster, broker=1, now=peer_of(s).now)
    request = schema("describe_transactions", 0).DescribeTransactionsRequest(
        transactional_ids=(producer.transactional_id,)
    )
    loading = other.ask(request, now=peer_of(s).now).transaction_states[0]
    assert (loading.error_code.value, markers(s)) == (14, [])
    peer_of(s).pause(2.0)
    found = other.ask(request, now=peer_of(s).now).transaction_states[0]

    assert (found.transaction_state, found.producer_epoch) == ("CompleteCommit", 1)
    assert markers(s) == ["COMMIT"]
    (entry,) = cluster.state.require_partition("t", 0).log.producers.entries.values()
    assert entry.coordinator_epoch == 1


def test_an_id_without_a_coordinator() -> None:
    s = script()
    transactions = peer_of(s).cluster.transactions
    producer = s.new()
    s.write(producer)
    transactions.take(producer.transactional_id)

    found = s.peer.ask(find_transaction_coordinator(producer.transactional_id))
    assert (found.error_code.value, found.node_id) == (15, -1)
    assert end_once(s, producer) == (16, -1)
    transactions.give_back(producer.transactional_id)
    assert end_once(s, producer) == (0, 1)


def test_a_partition_without_a_leader_gets_its_marker_later() -> None:
    s = script(brokers=2)
    state = peer_of(s).cluster.state
    producer = s.new(
        next(n for n in "abcdefgh" if peer_of(s).cluster.transactions.coordinator(f"t-{n}") == 0)
    )
    s.write(producer)
    state.take_leader("t", 0)
    assert end_once(s, producer) == (0, 1)
    peer_of(s).pause(5.0)
    assert (markers(s), s.state(producer)[0]) == ([], "PrepareCommit")

    state.elect_leader("t", 0)
    peer_of(s).pause(0.0)

    assert (markers(s), s.state(producer)[0]) == (["COMMIT"], "CompleteCommit")


def test_a_transaction_is_complete_when_its_markers_are_replicated() -> None:
    s = script(brokers=2, replication=ReplicationConfig(lag=1.0))
    cluster = peer_of(s).cluster
    producer = s.new(next(n for n in "abcdefgh" if cluster.transactions.coordinator(f"t-{n}") == 0))
    s.write(producer)
    end_once(s, producer)
    peer_of(s).pause(0.5)
    partition = cluster.state.require_partition("t", 0)
    assert (markers(s), s.state(producer)[0]) == (["COMMIT"], "PrepareCommit")
    assert partition.last_stable_offset == 0

    peer_of(s).pause(1.0)

    assert s.state(producer)[0] == "CompleteCommit"
    assert partition.last_stable_offset == 2


def test_a_stalled_coordinator_aborts_what_is_over_its_time_later() -> None:
    s = script()
    cluster = peer_of(s).cluster
    producer = s.new(timeout=1.0)
    s.write(producer)
    cluster.faults.stall(0)
    peer_of(s).pause(5.0)
    assert markers(s) == []

    cluster.faults.resume(0)
    peer_of(s).pause(1.0)

    assert markers(s) == ["ABORT"]


def test_the_interval_at_which_time_outs_are_looked_for() -> None:
    s = script(transactions=TransactionConfig(abort_interval=10.0))
    producer = s.new(timeout=1.0)
    s.write(producer)
    peer_of(s).pause(9.9)
    assert s.state(producer)[0] == "Ongoing"

    peer_of(s).pause(0.2)

    assert s.state(producer)[0] == "CompleteAbort"


def test_a_transactional_id_expires() -> None:
    s = script(transactions=TransactionConfig(id_expiration=100.0))
    producer = s.new()
    peer_of(s).pause(100.0)

    assert s.state(producer) == ("", 0)
    assert end_once(s, producer) == (49, -1)
    assert s.new().epoch == 0


@pytest.mark.parametrize("version", [1, 2])
def test_another_version_while_a_transaction_is_open(version: int) -> None:
    """A transaction ends in its client's version; a coordinator does by itself what the cluster's says."""
    s = script(version)
    cluster = peer_of(s).cluster
    producer, other = s.new("a"), s.new("b", timeout=1.0)
    s.write(producer)
    s.write(other)
    cluster.state.set_transaction_version(3 - version)
    features = schema("api_versions", 3).ApiVersionsRequest(
        client_software_name="tests", client_software_version="1"
    )

    answer = s.peer.ask(features)
    assert answer.finalized_features_epoch == 101
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["transaction.version"] == 3 - version
    assert s.end(producer, commit=True) == ((0, 1) if version == 2 else (0, -1))
    s.time_out(other)
    peer_of(s).pause(1.0)
    # Only in version 2 may a client name the epoch that timed out.
    assert s.init("b", other).error_code.value == (90 if version == 2 else 0)


def test_permissions() -> None:
    s = script()
    state = peer_of(s).cluster.state
    producer = s.new()
    state.deny_group("t-g")
    assert s.commit_offset(producer) == 30
    state.deny_group("t-g", False)
    assert s.commit_offset(producer) == 0
    state.deny_transactional_id("t-a")

    assert s.produce(producer) == 53
    assert end_once(s, producer) == (53, -1)
    assert s.init().error_code.value == 53
    assert s.commit_offset(producer) == 53
    assert s.add(producer) == 53
    assert s.state(producer)[0] == ""
    assert s.peer.ask(find_transaction_coordinator("t-a")).error_code.value == 53


def test_one_partition_that_is_not_there_keeps_all_out() -> None:
    s = script(1)
    producer = s.new()
    messages = schema("add_partitions_to_txn", 3)
    topics = (
        messages.AddPartitionsToTxnTopic(name="t", partitions=(0, 1)),
        messages.AddPartitionsToTxnTopic(name="missing", partitions=(0,)),
    )
    answer = s.peer.ask(
        messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
    )

    codes = [
        result.partition_error_code.value
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]
    assert codes == [55, 3, 3]
    assert peer_of(s).cluster.transactions.transactions["t-a"].partitions == {}


@pytest.mark.parametrize(
    "api", ["END_TXN", "TXN_OFFSET_COMMIT", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN"]
)
def test_scripted_codes(api: str) -> None:
    s = script(1)
    producer = s.new()
    peer_of(s).cluster.faults.fail(ApiKey[api], 120)
    answered = {
        "END_TXN": lambda: s.end(producer, commit=True)[0],
        "TXN_OFFSET_COMMIT": lambda: s.commit_offset(producer),
        "ADD_PARTITIONS_TO_TXN": lambda: s.add(producer),
    }
    if api == "ADD_OFFSETS_TO_TXN":
        with pytest.raises(AssertionError):
            s.commit_offset(producer)
    else:
        assert answered[api]() == 120
    assert s.commit_offset(producer) == 0


def test_listed_and_described() -> None:
    s = script()
    producer = s.new("a")
    s.new("b")
    s.write(producer)
    peer_of(s).pause(3.0)
    messages = schema("list_transactions", 2)

    def listed(**filters: Any) -> list[tuple[str, str]]:
        answer = s.peer.ask(messages.ListTransactionsRequest(**filters))
        assert answer.error_code.value == 0
        return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]

    assert listed() == [("t-a", "Ongoing"), ("t-b", "Empty")]
    assert listed(state_filters=("Ongoing",)) == listed(producer_id_filters=(producer.producer_id,))
    assert listed(transactional_id_pattern="t-.") == listed()
    assert listed(transactional_id_pattern="b") == []
    assert listed(duration_filter=2000, state_filters=("Ongoing",)) == [("t-a", "Ongoing")]
    assert listed(duration_filter=4000, state_filters=("Ongoing",)) == []
    unknown = s.peer.ask(messages.ListTransactionsRequest(state_filters=("Lost",)))
    assert unknown.unknown_state_filters == ("Lost",)
    wrong = s.peer.ask(messages.ListTransactionsRequest(transactional_id_pattern="("))
    assert wrong.error_code.value == 128
    request = schema("describe_transactions", 0).DescribeTransactionsRequest(
        transactional_ids=("t-a", "missing")
    )
    found, missing = s.peer.ask(request).transaction_states
    assert missing.error_code.value == 105
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", (0,))]
    assert found.transaction_timeout.total_seconds() == 60


def test_an_operator_aborts_a_transaction_that_hangs() -> None:
    s = script()
    producer = s.new()
    s.write(producer)
    del peer_of(s).cluster.transactions.transactions[producer.transactional_id]
    producers = schema("describe_producers", 0)
    request = producers.DescribeProducersRequest(
        topics=(producers.TopicRequest(name="t", partition_indexes=(0, 5)),)
    )
    found, missing = s.peer.ask(request).topics[0].partitions
    assert missing.error_code.value == 3
    (hanging,) = found.active_producers
    assert (hanging.producer_id, hanging.producer_epoch, hanging.current_txn_start_offset) == (
        producer.producer_id,
        0,
        0,
    )
    messages = schema("write_txn_markers", 1)

    def abort(epoch: int, coordinator_epoch: int) -> int:
        marker = messages.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=(messages.WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
            coordinator_epoch=coordinator_epoch,
        )
        answer = s.peer.ask(messages.WriteTxnMarkersRequest(markers=(marker,)))
        return int(answer.markers[0].topics[0].partitions[0].error_code.value)

    assert abort(-1, 0) == 47
    assert abort(0, 3) == 0
    assert abort(0, 2) == 52
    assert markers(s) == ["ABORT"]
    assert peer_of(s).cluster.state.require_partition("t", 0).last_stable_offset == 2


def test_what_is_decided_after_a_truncation() -> None:
    s = script()
    producer = s.new()
    s.write(producer)
    later = s.ended(producer, commit=False)
    s.write(later)
    cluster = peer_of(s).cluster
    partition = cluster.state.require_partition("t", 0)
    assert (partition.last_stable_offset, partition.log.transactions.open) == (2, {producer.producer_id: 2})

    cluster.state.truncate("t", 0, 2)
    assert (partition.last_stable_offset, partition.log.transactions.open) == (2, {})
    assert [each.first_offset for each in partition.log.transactions.aborted] == [0]
    cluster.state.truncate("t", 0, 1)
    assert partition.last_stable_offset == 0
    assert partition.log.transactions.aborted == []


def test_readers_of_what_is_committed() -> None:
    s = script()
    first, second = s.new("a"), s.new("b")
    s.write(first)
    s.write(second)
    s.ended(first, commit=False)
    peer = Peer(peer_of(s).cluster)

    def fetched(isolation_level: int) -> Any:
        request = fetch_request(peer.cluster, isolation_level=isolation_level)
        return peer.ask(request, now=peer_of(s).now).responses[0].partitions[0]

    everything, stable = fetched(0), fetched(1)
    assert everything.aborted_transactions is None
    assert (stable.high_watermark, stable.last_stable_offset) == (3, 1)
    assert [(each.producer_id, each.first_offset) for each in stable.aborted_transactions] == [
        (first.producer_id, 0)
    ]
    assert len(stable.records) < len(everything.records)
    s.ended(second, commit=True)
    assert fetched(1).last_stable_offset == 4
    (control,) = [
        batch
        for batch in MemoryRecordsIterator(fetched(1).records)
        if batch.is_control_batch and batch.producer_id == second.producer_id
    ]
    assert control.validate_crc()
    (record,) = list(control)
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", bytes(6))


class MemoryRecordsIterator:
    """aiokafka's reader of batches."""

    def __init__(self, content: bytes) -> None:
        self._records = MemoryRecords(bytes(content))

    def __iter__(self) -> Iterator[Any]:
        while self._records.has_next():
            yield self._records.next_batch()


def test_the_partition_of_an_id_is_reckoned_by_javas_hash() -> None:
    """`Utils.abs("...".hashCode()) % 50` by Java; the second is the string whose hash is Java's least number."""
    assert {name: partition_of(name) for name in JAVA_HASHES} == {
        name: code % 50 for name, code in JAVA_HASHES.items()
    }


def test_a_level_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="0, 1 or 2, not 3"):
        model().state.set_transaction_version(3)
