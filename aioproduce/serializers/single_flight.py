"""A bounded cache that asks once for what many want at the same time.

Used by the registry's client for schemas and ids, on whatever event loop anyio knows.

Invariants:

1. At most one question is under way for a key. Who comes meanwhile waits for its answer.
2. There is no task in the background: the first who wants the answer asks, in its own task. If that is
   cancelled the next takes over; the others notice nothing.
3. A failure is told to all who waited for that question, and is not kept: who comes later asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, final

import anyio

from aioproduce.portable_error import copy_of

K = TypeVar("K")
V = TypeVar("V")


@final
class _Question(Generic[V]):
    """One question under way, and what came of it."""

    __slots__ = ("error", "is_answered", "settled")

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.is_answered = False
        self.error: Exception | None = None


@final
class SingleFlight(Generic[K, V]):
    """Answers by key.

    Args:
        capacity: How many answers are kept; the oldest go first.
    """

    __slots__ = ("_answers", "_capacity", "_questions")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._answers: dict[K, V] = {}
        self._questions: dict[K, _Question[V]] = {}

    def get(self, key: K) -> V | None:
        """What is known already."""
        return self._answers.get(key)

    def put(self, key: K, answer: V) -> None:
        """Keep what was learnt on another way."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._capacity:
            del self._answers[next(iter(self._answers))]

    def forget(self, key: K) -> None:
        """Ask again next time."""
        self._answers.pop(key, None)

    def clear(self) -> None:
        """Forget all that is known; what is under way goes on."""
        self._answers.clear()

    def is_asking(self, key: K) -> bool:
        """Whether a question is under way for this key."""
        return key in self._questions

    async def ask(self, key: K, question: Callable[[], Awaitable[V]], *, again: bool = False) -> V:
        """The answer for a key: what is known, or what the one question that is under way brings.

        Args:
            key: What it is about.
            question: Asks; called only if nobody else is asking.
            again: Whether what is known is not enough. It stays known until the new answer is.
        """
        while True:
            answer = self._answers.get(key)
            if answer is not None and not again:
                return answer
            under_way = self._questions.get(key)
            if under_way is None:
                return await self._ask(key, question)
            await under_way.settled.wait()
            if under_way.error is not None:
                # A copy, as each of those who wait raises it with a traceback of its own.
                raise copy_of(under_way.error)
            again = again and not under_way.is_answered

    async def _ask(self, key: K, question: Callable[[], Awaitable[V]]) -> V:
        under_way = self._questions[key] = _Question()
        try:
            answer = await question()
        except Exception as error:
            under_way.error = error
            raise
        else:
            self.put(key, answer)
            under_way.is_answered = True
            return answer
        finally:
            del self._questions[key]
            under_way.settled.set()
