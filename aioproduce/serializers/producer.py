"""The producer that accepts objects: a thin layer above `Producer`, which accepts bytes.

Invariants:

1. Nothing is queued before key and value are both bytes. A failure here holds no buffer memory and affects only
   its own call.
2. Serializing and waiting for room take no longer than `max.block.ms`, or `timeout=` if that is less.
3. A serializer that returns bytes is not awaited, and no timer is set for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self

from aioproduce.config import configured
from aioproduce.errors import (
    ConfigError,
    ProducerError,
    ProducerStateError,
    SerializationError,
    SerializationTimeoutError,
)
from aioproduce.producer.input import check_topic, header_list
from aioproduce.producer.producer import Producer
from aioproduce.records import NOT_GIVEN
from aioproduce.serializers.protocol import (
    Field,
    SerializationContext,
    Serialize,
    SerializerLike,
    serialize_of,
)

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from typing_extensions import TypeVar

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.config import ProducerConfig
    from aioproduce.config.settings import PlainSettings
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.producer.producer import OnDelivery
    from aioproduce.records import Header, Headers, NotGiven, RecordMetadata

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

# Contexts of records without headers, by topic; bounded, because a service may create ever new topics.
_MAX_TOPICS = 1000


class SerializingProducer(Generic[K, V]):
    """Sends keys and values that are objects.

    Args:
        producer: The arguments of a `Producer`: addresses, a mapping, a ProducerConfig. Or a Producer, which
            several SerializingProducers may share; the caller starts and closes it.
        key_serializer: For keys: a `Serializer`, or a function of the key (`str.encode`), which may be async.
            `None` if keys are bytes.
        value_serializer: For values: a `Serializer`, or a function of the value, which may be async. `None` if
            values are bytes.
        **settings: Kafka's producer keys with underscores for dots, as for `Producer`.

    Raises:
        ConfigError: If `Producer` raises it, or if its configuration already has serializers.
        TypeError: If a serializer is neither a `Serializer` nor a function.

    Example:
        >>> async def main(registry):
        ...     orders = AvroSerializer(registry, SCHEMA)
        ...     async with SerializingProducer("localhost:9092", value_serializer=orders) as producer:
        ...         await producer.send_and_wait("orders", {"id": 42})
    """

    def __init__(
        self,
        producer: Producer | str | Sequence[str] | Mapping[str, object] | ProducerConfig | None = None,
        *,
        key_serializer: SerializerLike[K] | None = None,
        value_serializer: SerializerLike[V] | None = None,
        **settings: Unpack[PlainSettings],
    ) -> None:
        self._serialize_key = serialize_of(key_serializer, "key")
        self._serialize_value = serialize_of(value_serializer, "value")
        self._serializers = key_serializer, value_serializer
        self._is_owner = not isinstance(producer, Producer)
        if isinstance(producer, Producer):
            if settings:
                raise TypeError(
                    "a Producer is already configured: pass the settings to its constructor instead"
                )
            self._producer = producer
        else:
            self._producer = Producer(configured(producer, settings))
        config = self._producer.config
        if config.key_serializer is not None or config.value_serializer is not None:
            raise ConfigError(
                "the producer's configuration has serializers of its own: pass them only to SerializingProducer"
            )
        self._contexts: dict[str, tuple[SerializationContext, SerializationContext]] = {}

    @property
    def producer(self) -> Producer:
        """The underlying producer, which accepts bytes: for its metrics, a dashboard, `send_many()` and others."""
        return self._producer

    def __repr__(self) -> str:
        return f"<SerializingProducer on {self._producer!r}>"

    # -- life ---

    async def start(self, *, require_broker: bool = False) -> None:
        """Start the producer, as `Producer.start()` does; do nothing if a Producer was passed in."""
        if self._is_owner:
            await self._producer.start(require_broker=require_broker)

    async def close(self, timeout: float | None = None) -> None:
        """Close the producer, as `Producer.close()` does, unless it was passed in.

        A registry's client stays open.
        """
        if self._is_owner:
            await self._producer.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def prepare(self, *topics: str) -> None:
        """Let the serializers ask their registry now, so that `send()` to these topics need not.

        Serializers without a registry are skipped.

        Args:
            topics: The topics.

        Raises:
            SchemaRegistryError: If the registry refused a schema, or did not answer.

        Example:
            >>> await producer.prepare("orders", "refunds")
        """
        fields: tuple[Field, Field] = ("key", "value")
        for topic in topics:
            for field, serializer in zip(fields, self._serializers, strict=True):
                prepare = getattr(serializer, "prepare", None)
                if prepare is not None:
                    await prepare(topic, field)

    # -- sending ---

    async def send(
        self,
        topic: str,
        value: V | NotGiven | None = NOT_GIVEN,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> DeliveryFuture:
        """Serialize one record, and send it as `Producer.send()` does.

        Args:
            topic: The topic.
            value: The value; None is a tombstone, whatever the serializer. A call without a value sends a tombstone
                if it has a key, and is refused otherwise.
            key: The key; None for none.
            partition: The partition; `None` lets the partitioner choose.
            timestamp: Milliseconds since the epoch or an aware datetime; `None` means now.
            headers: `(name, value)` pairs; serializers see them.
            timeout: Maximum seconds to wait for serializers, metadata and room together, capped by `max.block.ms`.
            on_delivery: As in `Producer.send()`.

        Returns:
            The record's future: await it for its RecordMetadata or its DeliveryError.

        Raises:
            SerializationError: If a serializer failed; the cause is the serializer's error.
            SerializationTimeoutError: If a serializer did not finish in time.
            SchemaRegistryError: If the registry refused the schema, or did not answer.
            ProducerError: If `Producer.send()` raises. After any of these errors, nothing was queued.

        Example:
            >>> delivery = await producer.send("orders", {"id": 42}, key="customer-7")
        """
        key_bytes: Any = key
        value_bytes: Any = value
        started_at: float | None = None
        try:
            known_headers = None if headers is None else header_list(headers)
            key_context, value_context = self._contexts_for(topic, known_headers)
            if key is not None and self._serialize_key is not None:
                key_bytes = _serialize(self._serialize_key, key, key_context)
                if key_bytes is not None and key_bytes.__class__ is not bytes:
                    started_at = time.monotonic()
                    key_bytes = await self._awaited(key_bytes, key_context, self._bound(timeout))
            if value is not None and value is not NOT_GIVEN and self._serialize_value is not None:
                value_bytes = _serialize(self._serialize_value, value, value_context)
                if value_bytes is not None and value_bytes.__class__ is not bytes:
                    started_at = time.monotonic() if started_at is None else started_at
                    left = self._left(timeout, started_at)
                    value_bytes = await self._awaited(value_bytes, value_context, left)
        except ProducerError as error:
            if not isinstance(error, ProducerStateError):
                self._count_refused()
            raise
        return await self._producer.send(
            topic,
            value_bytes,
            key_bytes,
            partition=partition,
            timestamp=timestamp,
            headers=known_headers,
            timeout=timeout if started_at is None else self._left(timeout, started_at),
            on_delivery=on_delivery,
        )

    async def send_and_wait(
        self,
        topic: str,
        value: V | NotGiven | None = NOT_GIVEN,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordMetadata:
        """Send a record with `send()` and await the acknowledgement.

        Raises:
            DeliveryError: If the record was not acknowledged.
            ProducerError: If `send()` raises.

        Example:
            >>> metadata = await producer.send_and_wait("orders", {"id": 42})
        """
        delivery = await self.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        )
        return await delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Flush accepted records, as `Producer.flush()` does; a `send()` that is still serializing is not."""
        await self._producer.flush(timeout)

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics, as `Producer.metrics()` does."""
        return self._producer.metrics()

    # -- internals ---

    def _contexts_for(
        self, topic: str, headers: Sequence[Header] | None
    ) -> tuple[SerializationContext, SerializationContext]:
        known = self._contexts.get(topic) if topic.__class__ is str else None
        if known is None:
            check_topic(topic)  # before a registry is asked for its subject
            known = SerializationContext(topic, "key"), SerializationContext(topic, "value")
            if len(self._contexts) >= _MAX_TOPICS:
                self._contexts.clear()
            self._contexts[topic] = known
        if headers:
            return known[0]._replace(headers=headers), known[1]._replace(headers=headers)
        return known

    def _count_refused(self) -> None:
        """Count a failure in `record-error-total`, as the Producer does for records that it refuses itself."""
        if self._producer._life.was_started:
            self._producer._life.refused()

    def _bound(self, timeout: float | None) -> float:
        """Return the maximum seconds of a call."""
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
        longest = self._producer.config.max_block
        return longest if timeout is None else min(longest, timeout)

    def _left(self, timeout: float | None, started_at: float) -> float:
        return max(0.0, self._bound(timeout) - (time.monotonic() - started_at))

    async def _awaited(self, given: object, context: SerializationContext, left: float) -> bytes | None:
        """Return the bytes for an awaitable that a serializer returned."""
        if isinstance(given, bytes | bytearray | memoryview):
            return bytes(given)
        if not isinstance(given, Awaitable):
            raise _no_bytes(context, given)
        try:
            # Needed only here: Producer.send() checks records whose serializers returned bytes.
            self._producer._life.check_callable()
        except ProducerError:
            if isinstance(given, Coroutine):
                given.close()  # or Python warns that nobody awaited it
            raise
        import anyio

        try:
            with anyio.move_on_after(left) as scope:
                awaited = await given
                if awaited is None or isinstance(awaited, bytes | bytearray | memoryview):
                    return None if awaited is None else bytes(awaited)
                raise _no_bytes(context, awaited)
        except ProducerError:
            raise
        except Exception as error:
            raise _failed(context, error) from error
        assert scope.cancelled_caught  # nothing else ends the block without a result
        raise SerializationTimeoutError(
            f"{_named(context)} did not finish within {left:.3g} s (if it asks a registry, see the log for "
            "failures); nothing was sent",
            waited=left,
            field=context.field,
            topic=context.topic,
        )


def _serialize(serialize: Serialize, given: object, context: SerializationContext) -> object:
    try:
        return serialize(given, context)
    except ProducerError:
        raise
    except Exception as error:
        raise _failed(context, error) from error


def _no_bytes(context: SerializationContext, given: object) -> SerializationError:
    return SerializationError(
        f"{_named(context)} returned {type(given).__name__}, not bytes, None or an awaitable of these",
        field=context.field,
        topic=context.topic,
    )


def _failed(context: SerializationContext, error: Exception) -> SerializationError:
    return SerializationError(
        f"{_named(context)} failed: {type(error).__name__}: {error}", field=context.field, topic=context.topic
    )


def _named(context: SerializationContext) -> str:
    return f"the {context.field} serializer for topic {context.topic!r}"
