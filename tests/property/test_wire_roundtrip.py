"""Whatever kio encodes, our reader reads: every version of every API that we or the embedded broker speak."""

from __future__ import annotations

import datetime
import importlib
import struct
from collections.abc import Sized
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproduce.wire import responses
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.produce import encode_produce, plain_answer
from aioproduce.wire.reader import decode_entity, decode_request
from tests import wire_oracle as oracle

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
CLIENT_APIS = [
    (api, version)
    for api, (lowest, highest) in CLIENT_VERSIONS.items()
    for version in range(lowest, highest + 1)
]


@pytest.mark.parametrize(("api", "version"), CLIENT_APIS)
@given(data=st.data())
@FEW
def test_our_reader_reads_every_response(api: ApiKey, version: int, data: st.DataObject) -> None:
    entity = data.draw(oracle.entities(oracle.response_class(api, version)))
    assert decode_entity(type(entity), memoryview(oracle.encoded(entity))) == oracle.plain(entity)


@pytest.mark.parametrize("api", list(ApiKey))
@given(data=st.data())
@settings(FEW, max_examples=30)
def test_our_reader_reads_every_api_of_the_embedded_broker(api: ApiKey, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(oracle.versions_of(api)))
    response = data.draw(oracle.entities(oracle.response_class(api, version)))
    assert decode_entity(type(response), memoryview(oracle.encoded(response))) == oracle.plain(response)
    request = data.draw(oracle.entities(oracle.request_class(api, version)))
    client_id = data.draw(st.none() | st.text(max_size=20))
    (frame,) = FrameReader(2**30).feed(oracle.request_frame(request, 99, client_id))
    decoded = decode_request(frame)
    assert (decoded.api_key, decoded.api_version, decoded.correlation_id, decoded.client_id) == (
        api,
        version,
        99,
        client_id,
    )
    assert decoded.body == oracle.plain(request)


class Batch:
    """A sealed batch as the core has it."""

    def __init__(self, topic: str, topic_id: Any, partition: int, buffers: list[bytes]) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.buffers = buffers
        self.size = sum(map(len, buffers))


TOPICS = {name: UUID(int=index + 1) for index, name in enumerate(("a", "größe", "t" * 249))}
BATCHES = st.lists(
    st.builds(
        lambda name, partition, buffers: Batch(name, TOPICS[name], partition, buffers),
        st.sampled_from(sorted(TOPICS)),
        st.integers(0, 2**31 - 1),
        # Up to 4096 bytes a batch is copied.
        st.lists(st.binary(max_size=300), min_size=1, max_size=3)
        | st.integers(4095, 4099).map(lambda size: [bytes(size - 9), b"behind it"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("version", range(3, 14))
@given(
    batches=BATCHES,
    acks=st.sampled_from((-1, 0, 1)),
    timeout=st.integers(0, 2**31 - 1),
    transactional_id=st.none() | st.text(max_size=200),
    client_id=st.text(max_size=50),
)
@FEW
def test_produce_by_hand_is_what_kio_writes(
    version: int,
    batches: list[Batch],
    acks: int,
    timeout: int,
    transactional_id: str | None,
    client_id: str,
) -> None:

    cls = oracle.request_class(0, version)
    module = importlib.import_module(cls.__module__)
    groups: dict[str, list[Batch]] = {}
    for batch in batches:
        groups.setdefault(batch.topic, []).append(batch)
    expected = cls(
        transactional_id=transactional_id,
        acks=acks,
        timeout=datetime.timedelta(milliseconds=timeout),
        topic_data=tuple(
            module.TopicProduceData(
                **({"topic_id": TOPICS[name]} if version >= 13 else {"name": name}),
                partition_data=tuple(
                    module.PartitionProduceData(index=batch.partition, records=b"".join(batch.buffers))
                    for batch in group
                ),
            )
            for name, group in groups.items()
        ),
    )
    pieces = encode_produce(
        version,
        -5,
        client_id,
        acks=acks,
        timeout=timeout / 1000,
        batches=batches,
        transactional_id=transactional_id,
    )
    frame = b"".join(pieces)
    assert frame == oracle.request_frame(expected, -5, client_id)
    header, body = oracle.decoded_request(cls, frame)
    assert (header.correlation_id, header.client_id) == (-5, client_id)
    assert body == expected
    # Large batches were not copied: the very objects are in the list. What is between two of these is one buffer.
    large = [batch for group in groups.values() for batch in group if batch.size > 4096]
    passed = {id(piece) for piece in pieces}
    assert all(id(buffer) in passed for batch in large for buffer in batch.buffers)
    assert len(pieces) <= 1 + 3 * len(large)
    assert all(pieces)


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
@settings(FEW, max_examples=100)
def test_frames_survive_any_slicing(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    reader = FrameReader(40)
    frames: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += map(bytes, reader.feed(stream[start:end]))
    assert frames == payloads


PLAIN_PARTITIONS = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.integers(-1, 130),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**53),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=130,
)


def compact_count(entries: Sized) -> bytes:
    count = len(entries) + 1
    return bytes((count,)) if count < 0x80 else bytes((count & 0x7F | 0x80, count >> 7))


def test_a_null_in_a_produce_answer_is_for_the_schemas_reader() -> None:
    end = b"\0\0\0\0\0"
    assert plain_answer(memoryview(b"\0\0\0\7\0" + b"\0" + end)) is None  # no list of topics
    assert (
        plain_answer(memoryview(b"\0\0\0\7\0" + b"\2" + bytes(16) + b"\0" + b"\0" + end)) is None
    )  # partitions


@given(
    topic_ids=st.lists(st.uuids() | st.just(UUID(int=0)), max_size=2)
    | st.integers(125, 300).map(lambda count: [UUID(int=index) for index in range(count)]),
    partitions=PLAIN_PARTITIONS,
    throttle=st.integers(-1, 2**31 - 1),
    change=st.none() | st.tuples(st.integers(0, 2**16), st.integers(0, 255)),
    cut=st.integers(0, 3) | st.none(),
)
@settings(max_examples=300, deadline=None)
def test_the_short_way_through_plain_produce_answers_reads_what_the_schema_reads(
    topic_ids: list[UUID],
    partitions: list[tuple[int, int, int, int, int]],
    throttle: int,
    change: tuple[int, int] | None,
    cut: int | None,
) -> None:
    # By hand from the protocol's description: what brokers answer is this, and now and then this with a byte wrong.
    one = b"".join(struct.pack(">ihqqq", *partition) + b"\x01\x00\x00" for partition in partitions)
    frame = bytearray(b"\0\0\0\7\0" + compact_count(topic_ids))
    for topic_id in topic_ids:
        frame += topic_id.bytes + compact_count(partitions) + one + b"\0"
    frame += struct.pack(">i", throttle) + b"\0"
    if change is not None:
        frame[change[0] % len(frame)] = change[1]
    if cut:
        del frame[-cut:]
    view = memoryview(bytes(frame))
    plain = plain_answer(view)
    if change is None and not cut:
        assert plain is not None
    if plain is not None:
        body = decode_entity(oracle.response_class(ApiKey.PRODUCE, 13), view, 5, may_go_on=True)
        assert plain == responses._produce(body)
