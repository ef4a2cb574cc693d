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
    return native_module("key_hash", request.param)


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
        native = native_module("key_hash", build)
        assert native.murmur2(key) == expected
        assert native.partition_for_key(key, count) == (expected & 0x7FFFFFFF) % count


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_without_partitions_is_refused(native: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        native.partition_for_key(b"key", count)


# -- the other hashes: from the FNV authors' test vectors, and CRC-32's check value (the catalogue of CRCs) ---

FNV1A_VECTORS = [
    (b"", 0x811C9DC5),
    (b"a", 0xE40C292C),
    (b"b", 0xE70C2DE5),
    (b"foo", 0xA9F37ED7),
    (b"foobar", 0xBF9CF968),
]
CRC32_VECTORS = [(b"", 0), (b"a", 0xE8B7BE43), (b"123456789", 0xCBF43926)]
LARGE = 2**40
"""More partitions than hashes: what comes out is the hash itself."""


@pytest.mark.parametrize(("key", "hashed"), FNV1A_VECTORS)
def test_fnv1a_is_the_absolute_value_of_a_signed_hash(native: ModuleType, key: bytes, hashed: int) -> None:
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    assert native.partition_of(native.FNV1A, key, LARGE) == abs(signed)


@pytest.mark.parametrize(("key", "hashed"), CRC32_VECTORS)
def test_crc32_is_unsigned(native: ModuleType, key: bytes, hashed: int) -> None:
    assert native.partition_of(native.CRC32, key, LARGE) == hashed


@given(key=st.none() | st.binary(max_size=80), rule=st.integers(0, 15), count=st.integers(0, 2**31 - 1))
def test_both_builds_agree_on_every_rule(key: bytes | None, rule: int, count: int) -> None:
    compiled, interpreted = (native_module("key_hash", build) for build in BUILDS)
    assert compiled.partition_of(rule, key, count) == interpreted.partition_of(rule, key, count)


def test_what_a_rule_leaves_open(native: ModuleType) -> None:
    def decides(rule: int, key: bytes | None, count: int = 7) -> bool:
        return bool(native.partition_of(rule, key, count) != native.UNDECIDED)

    for hashing in (native.MURMUR2, native.CRC32, native.FNV1A):
        assert decides(hashing, b"k")
        assert decides(hashing, b"")
        assert not decides(hashing, None)
        assert decides(hashing | native.HASHES_NULL, None)
        assert not decides(hashing | native.SKIPS_EMPTY, b"")
        assert not decides(hashing, b"k", 0)
        where_null_goes = native.partition_of(hashing | native.HASHES_NULL, None, 7)
        assert where_null_goes == native.partition_of(hashing, b"", 7)
    assert not decides(native.NO_HASH, b"k")
