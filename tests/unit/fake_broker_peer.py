"""What the tests of the broker model share: a client that is not ours, and scripts with Kafka's answers.

Batches are made by aiokafka's builder, requests by kio's encoder, answers read by kio's decoder (they come from
our own broker): nothing of `aioproduce.wire` or `aioproduce._native` judges itself here.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from kio.serial import entity_reader

from aioproduce.testing import BrokerState, ClusterModel, ClusterState
from aioproduce.testing.fake_cluster.effects import Close, Send
from tests.wire_oracle import request_frame, response_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

EPOCH_MS = 1_700_000_000_000
TIMESTAMP = EPOCH_MS + 1000


def batch(
    *values: bytes | None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp: int = TIMESTAMP,
    is_transactional: bool = False,
) -> bytes:
    """One batch; `producer` is (id, epoch, base sequence)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=is_transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 24,
    )
    for index, value in enumerate(values):
        assert builder.append(index, timestamp + index, key, value, list(headers)) is not None
    return bytes(builder.build())


def tampered(content: bytes, layout: str, position: int, *values: int, fix_crc: bool = True) -> bytes:
    """The batch with some bytes of its header overwritten, and the checksum made right again."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, position, *values)
    if fix_crc:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def produce_request(
    topic: str | UUID,
    partitions: Mapping[int, bytes | None] | Iterable[tuple[int, bytes | None]],
    *,
    version: int = 8,
    acks: int = -1,
    timeout: float = 1.0,
    transactional_id: str | None = None,
) -> Any:
    """A Produce request as kio's entity; v13 takes the topic's id. Pairs may name a partition twice."""
    pairs = partitions.items() if isinstance(partitions, Mapping) else partitions
    schema: Any = importlib.import_module(f"kio.schema.produce.v{version}.request")
    named = {"name": topic} if version < 13 else {"topic_id": topic}
    return schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(seconds=timeout),
        topic_data=(
            schema.TopicProduceData(
                **named,
                partition_data=tuple(
                    schema.PartitionProduceData(index=index, records=records) for index, records in pairs
                ),
            ),
        ),
    )


def fetch_request(
    cluster: ClusterModel,
    offset: int = 0,
    *,
    version: int = 12,
    topic: str = "t",
    partitions: tuple[int, ...] = (0,),
    max_bytes: int = 1 << 30,
    partition_max_bytes: int = 1 << 30,
    min_bytes: int = 1,
    max_wait: float = 0.0,
    leader_epoch: int = -1,
    **fields: Any,
) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    named = {"topic": topic} if version < 13 else {"topic_id": cluster.state.topics[topic].topic_id}
    epoch = {} if version < 9 else {"current_leader_epoch": leader_epoch}
    forgotten = {} if version < 7 else {"forgotten_topics_data": ()}
    return schema.FetchRequest(
        max_wait=timedelta(seconds=max_wait),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(
            schema.FetchTopic(
                **named,
                partitions=tuple(
                    schema.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        **epoch,
                    )
                    for partition in partitions
                ),
            ),
        ),
        **forgotten,
        **fields,
    )


def init_producer_id(
    transactional_id: str | None = None, *, producer: tuple[int, int] = (-1, -1), version: int = 4
) -> Any:
    """An InitProducerId request."""
    schema: Any = importlib.import_module(f"kio.schema.init_producer_id.v{version}.request")
    return schema.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=timedelta(seconds=60),
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def find_transaction_coordinator(transactional_id: str) -> Any:
    """A FindCoordinator request."""
    schema: Any = importlib.import_module("kio.schema.find_coordinator.v2.request")
    return schema.FindCoordinatorRequest(key=transactional_id, key_type=1)


def model(brokers: int = 1, *, topics: Mapping[str, int] | None = None, **settings: Any) -> ClusterModel:
    """A model whose clock is the test's."""
    state = ClusterState(
        [BrokerState(broker_id, "127.0.0.1", 9000 + broker_id) for broker_id in range(brokers)], **settings
    )
    for name, partitions in (topics or {}).items():
        state.create_topic(name, partitions)
    return ClusterModel(state, epoch_ms=EPOCH_MS)


class Peer:
    """One connection to a broker of a model."""

    def __init__(self, cluster: ClusterModel, broker: int = 0, *, now: float = 0.0) -> None:
        self.cluster = cluster
        self.connection_id = cluster.connection_opened(broker, now)
        self.received = bytearray()
        self.is_closed = False
        self.is_reset = False
        self._correlation_id = 0
        self._asked: list[type[Any]] = []

    def send(self, request: Any, *, now: float = 0.0) -> None:
        """Send one request, its answer to be fetched later."""
        self._correlation_id += 1
        cls = type(request)
        self._asked.append(response_class(cls.__api_key__, cls.__version__))
        self.send_bytes(request_frame(request, self._correlation_id), now=now)

    def send_bytes(self, data: bytes, *, now: float = 0.0) -> None:
        self.cluster.receive_data(self.connection_id, data, now)
        self.drain()

    def drain(self) -> None:
        """Take what the model wants sent here; other connections' effects stay."""
        kept = []
        while self.cluster.effects:
            effect = self.cluster.effects.popleft()
            if effect.connection_id != self.connection_id:
                kept.append(effect)
            elif isinstance(effect, Send):
                self.received += effect.data
            elif isinstance(effect, Close):
                self.is_closed = True
                self.is_reset = effect.is_reset
        self.cluster.effects.extend(kept)

    def frames(self) -> list[bytes]:
        """The whole frames that came so far."""
        self.drain()
        frames = []
        while len(self.received) >= 4:
            size = int.from_bytes(self.received[:4], "big")
            if len(self.received) < 4 + size:
                break
            frames.append(bytes(self.received[4 : 4 + size]))
            del self.received[: 4 + size]
        return frames

    def answers(self) -> list[Any]:
        """What came, decoded by kio, in order of the requests."""
        return [decoded(self._asked.pop(0), frame) for frame in self.frames()]

    def ask(self, request: Any, *, now: float = 0.0) -> Any:
        """Send one request and take its answer."""
        self.send(request, now=now)
        (answer,) = self.answers()
        return answer

    def produce(
        self, topic: str, content: bytes | None, *, partition: int = 0, now: float = 0.0, **settings: Any
    ) -> Any:
        """Produce one batch; the partition's answer."""
        answer = self.ask(produce_request(topic, {partition: content}, **settings), now=now)
        return answer.responses[0].partition_responses[0]


def decoded(cls: type[Any], frame: bytes) -> Any:
    """An answer that is known to be well-formed, header checked."""
    header, size = entity_reader(cls.__header_schema__)(frame, 0)
    body, body_size = entity_reader(cls)(frame, size)
    assert size + body_size == len(frame)
    assert header.correlation_id >= 0
    return body


@dataclass(frozen=True)
class Step:
    """One Produce request of one batch, and what Apache Kafka 4.3.1 answers."""

    content: bytes
    code: int
    base_offset: int = -1
    version: int = 8
    acks: int = -1


def _in_turn(producer_id: int, *steps: tuple[int, int, int, int, int]) -> tuple[Step, ...]:
    """Steps from (epoch, base sequence, records, expected code, expected base offset)."""
    return tuple(
        Step(batch(*[b"v"] * count, producer=(producer_id, epoch, sequence)), code, offset)
        for epoch, sequence, count, code, offset in steps
    )


_NONE, _CORRUPT, _TOO_LARGE, _UNSUPPORTED_CODEC, _ACKS = 0, 2, 10, 76, 21
_OUT_OF_ORDER, _OLD_EPOCH, _INVALID_TIMESTAMP, _INVALID_RECORD = 45, 47, 32, 87
_LAST = 2**31 - 1


class ReplicatedTopic(Protocol):
    """A topic of one partition with three replicas, and a follower that can be held up."""

    def produce(self, content: bytes, *, acks: int = -1, timeout: float = 0.5) -> tuple[int, int]:
        """(error code, base offset) of the answer."""

    def hold(self) -> None:
        """A follower stops to fetch."""

    def wait_for_isr(self, replicas: int) -> None:
        """Wait until so many are in sync."""

    def release(self) -> None:
        """It fetches again."""


def replicate(topic: ReplicatedTopic) -> list[tuple[int, int]]:
    """Produce while a follower is held up, where `min.insync.replicas` is 3; what is answered.

    Kafka 4.3.1 and the model give `REPLICATED_ANSWERS`.
    """
    patience = 20.0
    first, second, third, fourth, fifth = (batch(b"v", b"w", producer=(9200, 0, 2 * n)) for n in range(5))
    answers = [topic.produce(first, timeout=patience)]
    topic.hold()
    answers += [
        # Appended, and not replicated in time; a retry is known, and waits, too.
        topic.produce(second),
        topic.produce(second),
        topic.produce(second, acks=1),
        # A retry of what is replicated has nothing to wait for.
        topic.produce(first, timeout=patience),
        # Meanwhile the ISR shrinks. Older brokers answered NOT_ENOUGH_REPLICAS_AFTER_APPEND then; 4.3.1 goes on
        # waiting (KIP-966).
        topic.produce(third, timeout=10.0),
    ]
    topic.wait_for_isr(2)
    answers += [
        # Refused before anything is looked at, also a retry of what is committed.
        topic.produce(first),
        topic.produce(fourth),
        topic.produce(fourth, acks=1),
    ]
    topic.release()
    topic.wait_for_isr(3)
    return [*answers, topic.produce(second, timeout=patience), topic.produce(fifth, timeout=patience)]


REPLICATED_ANSWERS = [
    (0, 0),
    *((7, 2), (7, 2), (0, 2), (0, 0), (7, 4)),
    *((19, -1), (19, -1), (0, 6)),
    *((0, 2), (0, 8)),
]

# One batch of one record per sequence; the replica that is elected has no more than the first two of them. What it
# answers then, to sequences in this order: (sequence, error code, base offset).
WRITTEN_BEFORE_TRUNCATION = range(4)
REPLICATED_BEFORE_TRUNCATION = 2
ANSWERS_AFTER_TRUNCATION = [(4, 45, -1), (3, 45, -1), (1, 0, 1), (2, 0, 2), (3, 0, 3)]


# (error code, epoch) for: a new transactional id, again, again naming the last id and epoch, naming an older epoch
# (PRODUCER_FENCED), and another new transactional id, naming an id that is not its own.
TRANSACTIONAL_ANSWERS = [(0, 0), (0, 1), (0, 2), (90, -1), (0, 0)]

# Every script has a topic of one partition for itself. `test_fake_broker_scripts` replays them against the model,
# `tests/integration/test_fake_broker_against_kafka.py` against the real thing: both give these answers.
SCRIPTS: dict[str, tuple[Step, ...]] = {
    "in order": _in_turn(9001, (0, 0, 3, _NONE, 0), (0, 3, 2, _NONE, 3), (0, 5, 1, _NONE, 5)),
    "duplicates within the last five batches give the original offset": _in_turn(
        9002,
        *((0, 2 * n, 2, _NONE, 2 * n) for n in range(5)),
        *((0, 2 * n, 2, _NONE, 2 * n) for n in range(5)),
        (0, 10, 1, _NONE, 10),
    ),
    "a duplicate older than the window is out of order": _in_turn(
        9003,
        *((0, n, 1, _NONE, n) for n in range(6)),
        (0, 0, 1, _OUT_OF_ORDER, -1),
        (0, 1, 1, _NONE, 1),
        (0, 6, 1, _NONE, 6),
    ),
    "a duplicate must match from the first to the last sequence": _in_turn(
        9004,
        (0, 0, 3, _NONE, 0),
        (0, 0, 2, _OUT_OF_ORDER, -1),
        (0, 1, 2, _OUT_OF_ORDER, -1),
        (0, 0, 3, _NONE, 0),
    ),
    "a gap is out of order, and changes nothing": _in_turn(
        9005, (0, 0, 1, _NONE, 0), (0, 2, 1, _OUT_OF_ORDER, -1), (0, 1, 1, _NONE, 1), (0, 2, 1, _NONE, 2)
    ),
    "an unknown producer may start anywhere (KIP-360)": _in_turn(
        9006, (0, 17, 2, _NONE, 0), (0, 19, 1, _NONE, 2), (0, 18, 1, _OUT_OF_ORDER, -1)
    ),
    "a new epoch starts at 0, and the old one is fenced": _in_turn(
        9007,
        (0, 0, 2, _NONE, 0),
        (1, 2, 1, _OUT_OF_ORDER, -1),
        (0, 2, 1, _NONE, 2),
        (1, 0, 1, _NONE, 3),
        (0, 3, 1, _OLD_EPOCH, -1),
        (0, 2, 1, _OLD_EPOCH, -1),
        (1, 1, 1, _NONE, 4),
        (5, 0, 1, _NONE, 5),
    ),
    "the window does not outlive its epoch": _in_turn(
        9008, (0, 0, 1, _NONE, 0), (1, 0, 1, _NONE, 1), (1, 0, 1, _NONE, 1), (2, 0, 1, _NONE, 2)
    ),
    "after 2^31-1 comes 0": _in_turn(
        9009,
        (0, _LAST - 1, 2, _NONE, 0),
        (0, 0, 1, _NONE, 2),
        (0, _LAST - 1, 2, _NONE, 0),
        (0, 1, 1, _NONE, 3),
    ),
    "a batch across 2^31-1": _in_turn(
        9010,
        (0, _LAST - 1, 4, _NONE, 0),
        (0, 2, 1, _NONE, 4),
        (0, _LAST - 1, 4, _NONE, 0),
        (0, 1, 1, _OUT_OF_ORDER, -1),
    ),
    "two producers do not disturb each other": (
        *_in_turn(9011, (0, 0, 1, _NONE, 0)),
        *_in_turn(9012, (3, 0, 1, _NONE, 1)),
        *_in_turn(9011, (0, 1, 1, _NONE, 2)),
        *_in_turn(9012, (3, 0, 1, _NONE, 1)),
    ),
    "without a producer id nothing is a duplicate": (
        Step(batch(b"v"), _NONE, 0),
        Step(batch(b"v"), _NONE, 1),
    ),
    "acks": (
        Step(batch(b"v"), _NONE, 0, acks=1),
        Step(batch(b"v"), _ACKS, acks=2),
        Step(batch(b"v"), _ACKS, acks=-2),
        Step(batch(b"v"), _NONE, 1),
    ),
    "checksum": (
        Step(tampered(batch(b"v"), ">I", 17, 1, fix_crc=False), _CORRUPT),
        Step(batch(b"v")[:-1] + b"\xff", _CORRUPT),
    ),
    "shape of the request": (
        Step(b"", _INVALID_RECORD),
        Step(batch(b"v")[:-1], _INVALID_RECORD),
        Step(batch(b"v") + batch(b"w"), _INVALID_RECORD),
        Step(tampered(batch(b"v"), ">b", 16, 1, fix_crc=False), _INVALID_RECORD),
        Step(tampered(batch(b"v"), ">b", 16, 3, fix_crc=False), _CORRUPT),
        Step(tampered(batch(b"v"), ">b", 16, -1, fix_crc=False), _CORRUPT),
    ),
    "header": (
        Step(tampered(batch(b"v"), ">q", 0, 5), _INVALID_RECORD),
        Step(tampered(batch(b"v", b"w"), ">i", 57, 3), _INVALID_RECORD),
        Step(tampered(batch(b"v", b"w"), ">i", 57, 1), _INVALID_RECORD),
        Step(tampered(batch(b"v"), ">i", 57, 0), _INVALID_RECORD),
        Step(tampered(batch(b"v", b"w"), ">i", 23, 0), _INVALID_RECORD),
        Step(tampered(batch(b"v"), ">i", 23, -1), _INVALID_RECORD),
        Step(tampered(batch(b"v"), ">h", 21, 0x20), _INVALID_RECORD),
        Step(batch(b"v", producer=(9013, 0, -1)), _INVALID_RECORD),
    ),
    "number of records": (
        Step(tampered(tampered(batch(b"v", b"w"), ">i", 57, 3), ">i", 23, 2), _INVALID_RECORD),
        Step(tampered(tampered(batch(b"v", b"w"), ">i", 57, 1), ">i", 23, 0), _INVALID_RECORD),
    ),
    "timestamps": (
        Step(batch(b"v", timestamp=32_503_680_000_000), _INVALID_TIMESTAMP),
        Step(batch(b"v", timestamp=0), _NONE, 0),
    ),
    "size": (
        Step(batch(b"v" * (1_048_588 - 61 - 11)), _NONE, 0),
        Step(batch(b"v" * (1_048_588 - 61 - 10)), _TOO_LARGE),
    ),
    "zstd needs Produce v7": (
        Step(batch(b"v", codec=4), _UNSUPPORTED_CODEC, version=6),
        Step(batch(b"v", codec=4), _NONE, 0, version=7),
    ),
}

# Two batches of one partition in a request, then another request: the values that are written, and all answers.
TWICE_IN_ONE_REQUEST = ((0, batch(b"a", b"b")), (0, batch(b"c")))
ANSWERS_TO_TWICE = [[(0, 0, 0)], [(0, 0, 1)]]


def answers_to_twice(ask: Callable[[Any], Any], topic: str) -> list[list[tuple[int, int, int]]]:
    """Partition, code and base offset of each answer to the two requests; Kafka keeps the last batch alone."""
    requests = produce_request(topic, TWICE_IN_ONE_REQUEST), produce_request(topic, {0: batch(b"d")})
    return [
        [
            (answer.index, answer.error_code.value, answer.base_offset)
            for answer in ask(request).responses[0].partition_responses
        ]
        for request in requests
    ]
