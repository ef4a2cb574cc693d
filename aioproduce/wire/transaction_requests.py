"""Encodes the requests of transactions as frames.

Used by `core.transactions.steps`. A value that the protocol cannot carry raises ValueError before a byte is
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproduce.wire import schema
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import checked_string, encode, make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition


def encode_find_coordinator(
    version: int, correlation_id: int, client_id: str, key: str, *, key_type: int
) -> bytes:
    """Encode a request for the coordinator of a group (`key_type` 0) or of a transactional id (1).

    Raises:
        ValueError: If a string is longer than the protocol can carry, or if v0 is used for a transactional id.
    """
    if version == 0 and key_type != 0:
        raise ValueError("FindCoordinator v0 supports only groups")
    return encode(
        ApiKey.FIND_COORDINATOR,
        version,
        correlation_id,
        client_id,
        key=checked_string(key),
        key_type=key_type,
        coordinator_keys=(checked_string(key),),
    )


def encode_offset_fetch(
    version: int, correlation_id: int, client_id: str, group_id: str, partitions: Iterable[TopicPartition]
) -> bytes:
    """Encode a request for a group's committed offsets, which waits for the end of open transactions.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    topic_class = schema.request_module(ApiKey.OFFSET_FETCH, version).OffsetFetchRequestTopic
    topics = tuple(
        make(topic_class, name=checked_string(topic), partition_indexes=tuple(indexes))
        for topic, indexes in _by_topic((one.topic, one.partition) for one in partitions).items()
    )
    return encode(
        ApiKey.OFFSET_FETCH,
        version,
        correlation_id,
        client_id,
        group_id=checked_string(group_id),
        topics=topics,
        require_stable=True,
    )


def encode_add_partitions_to_txn(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> bytes:
    """Encode the partitions that a transaction is about to write to.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    topic_class = schema.request_module(ApiKey.ADD_PARTITIONS_TO_TXN, version).AddPartitionsToTxnTopic
    return encode(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        correlation_id,
        client_id,
        v3_and_below_transactional_id=checked_string(transactional_id),
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=tuple(
            make(topic_class, name=checked_string(topic), partitions=tuple(of_topic))
            for topic, of_topic in _by_topic((one.topic, one.partition) for one in partitions).items()
        ),
    )


def encode_add_offsets_to_txn(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group_id: str,
) -> bytes:
    """Encode that a transaction is about to commit a group's offsets.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    return encode(
        ApiKey.ADD_OFFSETS_TO_TXN,
        version,
        correlation_id,
        client_id,
        transactional_id=checked_string(transactional_id),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=checked_string(group_id),
    )


def encode_txn_offset_commit(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> bytes:
    """Encode a commit of a group's offsets within a transaction; versions before 3 do not name the member.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    module = schema.request_module(ApiKey.TXN_OFFSET_COMMIT, version)
    topics = _by_topic(
        (
            one.topic,
            make(
                module.TxnOffsetCommitRequestPartition,
                partition_index=one.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=checked_string(offset.metadata),
            ),
        )
        for one, offset in offsets.items()
    )
    instance_id = group.group_instance_id
    return encode(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        correlation_id,
        client_id,
        transactional_id=checked_string(transactional_id),
        group_id=checked_string(group.group_id),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=group.generation_id,
        member_id=checked_string(group.member_id),
        group_instance_id=None if instance_id is None else checked_string(instance_id),
        topics=tuple(
            make(module.TxnOffsetCommitRequestTopic, name=checked_string(topic), partitions=tuple(of_topic))
            for topic, of_topic in topics.items()
        ),
    )


def encode_end_txn(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
) -> bytes:
    """Encode the commit or abort of a transaction.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    return encode(
        ApiKey.END_TXN,
        version,
        correlation_id,
        client_id,
        transactional_id=checked_string(transactional_id),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
    )


def encode_describe_transactions(
    version: int, correlation_id: int, client_id: str, transactional_ids: Sequence[str]
) -> bytes:
    """Encode a request for the states of transactional ids.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    return encode(
        ApiKey.DESCRIBE_TRANSACTIONS,
        version,
        correlation_id,
        client_id,
        transactional_ids=tuple(map(checked_string, transactional_ids)),
    )


_FIRST_WITH_DURATION: Final = 1
_FIRST_WITH_PATTERN: Final = 2


def encode_list_transactions(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    duration: float | None = None,
    pattern: str | None = None,
) -> bytes:
    """Encode a request for the transactional ids that a broker coordinates.

    Args:
        version: The request's version.
        correlation_id: The id that the answer will repeat.
        client_id: Kafka's `client.id`.
        states: Only ids in one of these states (Kafka's names); by default, in any.
        producer_ids: Only ids of these producers; by default, of any.
        duration: Only ids whose transaction has been open for longer, in seconds (v1, Kafka 3.8).
        pattern: Only ids that match this RE2 regular expression as a whole (v2, KIP-1152).

    Raises:
        ValueError: If the version does not have the filter, or a string is longer than the protocol can carry.
    """
    if duration is not None and version < _FIRST_WITH_DURATION:
        raise ValueError("the broker cannot filter by duration: Kafka 3.8 and later can")
    if pattern is not None and version < _FIRST_WITH_PATTERN:
        raise ValueError("the broker cannot filter by a pattern: Kafka 4.1 and later can (KIP-1152)")
    return encode(
        ApiKey.LIST_TRANSACTIONS,
        version,
        correlation_id,
        client_id,
        state_filters=tuple(map(checked_string, states)),
        producer_id_filters=tuple(producer_ids),
        duration_filter=-1 if duration is None else int(duration * 1000),
        transactional_id_pattern=None if pattern is None else checked_string(pattern),
    )


def encode_describe_producers(
    version: int, correlation_id: int, client_id: str, partitions: Iterable[TopicPartition]
) -> bytes:
    """Encode a request for the producers that write to these partitions, for their leader.

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    topic_class = schema.request_module(ApiKey.DESCRIBE_PRODUCERS, version).TopicRequest
    topics = _by_topic((one.topic, one.partition) for one in partitions)
    return encode(
        ApiKey.DESCRIBE_PRODUCERS,
        version,
        correlation_id,
        client_id,
        topics=tuple(
            make(topic_class, name=checked_string(topic), partition_indexes=tuple(of_topic))
            for topic, of_topic in topics.items()
        ),
    )


def encode_write_txn_markers(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    topic_partition: TopicPartition,
) -> bytes:
    """Encode an operator's abort of a transaction in one partition, for its leader (KIP-664).

    Raises:
        ValueError: If a string is longer than the protocol can carry.
    """
    module = schema.request_module(ApiKey.WRITE_TXN_MARKERS, version)
    topic = make(
        module.WritableTxnMarkerTopic,
        name=checked_string(topic_partition.topic),
        partition_indexes=(topic_partition.partition,),
    )
    marker = make(
        module.WritableTxnMarker,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=coordinator_epoch,
        # In version 2 the leader refuses the transaction's own epoch, because a coordinator raises it first.
        transaction_version=0,
    )
    return encode(ApiKey.WRITE_TXN_MARKERS, version, correlation_id, client_id, markers=(marker,))


def _by_topic(entries: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for topic, entry in entries:
        topics.setdefault(topic, []).append(entry)
    return topics
