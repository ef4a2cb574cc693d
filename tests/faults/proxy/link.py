"""One connection of a client through the proxy, and the one to the broker behind it.

Made by `server` for each connection that it accepts. Four tasks: each way has one that reads frames and one that
writes pieces, with a short queue between, so that latency delays every frame and slows down none.

Invariants:
1. What is read from one end is written to the other, byte by byte and in order, unless a fault says otherwise.
2. Everything goes through the queue of its way, the end of the connection too: a line that is held holds it all,
   and delivers it when it heals, as TCP does after a partition.
3. Frames are split, never understood beyond the first eight bytes of a request (API, version, correlation id) and
   the first four of an answer. What cannot be a frame (TLS, a hostile length) is carried as it comes from there on.
4. An answer belongs to the oldest request with its correlation id. Requests before that one were never answered
   (acks=0), since a broker answers in order.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tests.faults.proxy.faults import WRONG_ID_OFFSET, Act, Direction, WireFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.faults.proxy.faults import FaultScript, Shape

_SIZE: Final = struct.Struct(">i")
_REQUEST_HEAD: Final = struct.Struct(">hhi")
# l_onoff=1, l_linger=0: close() sends RST instead of FIN.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
# Frames on their way in one direction. More than a client has in flight; few enough that a slow line holds it up.
_QUEUE: Final = 16
# Of a frame: socket.request.max.bytes of a broker. TLS' first four bytes announce 369 MB.
_LARGEST: Final = 100 << 20
_CHUNK: Final = 1 << 16


class _LinkEndedError(Exception):
    """Both connections of a link are closed or about to be: its other tasks have nothing more to do."""


class _UnframedError(Exception):
    """The next bytes are no frame; they are the argument."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that the broker has not answered."""

    correlation_id: int
    api: int
    fault: WireFault | None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes that are to leave at `due`, and what happens to the receiving end after them."""

    due: float
    payload: bytes = b""
    closes: bool = False
    is_reset: bool = False


class _Way:
    """The queue and the far end of one direction."""

    __slots__ = ("_last_due", "_loop", "_rng", "queue", "shape", "writer")

    def __init__(self, shape: Shape, rng: random.Random, writer: asyncio.StreamWriter) -> None:
        self.shape = shape
        self.writer = writer
        self.queue: asyncio.Queue[_Piece] = asyncio.Queue(_QUEUE)
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._last_due = 0.0

    async def put(
        self, payload: bytes = b"", *, later: float = 0.0, closes: bool = False, is_reset: bool = False
    ) -> None:
        """Send bytes on their way; behind everything that was put before, whatever its delay."""
        delay = later + self.shape.latency + self.shape.jitter * self._rng.random()
        self._last_due = max(self._last_due, self._loop.time() + delay)
        await self.queue.put(_Piece(self._last_due, payload, closes, is_reset))


class Link:
    """A client's connection and its broker's.

    Args:
        broker: The broker's id.
        number: Its place among all connections to that broker, from 1.
        seed: Of the random choices on this link.
        script: Asked for the fault of each request.
        shapes: How each way carries bytes; they may change at any time.
        released: Per way, set while it is not held.
        seen: Told the API, version and correlation id of every request.
    """

    def __init__(
        self,
        broker: int,
        number: int,
        seed: int,
        script: FaultScript,
        shapes: dict[Direction, Shape],
        released: dict[Direction, asyncio.Event],
        seen: Callable[[Link, int, int, int], object],
    ) -> None:
        self.broker = broker
        self.number = number
        self.pending: deque[Pending] = deque()
        self._script = script
        self._shapes = shapes
        self._released = released
        self._seen = seen
        # A string: its digest seeds, which is the same in every process.
        self._rng = random.Random(f"{seed} {broker} {number}")
        self._ways: dict[Direction, _Way] = {}
        self._writers: list[asyncio.StreamWriter] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the broker owes no answer, and nothing is on its way."""
        return not self.pending and all(way.queue.empty() for way in self._ways.values())

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        """Carry bytes until one of the two connections is closed or reset, and close the other the same way."""
        self._task = asyncio.current_task()
        self._writers.append(writer)
        try:
            try:
                far_reader, far_writer = await asyncio.open_connection(host, port)
            except OSError:
                _reset(writer)
                return
            self._writers.append(far_writer)
            for direction, end in ((Direction.TO_BROKER, far_writer), (Direction.TO_CLIENT, writer)):
                rng = random.Random(self._rng.getrandbits(64))
                self._ways[direction] = _Way(self._shapes[direction], rng, end)
            await self._carry_until_the_end(reader, far_reader)
            # What was written before the end must still get out, for as long as the far end takes.
            await asyncio.gather(*(each.wait_closed() for each in self._writers), return_exceptions=True)
        finally:
            for each in self._writers:
                each.transport.abort()

    def reset(self) -> None:
        """Reset both connections now."""
        for writer in self._writers:
            _reset(writer)
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Close both connections by FIN, after what was written to them."""
        for writer in self._writers:
            writer.transport.close()

    async def _carry_until_the_end(
        self, reader: asyncio.StreamReader, far_reader: asyncio.StreamReader
    ) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(Direction.TO_BROKER, reader, self._request))
                tasks.create_task(self._read(Direction.TO_CLIENT, far_reader, self._answer))
                for direction in Direction:
                    tasks.create_task(self._write(direction))
        except* _LinkEndedError:
            pass  # raised so that the other tasks of the group end too

    # Reading

    async def _read(
        self,
        direction: Direction,
        reader: asyncio.StreamReader,
        handle: Callable[[_Way, bytes], Awaitable[None]],
    ) -> None:
        """Read frames, or what is none, until the connection ends; its end goes the same way."""
        way = self._ways[direction]
        try:
            try:
                while True:
                    await handle(way, await read_frame(reader))
            except _UnframedError as unframed:
                await way.put(*unframed.args)
            while chunk := await reader.read(_CHUNK):
                await way.put(chunk)
            await way.put(closes=True)
        except asyncio.IncompleteReadError as ended:
            await way.put(ended.partial, closes=True)
        except OSError:
            await way.put(closes=True, is_reset=True)

    async def _request(self, way: _Way, frame: bytes) -> None:
        api, version, correlation_id = _REQUEST_HEAD.unpack_from(frame, _SIZE.size)
        fault = self._script.take(api, self.broker, self._rng)
        self._seen(self, api, version, correlation_id)
        if fault is not None:
            fault.links.append(self)
            if fault.act is Act.HOLD:
                fault.held.append((self.broker, frame))
            if fault.act in (Act.HOLD, Act.RESET_BEFORE):
                self._reset_both()
        self.pending.append(Pending(correlation_id, api, fault))
        await way.put(frame)

    async def _answer(self, way: _Way, frame: bytes) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame, _SIZE.size)
        fault = self._fault_of(correlation_id)
        if fault is None:
            await way.put(frame)
            return
        match fault.act:
            case Act.RESET_AFTER:
                self._reset_both()
            case Act.CUT:
                await way.put(frame[: fault.length], closes=True, is_reset=fault.is_reset)
            case Act.SWALLOW:
                pass
            case Act.DELAY:
                await way.put(frame, later=fault.seconds)
            case Act.WRONG_ID:
                await way.put(frame[:4] + _SIZE.pack(correlation_id + WRONG_ID_OFFSET) + frame[8:])
            case Act.LENGTH:
                await way.put(_SIZE.pack(fault.length))
            case Act.GARBAGE:
                await way.put(fault.payload)
            case Act.CLOSE_AFTER:
                await way.put(frame, closes=True)
            case Act.RESET_BEFORE | Act.HOLD:
                raise AssertionError("such a request is not forwarded")

    def _fault_of(self, correlation_id: int) -> WireFault | None:
        """The fault of the request that is answered; it, and all before it, are pending no longer."""
        if not any(each.correlation_id == correlation_id for each in self.pending):
            return None
        while True:
            request = self.pending.popleft()
            if request.correlation_id == correlation_id:
                return request.fault

    # Writing

    async def _write(self, direction: Direction) -> None:
        way, released = self._ways[direction], self._released[direction]
        is_taken = True
        while True:
            piece, payload = await self._next(way)
            # An end that is gone takes nothing more; that it is gone comes from its own reader, the other way.
            if is_taken:
                try:
                    await _carry(way, released, payload)
                except OSError:
                    is_taken = False
            if piece.closes:
                await released.wait()
                if piece.is_reset:
                    self._reset_both()
                self.close()
                raise _LinkEndedError

    async def _next(self, way: _Way) -> tuple[_Piece, bytes]:
        """What is to be written next, at its time: the last of its pieces, and the bytes of all of them."""
        loop = asyncio.get_running_loop()
        piece = await way.queue.get()
        payload = piece.payload
        answers = 1
        while answers < way.shape.coalesce and self.pending and not piece.closes:
            piece = await way.queue.get()
            payload += piece.payload
            answers += 1
        if piece.due > loop.time():
            await asyncio.sleep(piece.due - loop.time())
        return piece, payload

    def _reset_both(self) -> NoReturn:
        for writer in self._writers:
            _reset(writer)
        raise _LinkEndedError


async def _carry(way: _Way, released: asyncio.Event, payload: bytes) -> None:
    """Write bytes as the line's shape has it, which may change on the way."""
    at = 0
    while at < len(payload):
        await released.wait()
        shape = way.shape
        size = shape.slice_bytes or len(payload)
        if shape.bytes_per_second:
            # A tenth of a second's worth at a time: a limit shows as a trickle, not as a delay.
            size = min(size, max(1, int(shape.bytes_per_second / 10)))
        piece = payload[at : at + size]
        at += size
        if shape.bytes_per_second:
            await asyncio.sleep(len(piece) / shape.bytes_per_second)
            await released.wait()
        if way.writer.transport.is_closing():
            raise ConnectionResetError
        way.writer.write(piece)
        await way.writer.drain()
        if shape.slice_bytes:
            await asyncio.sleep(0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One frame with its size."""
    head = await reader.readexactly(_SIZE.size)
    (size,) = _SIZE.unpack(head)
    if not _SIZE.size <= size <= _LARGEST:
        raise _UnframedError(head)
    try:
        return head + await reader.readexactly(size)
    except asyncio.IncompleteReadError as cut:
        raise asyncio.IncompleteReadError(head + cut.partial, size) from None


def _reset(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
