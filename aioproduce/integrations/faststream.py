"""A FastStream middleware that publishes through a `Producer` instead of FastStream's own producer.

Used by applications with FastStream's Kafka brokers (`faststream.kafka`, `faststream.confluent`).
docs/how-to/faststream.md describes the interfaces that it relies on. FastStream calls each middleware's
`publish_scope(call_next, cmd)` for every message that is published: by `broker.publish()`, by publishers, as a
handler's result. This one sends the message and does not call the next one.

Invariants:

1. A record's bytes and headers are those that FastStream's own producers send.
2. Only public names of FastStream are imported.
3. `publish()` raises the errors of `Producer.send()` and of the delivery. A message is never published twice.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aioproduce.errors import InvalidRecordError, MissingExtraError

try:
    from fast_depends.pydantic import PydanticSerializer
    from faststream import BaseMiddleware, PublishType
    from faststream.message import encode_message
except ImportError as _missing:
    raise MissingExtraError(
        "aioproduce.integrations.faststream", extra="faststream", name="faststream"
    ) from _missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from faststream import ContextRepo

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.producer import Producer


_SERIALIZER: Final = PydanticSerializer()


class Encode(Protocol):
    """Converts a message to bytes, and returns their content type."""

    async def __call__(self, message: Any, /) -> tuple[bytes, str | None]:
        """Return the bytes, and the content type or None."""


@final
class PublishThrough:
    """A FastStream middleware that publishes through a producer.

    It must be the last of a broker's middlewares, because later ones would not be called. With
    `consumer_only=True`, `KafkaBroker` of `faststream.kafka` creates no producer of its own.

    Args:
        producer: The producer. The application starts it before the broker and closes it afterwards.
        encode: Converts messages to bytes, as a codec of FastStream's; by default
            `faststream.message.encode_message` with FastStream's own default serializer: bytes unchanged, str as
            UTF-8, the rest as JSON by pydantic.

    Example:
        >>> producer = Producer("localhost:9092")  # doctest: +SKIP
        >>> broker = KafkaBroker(  # doctest: +SKIP
        ...     "localhost:9092", consumer_only=True, middlewares=[PublishThrough(producer)]
        ... )
        >>> app = FastStream(broker, lifespan=lifespan_of(producer))  # doctest: +SKIP
    """

    def __init__(self, producer: Producer[Any, Any], *, encode: Encode | None = None) -> None:
        self.producer = producer
        self.encode: Encode = _encode if encode is None else encode
        self.is_suspended: bool = False

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        """Return the middleware of one message that is consumed or published, for FastStream."""
        return _Publishing(msg, context=context, through=self)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Use the broker's own producer meanwhile, for `TestKafkaBroker`, which replaces that by a fake.

        Example:
            >>> async with TestKafkaBroker(broker):  # doctest: +SKIP
            ...     with through.suspended():
            ...         await broker.publish("hello", "orders")
        """
        before, self.is_suspended = self.is_suspended, True
        try:
            yield
        finally:
            self.is_suspended = before


class _Publishing(BaseMiddleware[Any, Any]):
    """The middleware of one message."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, through: PublishThrough) -> None:
        super().__init__(msg, context=context)
        self._through = through

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: Any) -> Any:
        """Send the published message.

        Returns:
            The RecordMetadata (of a batch: of its first record); with `no_confirm=True` a future of it.

        Raises:
            ProducerError: If `Producer.send()` or the delivery raises it.
        """
        if self._through.is_suspended or cmd.publish_type is PublishType.REQUEST:
            # FastStream itself raises for requests, which Kafka does not support.
            return await call_next(cmd)
        # Each of FastStream's two Kafka packages has its own KafkaPublishCommand with the same attributes.
        if getattr(cmd, "extra_bodies", ()):
            deliveries = await self._send_batch(cmd)
            return deliveries[0] if cmd.no_confirm else (await deliveries)[0]
        delivery = await self._send(cmd)
        return delivery if cmd.no_confirm else await delivery

    async def _send(self, cmd: Any) -> DeliveryFuture:
        if cmd.body is None and cmd.key is not None:
            value, content_type = None, None  # a tombstone
        else:
            value, content_type = await self._through.encode(cmd.body)
        return await self._through.producer.send(
            cmd.destination,
            value,
            _key(cmd.key),
            partition=cmd.partition,
            timestamp=cmd.timestamp_ms,
            headers=_headers({"content-type": content_type or ""} | cmd.headers_to_publish()),
        )

    async def _send_batch(self, cmd: Any) -> Deliveries:
        """Send all to one partition, as FastStream's own producers do."""
        producer = self._through.producer
        batch = producer.create_batch()
        common = cmd.headers_to_publish()
        for position, body in enumerate(cmd.batch_bodies):
            value, content_type = await self._through.encode(body)
            headers = ({"content-type": content_type} | common) if content_type else common
            index = batch.append(
                value,
                _key(cmd.key_for(position)),
                timestamp=cmd.timestamp_ms,
                headers=_headers(headers),
            )
            if index is None:
                raise InvalidRecordError(
                    f"the batch for topic {cmd.destination!r} is full at message {position} of "
                    f"{len(cmd.batch_bodies)}: publish fewer at once, or raise batch_size of the Producer; nothing "
                    "was sent"
                )
        return await producer.send_batch(batch, cmd.destination, partition=cmd.partition)


async def _encode(message: Any, /) -> tuple[bytes, str | None]:
    return encode_message(message, _SERIALIZER)


def _headers(headers: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, str(value or "").encode()) for name, value in headers.items()]


def _key(key: Any) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
