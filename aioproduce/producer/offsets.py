"""Conversion of users' offsets and groups, from any consumer library, to the core's types.

Used by `Transaction.send_offsets()`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition

_CONFLUENT: Final = b"CGMDv2:"
_NO_INSTANCE: Final = b"\1"
_GENERATION: Final = struct.Struct("=i")
_NO_OFFSET: Final = -1


def read_offsets(offsets: Mapping[Any, Any] | Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition.

    Args:
        offsets: A mapping from `(topic, partition)` to an int or an object with `offset` and `metadata`; or objects
            with `topic`, `partition` and `offset`, e.g. confluent-kafka's TopicPartition.

    Raises:
        TypeError: if it is neither.
        ValueError: if an offset is below 0.
    """
    if isinstance(offsets, Mapping):
        pairs = [(key, value) for key, value in offsets.items()]
    else:
        pairs = [((getattr(one, "topic", None), getattr(one, "partition", None)), one) for one in offsets]
    return {_partition(key): _offset(value) for key, value in pairs}


def _partition(key: Any) -> TopicPartition:
    topic, partition = getattr(key, "topic", None), getattr(key, "partition", None)
    if topic is None and isinstance(key, tuple) and len(key) == 2:
        topic, partition = key
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise TypeError(f"the key of an offset must be a TopicPartition or (topic, partition), not {key!r}")
    return TopicPartition(topic, partition)


def _offset(value: Any) -> OffsetAndMetadata:
    number = value if isinstance(value, int) else getattr(value, "offset", None)
    if not isinstance(number, int) or isinstance(value, bool):
        raise TypeError(f"an offset must be an int or an OffsetAndMetadata, not {value!r}")
    if number <= _NO_OFFSET:
        raise ValueError(f"the offset of the next record to read must be 0 or more, not {number}")
    epoch = getattr(value, "leader_epoch", None)
    return OffsetAndMetadata(number, -1 if epoch is None else epoch, getattr(value, "metadata", None) or "")


def read_group(group: Any) -> GroupMetadata:
    """Return the metadata of the consumer group.

    Args:
        group: A GroupMetadata, a name, the result of confluent-kafka's `consumer_group_metadata()`, or an object
            with `group_id`, `generation_id`, `member_id` and `group_instance_id`.

    Raises:
        TypeError: if it is none of these.
        ValueError: if it has a generation and no member id: every coordinator would refuse it.
    """
    asking = _group(group)
    if asking.generation_id > 0 and not asking.member_id:
        raise ValueError(
            f"the group {asking.group_id!r} has generation {asking.generation_id} and no member: give the whole "
            "metadata of the consumer, or only the group's name"
        )
    return asking


def _group(group: Any) -> GroupMetadata:
    if isinstance(group, GroupMetadata):
        return group
    if isinstance(group, str):
        return GroupMetadata(group)
    if isinstance(group, bytes):
        return _from_confluent(group)
    if isinstance(getattr(group, "group_id", None), str):
        return GroupMetadata(
            group.group_id,
            getattr(group, "generation_id", -1),
            getattr(group, "member_id", ""),
            getattr(group, "group_instance_id", None),
        )
    raise TypeError(
        "a group must be a GroupMetadata, its name, or what confluent-kafka's consumer_group_metadata() returns, "
        f"not {type(group).__name__}"
    )


def _from_confluent(raw: bytes) -> GroupMetadata:
    """Read librdkafka's serialization of a group's metadata.

    It is a magic, the generation, then group and member with a NUL each; then a byte 1 if there is no instance,
    else a byte 0 and the instance with a NUL (rd_kafka_consumer_group_metadata_write).
    """
    group_id, _, rest = raw[len(_CONFLUENT) + _GENERATION.size :].partition(b"\0")
    member_id, _, rest = rest.partition(b"\0")
    is_whole = rest == _NO_INSTANCE or (
        rest[:1] == b"\0" and rest[1:].endswith(b"\0") and rest.count(b"\0") == 2
    )
    if not raw.startswith(_CONFLUENT) or not is_whole:
        raise TypeError(
            f"these {len(raw)} bytes are not a known format of a consumer group's metadata: give a GroupMetadata"
        )
    (generation,) = _GENERATION.unpack_from(raw, len(_CONFLUENT))
    instance_id = None if rest == _NO_INSTANCE else rest[1:-1].decode()
    return GroupMetadata(group_id.decode(), generation, member_id.decode(), instance_id)
