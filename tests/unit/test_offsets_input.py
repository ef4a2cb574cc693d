"""Offsets and groups as users have them, from confluent-kafka, kafka-python or by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from aioproduce.producer.offsets import read_group, read_offsets
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition

MEMBER = "rdkafka-4f84d44c-56a5-40a2-9937-8eba299a3bec"

# As confluent-kafka 2.16.1 gave them on a real Kafka: before the first rebalance, a member, a static member.
CONFLUENT = {
    b"CGMDv2:\xff\xff\xff\xffgrp0\x00\x00\x01": GroupMetadata("grp0"),
    b"CGMDv2:\x01\x00\x00\x00grp0\x00" + MEMBER.encode() + b"\x00\x01": GroupMetadata("grp0", 1, MEMBER),
    b"CGMDv2:\x01\x00\x00\x00grp1\x00inst-1\x00\x00inst\x00": GroupMetadata("grp1", 1, "inst-1", "inst"),
}


@pytest.mark.parametrize(("raw", "group"), CONFLUENT.items(), ids=["no member", "member", "static"])
def test_what_confluents_consumer_gives(raw: bytes, group: GroupMetadata) -> None:
    assert read_group(raw) == group


def test_what_this_confluent_gives() -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "group.instance.id": "i"}
    )
    try:
        assert read_group(consumer.consumer_group_metadata()) == GroupMetadata("g", -1, "", "i")
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "raw",
    [b"", b"CGMDv2:", b"CGMDv3:\x01\x00\x00\x00g\x00m\x00\x01", b"CGMDv2:\x01\x00\x00\x00g\x00m\x00\x02",
     b"CGMDv2:\x01\x00\x00\x00g\x00m\x00", b"CGMDv2:\x01\x00\x00\x00g\x00m\x00\x00i", b"CGMDv2:\x01\x00"],
)  # fmt: skip
def test_bytes_that_are_no_group(raw: bytes) -> None:
    with pytest.raises(TypeError, match="give a GroupMetadata"):
        read_group(raw)


def test_other_groups() -> None:
    assert read_group("g") == GroupMetadata("g")
    theirs = SimpleNamespace(group_id="g", generation_id=3, member_id="m", group_instance_id=None)
    assert read_group(theirs) == GroupMetadata("g", 3, "m")
    with pytest.raises(TypeError, match="not int"):
        read_group(7)
    with pytest.raises(TypeError, match="not NoneType"):
        read_group(None)


def test_a_generation_without_a_member() -> None:
    for group in (GroupMetadata("g", 2), SimpleNamespace(group_id="g", generation_id=2)):
        with pytest.raises(ValueError, match="no member"):
            read_group(group)
    assert read_group(GroupMetadata("g", 0)) == GroupMetadata("g", 0)


def test_offsets_of_each_kind() -> None:
    place = TopicPartition("t", 0)
    expected = {place: OffsetAndMetadata(5)}
    given: list[Any] = [
        {place: 5}, {("t", 0): OffsetAndMetadata(5)}, {("t", 0): SimpleNamespace(offset=5, metadata=None)},
        [confluent_kafka.TopicPartition("t", 0, 5)],
    ]  # fmt: skip
    for offsets in given:
        assert read_offsets(offsets) == expected
    assert read_offsets({}) == {}


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ({"t": 5}, TypeError, "not 't'"),
        ({("t", 0): True}, TypeError, "not True"),
        ({("t", 0): "5"}, TypeError, "not '5'"),
        ({("t", 0): -1}, ValueError, "0 or more, not -1"),
        ([confluent_kafka.TopicPartition("t", 0)], ValueError, "0 or more"),
    ],
)
def test_offsets_that_are_none(offsets: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_offsets(offsets)
