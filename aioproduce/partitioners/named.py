"""The partitioners that `partitioner.class` can name: what each does with keys, and with records that have none.

Read by `core.batching.partitioning`. The names, and Kafka's Java classes as their aliases, are `config`'s.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproduce._native.key_hash import CRC32, FNV1A, HASHES_NULL, MURMUR2, NO_HASH, SKIPS_EMPTY


class Keyless(enum.Enum):
    """Where records go that have no key with a say."""

    UNIFORM_STICKY = enum.auto()
    STICKY_PER_BATCH = enum.auto()
    ROUND_ROBIN = enum.auto()
    RANDOM = enum.auto()
    HASHED = enum.auto()
    """Where the empty key goes: the key rule decides of all records."""


class NamedPartitioner(NamedTuple):
    """One of them.

    Attributes:
        keys: Its key rule (`key_hash`).
        keyless: What becomes of records without a key.
        text: One line for the documentation.
    """

    keys: int
    keyless: Keyless
    text: str


NAMED: Final[Mapping[str, NamedPartitioner]] = MappingProxyType(
    {
        "uniform_sticky": NamedPartitioner(
            MURMUR2,
            Keyless.UNIFORM_STICKY,
            "Kafka's since 3.3 (KIP-794): murmur2 of the key; without one a partition for batch.size bytes, then "
            "the next, chosen by how much waits for each",
        ),
        "sticky": NamedPartitioner(
            MURMUR2,
            Keyless.STICKY_PER_BATCH,
            "Kafka's from 2.4 to 3.2 (KIP-480): murmur2 of the key; without one a partition for a batch",
        ),
        "sticky_ignoring_keys": NamedPartitioner(
            NO_HASH,
            Keyless.STICKY_PER_BATCH,
            "Java's UniformStickyPartitioner (KIP-480): as `sticky`, and keys have no say",
        ),
        "round_robin": NamedPartitioner(
            NO_HASH,
            Keyless.ROUND_ROBIN,
            "each record to the next partition, keys have no say; Kafka's for keyless records up to 2.3",
        ),
        "murmur2": NamedPartitioner(
            MURMUR2 | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: murmur2 of the key; without one the partition of the empty key",
        ),
        "murmur2_random": NamedPartitioner(
            MURMUR2, Keyless.RANDOM, "librdkafka's: murmur2 of the key; without one any partition"
        ),
        "consistent": NamedPartitioner(
            CRC32 | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: CRC-32 of the key; without one the partition of the empty key",
        ),
        "consistent_random": NamedPartitioner(
            CRC32 | SKIPS_EMPTY,
            Keyless.RANDOM,
            "librdkafka's default: CRC-32 of the key; without one, or with an empty one, any partition",
        ),
        "fnv1a": NamedPartitioner(
            FNV1A | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: FNV-1a of the key, as Sarama's; without one the partition of the empty key",
        ),
        "fnv1a_random": NamedPartitioner(
            FNV1A, Keyless.RANDOM, "librdkafka's and Sarama's: FNV-1a of the key; without one any partition"
        ),
        "random": NamedPartitioner(
            NO_HASH, Keyless.RANDOM, "any partition for each record; keys have no say"
        ),
    }
)
