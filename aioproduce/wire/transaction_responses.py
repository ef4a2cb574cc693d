"""Converts the answers of coordinators from plain mappings to typed messages.

Used by `wire.responses`, whose table of converters includes these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from aioproduce.errors import ProtocolError
from aioproduce.records import TopicPartition
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import (
    ActiveProducer,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    BrokerAddress,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    FindCoordinatorResponse,
    ListTransactionsResponse,
    OffsetFetchResponse,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from aioproduce.wire.messages import Message

_MILLISECONDS: Final = 1000.0


def _throttle(body: Mapping[str, Any]) -> float:
    milliseconds: int = body.get("throttle_time", 0)
    return max(0, milliseconds) / _MILLISECONDS


def _find_coordinator(body: Mapping[str, Any]) -> FindCoordinatorResponse:
    coordinators = body.get("coordinators")
    if coordinators is not None and len(coordinators) != 1:
        raise ProtocolError(f"asked for one coordinator, but the broker named {len(coordinators)}")
    found = body if coordinators is None else coordinators[0]
    return FindCoordinatorResponse(
        _throttle(body), found["error_code"], BrokerAddress(found["node_id"], found["host"], found["port"])
    )


def _add_partitions(body: Mapping[str, Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        _throttle(body),
        {
            TopicPartition(topic["name"], result["partition_index"]): result["partition_error_code"]
            for topic in body["results_by_topic_v3_and_below"]
            for result in topic["results_by_partition"]
        },
    )


def _add_offsets(body: Mapping[str, Any]) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(_throttle(body), body["error_code"])


def _offset_commit(body: Mapping[str, Any]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        _throttle(body),
        {
            TopicPartition(topic["name"], result["partition_index"]): result["error_code"]
            for topic in body["topics"]
            for result in topic["partitions"]
        },
    )


def _end_txn(body: Mapping[str, Any]) -> EndTxnResponse:
    return EndTxnResponse(
        _throttle(body), body["error_code"], body.get("producer_id", -1), body.get("producer_epoch", -1)
    )


def _describe(body: Mapping[str, Any]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        _throttle(body),
        {
            state["transactional_id"]: TransactionDescription(
                error_code=state["error_code"],
                transactional_id=state["transactional_id"],
                state=state["transaction_state"],
                timeout=state["transaction_timeout"] / _MILLISECONDS,
                started_at_ms=state["transaction_start_time"],
                producer_id=state["producer_id"],
                producer_epoch=state["producer_epoch"],
                partitions=tuple(
                    TopicPartition(topic["topic"], partition)
                    for topic in state["topics"]
                    for partition in topic["partitions"]
                ),
            )
            for state in body["transaction_states"]
        },
    )


def _list(body: Mapping[str, Any]) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        _throttle(body),
        body["error_code"],
        tuple(body["unknown_state_filters"]),
        tuple(
            TransactionListing(each["transactional_id"], each["producer_id"], each["transaction_state"])
            for each in body["transaction_states"]
        ),
    )


def _describe_producers(body: Mapping[str, Any]) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        _throttle(body),
        {
            TopicPartition(topic["name"], partition["partition_index"]): PartitionProducers(
                partition["error_code"],
                partition["error_message"],
                tuple(
                    ActiveProducer(
                        producer_id=each["producer_id"],
                        producer_epoch=each["producer_epoch"],
                        last_sequence=each["last_sequence"],
                        last_timestamp_ms=each["last_timestamp"],
                        coordinator_epoch=each["coordinator_epoch"],
                        open_from=each["current_txn_start_offset"],
                    )
                    for each in partition["active_producers"]
                ),
            )
            for topic in body["topics"]
            for partition in topic["partitions"]
        },
    )


def _write_markers(body: Mapping[str, Any]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        _throttle(body),
        {
            marker["producer_id"]: {
                TopicPartition(topic["name"], partition["partition_index"]): partition["error_code"]
                for topic in marker["topics"]
                for partition in topic["partitions"]
            }
            for marker in body["markers"]
        },
    )


def _offsets_fetched(body: Mapping[str, Any]) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        _throttle(body),
        body["error_code"],
        {
            TopicPartition(topic["name"], each["partition_index"]): (
                each["error_code"],
                each["committed_offset"],
            )
            for topic in body["topics"]
            for each in topic["partitions"]
        },
    )


TRANSACTION_CONVERTERS: Final[Mapping[int, Callable[[Mapping[str, Any]], Message]]] = MappingProxyType(
    {
        ApiKey.FIND_COORDINATOR: _find_coordinator,
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets,
        ApiKey.TXN_OFFSET_COMMIT: _offset_commit,
        ApiKey.OFFSET_FETCH: _offsets_fetched,
        ApiKey.END_TXN: _end_txn,
        ApiKey.DESCRIBE_TRANSACTIONS: _describe,
        ApiKey.LIST_TRANSACTIONS: _list,
        ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
        ApiKey.WRITE_TXN_MARKERS: _write_markers,
    }
)
