"""What the tests of the null broker share: one connection that speaks Kafka through kio's encoder and decoder."""

from __future__ import annotations

import contextlib
import importlib
import socket
import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.serial import entity_reader

from tests.unit.fake_broker_peer import produce_request
from tests.wire_oracle import request_frame, response_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.null_broker import NullBroker


class Peer:
    """A connection to one of the brokers; every answer is checked to be its request's, and to be read whole."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._next_correlation_id = 1

    def tell(self, request: Any) -> int:
        """Send a request and wait for nothing."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.connection.sendall(request_frame(request, correlation_id))
        return correlation_id

    def hear(self, request: Any, correlation_id: int) -> Any:
        """The answer to a request that was sent."""
        cls = response_class(type(request).__api_key__, type(request).__version__)
        payload = self.payload()
        header, size = entity_reader(cls.__header_schema__)(payload, 0)
        body, body_size = entity_reader(cls)(payload, size)
        assert header.correlation_id == correlation_id
        assert size + body_size == len(payload)
        return body

    def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer."""
        return self.hear(request, self.tell(request))

    def payload(self) -> bytes:
        """The next answer's bytes, without their size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.connection.recv(size - len(received))
            assert chunk, "the broker closed the connection"
            received += chunk
        return bytes(received)


@contextlib.contextmanager
def peer_of(broker: NullBroker, node: int = 0) -> Iterator[Peer]:
    """Connect to that broker."""
    host, port = broker.bootstrap_servers.split(",")[node].split(":")
    with socket.create_connection((host, int(port))) as connection:
        yield Peer(connection)


def schema_of(api: str, version: int) -> Any:
    """kio's module with the request's classes."""
    return importlib.import_module(f"kio.schema.{api}.v{version}.request")


def metadata_request(version: int, *topics: str | UUID, everything: bool = False) -> Any:
    """Ask for these topics by name or id, or for all."""
    schema = schema_of("metadata", version)
    entries = tuple(
        schema.MetadataRequestTopic(name=None, topic_id=topic)
        if isinstance(topic, UUID)
        else schema.MetadataRequestTopic(name=topic, **({"topic_id": None} if version >= 10 else {}))
        for topic in topics
    )
    unset = {} if version < 8 else {"include_topic_authorized_operations": False}
    if 8 <= version <= 10:
        unset["include_cluster_authorized_operations"] = False
    return schema.MetadataRequest(topics=None if everything and version > 0 else entries, **unset)


def produce(peer: Peer, topic: Any, partition: int, records: bytes | None, **keywords: Any) -> Any:
    """One batch for one partition, and the partition's part of the answer."""
    body = peer.ask(produce_request(topic, {partition: records}, **keywords))
    (topic_answer,) = body.responses
    (answer,) = topic_answer.partition_responses
    assert answer.index == partition
    return answer
