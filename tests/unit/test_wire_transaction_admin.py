"""What operators ask about transactions: requests as kio reads them, and answers that kio made."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from aioproduce.records import TopicPartition
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import (
    ActiveProducer,
    DescribeProducersResponse,
    ListTransactionsResponse,
    PartitionProducers,
    TransactionListing,
    WriteTxnMarkersResponse,
)
from aioproduce.wire.responses import decode_body
from aioproduce.wire.transaction_requests import (
    encode_describe_producers,
    encode_list_transactions,
    encode_write_txn_markers,
)
from tests import wire_oracle as oracle

THROTTLE = datetime.timedelta(milliseconds=1500)


def nested(cls: type[Any], name: str) -> type[Any]:
    return getattr(importlib.import_module(cls.__module__), name)  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", range(3))
def test_list_transactions(version: int) -> None:
    given: dict[str, Any] = {"states": ["Ongoing"], "producer_ids": [4000, 2**40]}
    given |= {"duration": 1.5} if version >= 1 else {}
    given |= {"pattern": "orders-.*"} if version >= 2 else {}
    _, body = oracle.decoded_request(
        oracle.request_class(ApiKey.LIST_TRANSACTIONS, version),
        encode_list_transactions(version, 7, "client", **given),
    )
    assert (body.state_filters, body.producer_id_filters) == (("Ongoing",), (4000, 2**40))
    assert version < 1 or body.duration_filter == 1500
    assert version < 2 or body.transactional_id_pattern == "orders-.*"

    cls = oracle.response_class(ApiKey.LIST_TRANSACTIONS, version)
    listed = nested(cls, "TransactionState")(
        transactional_id="orders-1", producer_id=4000, transaction_state="Ongoing"
    )
    answer = cls(
        throttle_time=THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=("Open",),
        transaction_states=(listed,),
    )
    decoded = decode_body(ApiKey.LIST_TRANSACTIONS, version, oracle.response_frame(answer))
    assert decoded == ListTransactionsResponse(
        1.5, 0, ("Open",), (TransactionListing("orders-1", 4000, "Ongoing"),)
    )


@pytest.mark.parametrize(("version", "filters"), [(0, {"duration": 0.0}), (1, {"pattern": ""})])
def test_a_filter_that_the_version_does_not_have(version: int, filters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot filter by"):
        encode_list_transactions(version, 7, "client", **filters)


def test_no_filter_by_default() -> None:
    frame = encode_list_transactions(2, 7, "client")
    _, body = oracle.decoded_request(oracle.request_class(ApiKey.LIST_TRANSACTIONS, 2), frame)
    assert (body.state_filters, body.producer_id_filters) == ((), ())
    assert (body.duration_filter, body.transactional_id_pattern) == (-1, None)


def test_describe_producers() -> None:
    partitions = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)]
    _, body = oracle.decoded_request(
        oracle.request_class(ApiKey.DESCRIBE_PRODUCERS, 0),
        encode_describe_producers(0, 7, "client", partitions),
    )
    assert [(each.name, each.partition_indexes) for each in body.topics] == [("a", (1, 0)), ("b", (0,))]

    cls = oracle.response_class(ApiKey.DESCRIBE_PRODUCERS, 0)
    state = nested(cls, "ProducerState")(
        producer_id=4000,
        producer_epoch=7,
        last_sequence=3,
        last_timestamp=2**40,
        coordinator_epoch=-1,
        current_txn_start_offset=4711,
    )
    told, refused = (
        nested(cls, "PartitionResponse")(
            partition_index=index, error_code=code, error_message=message, active_producers=producers
        )
        for index, code, message, producers in (
            (0, ErrorCode.none, None, (state,)),
            (1, ErrorCode.topic_authorization_failed, "no", ()),
        )
    )
    topic = nested(cls, "TopicResponse")(name="a", partitions=(told, refused))
    frame = oracle.response_frame(cls(throttle_time=THROTTLE, topics=(topic,)))
    assert decode_body(ApiKey.DESCRIBE_PRODUCERS, 0, frame) == DescribeProducersResponse(
        1.5,
        {
            TopicPartition("a", 0): PartitionProducers(
                0, None, (ActiveProducer(4000, 7, 3, 2**40, -1, 4711),)
            ),
            TopicPartition("a", 1): PartitionProducers(29, "no", ()),
        },
    )


@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers(version: int) -> None:
    """Always an abort, and never by the strict rule of version 2: only a coordinator raises the epoch first."""
    frame = encode_write_txn_markers(
        version,
        7,
        "client",
        producer_id=4000,
        producer_epoch=7,
        coordinator_epoch=5,
        topic_partition=TopicPartition("a", 3),
    )
    _, body = oracle.decoded_request(oracle.request_class(ApiKey.WRITE_TXN_MARKERS, version), frame)
    (marker,) = body.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (4000, 7, 5)
    assert marker.transaction_result is False
    assert version < 2 or marker.transaction_version == 0
    assert [(each.name, each.partition_indexes) for each in marker.topics] == [("a", (3,))]

    cls = oracle.response_class(ApiKey.WRITE_TXN_MARKERS, version)
    result = nested(cls, "WritableTxnMarkerPartitionResult")(
        partition_index=3, error_code=ErrorCode.invalid_producer_epoch
    )
    topic = nested(cls, "WritableTxnMarkerTopicResult")(name="a", partitions=(result,))
    answer = cls(markers=(nested(cls, "WritableTxnMarkerResult")(producer_id=4000, topics=(topic,)),))
    decoded = decode_body(ApiKey.WRITE_TXN_MARKERS, version, oracle.response_frame(answer))
    assert decoded == WriteTxnMarkersResponse(0.0, {4000: {TopicPartition("a", 3): 47}})
