"""The whole core against brokers that answer in Kafka's protocol, but anything at all.

What decodes may still make no sense: partitions that do not exist, or twice; brokers without a name; negative
epochs, offsets, indices and times; answers to another question; codes of no one's. Whatever is told:

1. No fact raises, and the core comes to rest.
2. After `abort()` each record is settled, once, and the memory is whole again.

The input is a list of steps: a byte says which, those after it are its arguments. The messages are drawn field by
field from the schema, from values that are likely to hurt.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from aioproduce._native.stats import Windows
from aioproduce.config import ProducerConfig
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.effects import Close, Compress, Connect, Send
from aioproduce.core.sender import Sender
from aioproduce.metrics import ProducerMetrics
from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import NONE
from aioproduce.wire.reader import Request, decode_request
from tests.fuzz import peer
from tests.fuzz.target import Source, Target
from tests.unit.sender_harness import FakeRuntime
from tests.wire_oracle import response_class

APPEND, ANSWER, GARBAGE, TIME, LOSE, FLUSH, WELL = range(7)
MOST_EFFECTS = 2000
NUMBERS = (0, 1, 2, 3, -1, -2, 127, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
CODES = (
    0,
    0,
    0,
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    10,
    14,
    19,
    20,
    22,
    29,
    35,
    45,
    46,
    47,
    48,
    51,
    56,
    59,
    67,
    74,
    87,
    90,
    -1,
    999,
)
TEXTS = ("t", "u", "broker", "", "x" * 40, "é")
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17, "uint32": 33}


@cache
def parts_of(cls: Any) -> tuple[tuple[str, str | None, Any, bool, bool], ...]:
    """Of each field: its name, its type on the wire, its class, whether it may be null and whether it is many."""
    found = []
    for field in fields(cls):
        hint, is_nullable, is_array = field.type, False, False
        if get_origin(hint) in (Union, UnionType):
            is_nullable = True
            (hint,) = (member for member in get_args(hint) if member is not NoneType)
        if get_origin(hint) is tuple:
            is_array = True
            hint = get_args(hint)[0]
        inner = hint if is_dataclass(hint) else None
        found.append((field.name, field.metadata.get("kafka_type"), inner, is_nullable, is_array))
    return tuple(found)


def drawn(cls: Any, source: Source) -> dict[str, Any]:
    """A message's fields; where the input has ended they are empty, 0 and none."""
    body: dict[str, Any] = {}
    for name, kafka_type, inner, is_nullable, is_array in parts_of(cls):
        if is_array:
            body[name] = tuple(one(kafka_type, inner, False, source) for _ in range(source.below(4)))
        else:
            body[name] = one(kafka_type, inner, is_nullable, source)
    return body


def one(kafka_type: str | None, inner: Any, is_nullable: bool, source: Source) -> Any:
    if inner is not None:
        return None if is_nullable and source.below(2) else drawn(inner, source)
    choice = source.byte()
    match kafka_type:
        case "string":
            return None if is_nullable and choice % 7 == 6 else TEXTS[choice % len(TEXTS)]
        case "bytes" | "records":
            return b"r" * (choice % 5)
        case "bool":
            return bool(choice % 2)
        case "uuid":
            return uuid.UUID(int=choice % 3) if choice % 3 else None
        case "error_code":
            return CODES[choice % len(CODES)]
        case "timedelta_i32" | "timedelta_i64":
            return (0.0, 0.0, 0.1, -1.0, 2e6)[choice % 5]
        case "datetime_i64":
            return -1 if choice % 2 else 1
        case "float64":
            return 0.0
    bits = BITS[kafka_type or ""]
    number = NUMBERS[choice % len(NUMBERS)]
    if "uint" in (kafka_type or ""):
        return abs(number) % (1 << bits - 1)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else choice % 5


class Brokers:
    """A Sender, and whatever is at the other end of its connections."""

    def __init__(self, settings: int) -> None:
        self.now = 1000.0
        plain: dict[str, Any] = {"enable_idempotence": False, "acks": settings % 2}
        config = ProducerConfig.from_keywords(
            bootstrap_servers="b0:9092",
            linger_ms=0,
            delivery_timeout_ms=3000,
            request_timeout_ms=1000,
            retry_backoff_ms=50,
            retry_backoff_max_ms=50,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=10,
            batch_size=256,
            buffer_memory=2048,
            **({} if settings % 3 == 0 else plain),
        )
        self.sender = Sender(
            config,
            codec=None,
            runtime=FakeRuntime(),
            random=random.Random(settings),
            metrics=ProducerMetrics(Windows()),
            now=self.now,
        )
        self.topics = ["t", "u"]
        for topic in self.topics:
            self.sender.metadata_requests.await_topic(topic, lambda: None, self.now)
        self.asked: dict[int, list[Request]] = {}
        self.outcomes: list[int] = []
        self.accepted = 0

    def rest(self) -> None:
        """Carry out effects until there are no more."""
        self.sender.handle_timer(self.now)
        for _ in range(MOST_EFFECTS):
            effect = self.sender.next_effect(self.now)
            self.run_callbacks()
            match effect:
                case None:
                    if not self.sender.has_work:
                        break
                case Connect():
                    self.asked[effect.connection_id] = []
                    self.sender.connection_made(effect.connection_id, self.now)
                case Send():
                    request = decode_request(memoryview(b"".join(effect.buffers))[4:])
                    self.asked[effect.connection_id].append(request)
                    self.sender.writable(effect.connection_id, self.now)
                case Close():
                    del self.asked[effect.connection_id]
                    self.sender.connection_lost(effect.connection_id, None, self.now)
                case Compress():
                    raise AssertionError("nothing is to be compressed")
        else:
            raise AssertionError("the core does not come to rest")
        timer = self.sender.next_timer()
        assert timer is None or timer > self.now

    def run_callbacks(self) -> None:
        while self.sender.settled:
            assert self.sender.settled.popleft().run_callbacks() == []

    def step(self, source: Source) -> None:
        kind = source.below(7)
        if kind == APPEND:
            self.append(self.topics[source.below(2)], source.below(4), source.byte())
        elif kind == TIME:
            self.advance(source.byte() / 500)
        elif kind == FLUSH:
            self.sender.begin_flush(lambda: None, self.now)
        elif self.asked:
            self.hear(kind, source)
        self.rest()

    def hear(self, kind: int, source: Source) -> None:
        connection_id = sorted(self.asked)[source.below(len(self.asked))]
        requests = self.asked[connection_id]
        if kind == LOSE:
            del self.asked[connection_id]
            self.sender.connection_lost(connection_id, ConnectionResetError("reset"), self.now)
        elif kind == GARBAGE:
            self.sender.receive_data(connection_id, source.take(source.byte()), self.now)
        elif requests:
            asked = requests.pop(0)
            api, version = asked.api_key, asked.api_version
            body = well_meant(asked) if kind == WELL else drawn(response_class(api, version), source)
            frame = encode_response(api, version, asked.correlation_id, body)
            self.sender.receive_data(connection_id, peer.framed(frame), self.now)

    def append(self, topic: str, partition: int, size: int) -> None:
        view = self.sender.metadata.topic(topic)
        if view is None:
            self.sender.metadata_requests.await_topic(topic, lambda: None, self.now)
            return
        chosen = partition if 0 < partition <= view.partition_count else None
        key = b"k" * size if partition == 3 else None
        record = SerializedRecord(topic, key, b"v" * size, None, chosen, 0)
        delivery = self.sender.accumulator.append(view, record, self.now)
        if delivery is None:
            return
        number = self.accepted
        self.accepted += 1
        delivery._add_delivery_callback(lambda metadata, error: self.outcomes.append(number))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(MOST_EFFECTS):
            timer = self.sender.next_timer()
            if timer is None or timer > until:
                self.now = until
                return
            self.now = max(self.now, timer)
            self.rest()
        raise AssertionError("timers without end")

    def end(self) -> None:
        self.sender.abort(self.now)
        self.rest()
        assert self.sender.is_closed
        assert sorted(self.outcomes) == list(range(self.accepted))
        assert self.sender.pool.available == self.sender.pool.total


def well_meant(request: Request) -> dict[str, Any]:
    """What a broker says when all is well: one broker, two topics of two partitions, batches at offset 0."""
    match request.api_key:
        case ApiKey.API_VERSIONS:
            keys = [(0, 3, 13), (3, 1, 13), (18, 0, 4), (22, 0, 5)]
            return {
                "error_code": NONE,
                "api_keys": [
                    {"api_key": key, "min_version": low, "max_version": top} for key, low, top in keys
                ],
                "supported_features": (),
                "finalized_features": (),
            }
        case ApiKey.METADATA:
            return {
                "brokers": [{"node_id": 0, "host": "b0", "port": 9092, "rack": None}],
                "cluster_id": "c",
                "controller_id": 0,
                "error_code": NONE,
                "topics": [_topic(name, 1 + place) for place, name in enumerate("tu")],
            }
        case ApiKey.INIT_PRODUCER_ID:
            return {
                "error_code": NONE,
                "producer_id": 7,
                "producer_epoch": 0,
                "ongoing_txn_producer_id": -1,
                "ongoing_txn_producer_epoch": -1,
            }
    return {"responses": [_acknowledged(topic) for topic in request.body["topic_data"]]}


def _acknowledged(topic: dict[str, Any]) -> dict[str, Any]:
    partitions = [
        {
            "index": partition["index"],
            "error_code": NONE,
            "base_offset": 0,
            "log_append_time": -1,
            "log_start_offset": 0,
            "record_errors": (),
            "error_message": None,
        }
        for partition in topic["partition_data"]
    ]
    return {"name": topic.get("name"), "topic_id": topic.get("topic_id"), "partition_responses": partitions}


def _topic(name: str, number: int) -> dict[str, Any]:
    partitions = [
        {
            "error_code": NONE,
            "partition_index": index,
            "leader_id": 0,
            "leader_epoch": 1,
            "replica_nodes": (),
            "isr_nodes": (),
            "offline_replicas": (),
        }
        for index in range(2)
    ]
    return {
        "error_code": NONE,
        "name": name,
        "topic_id": uuid.UUID(int=number),
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": -1,
    }


def run(data: bytes) -> None:
    source = Source(data)
    brokers = Brokers(source.byte())
    brokers.rest()
    while source:
        brokers.step(source)
    brokers.end()


def seeds() -> Iterator[bytes]:
    known = bytes([WELL, 0]) * 2
    for settings in range(3):
        ready = bytes([settings]) + known + bytes([WELL, 0]) * 3
        send = bytes([APPEND, 0, 1, 10])
        yield ready + 3 * send
        for place in range(12):
            numbers = bytes((place * 7 + step * 5) % 256 for step in range(40))
            yield ready + 2 * send + bytes([ANSWER, 0]) + numbers + 2 * send + bytes([TIME, 200])
            yield bytes([settings]) + bytes([WELL, 0, ANSWER, 0]) + numbers + send + known + send
    yield b"\0" + known + bytes([GARBAGE, 0, 8]) + bytes(8) + bytes([FLUSH, LOSE, 0, TIME, 255])


TARGETS = {"sender": Target(run, seeds, max_size=200)}
