"""What a measured producer lives in: an event loop that never waits, and brokers in memory that keep nothing.

Used by `program` only. The real asyncio loop, driver, core and hot path run; a socket's place is taken by a
transport that hands each request to `DiscardingBroker` and its answer back with the loop's next turn.

1. Nothing waits: where the loop would sleep until a timer, the preloaded clock is put forward (`world.c`).
2. The broker reads a Produce request as far as each batch's header, so its work grows with batches, not records.
"""

from __future__ import annotations

import asyncio
import selectors
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.wire.api import ApiKey
from aioproduce.wire.reader import decode_request
from tests.unit.sender_wire import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Request,
    Topic,
    api_versions_body,
    metadata_body,
    topic_id_of,
)

TOPIC: Final = "budget"
PARTITIONS: Final = 6
SERVER: Final = ("broker", 9092)

_PRODUCE_VERSION: Final = 13
_HEADER: Final = struct.Struct(">ihhih")
_PARTITION_ANSWER: Final = struct.Struct(">ihqqqbbb")
# An empty array of record errors, no message, no tags: the end of a partition's answer.
_NOTHING_MORE: Final = (1, 0, 0)
_RECORD_COUNT_AT: Final = 57
_COORDINATOR_APIS: Final = [
    {"api_key": int(api), "min_version": 0, "max_version": highest}
    for api, highest in ((ApiKey.FIND_COORDINATOR, 6), (ApiKey.END_TXN, 5))
]
_VERSION_2: Final = {
    "finalized_features": [
        {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2},
    ],
    "finalized_features_epoch": 1,
}


@final
class DiscardingBroker:
    """One broker that leads every partition, acknowledges every batch and forgets it; it coordinates, too.

    Attributes:
        records: How many were acknowledged.
    """

    def __init__(self) -> None:
        self.records = 0
        self._epoch = -1
        self._offsets = [0] * PARTITIONS
        self._topics = {TOPIC: Topic(topic_id_of(1), [(0, 0)] * PARTITIONS)}

    def answer(self, frame: bytes) -> bytes:
        """Answer one request, also with its length in front."""
        _, api, version, correlation_id, client_id = _HEADER.unpack_from(frame)
        if api == PRODUCE:
            assert version == _PRODUCE_VERSION
            answer = self._produce(frame, correlation_id, _HEADER.size + client_id + 1)
        else:
            answer = encode_response(api, version, correlation_id, self._body(frame))
        return len(answer).to_bytes(4, "big") + answer

    def _body(self, frame: bytes) -> Mapping[str, Any]:
        decoded = decode_request(memoryview(frame)[4:])
        request = Request(0, 0, decoded.api_key, decoded.api_version, decoded.correlation_id, decoded.body, 0)
        if request.api == API_VERSIONS:
            body = api_versions_body((_PRODUCE_VERSION, _PRODUCE_VERSION))
            return body | {"api_keys": [*body["api_keys"], *_COORDINATOR_APIS], **_VERSION_2}
        if request.api == METADATA:
            return metadata_body(request, {0: SERVER}, self._topics)
        if request.api == ApiKey.FIND_COORDINATOR:
            return self._found(*request.body["coordinator_keys"])
        assert request.api in (INIT_PRODUCER_ID, ApiKey.END_TXN)
        self._epoch += 1
        return {"error_code": 0, "producer_id": 1, "producer_epoch": self._epoch}

    def _found(self, key: str) -> Mapping[str, Any]:
        host, port = SERVER
        found = {"key": key, "node_id": 0, "host": host, "port": port, "error_code": 0, "error_message": None}
        return {"coordinators": [found]}

    def _produce(self, frame: bytes, correlation_id: int, at: int) -> bytes:
        """Produce v13: the transactional id, acks and time-out, then topics by id; all lengths compact."""
        length, at = _compact(frame, at)
        at += max(length, 0) + 2 + 4
        topics, at = _compact(frame, at)
        answer = bytearray(struct.pack(">ib", correlation_id, 0))
        answer += bytes((topics + 1,))
        for _ in range(topics):
            answer += frame[at : at + 16]
            partitions, at = _compact(frame, at + 16)
            answer += bytes((partitions + 1,))
            for _ in range(partitions):
                partition = int.from_bytes(frame[at : at + 4], "big")
                size, at = _compact(frame, at + 4)
                count = int.from_bytes(frame[at + _RECORD_COUNT_AT : at + _RECORD_COUNT_AT + 4], "big")
                answer += _PARTITION_ANSWER.pack(
                    partition, 0, self._offsets[partition], -1, 0, *_NOTHING_MORE
                )
                self._offsets[partition] += count
                self.records += count
                at += size + 1
            answer += b"\0"
            at += 1
        # No throttling, no tags.
        return bytes(answer + b"\0\0\0\0\0")


def _compact(frame: bytes, at: int) -> tuple[int, int]:
    """A compact length, which is one more than what it counts; and what comes behind it."""
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, at
        shift += 7


@final
class MemoryTransport(asyncio.Transport):
    """A connection to the broker whose bytes are there as soon as they are written."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any, broker: DiscardingBroker) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._broker = broker
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        """Nothing stays."""
        return 0

    def write(self, data: Any) -> None:
        """One request; its answer comes with the next turn."""
        self._loop.call_soon(self._receive, self._broker.answer(bytes(data)))

    def writelines(self, list_of_data: Any) -> None:
        """The pieces of one request."""
        self._loop.call_soon(self._receive, self._broker.answer(b"".join(list_of_data)))

    def _receive(self, data: bytes) -> None:
        if self._is_closing:
            return
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            memoryview(self._protocol.get_buffer(len(data)))[: len(data)] = data
            self._protocol.buffer_updated(len(data))
        else:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        """Whether it was aborted."""
        return self._is_closing

    def abort(self) -> None:
        """Tell the protocol with the next turn, as a real one does."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    close = abort


class _NoSockets(selectors.BaseSelector):
    """Knows what is registered (the loop's own wake-up pipe) and never finds it ready; time passes instead."""

    def __init__(self, pass_time: Callable[[float], None]) -> None:
        self._pass_time = pass_time
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError(
                "nothing will ever happen any more: something waits for an answer that is not given"
            )
        if timeout > 0:
            self._pass_time(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


@final
class MemoryLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, whose connections all lead to one broker in memory.

    Args:
        pass_time: Puts the clock forward.
    """

    def __init__(self, pass_time: Callable[[float], None]) -> None:
        super().__init__(_NoSockets(pass_time))
        self.broker = DiscardingBroker()

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        """Connect at once."""
        protocol = protocol_factory()
        transport = MemoryTransport(self, protocol, self.broker)
        protocol.connection_made(transport)
        return transport, protocol
