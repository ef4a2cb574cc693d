"""Sends dead letters to a topic of their own. The table keeps each until the cluster has acknowledged it there.

A queue with `dead_letter_topic` runs one, as a task. What an earlier process left in the table is sent, too.

Invariants:

1. A dead letter is removed after its acknowledgement, never before. A kill in between sends it again, with its id.
2. One that the topic refuses stays in the table, and is not tried again by this process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import InvalidRecordError, ProducerError, ProducerStateError
from aioproduce.spool.dead_letter_table import DeadLetter, read_dead_letters, remove_dead_letters
from aioproduce.spool.topic_queue import ID_HEADER

if TYPE_CHECKING:
    from aioproduce.drivers.base import Driver, Waiter
    from aioproduce.producer.producer import Producer
    from aioproduce.records import Header

_log = logging.getLogger("aioproduce.spool")

TOPIC_HEADER: Final = "ap.dead.topic"
"""The topic that the record was for."""

REASON_HEADER: Final = "ap.dead.reason"
"""Why it can never be there, as text."""

_GROUP: Final = 500
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
    """

    def __init__(
        self,
        path: str,
        topic: str,
        producer: Callable[[], Awaitable[Producer[bytes, bytes]]],
        driver: Driver,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._path = path
        self._topic = topic
        self._producer = producer
        self._driver = driver
        self._in_thread = in_thread
        self._refused: set[tuple[str, bytes]] = set()
        self._waiter: Waiter | None = None

    def wake(self) -> None:
        """Notice that there is a new dead letter."""
        if self._waiter is not None:
            self._waiter.notify()

    async def run(self) -> None:
        """Send what is there, as it comes, without an end."""
        while True:
            self._waiter = self._driver.make_waiter()  # first: what comes while the table is read wakes it
            letters: list[DeadLetter] = await self._in_thread(self._read)
            try:
                for start in range(0, len(letters), _GROUP):
                    await self._send(letters[start : start + _GROUP])
            except ProducerStateError:
                raise
            except ProducerError as error:
                _log.warning(
                    "the spool cannot send dead letters to %s, and goes on trying: %s", self._topic, error
                )
                await self._waiter.wait(self._driver.now() + _PAUSE)
            else:
                await self._waiter.wait(inf)

    def _read(self) -> list[DeadLetter]:
        if not os.path.exists(self._path):
            return []
        return [each for each in read_dead_letters(self._path) if (each.topic, each.id) not in self._refused]

    async def _send(self, letters: list[DeadLetter]) -> None:
        """Send dead letters, and remove those that are acknowledged.

        Raises:
            ProducerError: if the topic takes nothing at present.
        """
        producer = await self._producer()
        deliveries = []
        trouble: ProducerError | None = None
        for letter in letters:
            try:
                delivery = await producer.send(
                    self._topic,
                    letter.value,
                    letter.key,
                    timestamp=letter.timestamp,
                    headers=_headers(letter),
                )
            except InvalidRecordError as error:
                self._refuse(letter, error)
            except ProducerError as error:
                trouble = error
                break
            else:
                deliveries.append((letter, delivery))
        acknowledged = []
        for letter, delivery in deliveries:
            try:
                await delivery
            except ProducerError as error:
                self._refuse(letter, error)
            else:
                acknowledged.append(letter)
        await self._in_thread(remove_dead_letters, self._path, acknowledged)
        if trouble is not None:
            raise trouble

    def _refuse(self, letter: DeadLetter, error: ProducerError) -> None:
        self._refused.add((letter.topic, letter.id))
        _log.error("a record for %s stays a dead letter: %s", letter.topic, error)


def _headers(letter: DeadLetter) -> list[Header]:
    told = ((TOPIC_HEADER, letter.topic.encode()), (REASON_HEADER, letter.reason.encode()))
    return [*letter.headers, (ID_HEADER, letter.id), *told]
