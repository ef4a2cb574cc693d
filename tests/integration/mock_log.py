"""What lies in a partition of librdkafka's mock, batch by batch, and what Kafka would have kept of it.

Used by ``tests/integration/test_producer_mock*.py``. The mock appends a repeated batch a second time, and
librdkafka's consumer does not show sequences; so the batches are fetched and decoded by kio, and the rules of a
broker that remembers its producers are applied afterwards.

1. The rules are those of Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo.checkSequence``: five batches
   are remembered per producer and partition, a repetition is one of them under the same sequences, a new epoch
   begins at 0, within an epoch the next sequence follows the last, and of a producer that is not known any
   sequence is taken (KIP-360).
2. Nothing of ours decodes here: `BlockingConnection` only cuts frames. kio checks the CRC of each batch,
   which the mock does not.
3. Only uncompressed batches: ``test_producer_mock.py`` has librdkafka's consumer for the others.
"""

from __future__ import annotations

import datetime
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v4.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v4.response import FetchResponse
from kio.schema.metadata.v4.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader
from kio.static.primitive import i32, i32Timedelta, i64

from aioproduce.drivers.blocking_client import BlockingConnection
from tests.kafka_tools import ConsumedRecord
from tests.wire_oracle import request_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mock_cluster import MockCluster

Answer = TypeVar("Answer", FetchResponse, MetadataResponse)

TIMEOUT = 30.0
MAX_BYTES = i32(16 << 20)
REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MockBatch:
    """A record batch as it lies in the log; producer id, epoch and sequence are -1 without idempotence."""

    partition: int
    base_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    values: tuple[bytes | None, ...]

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; 0 follows 2^31 - 1."""
        return (self.base_sequence + len(self.values) - 1) & MAX_SEQUENCE

    def records(self) -> Iterable[ConsumedRecord]:
        """Its records, as a consumer meets them (keys, headers and timestamps left out)."""
        for index, value in enumerate(self.values):
            yield ConsumedRecord(self.partition, self.base_offset + index, -1, "CreateTime", (), None, value)


@dataclass(slots=True)
class Kept:
    """What Kafka would have made of a log of the mock.

    Attributes:
        batches: Those that it would have kept.
        repeated: Those that it would have taken for repetitions, and acknowledged without appending them.
        refused: Those that it would have answered with OUT_OF_ORDER_SEQUENCE_NUMBER or a fenced epoch.
    """

    batches: list[MockBatch] = field(default_factory=list)
    repeated: list[MockBatch] = field(default_factory=list)
    refused: list[MockBatch] = field(default_factory=list)


def as_kafka_keeps(batches: Iterable[MockBatch]) -> Kept:
    """Apply the rules of Kafka's producer state; each partition's batches come in the order of its log."""
    kept = Kept()
    states: dict[tuple[int, int], tuple[int, deque[tuple[int, int]]]] = {}
    for batch in batches:
        if batch.producer_id < 0:
            kept.batches.append(batch)
            continue
        place = batch.partition, batch.producer_id
        epoch, remembered = states.get(place, (-1, deque(maxlen=REMEMBERED_BATCHES)))
        sequences = batch.base_sequence, batch.last_sequence
        if batch.producer_epoch == epoch and sequences in remembered:
            kept.repeated.append(batch)
            continue
        if epoch < 0:
            is_next = True
        elif batch.producer_epoch == epoch:
            is_next = batch.base_sequence == (remembered[-1][1] + 1) & MAX_SEQUENCE
        else:
            is_next = batch.producer_epoch > epoch and batch.base_sequence == 0
            remembered = deque(maxlen=REMEMBERED_BATCHES)
        if not is_next:
            kept.refused.append(batch)
            continue
        remembered.append(sequences)
        states[place] = batch.producer_epoch, remembered
        kept.batches.append(batch)
    return kept


def read_batches(cluster: MockCluster, topic: str) -> list[MockBatch]:
    """Every batch that a topic holds now, partition by partition."""
    port = _port_of(cluster.bootstrap_servers.split(",")[0])
    with BlockingConnection("127.0.0.1", port, TIMEOUT) as connection:
        asked = (MetadataRequestTopic(name=TopicName(topic)),)
        known = _ask(
            connection, MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse
        )
        ports = {int(broker.node_id): int(broker.port) for broker in known.brokers}
        leaders = {
            int(partition.partition_index): int(partition.leader_id)
            for entry in known.topics
            for partition in entry.partitions
        }
    found: list[MockBatch] = []
    for leader in sorted(set(leaders.values())):
        with BlockingConnection("127.0.0.1", ports[leader], TIMEOUT) as connection:
            for partition in sorted(number for number, by in leaders.items() if by == leader):
                found += _read_partition(connection, topic, partition)
    return found


def _read_partition(connection: BlockingConnection, topic: str, partition: int) -> Iterable[MockBatch]:
    offset = 0
    while True:
        place = FetchPartition(
            partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=MAX_BYTES
        )
        request = FetchRequest(
            max_wait=i32Timedelta.parse(datetime.timedelta(milliseconds=1)),
            min_bytes=i32(0),
            topics=(FetchTopic(topic=TopicName(topic), partitions=(place,)),),
        )
        answer = _ask(connection, request, FetchResponse)
        ((data,),) = (entry.partitions for entry in answer.responses)
        assert data.error_code is ErrorCode.none, data.error_code
        if offset >= data.high_watermark:
            return
        assert data.records
        batch, size = read_batch(bytes(data.records), 0)
        assert size == len(data.records), "the mock answers with one batch at a time"
        yield MockBatch(
            partition=partition,
            base_offset=int(batch.base_offset),
            producer_id=int(batch.producer_id),
            producer_epoch=int(batch.producer_epoch),
            base_sequence=int(batch.base_sequence),
            values=tuple(record.value for record in batch.records),
        )
        offset = int(batch.base_offset) + len(batch.records)


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _ask(
    connection: BlockingConnection, request: FetchRequest | MetadataRequest, answer: type[Answer]
) -> Answer:
    """One request at a time, so its correlation id, four bytes in front of the answer, needs not be compared."""
    response, _ = entity_reader(answer)(bytes(connection.exchange(request_frame(request))), 4)
    return response
