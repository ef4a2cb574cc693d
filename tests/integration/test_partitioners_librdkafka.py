"""Keys go where librdkafka sends them, for each of its partitioners: its own producer, on its own mock cluster."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from aioproduce._native.key_hash import UNDECIDED, partition_of
from aioproduce.partitioners import NAMED

PARTITIONS = 4
"""What the mock gives a topic that is asked for."""


def keys() -> list[bytes]:
    random = Random(20)
    return [b"", b"\x00", b"\xff" * 5, *(random.randbytes(random.randrange(1, 60)) for _ in range(300))]


@pytest.mark.parametrize(
    "name", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
)
def test_keys_go_where_librdkafka_sends_them(name: str) -> None:
    found: dict[bytes | None, int] = {}

    def delivered(key: bytes | None) -> Any:
        def callback(error: object, message: Any) -> None:
            assert error is None
            found[key] = message.partition()

        return callback

    producer = ConfluentProducer({"test.mock.num.brokers": 1, "partitioner": name, "log_level": 0})
    wanted: list[bytes | None] = [None, *keys()]
    for key in wanted:
        producer.produce("t", b"v", key=key, on_delivery=delivered(key))
    assert producer.flush(30) == 0
    assert len(found) == len(wanted)
    assert set(found.values()) == set(range(PARTITIONS))

    ours = {key: partition_of(NAMED[name].keys, key, PARTITIONS) for key in wanted}
    undecided = {key for key, partition in ours.items() if partition == UNDECIDED}
    assert undecided == {
        "consistent_random": {None, b""},
        "murmur2_random": {None},
        "fnv1a_random": {None},
    }.get(name, set())
    assert {key: ours[key] for key in wanted if key not in undecided} == {
        key: found[key] for key in wanted if key not in undecided
    }
