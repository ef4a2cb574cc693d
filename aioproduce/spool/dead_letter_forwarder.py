"""Sends dead letters to a topic of their own. The table keeps each until the cluster has acknowledged it there.

A queue with `dead_letter_topic` runs one, as a task. What an earlier process left in the table is sent, too.

Invariants:

1. A dead letter is removed after its acknowledgement, never before. A kill in between sends it again, with its id.
2. One that the topic refuses for good stays in the table, and is not tried again by this process. Every other
   trouble, of the cluster or of the table, is tried again after a pause.
3. A bounded number of bytes is under way, and in memory.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import InvalidRecordError, ProducerError, ProducerStateError
from aioproduce.spool.bell import Bell
from aioproduce.spool.dead_letter_table import DeadLetter, read_dead_letters, remove_dead_letters
from aioproduce.spool.dead_letters import is_never_accepted
from aioproduce.spool.topic_queue import ID_HEADER

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.drivers.base import Driver
    from aioproduce.producer.producer import Producer

_log = logging.getLogger("aioproduce.spool")

TOPIC_HEADER: Final = "ap.dead.topic"
"""The topic that the record was for."""

REASON_HEADER: Final = "ap.dead.reason"
"""Why it can never be there, as text."""

_GROUP: Final = 20
_WINDOW: Final = 256 * 1024
_PAUSE: Final = 30.0


@final
class DeadLetterForwarder:
    """Forwards the dead letters of one queue.

    Args:
        path: The table's file; it need not be there.
        topic: Where they go.
        producer: Returns the producer that sends them, started.
        driver: The loop's side.
        in_thread: Calls a function in another thread.
        changed: Called when it has nothing to do for now.

    Attributes:
        is_idle: Whether it has nothing to do for now: all is sent, refused, or tried again later.
        sent: How many were acknowledged.
    """

    def __init__(
        self,
        path: str,
        topic: str,
        producer: Callable[[], Awaitable[Producer[bytes, bytes]]],
        driver: Driver,
        in_thread: Callable[..., Awaitable[Any]],
        changed: Callable[[], None],
    ) -> None:
        self._path = path
        self._topic = topic
        self._producer = producer
        self._in_thread = in_thread
        self._changed = changed
        self.is_idle: bool = False
        self.sent: int = 0
        self._has_new = False
        self._refused: set[tuple[str, bytes]] = set()
        self._bell = Bell(driver)

    def wake(self) -> None:
        """Notice that there is a new dead letter."""
        self.is_idle, self._has_new = False, True
        self._bell.ring()

    async def run(self) -> None:
        """Send what is there, as it comes, without an end."""
        while True:
            self.is_idle = self._has_new = False
            pause = inf
            try:
                await self._send_all()
            except ProducerStateError:
                raise
            except (ProducerError, sqlite3.Error, ValueError) as error:
                _log.warning(
                    "the spool cannot send dead letters to %s, and goes on trying: %s", self._topic, error
                )
                pause = _PAUSE
            self.is_idle = not self._has_new
            self._changed()
            await self._bell.wait(pause)

    async def _send_all(self) -> None:
        """Send what is in the table now.

        Raises:
            ProducerError: if the topic takes nothing at present.
            sqlite3.Error: if the table cannot be read or written.
            ValueError: if a dead letter in it cannot be read.
        """
        after: DeadLetter | None = None
        while letters := await self._in_thread(self._read, after):
            after = letters[-1]
            await self._send([each for each in letters if (each.topic, each.id) not in self._refused])

    def _read(self, after: DeadLetter | None) -> list[DeadLetter]:
        return read_dead_letters(self._path, after=after, limit=_GROUP) if os.path.exists(self._path) else []

    async def _send(self, letters: list[DeadLetter]) -> None:
        """Send a few dead letters, and remove those that are acknowledged."""
        sent: list[tuple[DeadLetter, DeliveryFuture]] = []
        under_way = 0
        trouble: ProducerError | None = None
        for letter in letters:
            try:
                sent.append((letter, await self._begin(letter)))
            except InvalidRecordError as error:
                self._refuse(letter, error)
            except ProducerError as error:
                trouble = error
                break
            under_way += len(letter.value or b"") + len(letter.key or b"")
            if under_way >= _WINDOW:  # other topics need the producer's buffer, too
                trouble = await self._settle(sent)
                sent, under_way = [], 0
                if trouble is not None:
                    break
        trouble = await self._settle(sent) or trouble
        if trouble is not None:
            raise trouble

    async def _begin(self, letter: DeadLetter) -> DeliveryFuture:
        producer = await self._producer()
        told = ((TOPIC_HEADER, letter.topic.encode()), (REASON_HEADER, letter.reason.encode()))
        headers = [*letter.headers, (ID_HEADER, letter.id), *told]
        return await producer.send(
            self._topic, letter.value, letter.key, timestamp=letter.timestamp, headers=headers
        )

    async def _settle(self, sent: list[tuple[DeadLetter, DeliveryFuture]]) -> ProducerError | None:
        """Remove what was acknowledged; return why another one was not, if it can be sent later."""
        trouble: ProducerError | None = None
        acknowledged = []
        for letter, delivery in sent:
            try:
                await delivery
            except ProducerError as error:
                if is_never_accepted(error):
                    self._refuse(letter, error)
                else:
                    trouble = error
            else:
                acknowledged.append(letter)
        self.sent += len(acknowledged)
        if acknowledged:
            await self._in_thread(remove_dead_letters, self._path, acknowledged)
        return trouble

    def _refuse(self, letter: DeadLetter, error: ProducerError) -> None:
        self._refused.add((letter.topic, letter.id))
        _log.error("a record for %s stays a dead letter: %s", letter.topic, error)
