"""A broker in this process, whose one node leads all topics, and whose logs are a spool's.

A Producer that is connected to it by `drivers.in_process` writes to disk as it would write to Kafka: the same
path of a record, the same batches, the same bounds. So a spool has no second `send()`. It speaks the three
requests that an ordinary producer makes, each in one version.

Invariants:

1. Answers leave in the order of their requests, as a broker's do.
2. The buffers of a Produce request are passed on to the writer as they are, but in direct mode. A connection is
   lost only when the writer uses none of them any more.
3. A small request is alone under way: the next one waits for its answer, and for the tasks that this wakes, and
   gathers records meanwhile. The disk takes one request after the other anyway, and each costs some 200 us. In
   direct mode the cluster takes several at a time, and a request with a batch that goes ahead is not alone.
4. A batch that is certainly not in the log gets a code after which the producer tries again, or, if the queue is
   full, POLICY_VIOLATION. One that may be in the log gets UNKNOWN_SERVER_ERROR, after which it does not.
"""

from __future__ import annotations

import struct
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.spool.topic_log import PossiblyStoredError
from aioproduce.spool.writer_messages import Append, QueueIsFullError
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import KAFKA_STORAGE_ERROR, NONE, POLICY_VIOLATION, UNKNOWN_SERVER_ERROR
from aioproduce.wire.primitives import read_uvarint
from aioproduce.wire.reader import decode_entity, skip_tags
from aioproduce.wire.requests import uvarint
from aioproduce.wire.schema import request_class

if TYPE_CHECKING:
    from aioproduce.core.effects import Buffer, Connect
    from aioproduce.drivers.in_process import Link
    from aioproduce.spool.writer import SpoolWriter

ADDRESS: Final = "spool:1"
"""The address that the producer is told; nothing resolves it."""

_VERSIONS: Final = {ApiKey.PRODUCE: 13, ApiKey.METADATA: 12, ApiKey.API_VERSIONS: 4}
_NODE: Final = 0
SMALL: Final = 128 * 1024
"""A Produce request with fewer bytes of records is small."""

# As `_native.watcher` wakes them. Another number here would only make other groups.
_WAKES_PER_TURN: Final = 256

_TOPICS: Final = uuid.UUID("5f1a0c0e-7a3e-4b0b-9a53-6d0f8f1f6f61")
"""The namespace of the topics' ids: a topic has the same id in each process."""

_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ihhih")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_ANSWERED_BATCH: Final = struct.Struct(">ihqqq")
_NO_ERRORS: Final = b"\x01"
_NO_TAGS: Final = b"\x00"
_NULL: Final = b"\x00"
_NO_TIME: Final = -1
_ID_SIZE: Final = 16


@final
class LocalBroker:
    """Serves a producer of this process.

    Args:
        writer: Writes to the logs.
        on_next_turn: Calls back in the loop's next turn.
        now: The clock of the deadlines of appends.
        max_block: Seconds that a batch may wait for room in a full queue.
        on_arrival: Called with each batch before it is submitted; returns what the writer gets in its place, which
            is another batch if the bytes were copied.
        on_stored: Called with the topic, the first offset and the end offset of each stored batch, before the
            producer is answered.
    """

    def __init__(
        self,
        writer: SpoolWriter,
        on_next_turn: Callable[[Callable[[], None]], object],
        now: Callable[[], float],
        max_block: float,
        on_arrival: Callable[[Append], Append],
        on_stored: Callable[[str, int, int], None],
    ) -> None:
        self.writer: SpoolWriter = writer
        self.on_next_turn: Callable[[Callable[[], None]], object] = on_next_turn
        self._now = now
        self._max_block = max_block
        self.on_arrival: Callable[[Append], Append] = on_arrival
        self.on_stored: Callable[[str, int, int], None] = on_stored
        self._topics: dict[bytes, str] = {}
        self._told: dict[str, int] = {}

    def dial(self, _: Connect, link: Link) -> LocalConnection:
        """Open a connection; see `drivers.in_process.Dial`."""
        return LocalConnection(self, link)

    def topic_id(self, topic: str) -> bytes:
        """Return a topic's id, and know it from then on."""
        raw = uuid.uuid5(_TOPICS, topic).bytes
        self._topics[raw] = topic
        return raw

    def topic(self, topic_id: bytes) -> str:
        """Return the topic of an id that was told."""
        return self._topics[topic_id]

    def told(self, topic: str) -> int:
        """Return how many refusals of a topic the producer knows of."""
        return self._told.get(topic, 0)

    def was_told(self, refused: Sequence[Append]) -> None:
        """Notice that the producer knows of these refusals."""
        for append in refused:
            self._told[append.topic] = max(self.told(append.topic), append.refusals)

    def deadline(self) -> float:
        """Return how long a batch that arrives now may wait for room."""
        return self._now() + self._max_block


@final
class _Answer:
    """The place of an answer in a connection's line."""

    __slots__ = ("frame", "refused")

    def __init__(self) -> None:
        self.frame: bytes | None = None
        self.refused: Sequence[Append] = ()


@final
class LocalConnection:
    """One connection of a producer to the broker.

    Attributes:
        broker: The broker.
    """

    def __init__(self, broker: LocalBroker, link: Link) -> None:
        self.broker: LocalBroker = broker
        self._link = link
        self._line: deque[_Answer] = deque()
        self._under_way = 0
        self._is_aborted = False
        self._has_small = False
        broker.on_next_turn(self._open)

    def _open(self) -> None:
        if not self._is_aborted:
            self._link.connected()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Take a request."""
        if self._is_aborted:
            return
        _, api, version, correlation_id, client_id_size = _HEADER.unpack_from(buffers[0])
        assert _VERSIONS[api] == version
        at = _HEADER.size + max(client_id_size, 0)
        answer = _Answer()
        self._line.append(answer)
        if api == ApiKey.PRODUCE:
            self._produce(answer, correlation_id, _Pieces(buffers, at))
        else:
            frame = _INT32.pack(correlation_id)
            if api == ApiKey.METADATA:
                frame += self._metadata(b"".join(buffers), at)
            else:
                frame += _api_versions()
            answer.frame = frame
            self.broker.on_next_turn(self._flush)
        if not self._has_small:
            self._link.written_at_once()

    def abort(self) -> None:
        """End the connection, when the writer uses no buffer of it any more."""
        if not self._is_aborted:
            self._is_aborted = True
            self._line.clear()
            if not self._under_way:
                self.broker.on_next_turn(self._lost)

    def _lost(self) -> None:
        self._link.lost(None)

    def _flush(self) -> None:
        while self._line and (frame := self._line[0].frame) is not None:
            refused = self._line.popleft().refused
            self._link.received(_LENGTH.pack(len(frame)) + frame)
            self.broker.was_told(refused)  # behind it: what was sent before did not know of them

    def _take_more(self, turns: int) -> None:
        """Let the next request be written after some turns of the loop."""
        if self._is_aborted:
            return
        if turns:
            self.broker.on_next_turn(partial(self._take_more, turns - 1))
        else:
            self._has_small = False
            self._link.written()

    # -- Produce ---

    def _produce(self, answer: _Answer, correlation_id: int, pieces: _Pieces) -> None:
        pieces.skip_tags()
        pieces.string()  # no transactional id
        pieces.unpack(_ACKS_AND_TIMEOUT)
        deadline = self.broker.deadline()
        request = _ProduceRequest(self, answer, correlation_id)
        for _ in range(pieces.count()):
            topic_id = pieces.take(_ID_SIZE)
            topic = self.broker.topic(topic_id)
            appends: list[Append] = []
            for _ in range(pieces.count()):
                pieces.unpack(_INT32)  # the one partition
                size = pieces.count()
                told = self.broker.told(topic)
                appends.append(
                    Append(topic, pieces.records(size), size, deadline, request.answered, told=told)
                )
                pieces.skip_tags()
            pieces.skip_tags()
            request.topics.append((topic_id, appends))
        every = request.appends()
        request.waits_for = len(every)
        writes = [self.broker.on_arrival(append) for append in every]
        by_log = sum(write is append for write, append in zip(writes, every, strict=True))
        self._under_way += by_log
        is_small = by_log == len(every) and sum(append.size for append in every) < SMALL
        self._has_small = is_small and len(self._line) == 1
        self.broker.writer.submit(writes)

    def left(self) -> None:
        """Notice that the writer has left the buffers of a batch."""
        self._under_way -= 1
        if self._is_aborted and not self._under_way:
            self._lost()

    def produced(self, answer: _Answer, frame: bytes, refused: Sequence[Append], record_count: int) -> None:
        """Send the answer to a Produce request that had so many records."""
        answer.frame, answer.refused = frame, refused
        if not self._is_aborted:
            self._flush()
            if self._has_small and not self._line:
                # The tasks that this wakes, some in each turn of the loop, send with the next request.
                self._take_more(1 + record_count // _WAKES_PER_TURN)

    # -- Metadata ---

    def _metadata(self, request: bytes, at: int) -> bytes:
        entity: Any = request_class(ApiKey.METADATA, _VERSIONS[ApiKey.METADATA])
        view = memoryview(request)
        body = decode_entity(entity, view, skip_tags(view, at))
        topics = [topic["name"] for topic in body["topics"] or ()]
        host, _, port = ADDRESS.partition(":")
        broker = _INT32.pack(_NODE) + _string(host) + _INT32.pack(int(port)) + _NULL + _NO_TAGS
        node = uvarint(2) + _INT32.pack(_NODE)
        partition = struct.pack(">hiii", NONE, 0, _NODE, 0) + node + node + _NO_ERRORS + _NO_TAGS
        found = uvarint(len(topics) + 1)
        for topic in topics:
            found += struct.pack(">h", NONE) + _string(topic) + self.broker.topic_id(topic) + b"\0"
            found += uvarint(2) + partition + struct.pack(">i", -0x8000_0000) + _NO_TAGS
        return (
            _NO_TAGS
            + _INT32.pack(0)
            + uvarint(2)
            + broker
            + _string("spool")
            + _INT32.pack(_NODE)
            + found
            + _NO_TAGS
        )


@final
class _ProduceRequest:
    """One Produce request, until the writer has answered each of its batches.

    Attributes:
        topics: Each topic's id, and its batches.
        waits_for: How many batches have no outcome yet.
    """

    __slots__ = ("_answer", "_connection", "_correlation_id", "topics", "waits_for")

    def __init__(self, connection: LocalConnection, answer: _Answer, correlation_id: int) -> None:
        self._connection = connection
        self._answer = answer
        self._correlation_id = correlation_id
        self.waits_for: int = 0
        self.topics: list[tuple[bytes, list[Append]]] = []

    def appends(self) -> list[Append]:
        """Return all batches."""
        return [append for _, appends in self.topics for append in appends]

    def answered(self, append: Append) -> None:
        """Accept the outcome of one batch; answer the request after the last."""
        if append.buffers:
            self._connection.left()
        if append.may_be_in_log:
            self._connection.broker.on_stored(append.topic, append.offset, append.end_offset)
        self.waits_for -= 1
        if not self.waits_for:
            every = self.appends()
            refused = [each for each in every if each.refusals]
            count = sum(each.end_offset - each.offset for each in every if each.error is None)
            self._connection.produced(self._answer, self._frame(), refused, count)

    def _frame(self) -> bytes:
        frame = _INT32.pack(self._correlation_id) + _NO_TAGS + uvarint(len(self.topics) + 1)
        for topic_id, appends in self.topics:
            frame += topic_id + uvarint(len(appends) + 1)
            for append in appends:
                message = _NULL if append.error is None else _string(str(append.error))
                frame += _ANSWERED_BATCH.pack(0, _code(append.error), append.offset, _NO_TIME, 0)
                frame += _NO_ERRORS + message + _NO_TAGS
            frame += _NO_TAGS
        return frame + _INT32.pack(0) + _NO_TAGS


def _code(error: Exception | None) -> int:
    if error is None:
        return NONE
    if isinstance(error, QueueIsFullError):
        return POLICY_VIOLATION
    return UNKNOWN_SERVER_ERROR if isinstance(error, PossiblyStoredError) else KAFKA_STORAGE_ERROR


def _string(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _api_versions() -> bytes:
    apis = b"".join(
        struct.pack(">hhh", api, version, version) + _NO_TAGS for api, version in _VERSIONS.items()
    )
    return struct.pack(">h", NONE) + uvarint(len(_VERSIONS) + 1) + apis + _INT32.pack(0) + _NO_TAGS


@final
class _Pieces:
    """Reads a request that is in pieces. No field but records is in two of them."""

    __slots__ = ("_at", "_pieces", "_view")

    def __init__(self, buffers: Sequence[Buffer], at: int) -> None:
        self._pieces = deque(buffers)
        self._view = memoryview(self._pieces.popleft())
        self._at = at

    def _next(self) -> memoryview:
        if self._at == len(self._view):
            self._view = memoryview(self._pieces.popleft())
            self._at = 0
        return self._view

    def unpack(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Read fields of fixed sizes."""
        values = fields.unpack_from(self._next(), self._at)
        self._at += fields.size
        return values

    def take(self, size: int) -> bytes:
        """Read some bytes."""
        taken = bytes(self._next()[self._at : self._at + size])
        self._at += size
        return taken

    def count(self) -> int:
        """Read the count of a compact array, or the size of compact bytes."""
        number, self._at = read_uvarint(self._next(), self._at)
        return number - 1

    def string(self) -> None:
        """Skip a compact string."""
        self.take(max(self.count(), 0))

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        self._at = skip_tags(self._next(), self._at)

    def records(self, size: int) -> list[Buffer]:
        """Take the pieces of a batch as they are."""
        taken: list[Buffer] = []
        while size > 0:
            view = self._next()
            piece = view[self._at : self._at + size]
            taken.append(piece)
            self._at += len(piece)
            size -= len(piece)
        return taken
