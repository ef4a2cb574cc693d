"""The stamp of a record: its bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.audit import STAMP_HEADER, STAMP_SIZE, StampError, pack_stamp, unpack_stamp

PRODUCER_ID = bytes(range(16))


def test_the_bytes_of_a_stamp() -> None:
    assert STAMP_HEADER == "ap.id"
    assert STAMP_SIZE == 24
    # By hand: 16 bytes as they are, then 0x0102030405060708 with the highest byte first.
    assert (
        pack_stamp(PRODUCER_ID, 72623859790382856).hex() == "000102030405060708090a0b0c0d0e0f0102030405060708"
    )
    assert pack_stamp(PRODUCER_ID, 0)[16:] == bytes(8)
    assert pack_stamp(PRODUCER_ID, 2**64 - 1)[16:] == b"\xff" * 8


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1))
def test_what_is_packed_is_unpacked(producer_id: bytes, sequence: int) -> None:
    stamp = unpack_stamp(memoryview(pack_stamp(producer_id, sequence)))
    assert stamp == (producer_id, sequence)
    assert type(stamp.producer_id) is bytes


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_stamps_of_a_producer_compare_as_their_numbers(one: int, other: int) -> None:
    assert (pack_stamp(PRODUCER_ID, one) < pack_stamp(PRODUCER_ID, other)) == (one < other)


@pytest.mark.parametrize("value", [None, b"", b"*" * 23, b"*" * 25], ids=["null", "empty", "short", "long"])
def test_a_value_of_another_width_is_no_stamp(value: bytes | None) -> None:
    with pytest.raises(StampError, match="24 bytes"):
        unpack_stamp(value)


@pytest.mark.parametrize("producer_id", [b"", b"*" * 15, b"*" * 17], ids=["empty", "short", "long"])
def test_an_id_of_another_width_is_refused(producer_id: bytes) -> None:
    with pytest.raises(StampError, match="16 bytes"):
        pack_stamp(producer_id, 0)


@pytest.mark.parametrize("sequence", [-1, 2**64])
def test_a_number_that_does_not_fit_is_refused(sequence: int) -> None:
    with pytest.raises(StampError, match="from 0 to"):
        pack_stamp(PRODUCER_ID, sequence)
