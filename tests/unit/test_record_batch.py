"""`RecordBatchBuffer` in both builds: the bytes are Java's, and other clients' readers agree.

Expected bytes come from Kafka's MemoryRecordsBuilder (tests/vectors); what no vector covers is read back by
aiokafka's and kio's decoders.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from kio.records.readers import read_batch

from aioproduce.errors import InvalidHeadersError, InvalidTimestampError, SerializationError
from tests.native_builds import BUILDS, native_module
from tests.vectors import JAVA_RECORDS, java_batch

if TYPE_CHECKING:
    from types import ModuleType

OVERHEAD = 61


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> ModuleType:
    """The module under test, compiled and interpreted."""
    return native_module("record_batch", request.param)


def full_batch(native: ModuleType, size: int = 4096) -> Any:
    batch = native.RecordBatchBuffer(bytearray(size))
    for index, record in enumerate(JAVA_RECORDS):
        assert batch.try_append(*record) == index
    return batch


def wire(sealed: tuple[tuple[bytes | memoryview, ...], int]) -> bytes:
    buffers, size = sealed
    data = b"".join(buffers)
    assert len(data) == size
    return data


@pytest.mark.parametrize(
    ("vector", "producer"),
    [
        ("plain", {}),
        ("idempotent", {"producer_id": 2**62 + 1, "producer_epoch": 7, "base_sequence": 2**31 - 2}),
        (
            "transactional",
            {"producer_id": 1234, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True},
        ),
    ],
)
def test_the_bytes_are_javas(native: ModuleType, vector: str, producer: dict[str, Any]) -> None:
    assert wire(full_batch(native).seal(**producer)) == java_batch(vector)


@pytest.mark.parametrize(("codec", "codec_id"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_the_header_of_compressed_records_is_javas(native: ModuleType, codec: str, codec_id: int) -> None:
    compressed = java_batch(codec)[OVERHEAD:]
    buffers, size = full_batch(native).seal(attributes=codec_id, compressed=compressed)
    assert wire((buffers, size)) == java_batch(codec)
    assert buffers[1] is compressed


def test_other_clients_read_what_was_written(native: ModuleType) -> None:
    data = wire(full_batch(native).seal(producer_id=5, producer_epoch=1, base_sequence=9))
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == JAVA_RECORDS
    decoded, read = read_batch(data, 0)
    assert read == len(data)
    assert [(r.key, r.value) for r in decoded.records] == [(key, value) for _, key, value, _ in JAVA_RECORDS]
    assert [[(h.key, h.value) for h in r.headers] for r in decoded.records] == [
        [(name.encode(), value) for name, value in headers] for *_, headers in JAVA_RECORDS
    ]


def test_an_uncompressed_batch_is_the_buffer_itself(native: ModuleType) -> None:
    buffer = bytearray(4096)
    batch = native.RecordBatchBuffer(buffer)
    batch.try_append(1, None, b"value", None)
    (sent,), size = batch.seal()
    assert len(sent) == size
    view = memoryview(sent)
    assert bytes(view) == bytes(buffer[:size])
    buffer[size - 2] ^= 0xFF
    assert bytes(view) == bytes(buffer[:size])


def test_the_buffer_cannot_be_resized_while_a_transport_reads_it(native: ModuleType) -> None:
    buffer = bytearray(4096)
    batch = native.RecordBatchBuffer(buffer)
    batch.try_append(1, None, b"value", None)
    (sent,), size = batch.seal()
    views = [memoryview(sent), memoryview(sent)]
    written = bytes(views[0])
    batch.release()
    del batch, sent
    while views:
        with pytest.raises(BufferError):
            buffer.extend(b"more")
        assert bytes(views.pop()) == written == bytes(buffer[:size])
    buffer.extend(b"more")


def test_a_transport_cannot_write_to_a_batch_nor_begin_to_read_a_released_one() -> None:
    batch = full_batch(native_module("record_batch", "imported"))
    (sent,), _ = batch.seal()
    if sent is not batch:
        pytest.skip("an interpreted batch passes a view on")
    assert memoryview(sent).readonly
    batch.release()
    with pytest.raises(RuntimeError, match="given back"):
        memoryview(sent)


def test_crc_covers_everything_from_the_attributes_on(native: ModuleType) -> None:
    data = wire(full_batch(native).seal())
    (crc,) = struct.unpack_from(">I", data, 17)
    assert crc == crc32c(data[21:])


def test_a_later_attempt_carries_other_producer_state(native: ModuleType) -> None:
    batch = full_batch(native)
    first = wire(batch.seal(producer_id=1, producer_epoch=0, base_sequence=100))
    again = wire(batch.seal(producer_id=2**62 + 1, producer_epoch=7, base_sequence=2**31 - 2))
    assert again == java_batch("idempotent")
    assert wire(batch.seal(producer_id=1, producer_epoch=0, base_sequence=100)) == first


def test_a_record_that_does_not_fit_changes_nothing(native: ModuleType) -> None:
    # 61 bytes of header; a record with 10 bytes of value takes 1 + 6 + 10.
    buffer = bytearray(OVERHEAD + 2 * 17 + 16)
    batch = native.RecordBatchBuffer(buffer)
    assert batch.try_append(100, None, b"0123456789", None) == 0
    assert batch.try_append(101, None, b"0123456789", None) == 1
    before = (bytes(buffer), batch.size, batch.record_count, batch.base_timestamp, batch.max_timestamp)
    assert batch.try_append(999, None, b"0123456789", None) == -1
    assert batch.try_append(999, b"k", b"012345678", None) == -1
    assert batch.try_append(999, None, None, [("0123456789", b"")]) == -1
    after = (bytes(buffer), batch.size, batch.record_count, batch.base_timestamp, batch.max_timestamp)
    assert after == before
    # One byte less fits exactly.
    assert batch.try_append(102, None, b"012345678", None) == 2
    assert batch.size == len(buffer)
    decoded = DefaultRecordBatch(wire(batch.seal()))
    assert [record.timestamp for record in decoded] == [100, 101, 102]


def test_capacity_bounds_the_batch_below_the_buffer(native: ModuleType) -> None:
    buffer = bytearray(b"\xee" * 200)
    batch = native.RecordBatchBuffer(buffer, OVERHEAD + 17)
    assert batch.try_append(100, None, b"0123456789", None) == 0
    assert batch.try_append(100, None, None, None) == -1
    batch.seal()
    assert buffer[OVERHEAD + 17 :] == b"\xee" * (200 - OVERHEAD - 17)


@pytest.mark.parametrize("capacity", [60, 201, -1])
def test_a_capacity_outside_the_buffer_is_refused(native: ModuleType, capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity must be from 61 to the buffer's 200 bytes"):
        native.RecordBatchBuffer(bytearray(200), capacity)


def test_a_buffer_with_room_for_the_header_alone_takes_no_record(native: ModuleType) -> None:
    batch = native.RecordBatchBuffer(bytearray(OVERHEAD))
    assert batch.try_append(1, None, None, None) == -1
    with pytest.raises(ValueError, match="without records"):
        batch.seal()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1_048_575, 1_048_576])
def test_lengths_around_every_size_of_varint(native: ModuleType, size: int) -> None:
    batch = native.RecordBatchBuffer(bytearray(4 * size + 1000))
    assert batch.try_append(0, b"k" * size, b"v" * size, [("h" * (size or 1), b"x" * size)]) == 0
    (record,) = DefaultRecordBatch(wire(batch.seal()))
    assert (record.key, record.value) == (b"k" * size, b"v" * size)
    assert record.headers == [("h" * (size or 1), b"x" * size)]


def test_the_largest_record_is_what_its_append_took(native: ModuleType) -> None:
    batch = native.RecordBatchBuffer(bytearray(400_000))
    taken = [0]
    for size in (None, 3, 127, 126, 9000, 128, 0):
        before = batch.size
        batch.try_append(1, None, None if size is None else bytes(size))
        taken.append(batch.size - before)
        assert batch.largest_record == max(taken)
    assert batch.try_append(1, None, bytes(400_000)) == -1
    assert batch.copy_into(bytearray(400_000)).largest_record == batch.largest_record == max(taken)
    batch.release()
    assert batch.largest_record == max(taken)


def test_offset_deltas_beyond_one_byte(native: ModuleType) -> None:
    batch = native.RecordBatchBuffer(bytearray(200_000))
    indices = [batch.try_append(7, None, b"", None) for _ in range(20_000)]
    assert indices == list(range(20_000))
    assert [record.offset for record in DefaultRecordBatch(wire(batch.seal()))] == indices


@pytest.mark.parametrize("first", [-1, 0, 1_700_000_000_000, 2**63 - 1])
def test_timestamps_over_their_whole_range(native: ModuleType, first: int) -> None:
    timestamps = [first, 2**63 - 1, 0, -1, 2**62, 1_700_000_000_000]
    batch = native.RecordBatchBuffer(bytearray(1000))
    for timestamp in timestamps:
        batch.try_append(timestamp, None, None, None)
    assert [record[0] for record in batch.iter_records()] == timestamps
    assert (batch.base_timestamp, batch.max_timestamp) == (first, 2**63 - 1)
    # Straight from the protocol: zigzag varints; deltas are 64 bits wide and wrap, as Java's long does.
    data = wire(batch.seal())
    position = OVERHEAD
    for timestamp in timestamps:
        length, position = read_varint(data, position)
        delta, _ = read_varint(data, position + 1)
        assert (first + delta - timestamp) % 2**64 == 0
        assert -(2**63) <= delta < 2**63
        position += length


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1 if value % 2 == 0 else -(value + 1 >> 1)), position


def test_record_size_upper_bound_is_never_below_what_is_written(native: ModuleType) -> None:
    for key, value, headers in [
        (None, None, None),
        (b"", b"", []),
        (b"k" * 63, b"v" * 64, [("name", b"value"), ("null", None)]),
        (bytearray(8192), memoryview(b"v" * 10_000), [("é" * 5000, b"")]),
    ]:
        bound = native.record_size_upper_bound(key, value, headers)
        batch = native.RecordBatchBuffer(bytearray(OVERHEAD + bound))
        # The worst case of the deltas: far apart in time.
        assert batch.try_append(2**63 - 1, key, value, headers) == 0
        assert batch.size - OVERHEAD <= bound <= batch.size - OVERHEAD + 36


class Text(bytes):
    """A subclass of bytes, as some serializers return."""


def test_record_size_upper_bound_has_room_for_the_widest_deltas(native: ModuleType) -> None:
    # By the protocol's widths: length 5, attributes 1, timestamp delta 10, offset delta 5, lengths 5 each, and
    # the number of headers.
    assert native.record_size_upper_bound(bytes(1000), bytes(2000)) >= 3000 + 5 + 1 + 10 + 5 + 5 + 5 + 1
    batch = native.RecordBatchBuffer(bytearray(200_000))
    for _ in range(9000):
        batch.try_append(0, None, None, None)
    before = batch.size
    assert batch.try_append(2**63 - 1, None, None, None) == 9000
    assert batch.size - before == 1 + 1 + 10 + 3 + 3 <= native.record_size_upper_bound(None, None)


class Name(str):
    """A subclass of str, as an enum's members are."""


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        (memoryview(b"a-b-c")[::2], b"abc"),
        (memoryview(struct.pack("<H", 0x6261)).cast("H"), b"ab"),
        (Text(b"abc"), b"abc"),
    ],
)
def test_any_bytes_like_object_is_copied(native: ModuleType, given: Any, written: bytes) -> None:
    batch = native.RecordBatchBuffer(bytearray(500))
    assert batch.try_append(5, given, given, [("h", given)]) == 0
    assert list(batch.iter_records()) == [(5, written, written, (("h", written),))]
    assert native.record_size_upper_bound(given, given, [("h", given)]) >= batch.size - OVERHEAD


@pytest.mark.parametrize("wrong", ["text", 5, [1, 2], 1.5])
@pytest.mark.parametrize("field", ["key", "value"])
def test_keys_and_values_of_other_types_are_refused(native: ModuleType, field: str, wrong: object) -> None:
    batch = native.RecordBatchBuffer(bytearray(500))
    arguments: dict[str, Any] = {"key": b"k", "value": b"v", field: wrong}
    with pytest.raises(SerializationError, match=f"{field} must be bytes.*{field}_serializer") as caught:
        batch.try_append(1, arguments["key"], arguments["value"], None)
    assert caught.value.field == field
    with pytest.raises(SerializationError):
        native.record_size_upper_bound(arguments["key"], arguments["value"])
    assert batch.record_count == 0
    assert batch.size == OVERHEAD


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"a": b"b"}, "must be a list or tuple"),
        ("ab", "must be a list or tuple"),
        (["ab"], "must be a pair"),
        ([("a", b"b", b"c")], "must be a pair"),
        ([("a",)], "must be a pair"),
        ([(b"a", b"b")], "name must be str, not bytes"),
        ([(None, b"b")], "name must be str, not NoneType"),
        ([("a", "b")], "value of header 'a' must be bytes or None, not str"),
        ([("a", 3)], "value of header 'a' must be bytes or None, not int"),
        ([("\ud800", b"")], "cannot be written as UTF-8"),
        ([("fine", b""), 5], "must be a pair"),
    ],
)
def test_headers_of_the_wrong_shape_are_refused(native: ModuleType, headers: Any, complaint: str) -> None:
    batch = native.RecordBatchBuffer(bytearray(500))
    with pytest.raises(InvalidHeadersError, match=complaint):
        batch.try_append(1, None, b"v", headers)
    with pytest.raises(InvalidHeadersError, match=complaint):
        native.record_size_upper_bound(None, b"v", headers)
    assert batch.record_count == 0
    assert batch.size == OVERHEAD


def test_headers_keep_their_order_and_may_repeat_a_name(native: ModuleType) -> None:
    batch = native.RecordBatchBuffer(bytearray(500))
    headers = [["b", b"1"], (Name("a"), None), ("b", b"")]
    assert batch.try_append(1, None, None, headers) == 0
    (record,) = DefaultRecordBatch(wire(batch.seal()))
    assert record.headers == [("b", b"1"), ("a", None), ("b", b"")]


def test_timestamps_that_kafka_does_not_know_are_refused(native: ModuleType) -> None:
    batch = native.RecordBatchBuffer(bytearray(500))
    with pytest.raises(InvalidTimestampError, match="-2"):
        batch.try_append(-2, None, b"v", None)
    for timestamp in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            batch.try_append(timestamp, None, b"v", None)
    assert batch.record_count == 0


def test_nothing_is_appended_after_the_first_seal(native: ModuleType) -> None:
    batch = full_batch(native)
    before = wire(batch.seal())
    assert batch.try_append(1, None, b"late", None) == -1
    assert wire(batch.seal()) == before


@pytest.mark.parametrize(("attributes", "compressed"), [(0, b"data"), (1, None), (8, b"data")])
def test_codec_and_compressed_records_go_together(
    native: ModuleType, attributes: int, compressed: bytes | None
) -> None:
    with pytest.raises(ValueError, match="codec"):
        full_batch(native).seal(attributes=attributes, compressed=compressed)


def test_the_buffer_cannot_be_resized_while_the_batch_holds_it(native: ModuleType) -> None:
    buffer = bytearray(500)
    batch = native.RecordBatchBuffer(buffer)
    batch.try_append(1, None, b"v", None)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    batch.release()
    buffer.extend(b"more")


def test_a_released_batch_never_touches_the_buffer_again(native: ModuleType) -> None:
    buffer = bytearray(500)
    batch = native.RecordBatchBuffer(buffer)
    batch.try_append(70, None, b"v", None)
    batch.release()
    batch.release()
    buffer[:] = bytes(500)
    assert batch.try_append(80, None, b"v", None) == -1
    assert (batch.record_count, batch.size, batch.max_timestamp) == (1, OVERHEAD + 8, 70)
    for use in (batch.seal, batch.records_view, lambda: list(batch.iter_records())):
        with pytest.raises(RuntimeError, match="given back"):
            use()
    assert buffer == bytes(500)


def test_records_are_read_back_for_a_split(native: ModuleType) -> None:
    batch = full_batch(native)
    batch.seal(producer_id=1, producer_epoch=0, base_sequence=0)
    assert list(batch.iter_records()) == JAVA_RECORDS


def test_records_view_is_what_follows_the_header(native: ModuleType) -> None:
    batch = full_batch(native)
    assert bytes(batch.records_view()) == java_batch("plain")[OVERHEAD:]


def test_batches_lie_one_after_the_other_in_a_request(native: ModuleType) -> None:
    data = wire(full_batch(native).seal()) + wire(full_batch(native).seal())
    records = MemoryRecords(data)
    count = 0
    while records.has_next():
        assert len(list(records.next_batch())) == len(JAVA_RECORDS)
        count += 1
    assert count == 2


def test_no_reference_to_a_record_is_kept(native: ModuleType) -> None:
    key, value, header = (
        bytes(bytearray(b"key-object")),
        bytes(bytearray(b"value")),
        bytes(bytearray(b"h" * 9)),
    )
    before = [sys.getrefcount(thing) for thing in (key, value, header)]
    batch = native.RecordBatchBuffer(bytearray(1000))
    for _ in range(100):
        batch.try_append(1, key, value, [("h", header)])
    with pytest.raises(InvalidHeadersError):
        batch.try_append(1, key, value, [("h", header), ("x", 1)])
    assert [sys.getrefcount(thing) for thing in (key, value, header)] == before
