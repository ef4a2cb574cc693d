"""The requests of transactions to frames, as `wire.requests` makes the others.

Called by `core.transactions.steps`. A value that the protocol cannot carry is a ValueError before a byte is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.wire import schema
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import checked_string, encode, make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition


def encode_find_coordinator(
    version: int, correlation_id: int, client_id: str, key: str, *, key_type: int
) -> bytes:
    """Encode the question which broker coordinates a group (`key_type` 0) or a transactional id (1).

    Raises:
        ValueError: If a string is longer than the protocol can carry, or v0 is asked for a transactional id.
    """
    if version == 0 and key_type != 0:
        raise ValueError("FindCoordinator v0 knows groups alone")
    return encode(
        ApiKey.FIND_COORDINATOR,
        version,
        correlation_id,
        client_id,
        key=checked_string(key),
        key_type=key_type,
        coordinator_keys=(checked_string(key),),
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
    """Encode a group's offsets, to be committed with a transaction; versions before 3 say nothing of the member.

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
    """Encode the verdict on a transaction.

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
    """Encode the question what a coordinator knows of transactional ids.

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


def _by_topic(entries: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for topic, entry in entries:
        topics.setdefault(topic, []).append(entry)
    return topics
