"""Produce requests and the most frequent answer to them: what goes to a broker and comes back for every batch.

Used by `core.exchanges.produce_requests` (requests) and `wire.responses` (answers).

1. A request is built around the batches' buffers: records are never read, and those of batches above 4 KiB are not
   copied. What lies between such batches is one buffer.
2. Batches keep the caller's order within a topic. A topic appears once, at the place of its first batch.
3. A value that the protocol cannot carry raises ValueError before a byte is sent.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import PartitionProduceResponse, ProduceResponse
from aioproduce.wire.primitives import uuid_of
from aioproduce.wire.requests import frame_header, milliseconds, nullable_string

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview

_FIRST_FLEXIBLE: Final = 9
_FIRST_BY_TOPIC_ID: Final = 13
_INT32_MAX: Final = 2**31 - 1
_CORRELATION_ID_AT: Final = 8
_INT32: Final = struct.Struct(">i")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")

_JOINED: Final = 4096
"""Batches up to this size are copied. That takes no longer than a buffer of its own does, which uvloop wraps in two
views. The garbage collector counts these, and looks at every open batch the sooner."""

# The parts of a v13 answer: correlation id, header tags, count of topics; for each its id, count and partitions.
_TAGS_AT: Final = _INT32.size
_TOPICS_AT: Final = _TAGS_AT + 1
_UUID_SIZE: Final = 16
_PARTITION: Final = struct.Struct(">ihqqq3s")
_PARTITION_SIZE: Final = _PARTITION.size
_NO_DETAILS: Final = b"\x01\x00\x00"  # no record errors, no message, no tags
_END: Final = struct.Struct(">ib")  # the throttle time, tags
_END_SIZE: Final = _END.size


class ProduceBatch(Protocol):
    """One sealed batch of records, as a Produce request needs it.

    Attributes:
        topic: The topic's name, which versions up to 12 send.
        topic_id: The topic's id, which version 13 sends.
        partition: The partition's number.
        buffers: The batch's bytes; they must not change until they are written.
        size: The sum of the buffers' lengths.
    """

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def topic_id(self) -> UUID | None: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def buffers(self) -> Sequence[Buffer]: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102


def encode_produce(
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout: float,
    batches: Sequence[ProduceBatch],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Encode a Produce request around the batches' own buffers; small batches are copied.

    Args:
        version: The negotiated version, 3 to 13.
        correlation_id: The id that the answer will repeat.
        client_id: The client's name for itself.
        acks: -1 (all), 0 or 1.
        timeout: Seconds that the broker may wait for its replicas.
        batches: One batch or more, at most one for each partition, in any order.
        transactional_id: The id of a transactional producer.

    Returns:
        The frame's buffers, in the order in which to write them. What is not a batch's own is bytes.

    Raises:
        ValueError: If there is no batch, if a topic's id is not known in v13, or if a value is more than the
            protocol can carry.
    """
    is_flexible = version >= _FIRST_FLEXIBLE
    groups = _by_topic(version >= _FIRST_BY_TOPIC_ID, batches, version)
    first = piece = bytearray(_prefix(version, client_id, transactional_id, acks, timeout))
    _INT32.pack_into(first, _CORRELATION_ID_AT, correlation_id)
    _put_count(first, len(groups), is_flexible)
    total = -4  # a frame's length does not count itself
    # The first buffer follows at the end, because it begins with the frame's length.
    buffers: list[Buffer] = [b""]
    beginning: list[Buffer] = []
    run = beginning
    for key, group in groups:
        # Not `key.bytes`: a UUID's properties are Python code.
        piece += nullable_string(key, is_flexible) if isinstance(key, str) else key.int.to_bytes(16, "big")
        _put_count(piece, len(group), is_flexible)
        for batch in group:
            size = batch.size
            _put_int32(piece, batch.partition)
            _put_count(piece, size, is_flexible)
            run.append(piece)
            total += len(piece) + size
            if size <= _JOINED:
                run += batch.buffers
            else:
                if run is not beginning:
                    buffers.append(b"".join(run))
                run = []
                buffers += batch.buffers
            piece = bytearray()
            if is_flexible:
                piece.append(0)  # no tags of the partition
        if is_flexible:
            piece.append(0)  # nor of the topic
    if is_flexible:
        piece.append(0)  # nor of the request
    run.append(piece)
    total += len(piece)
    if total > _INT32_MAX:
        raise ValueError(f"a request of {total} bytes is longer than a frame can be")
    _INT32.pack_into(first, 0, total)
    if run is not beginning and (rest := b"".join(run)):
        buffers.append(rest)
    buffers[0] = b"".join(beginning)
    return buffers


@lru_cache(maxsize=64)
def _prefix(version: int, client_id: str, transactional_id: str | None, acks: int, timeout: float) -> bytes:
    """Return the first bytes of all Produce requests of a connection, with length and correlation id 0."""
    is_flexible = version >= _FIRST_FLEXIBLE
    return (
        frame_header(ApiKey.PRODUCE, version, 0, client_id, is_flexible)
        + nullable_string(transactional_id, is_flexible)
        + _ACKS_AND_TIMEOUT.pack(acks, milliseconds(timeout))
    )


def _by_topic(
    is_by_id: bool, batches: Sequence[ProduceBatch], version: int
) -> list[tuple[str | UUID, list[ProduceBatch]]]:
    if not batches:
        raise ValueError("a Produce request needs a batch")
    keys: list[str | UUID] = []
    has_one_topic = True
    for batch in batches:
        key = batch.topic_id if is_by_id else batch.topic
        if key is None:
            raise ValueError(
                f"Produce v{version} names topics by id, and the id of {batch.topic!r} is not known"
            )
        keys.append(key)
        has_one_topic = has_one_topic and key is keys[0]
    if has_one_topic:
        return [(keys[0], list(batches))]
    topics: dict[str | UUID, list[ProduceBatch]] = {}
    previous: str | UUID | None = None
    group: list[ProduceBatch] = []
    for index, batch in enumerate(batches):
        key = keys[index]
        # No lookup if the key is the same object as before, nor for one topic: the hash of a UUID is Python code.
        if key is not previous:
            previous = key
            group = topics.setdefault(key, [])
        group.append(batch)
    return list(topics.items())


def _put_int32(piece: bytearray, value: int) -> None:
    piece.append(value >> 24 & 0xFF)
    piece.append(value >> 16 & 0xFF)
    piece.append(value >> 8 & 0xFF)
    piece.append(value & 0xFF)


def _put_count(piece: bytearray, count: int, is_flexible: bool) -> None:
    """Put the number of elements or of bytes: a varint of one more in flexible versions, an int32 in others."""
    if not is_flexible:
        _put_int32(piece, count)
        return
    count += 1
    while count >= 0x80:
        piece.append(count & 0x7F | 0x80)
        count >>= 7
    piece.append(count)


def plain_answer(frame: memoryview) -> ProduceResponse | None:
    """Read the most frequent answer: Produce v13, no error details, no tags.

    Returns:
        The answer, or `None` if it has more fields or is broken; the schema's reader then reads it.
    """
    data = bytes(frame)  # its bytes are C numbers, those of a view are not
    end = len(data) - _END_SIZE
    if end < _TOPICS_AT or data[_TAGS_AT]:
        return None
    topics, at = _read_count(data, _TOPICS_AT)
    if topics < 0:
        return None
    partitions = []
    for _ in range(topics):
        if at + _UUID_SIZE > end:
            return None
        topic_id = uuid_of(data[at : at + _UUID_SIZE])
        count, at = _read_count(data, at + _UUID_SIZE)
        if count < 0:
            return None
        for _ in range(count):
            if at + _PARTITION_SIZE > end:
                return None
            partition, code, offset, append_time, start, rest = _PARTITION.unpack_from(data, at)
            if rest != _NO_DETAILS:
                return None
            at += _PARTITION_SIZE
            # Not by its constructor, which would be a call of Python code for each batch; nor the answer below.
            partitions.append(
                tuple.__new__(
                    PartitionProduceResponse,
                    (None, topic_id, partition, code, offset, append_time, start, (), None, -1, -1),
                )
            )
        if at >= end or data[at]:  # the topic's tags
            return None
        at += 1
    if at != end:
        return None
    throttle, tags = _END.unpack_from(data, end)
    if tags:
        return None
    return tuple.__new__(ProduceResponse, (max(0, throttle) / 1000.0, tuple(partitions), ()))


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """Read a count, a varint of one more, of at most two bytes; return it with the offset after it.

    An offset up to the answer's last five bytes is in reach. No plain answer has a count of -1: it stands for null,
    and for a longer varint.
    """
    low, high = data[at], data[at + 1]
    if low < 0x80:
        return low - 1, at + 1
    if high < 0x80:
        return (high << 7 | low & 0x7F) - 1, at + 2
    return -1, at
