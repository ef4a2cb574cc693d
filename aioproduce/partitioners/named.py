"""The partitioners that `partitioner.class` can name: their rules for keys and for keyless records.

Read by `core.batching.partitioning`. The names, and Kafka's Java classes as their aliases, are defined in `config`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproduce._native.key_hash import CRC32, FNV1A, HASHES_NULL, MURMUR2, NO_HASH, SKIPS_EMPTY


class Keyless(enum.Enum):
    """The rule for keyless records, which the key rule does not decide."""

    UNIFORM_STICKY = enum.auto()
    STICKY_PER_BATCH = enum.auto()
    ROUND_ROBIN = enum.auto()
    RANDOM = enum.auto()
    HASHED = enum.auto()
    """Hash the empty key: the key rule decides for all records."""


class NamedPartitioner(NamedTuple):
    """One named partitioner.

    Attributes:
        keys: Its key rule (`key_hash`).
        keyless: Its rule for keyless records.
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
            "Kafka's since 3.3 (KIP-794): murmur2 of the key; keyless records fill one partition with "
            "batch.size bytes, then the next, chosen by queue length",
        ),
        "sticky": NamedPartitioner(
            MURMUR2,
            Keyless.STICKY_PER_BATCH,
            "Kafka's from 2.4 to 3.2 (KIP-480): murmur2 of the key; keyless records fill one partition for a batch",
        ),
        "sticky_ignoring_keys": NamedPartitioner(
            NO_HASH,
            Keyless.STICKY_PER_BATCH,
            "Java's UniformStickyPartitioner (KIP-480): as `sticky`, but keys are ignored",
        ),
        "round_robin": NamedPartitioner(
            NO_HASH,
            Keyless.ROUND_ROBIN,
            "each record to the next partition, keys are ignored; Kafka's for keyless records up to 2.3",
        ),
        "murmur2": NamedPartitioner(
            MURMUR2 | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: murmur2 of the key; keyless records use the hash of the empty key",
        ),
        "murmur2_random": NamedPartitioner(
            MURMUR2,
            Keyless.RANDOM,
            "librdkafka's: murmur2 of the key; keyless records go to a random partition",
        ),
        "consistent": NamedPartitioner(
            CRC32 | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: CRC-32 of the key; keyless records use the hash of the empty key",
        ),
        "consistent_random": NamedPartitioner(
            CRC32 | SKIPS_EMPTY,
            Keyless.RANDOM,
            "librdkafka's default: CRC-32 of the key; records with an empty key or none go to a random partition",
        ),
        "fnv1a": NamedPartitioner(
            FNV1A | HASHES_NULL,
            Keyless.HASHED,
            "librdkafka's: FNV-1a of the key, as Sarama's; keyless records use the hash of the empty key",
        ),
        "fnv1a_random": NamedPartitioner(
            FNV1A,
            Keyless.RANDOM,
            "librdkafka's and Sarama's: FNV-1a of the key; keyless records go to a random partition",
        ),
        "random": NamedPartitioner(
            NO_HASH, Keyless.RANDOM, "each record to a random partition; keys are ignored"
        ),
    }
)
