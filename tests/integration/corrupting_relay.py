"""A relay in front of one broker that can hold requests back and spoil a record batch on its way.

Used by ``test_producer_kafka_proxied.py`` for what the fault proxy of ``tests/faults/proxy`` does not do, as it
leaves payloads alone: a broker that finds a wrong checksum refuses the batch (CORRUPT_MESSAGE), which may be
repeated, while those behind it in the same connection arrive whole and out of sequence.

1. While ``open()`` is not called, requests wait; answers pass at all times.
2. A spoiled Produce request differs in one byte within the last record's value; its frame stays as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

PRODUCE = 0
# Behind the last record's value come its count of headers and the request's empty tagged fields, a byte each.
FROM_THE_END = -20


class CorruptingRelay:
    """Listens where the broker tells its clients to go.

    Args:
        port: Where to listen.
        target: The broker's own port.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._opened = asyncio.Event()
        self._opened.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_spoil = 0
        self._server: asyncio.Server | None = None
        self.spoiled = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def close_and_spoil(self, requests: int) -> None:
        """Hold requests back, and spoil the next so many Produce requests."""
        self._to_spoil = requests
        self._opened.clear()

    def open(self) -> None:
        """Let the requests pass."""
        self._opened.set()

    def _accepted(self, reader: StreamReader, writer: StreamWriter) -> None:
        # A task of our own: asyncio would log the cancellation of the one that it makes for a coroutine.
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        writers = [writer]
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(ours)
            async with asyncio.TaskGroup() as ways:
                answers = ways.create_task(self._carry_answers(theirs, writer))
                await self._carry_requests(reader, ours)
                answers.cancel()
        finally:
            for each in writers:
                each.close()
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(*(each.wait_closed() for each in writers))

    async def _carry_requests(self, reader: StreamReader, writer: StreamWriter) -> None:
        while head := await reader.read(4):
            head += await reader.readexactly(4 - len(head))
            frame = bytearray(await reader.readexactly(*struct.unpack(">i", head)))
            await self._opened.wait()
            if self._to_spoil and struct.unpack_from(">h", frame) == (PRODUCE,):
                self._to_spoil -= 1
                self.spoiled += 1
                frame[FROM_THE_END] ^= 0xFF
            writer.write(head + frame)
            await writer.drain()

    async def _carry_answers(self, reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
