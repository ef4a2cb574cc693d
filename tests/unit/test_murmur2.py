"""Key hashing in both builds: equal to Java's `Utils.murmur2` (tests/vectors) and to aiokafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from tests.native_builds import BUILDS, native_module
from tests.vectors import record_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

VECTORS = record_format("murmur2")


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> ModuleType:
    """The module under test, compiled and interpreted."""
    return native_module("murmur2", request.param)


@pytest.mark.parametrize(("key", "hashed", "of_6", "of_100003"), VECTORS, ids=[v[0][:12] for v in VECTORS])
def test_hashes_are_javas(native: ModuleType, key: str, hashed: str, of_6: str, of_100003: str) -> None:
    data = b"" if key == "-" else bytes.fromhex(key)
    # Java's int is signed.
    assert native.murmur2(data) == int(hashed) % 2**32
    assert native.partition_for_key(data, 6) == int(of_6)
    assert native.partition_for_key(data, 100_003) == int(of_100003)


def keys_of_the_java_program() -> Iterator[bytes]:
    state = 88172645463325252
    for index in range(1000):
        key = bytearray()
        for _ in range(index % 67):
            state ^= state << 13 & 0xFFFFFFFFFFFFFFFF
            state ^= state >> 7
            state ^= state << 17 & 0xFFFFFFFFFFFFFFFF
            key.append(state & 0xFF)
        yield bytes(key)


def test_a_thousand_hashes_fold_to_javas_number(native: ModuleType) -> None:
    folded = 0
    for key in keys_of_the_java_program():
        folded = (folded * 31 + native.murmur2(key)) % 2**32
    ((expected,),) = record_format("murmur2-of-thousand")
    assert folded == int(expected) % 2**32


@given(key=st.binary(max_size=80), count=st.integers(1, 2**31 - 1))
def test_both_builds_agree_with_each_other_and_with_aiokafka(key: bytes, count: int) -> None:
    expected = aiokafka_murmur2(key) % 2**32
    for build in BUILDS:
        native = native_module("murmur2", build)
        assert native.murmur2(key) == expected
        assert native.partition_for_key(key, count) == (expected & 0x7FFFFFFF) % count


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_without_partitions_is_refused(native: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        native.partition_for_key(b"key", count)
