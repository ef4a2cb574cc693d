"""A bounded cache that sends one request for concurrent callers.

Used by the registry's client for schemas and ids, on every event loop that anyio supports.

Invariants:

1. At most one request per key is in progress. Other callers wait for its answer.
2. There is no background task: the first caller sends the request in its own task. If that task is cancelled,
   the next caller takes over, and the others notice nothing.
3. A failure is raised to all callers that waited for that request, and is not cached: a later caller asks again.
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
    """A request in progress, and its result."""

    __slots__ = ("error", "is_answered", "settled")

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.is_answered = False
        self.error: Exception | None = None


@final
class SingleFlight(Generic[K, V]):
    """The cache: answers by key.

    Args:
        capacity: How many answers are kept; the oldest are dropped first.
    """

    __slots__ = ("_answers", "_capacity", "_questions")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._answers: dict[K, V] = {}
        self._questions: dict[K, _Question[V]] = {}

    def get(self, key: K) -> V | None:
        """Return the cached answer."""
        return self._answers.get(key)

    def put(self, key: K, answer: V) -> None:
        """Store an answer that was found in another way."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._capacity:
            del self._answers[next(iter(self._answers))]

    def forget(self, key: K) -> None:
        """Drop an answer, so that the next caller asks again."""
        self._answers.pop(key, None)

    def clear(self) -> None:
        """Drop all answers; requests in progress continue."""
        self._answers.clear()

    def is_asking(self, key: K) -> bool:
        """Return whether a request for this key is in progress."""
        return key in self._questions

    async def ask(self, key: K, question: Callable[[], Awaitable[V]], *, again: bool = False) -> V:
        """Return the answer for a key from the cache, from the request in progress, or from a new request.

        Args:
            key: The key.
            question: Sends the request; called only if no other caller is asking.
            again: Whether to ask although there is a cached answer, which stays in the cache until the new one
                arrives.
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
                # A copy, because each waiting caller raises it with a traceback of its own.
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
