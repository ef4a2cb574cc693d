"""The short way through a Produce v13 answer against the reader that follows the schema.

1. Where the short way gives an answer, the schema's reader gives an equal one.
2. An answer with nothing special in it does go the short way: no details and no tags.

The engine's own mutations seldom keep the lengths right, so every other one is of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

from aioproduce.wire import produce, responses
from aioproduce.wire.api import ApiKey
from aioproduce.wire.reader import decode_entity, skip_tags
from aioproduce.wire.schema import response_class
from tests.fuzz import peer
from tests.fuzz.target import Source, Target

CLASS = response_class(ApiKey.PRODUCE, 13)
PARTITION = struct.Struct(">ihqqq")
NUMBERS = (0, 1, -1, 6, 126, 127, 128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def run(data: bytes) -> None:
    frame = memoryview(data)
    plain = produce.plain_answer(frame)
    if plain is None:
        return
    body = decode_entity(CLASS, frame, skip_tags(frame, 4), may_go_on=True)
    assert plain == responses._produce(body)
    assert plain == responses.decode_body(ApiKey.PRODUCE, 13, frame)


def plain_answer(source: Source, topics: int, count: int) -> bytes:
    """An answer for some topics of some partitions each, its numbers drawn."""

    def number(bits: int) -> int:
        drawn = NUMBERS[source.below(len(NUMBERS))]
        return drawn if -(1 << bits - 1) <= drawn < 1 << bits - 1 else source.byte()

    parts = [struct.pack(">i", number(32)), bytes([0, topics + 1])]
    for _ in range(topics):
        parts += source.take(16).rjust(16, b"\0"), bytes([count + 1])
        for _ in range(count):
            parts.append(PARTITION.pack(number(32), number(16), number(64), number(64), number(64)))
            parts.append(b"\x01\x00\x00")
        parts.append(b"\0")
    parts.append(struct.pack(">i", number(32)) + b"\0")
    return b"".join(parts)


def mutate(data: bytes, largest: int, chance: Random, engine: Callable[[bytes, int], bytes]) -> bytes:
    if chance.random() < 0.5:
        return engine(data, largest)
    answer = bytearray(plain_answer(Source(chance.randbytes(60)), chance.randrange(4), chance.randrange(5)))
    for _ in range(chance.randrange(3)):
        answer[chance.randrange(len(answer))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    return bytes(answer[:largest])


def seeds() -> Iterator[bytes]:
    for topics, count in ((0, 0), (1, 0), (1, 1), (1, 3), (3, 2)):
        answer = plain_answer(Source(bytes(range(40))), topics, count)
        assert produce.plain_answer(memoryview(answer)) is not None
        yield answer
    for body in peer.response_bodies(ApiKey.PRODUCE, 13):
        yield b"\0\0\0\7\0" + body


TARGETS = {"plain_produce": Target(run, seeds, mutate=mutate)}
