"""A drop-in replacement for `confluent_kafka.aio.AIOProducer`: its calls, options, results and errors.

For code that was written for confluent-kafka: only the import changes. The differences are listed in
`docs/how-to/migrate-from-confluent.md`.

Invariants:

1. Every message that `produce()` accepted has an outcome within `message.timeout.ms`: its future and its callback.
2. If there is room, `produce()` accepts a message at once, even if its topic is unknown; otherwise in its turn.
3. Messages of one partition are sent in the order of `produce()`.
4. The caller's objects (conf, executor) are neither changed nor shut down.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce.compat.confluent_errors import (
    ConfluentConfigError,
    ConfluentNotSupportedError,
    KafkaError,
    KafkaException,
    kafka_error,
    kafka_exception,
)
from aioproduce.compat.confluent_future import MessageFuture, message_of
from aioproduce.compat.confluent_input import check_callback, check_types, header_pairs, payload
from aioproduce.compat.confluent_metadata import cluster_metadata
from aioproduce.compat.confluent_options import ConfluentOptions
from aioproduce.compat.confluent_room import MessageRoom
from aioproduce.compat.confluent_transactions import TransactionalCalls
from aioproduce.compat.confluent_waiting import WaitingMessage, WaitingMessages, nowhere
from aioproduce.compat.confluent_watch import ErrorWatch
from aioproduce.compat.confluent_way import Way
from aioproduce.config import Secret
from aioproduce.errors import FlushTimeoutError, MetadataTimeoutError, ProducerError
from aioproduce.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from confluent_kafka import Message
    from confluent_kafka.admin import ClusterMetadata

    from aioproduce.compat.confluent_future import About, OnDelivery
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.records import ClusterInfo, PartitionInfo, RecordMetadata

__all__ = ["AIOProducer", "ConfluentConfigError", "ConfluentNotSupportedError"]

_ANY_PARTITION: Final = -1
_FOREVER: Final = -1.0


class AIOProducer(TransactionalCalls):
    """Confluent-kafka's `AIOProducer`, on aioproduce's own producer.

    It must be created within a running event loop, as confluent-kafka's. It starts at once, without waiting for a
    broker.

    Args:
        producer_conf: librdkafka's options, e.g. `{"bootstrap.servers": "host:9092", "linger.ms": 5}`.
        max_workers: Ignored: nothing runs in threads.
        executor: Ignored; it is not shut down.
        batch_size: Ignored: messages are not collected in the client before they are queued.
        buffer_timeout: Seconds. The first message of an unknown topic waits at most so long in `produce()`;
            after that, the topic's messages wait in the background.

    Raises:
        KafkaException: If an option is unknown or out of range (`ConfluentConfigError`), or is not supported.
        RuntimeError: If no event loop is running.

    Example:
        >>> async def main():
        ...     async with AIOProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        ...         future = await producer.produce("orders", value=b"42", key=b"customer-7")
        ...         message = await future
        ...         print(message.partition(), message.offset())
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        del max_workers, executor, batch_size
        self._loop = asyncio.get_running_loop()
        self._options = ConfluentOptions.read(producer_conf)
        self._patience = max(0.0, min(buffer_timeout, self._options.message_timeout))
        self._room = MessageRoom(self._options.max_messages, self.__len__)
        self._entering = 0
        self._known: set[str] = set()
        self._on_delivery = self._options.callback()
        self._is_closed = False
        error_cb = self._options.error_cb
        self._watch = None if error_cb is None else ErrorWatch(error_cb)
        self._on_failure = None if self._watch is None else self._watch.heard_of
        self._tells_all = self._on_delivery is not None or self._on_failure is not None
        self._untold: str | None = None
        self._open()

    def _open(self) -> None:
        self._producer = Producer(self._options.config)
        self._producer._lend()
        _run_to_end(self._producer.start())
        self._way = Way(self._producer.send)
        self._waiting = WaitingMessages(self._known.add, self._options.unknown_topic_timeout)
        if self._watch is not None:
            self._watch.follow(self._producer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __len__(self) -> int:
        """The number of accepted messages without an outcome."""
        return self._producer.outstanding_records + self._waiting.count + self._entering

    def __bool__(self) -> bool:
        """True, even if there are no messages."""
        return True

    # -- producing ---

    async def produce(  # noqa: C901  # one function: another call would add a tenth to its cost
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = _ANY_PARTITION,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message]:
        """Accept a message. Awaiting the returned future gives its outcome.

        Args:
            topic: The topic.
            value: The payload; a str is sent as UTF-8, `None` is a tombstone.
            key: The key; a str is sent as UTF-8.
            partition: The partition; -1 lets the partitioner choose.
            callback: The same as `on_delivery`.
            on_delivery: Called once on the event loop with `(KafkaError or None, Message)`.
            timestamp: Milliseconds since the epoch; 0 means now.
            headers: A list of `(name, value)` or a dict; values str, bytes or None.

        Returns:
            A future of the `confluent_kafka.Message`, for asyncio and for type checkers; its class is
            MessageFuture. It raises `KafkaException(KafkaError)`: `_MSG_TIMED_OUT`, `MSG_SIZE_TOO_LARGE`,
            `_UNKNOWN_TOPIC`, `_UNKNOWN_PARTITION`, `_QUEUE_FULL` (no room within `message.timeout.ms`), or the
            broker's own error.

        Raises:
            TypeError: If an argument has the wrong type; the message was not accepted.
            KafkaException: If the producer is closed (`_STATE`).

        Example:
            >>> future = await producer.produce("orders", b"42")  # doctest: +SKIP
            >>> (await future).offset()  # doctest: +SKIP
            0
        """
        if value is not None and value.__class__ is not bytes:
            value = payload("value", value)
        if key is not None and key.__class__ is not bytes:
            key = payload("key", key)
        if topic.__class__ is not str or partition.__class__ is not int or timestamp.__class__ is not int:
            check_types(topic, partition, timestamp)
        pairs = None if headers is None else header_pairs(headers)
        if on_delivery is None:
            on_delivery = callback
        if on_delivery is not None:
            check_callback(on_delivery)
        if self._is_closed:
            raise _closed("produce")
        timestamp = timestamp or int(time() * 1000.0)
        about = (value, key, pairs, timestamp, monotonic())
        room, way = self._room, self._way
        way.entering += 1
        try:
            if (room.left <= 0 or room.is_contended) and not await room.take(self._options.message_timeout):
                return self._failed(topic, about, way, _no_room(self._options.max_messages), on_delivery)
            room.left -= 1
            if partition < _ANY_PARTITION:
                return self._failed(topic, about, way, _no_such_partition(partition), on_delivery)
            told = None
            if on_delivery is not None or self._tells_all:
                told = _Tell(self._loop, about, on_delivery or self._on_delivery, self._on_failure)
            self._entering += 1
            try:
                if topic not in self._known and not await self._is_known(topic):
                    return self._let_wait(topic, partition, about, way, told)
                delivery = await way.send(
                    topic,
                    value,
                    key,
                    partition=None if partition == _ANY_PARTITION else partition,
                    timestamp=timestamp,
                    headers=pairs,
                    on_delivery=told,
                )
            except ProducerError as error:
                return self._failed(topic, about, way, error, on_delivery)
            finally:
                self._entering -= 1
        finally:
            way.left()
        room.taken += 1
        if room.taken % room.stride == 0:
            room.mark(delivery)
        return MessageFuture(delivery, about)  # type: ignore[return-value]  # to asyncio it is one

    def _failed(
        self, topic: str, about: About, way: Way, error: BaseException, on_delivery: OnDelivery | None
    ) -> asyncio.Future[Message]:
        """Return the future of a message that the producer did not accept."""
        outcome: asyncio.Future[RecordMetadata] = self._loop.create_future()
        exception = kafka_exception(error)
        way.failed(exception.args[0])
        outcome.set_exception(exception)
        self._room.taken += 1
        on_delivery = on_delivery or self._on_delivery
        if on_delivery is not None or self._on_failure is not None:
            _Tell(self._loop, about, on_delivery, self._on_failure)(nowhere(topic, about[3]), error)
        return MessageFuture(outcome, about)  # type: ignore[return-value]  # to asyncio it is one

    async def _is_known(self, topic: str) -> bool:
        """Wait a short time for a topic; return False if its messages must wait in the background."""
        if self._waiting.has(topic):
            return False
        try:
            await self._producer.partitions_for(topic, self._patience)
        except MetadataTimeoutError:
            return False
        if self._waiting.has(topic):
            return False  # another task has given up waiting
        self._known.add(topic)
        return True

    def _let_wait(
        self, topic: str, partition: int, about: About, way: Way, told: _Tell | None
    ) -> asyncio.Future[Message]:
        given = None if partition == _ANY_PARTITION else partition
        message = WaitingMessage(about, given, way, told, self._options.message_timeout)
        self._waiting.add(topic, message)
        self._room.taken += 1
        return MessageFuture(message.outcome, about)  # type: ignore[return-value]  # to asyncio it is one

    # -- outcomes ---

    async def poll(self, timeout: float = 0) -> int:
        """Wait for outcomes. It is not required: the event loop runs futures and callbacks.

        Args:
            timeout: Seconds to wait for the first outcome; 0 yields to the event loop once, -1 waits while any
                message is pending.

        Returns:
            How many messages got their outcome meanwhile.
        """
        room = self._room
        before = room.taken - len(self)
        until = inf if timeout < 0 else monotonic() + timeout
        await asyncio.sleep(0)
        while len(self) and room.taken - len(self) == before and monotonic() < until:
            await room.outcome(until - monotonic())
        return room.taken - len(self) - before

    async def flush(self, timeout: float = _FOREVER) -> int:
        """Send accepted messages without lingering, and wait for the outcomes.

        Args:
            timeout: Seconds; -1 waits for all, which `message.timeout.ms` bounds.

        Returns:
            How many messages have no outcome yet.

        Raises:
            KafkaException: If the producer failed (`_FATAL`).
        """
        if self._is_closed:
            return len(self)
        bound = None if timeout is None or timeout < 0 else timeout
        until = None if bound is None else monotonic() + bound
        # confluent-kafka always yields to the loop here, and loops that poll until something is done rely on it.
        await asyncio.sleep(0)
        await self._waiting.drained(bound)
        try:
            with suppress(FlushTimeoutError):
                await self._producer.flush(None if until is None else max(0.0, until - monotonic()))
        except ProducerError as error:
            raise kafka_exception(error) from error
        return len(self)

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop all messages without an outcome: they fail with `_PURGE_QUEUE` or `_PURGE_INFLIGHT`.

        Args:
            in_queue: Must be true.
            in_flight: Must be true: the connections are dropped, and opened again for the next message.
            blocking: Ignored: it always waits until all messages are dropped.

        Raises:
            KafkaException: If the producer is closed (`_STATE`).
            ConfluentNotSupportedError: If only one of the two is true, or if there is a `transactional.id`.
        """
        del blocking
        if not in_queue and not in_flight:
            return
        if not (in_queue and in_flight):
            raise ConfluentNotSupportedError(
                "purge() drops all messages or none: omit in_queue and in_flight", feature="purge"
            )
        self._check_open("purge")
        if self._options.config.transactional_id is not None:
            raise ConfluentNotSupportedError(
                "purge() would leave the transaction open: abort_transaction() drops unsent messages",
                feature="purge",
            )
        waiting, producer = self._waiting, self._producer
        self._known.clear()
        self._room.forget()
        self._open()
        await waiting.drop(_purged)
        await producer.close(0)

    async def close(self) -> None:
        """Send accepted messages, wait for the outcomes, and close the connections. It may be repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watch is not None:
            self._watch.end()
        try:
            await self._waiting.drained(None)
            await self._producer.close()
        except BaseException:
            await self._waiting.drop(partial(_closed, "close"))
            await self._producer.close(0)
            raise

    # -- requests ---

    async def list_topics(self, topic: str | None = None, timeout: float = _FOREVER) -> ClusterMetadata:
        """Return a topic's partitions, and the brokers.

        Args:
            topic: The topic; listing all topics needs an admin client.
            timeout: Seconds; -1 for no bound but `message.timeout.ms`.

        Raises:
            KafkaException: If no broker answered (`_TRANSPORT`).
            ConfluentNotSupportedError: If no topic was named.
        """
        if topic is None:
            raise ConfluentNotSupportedError(
                "list_topics() needs a topic: to list all of them use confluent_kafka.admin.AdminClient",
                feature="list_topics",
            )
        self._check_open("list_topics")
        until = monotonic() + self._bound(timeout)
        failure: KafkaError | None = None
        partitions: list[PartitionInfo] = []
        try:
            partitions = await self._producer.partitions_for(topic, self._bound(timeout))
        except MetadataTimeoutError as error:
            if not error.code:
                raise _no_answer(error) from error
            failure = KafkaError(error.code)
        except ProducerError as error:
            failure = kafka_error(error)
        return cluster_metadata(await self._check(until), topic, partitions, failure)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials from the next login on: for a new connection, or when a session ends.

        Open connections stay open. It has no effect if the mechanism does not need a password, as in librdkafka.

        Raises:
            TypeError: If an argument is not a str.
        """
        given: dict[str, object] = {"username": username, "password": password}
        for name, kind in [(name, type(text)) for name, text in given.items()]:
            if not issubclass(kind, str):
                del username, password, given
                raise TypeError(f"{name} must be a str, not {kind.__name__}")
        credentials = self._options.credentials
        if credentials is not None:
            credentials.username, credentials.password = username, Secret(password)

    async def cluster_id(self, timeout: float = _FOREVER) -> str | None:
        """Return the cluster's id; `None` if the brokers do not report one.

        Raises:
            KafkaException: If no broker answered within `timeout` seconds (`_TRANSPORT`).
        """
        self._check_open("cluster_id")
        return (await self._check(monotonic() + self._bound(timeout))).cluster_id

    def metrics(self) -> MetricsSnapshot:
        """Return the producer's metrics, which replace `stats_cb`; confluent-kafka does not have this method."""
        return self._producer.metrics()

    def _bound(self, timeout: float | None) -> float:
        return self._options.message_timeout if timeout is None or timeout < 0 else timeout

    async def _check(self, until: float) -> ClusterInfo:
        try:
            return await self._producer.check(max(0.0, until - monotonic()))
        except ProducerError as error:
            raise _no_answer(error) from error

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise _closed(call)


@final
class _Tell:
    """Reports a message's outcome to its callback and to `error_cb`."""

    __slots__ = ("_about", "_loop", "_on_delivery", "_on_failure")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        about: About,
        on_delivery: OnDelivery | None,
        on_failure: Callable[[KafkaError], None] | None,
    ) -> None:
        self._loop = loop
        self._about = about
        self._on_delivery = on_delivery
        self._on_failure = on_failure

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        failure = None if error is None else kafka_exception(error).args[0]
        if failure is not None and self._on_failure is not None:
            self._on_failure(failure)
        if self._on_delivery is None:
            return
        latency = monotonic() - self._about[4]
        try:
            self._on_delivery(failure, message_of(metadata, self._about, failure, latency))
        except Exception as raised:
            text = f"on_delivery raised for a message of {metadata.topic}"
            self._loop.call_exception_handler({"message": text, "exception": raised})


def _run_to_end(start: Coroutine[Any, Any, None]) -> None:
    """Run `Producer.start()`, which does not wait unless it has to wait for a broker."""
    try:
        start.send(None)
    except StopIteration:
        return
    start.close()
    raise RuntimeError("Producer.start() waited for something; report this as a bug")


def _closed(call: str) -> KafkaException:
    text = f"{call}(): the producer is closed: create a new one to send again"
    return KafkaException(KafkaError(KafkaError._STATE, text))


def _purged() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._PURGE_QUEUE, "purge() was called"))


def _no_room(limit: int) -> KafkaException:
    text = (
        f"queue.buffering.max.messages={limit}: no message had its outcome within message.timeout.ms. Send less, "
        "raise the limit, or check the brokers"
    )
    return KafkaException(KafkaError(KafkaError._QUEUE_FULL, text, False, True))


def _no_such_partition(partition: int) -> KafkaException:
    text = f"partition {partition} does not exist; -1 lets the partitioner choose"
    return KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, text))


def _no_answer(error: ProducerError) -> KafkaException:
    return kafka_exception(error, lambda cause: KafkaError(KafkaError._TRANSPORT, str(cause)))
