"""Messages of topics without metadata: accepted in order, and queued apart from all others.

Used by `confluent.AIOProducer`. librdkafka accepts a message of any topic at once, even if no broker can be
reached, and so must this module: `produce()` must not wait for a broker.

Invariants:

1. One task per topic passes on its messages in their order.
2. Every message has an outcome within its time, whatever happens to the cluster.
3. `MessageRoom` limits the number of messages that wait here, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias, final

from aioproduce.compat.confluent_errors import KafkaError, KafkaException, kafka_exception
from aioproduce.errors import MetadataTimeoutError
from aioproduce.records import RecordMetadata

if TYPE_CHECKING:
    from aioproduce.compat.confluent_future import About
    from aioproduce.compat.confluent_way import Way

# Interval for checking whether the cluster has meanwhile reported that the topic does not exist.
_STEP: Final = 1.0

Tell: TypeAlias = "Callable[[RecordMetadata, BaseException | None], None]"


@final
class WaitingMessage:
    """A message that waits for its topic.

    Args:
        about: The produced message.
        partition: The partition for `Producer.send()`.
        way: The producer or transaction to send it with.
        told: Called once with the outcome; or None.
        timeout: Maximum seconds until the outcome.

    Attributes:
        outcome: The future of the outcome.
    """

    __slots__ = (
        "_is_told",
        "_timer",
        "_told",
        "about",
        "accepted_at",
        "deadline",
        "outcome",
        "partition",
        "way",
    )

    def __init__(
        self, about: About, partition: int | None, way: Way, told: Tell | None, timeout: float
    ) -> None:
        self.about: About = about
        self.partition: int | None = partition
        self.way: Way = way
        self.outcome: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._told = told
        self._is_told = False
        self.accepted_at: float = monotonic()
        self.deadline: float = self.accepted_at + timeout
        self._timer: asyncio.TimerHandle | None = None

    def is_passed_on(self, topic: str) -> None:
        """Handle that the producer accepted it, with a timeout of its own that may end later than this message's.

        A message of a transaction uses only that timeout: failed here, it could still be committed.
        """
        if not self._is_told and self.way.transaction is None:
            left = max(0.0, self.deadline - monotonic())
            self._timer = self.outcome.get_loop().call_later(left, self._time_out, topic)

    def settled(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Set the producer's outcome, or the error of a message that never reached the producer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_told:
            return
        self._is_told = True
        failure = None if error is None else kafka_exception(error)
        if failure is not None:
            self.way.failed(failure.args[0])
        if not self.outcome.done():
            if failure is None:
                self.outcome.set_result(metadata)
            else:
                self.outcome.set_exception(failure)
        if self._told is not None:
            self._told(metadata, error)

    def fail(self, topic: str, error: BaseException) -> None:
        """Fail a message that never reached the producer."""
        self.settled(nowhere(topic, self.about[3]), error)

    def _time_out(self, topic: str) -> None:
        text = f"the message waited for topic {topic!r} and was not acknowledged within message.timeout.ms"
        self.fail(topic, KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, text)))


def nowhere(topic: str, timestamp: int) -> RecordMetadata:
    """Return the metadata of a message without a partition."""
    return RecordMetadata(topic, -1, -1, timestamp, -1, -1)


@final
class WaitingMessages:
    """All waiting messages, by topic.

    Args:
        on_known: Called with a topic when none of its messages are waiting any more.
        unknown_topic_timeout: Seconds for which the cluster may report a topic as unknown.
    """

    def __init__(self, on_known: Callable[[str], object], unknown_topic_timeout: float) -> None:
        self._on_known = on_known
        self._unknown_topic_timeout = unknown_topic_timeout
        self._lines: dict[str, deque[WaitingMessage]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def count(self) -> int:
        """How many messages are waiting."""
        return sum(map(len, self._lines.values()))

    def has(self, topic: str) -> bool:
        """Return whether messages of this topic are waiting, so that others must queue after them."""
        return topic in self._lines

    def add(self, topic: str, message: WaitingMessage) -> None:
        """Append a message to its topic's queue."""
        line = self._lines.get(topic)
        if line is None:
            line = self._lines[topic] = deque()
            self._tasks[topic] = asyncio.get_running_loop().create_task(
                self._pass_all_on(topic, line), name=f"aioproduce: messages that wait for {topic}"
            )
        line.append(message)

    async def drained(self, timeout: float | None) -> None:
        """Wait until none are waiting, at most so many seconds (`None`: until the messages' own timeouts)."""
        deadline = None if timeout is None else monotonic() + timeout
        while self._tasks:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return
            await asyncio.wait(self._tasks.values(), timeout=left)

    async def drop(self, make_error: Callable[[], BaseException]) -> None:
        """Fail all waiting messages, each with an error of its own."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for topic, line in self._lines.items():
            while line:
                line.popleft().fail(topic, make_error())
        self._lines.clear()
        self._tasks.clear()
        if tasks:
            await asyncio.wait(tasks)

    async def _pass_all_on(self, topic: str, line: deque[WaitingMessage]) -> None:
        is_known = False
        while line:
            is_known = await self._pass_on(topic, line) or is_known
        del self._lines[topic], self._tasks[topic]
        if is_known:
            self._on_known(topic)

    async def _pass_on(self, topic: str, line: deque[WaitingMessage]) -> bool:
        """Pass the first message to the producer, or fail it; return whether the producer accepted it."""
        message = line[0]
        value, key, headers, timestamp, _ = message.about
        unknown_at = message.accepted_at + self._unknown_topic_timeout
        while True:
            now = monotonic()
            if now >= message.deadline:
                line.popleft().fail(topic, _too_late(topic))
                return False
            # After that, a broker may still become reachable and report that the topic does not exist.
            until = min(unknown_at if now < unknown_at else now + _STEP, message.deadline)
            try:
                await message.way.send(
                    topic,
                    value,
                    key,
                    partition=message.partition,
                    timestamp=timestamp,
                    headers=headers,
                    timeout=max(0.0, until - now),
                    on_delivery=message.settled,
                )
            except MetadataTimeoutError as error:
                if error.code and monotonic() >= unknown_at:
                    self._fail_unknown(topic, line, error)
                    return False
                # No broker has reported that the topic does not exist, so it waits until its timeout.
            except Exception as error:
                line.popleft().fail(topic, error)
                return False
            else:
                line.popleft().is_passed_on(topic)
                return True

    def _fail_unknown(self, topic: str, line: deque[WaitingMessage], error: MetadataTimeoutError) -> None:
        """Fail all messages of an unknown topic that have waited long enough for it."""
        now = monotonic()
        while line and line[0].accepted_at + self._unknown_topic_timeout <= now:
            line.popleft().fail(topic, _unknown_topic(error))


def _unknown_topic(error: MetadataTimeoutError) -> KafkaException:
    return kafka_exception(error, lambda cause: KafkaError(KafkaError._UNKNOWN_TOPIC, str(cause)))


def _too_late(topic: str) -> KafkaException:
    text = (
        f"no broker knew the topic {topic!r} within message.timeout.ms: check bootstrap.servers, the network, "
        "and that the brokers' advertised.listeners can be reached from here"
    )
    return KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, text))
