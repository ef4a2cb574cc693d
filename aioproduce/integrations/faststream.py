"""FastStream publishes through a `Producer`: a middleware of its own interface, in place of its own producer.

Used by applications of FastStream's Kafka brokers (`faststream.kafka`, `faststream.confluent`);
docs/how-to/faststream.md says what was found of its interfaces. FastStream calls each middleware's
`publish_scope(call_next, cmd)` for what is published: by `broker.publish()`, by publishers, as a handler's result.
This one sends it, and calls nobody next.

Invariants:

1. A record's bytes and headers are those that FastStream's own producers send.
2. Nothing of FastStream is imported but its public names.
3. What `publish()` raises is what `Producer.send()` and its delivery raise; nothing is published twice, by both.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aioproduce.errors import InvalidRecordError, MissingExtraError

try:
    from fast_depends.pydantic import PydanticSerializer
    from faststream import BaseMiddleware, PublishType
    from faststream.message import encode_message
except ImportError as missing:
    raise MissingExtraError(
        "aioproduce.integrations.faststream", extra="faststream", name="faststream"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from faststream import ContextRepo

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.producer import Producer


_SERIALIZER: Final = PydanticSerializer()


class Encode(Protocol):
    """Makes the bytes of a message, and tells their content type."""

    async def __call__(self, message: Any, /) -> tuple[bytes, str | None]:
        """The bytes, and the content type or None."""


@final
class PublishThrough:
    """A FastStream middleware that publishes through a producer.

    It is to be the last of a broker's middlewares, as those behind it would see nothing. `KafkaBroker` of
    `faststream.kafka` makes no producer of its own with `consumer_only=True`.

    Args:
        producer: The producer; started and closed by the application, around the broker's life.
        encode: Makes bytes of messages, as a codec of FastStream's; by default `faststream.message.encode_message`
            with FastStream's own default serializer: bytes as they are, str as UTF-8, the rest as JSON by pydantic.

    Example:
        >>> producer = Producer("localhost:9092")  # doctest: +SKIP
        >>> broker = KafkaBroker(  # doctest: +SKIP
        ...     "localhost:9092", consumer_only=True, middlewares=[PublishThrough(producer)]
        ... )
        >>> app = FastStream(broker, lifespan=lifespan_of(producer))  # doctest: +SKIP
    """

    def __init__(self, producer: Producer, *, encode: Encode | None = None) -> None:
        self.producer = producer
        self.encode: Encode = _encode if encode is None else encode
        self.is_suspended = False

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        """As FastStream calls it, for each message that is consumed or published."""
        return _Publishing(msg, context=context, through=self)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave publishing to the broker's own producer meanwhile: for `TestKafkaBroker`, whose own is a fake.

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
    """One message's way through the middleware."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, through: PublishThrough) -> None:
        super().__init__(msg, context=context)
        self._through = through

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: Any) -> Any:
        """Send what is published.

        Returns:
            The RecordMetadata (of a batch: of its first record); with `no_confirm=True` a future of it.

        Raises:
            ProducerError: as `Producer.send()`, and the delivery.
        """
        if self._through.is_suspended or cmd.publish_type is PublishType.REQUEST:
            # Of a request FastStream says itself that Kafka has none.
            return await call_next(cmd)
        # Each of FastStream's two Kafka packages has a KafkaPublishCommand of its own, alike.
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
        """All to one partition, as FastStream's own producers."""
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
