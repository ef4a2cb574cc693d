"""aiokafka's producer, as a drop-in: `from aioproduce.compat.aiokafka import AIOKafkaProducer`.

The names, arguments, defaults, results and exception classes are aiokafka's (0.14; needs the extra
`aiokafka`, which the consumer comes from anyway); what sends is ours. docs/how-to/migrating.md lists the
differences.

Invariants:

1. A record that this accepted is delivered, or fails, within a bounded time: nothing here waits for ever.
2. Records of one partition are written in the order in which they were accepted. Without idempotence one
   request per broker is in flight, and a partition whose batch is being retried sends nothing behind it.
3. A producer that was not stopped and is forgotten warns when it is collected, and tells the loop's exception
   handler.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
import warnings
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from aioproduce._native.positional_calls import PositionalCalls
from aioproduce.compat.aiokafka_batches import BatchBuilder, future_of
from aioproduce.compat.aiokafka_client import ClientView
from aioproduce.compat.aiokafka_errors import theirs
from aioproduce.compat.aiokafka_path import AiokafkaPath
from aioproduce.compat.aiokafka_settings import MISSING, config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ssl import SSLContext

    from aioproduce._native.delivery import DeliveryFuture

__all__ = ["AIOKafkaProducer", "BatchBuilder", "TransactionContext"]

_numbers = count(1)

_ITSELF = "self", "loop", "api_version", "key_serializer", "value_serializer"
"""Arguments that are no settings."""


class AIOKafkaProducer(PositionalCalls):
    """aiokafka's producer.

    Arguments are aiokafka's, documented there. What they mean here:

    Args:
        loop: Deprecated, as in aiokafka.
        bootstrap_servers: `"host[:port]"`, several with commas or in a list; port 9092 by default.
        client_id: `aiokafka-producer-N` by default.
        metadata_max_age_ms: How old metadata may become, ms.
        request_timeout_ms: How long a broker may take to answer, ms. `send()` waits as long for the topic and
            for room. Without idempotence a record fails after `linger_ms + 2 * request_timeout_ms`; with it
            after 120 s, or that if it is more.
        api_version: Deprecated, as in aiokafka.
        acks: 0, 1, -1 or `"all"`; 1 by default, `"all"` with idempotence.
        key_serializer: Called with every key, None too.
        value_serializer: Likewise with values.
        compression_type: `gzip`, `snappy`, `lz4`, `zstd` or None.
        max_batch_size: Bytes of a partition's batch. It bounds batches, not memory: all together have 32 MiB,
            or twice the larger of this and `max_request_size`.
        partitioner: `partitioner(key_bytes, all_partitions, available_partitions)`. Not given, keys go where
            aiokafka sends them (murmur2), and records without a key fill a batch before another partition has
            its turn.
        max_request_size: Bytes of a request, and so of a record.
        linger_ms: How long a batch that is not full waits for more, ms.
        retry_backoff_ms: Before the first retry, ms; it doubles with each, up to 1 s.
        security_protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
        ssl_context: Required by `SSL` and `SASL_SSL`.
        connections_max_idle_ms: A connection unused for so long is closed, ms; None: never.
        enable_idempotence: No duplicates and no reordering by retries.
        transactional_id: The name under which transactions go on over restarts. One producer at a time has it.
        transaction_timeout_ms: How long a transaction may be open, ms.
        sasl_mechanism: Of `SASL_PLAINTEXT` and `SASL_SSL`, as all that follow.
        sasl_plain_password: The password.
        sasl_plain_username: The user.
        sasl_kerberos_service_name: The service.
        sasl_kerberos_domain_name: The domain.
        sasl_oauth_token_provider: An `AbstractTokenProvider`.

    Raises:
        ValueError: a value that aiokafka refuses, or (ConfigError) ours.
        RuntimeError: outside of a running event loop.

    Example:
        >>> async def main():
        ...     producer = AIOKafkaProducer(bootstrap_servers="localhost:9092")
        ...     await producer.start()
        ...     try:
        ...         metadata = await producer.send_and_wait("orders", b"42")
        ...     finally:
        ...         await producer.stop()
    """

    # As `Producer`: CPython 3.12 and later look `send` up anew for each record where the `__dict__` is filled.
    __slots__ = (
        # Interpreted, PositionalCalls has them already.
        *(() if PositionalCalls.__dictoffset__ else ("__dict__", "__weakref__")),
        "_closed",
        "_loop",
        "_sends",
        "_source_traceback",
        "client",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: float = 300000,
        request_timeout_ms: float = 40000,
        api_version: str | None = None,
        acks: Any = MISSING,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Any = MISSING,
        max_request_size: int = 1048576,
        linger_ms: float = 0,
        retry_backoff_ms: float = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: SSLContext | None = None,
        connections_max_idle_ms: float | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: object = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in _ITSELF and name[0] != "_"}
        self._loop = _loop_of(loop)
        is_debug = self._loop.get_debug()
        self._source_traceback = traceback.extract_stack(sys._getframe(1)) if is_debug else None
        if api_version is not None:
            warnings.warn(
                "The `api_version` parameter has been deprecated since 0.13.0. It is now a no-op and will be "
                "removed in a future release. ",
                DeprecationWarning,
                stacklevel=2,
            )
        if client_id is None:
            given["client_id"] = f"aiokafka-producer-{next(_numbers)}"
        path = AiokafkaPath(config_of(given), key_serializer, value_serializer)
        super().__init__(path)
        self._sends = path
        self.client: ClientView = ClientView(path)
        self._closed = False

    def __del__(self, _warnings: Any = warnings) -> None:
        if getattr(self, "_closed", True):  # or its constructor raised
            return
        _warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self)
        context: dict[str, Any] = {"producer": self, "message": "Unclosed AIOKafkaProducer"}
        if self._source_traceback is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)

    # -- life ---

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            KafkaConnectionError: no bootstrap server can be reached. It may be called again.
            TransactionalIdAuthorizationFailed: the cluster denies the `transactional_id`.
            KafkaTimeoutError: it gave no producer id within `request_timeout_ms`. It may be called again.
            ProducerClosed: it was stopped before.
        """
        if self._loop is not asyncio.get_running_loop():
            raise AssertionError("Please create objects with the same loop as running with")
        await self._sends.start()

    async def stop(self) -> None:
        """Send what was accepted, and close all connections. An open transaction is aborted."""
        if self._closed:
            return
        self._closed = True
        await self._sends.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- sending (`send()` and `send_and_wait()` are in PositionalCalls) ---

    async def flush(self) -> None:
        """Wait until what was accepted is settled; it goes at once, whatever `linger_ms` says."""
        await self._sends.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic.

        Raises:
            UnknownTopicOrPartitionError: it did not become known within `request_timeout_ms`.
        """
        return await self._sends.partitions_for(topic)

    def create_batch(self) -> BatchBuilder:
        """An empty batch, for `send_batch()`."""
        return BatchBuilder(
            self._sends.create_batch(), self._sends.key_serializer, self._sends.value_serializer
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> DeliveryFuture | asyncio.Future[None]:
        """Send a batch whole, behind what was accepted for its partition before.

        Returns:
            A future of the metadata of its first record; of None for an empty batch.

        Raises:
            ProducerClosed: the producer was stopped.
            KafkaTimeoutError: there was no room within `request_timeout_ms`.
            IllegalStateError: the batch was sent before.
        """
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"send_batch() takes a batch of create_batch(), not {type(batch).__name__}")
        return future_of(await self._sends.send_batch(batch.ours(), topic, partition))

    # -- transactions ---

    async def begin_transaction(self) -> None:
        """Begin a transaction, in which any task sends; waits for the end of the one before.

        Raises:
            IllegalOperation: there is no `transactional_id`. So of all that follow.
            AssertionError: one is open already, or has failed and is not aborted.
            ProducerFenced: another producer of the same `transactional_id` has taken over.
        """
        self._check_transactional()
        await self._sends.begin()

    async def commit_transaction(self) -> None:
        """Send what is left, and make all of it visible.

        A call that is cancelled, or waited for `request_timeout_ms`, stops waiting; the commit goes on. The same
        call again waits for it.

        Raises:
            AssertionError: no transaction is open.
            ProducerFenced: another producer has taken over, or it was open for longer than
                `transaction_timeout_ms`.
            KafkaTimeoutError: no answer came within `request_timeout_ms`.
            KafkaError: what made a record or its offsets fail: abort it.
        """
        self._check_transactional()
        await self._sends.commit()

    async def abort_transaction(self) -> None:
        """Let no reader of committed records see any of it; what was not sent yet fails.

        Raises:
            AssertionError: no transaction is open.
            ProducerFenced: another producer has taken over.
            KafkaTimeoutError: no answer came within `request_timeout_ms`; it goes on.
        """
        self._check_transactional()
        await self._sends.abort()

    def transaction(self) -> TransactionContext:
        """A transaction as an async context."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Commit a consumer group's offsets with the open transaction.

        Args:
            offsets: By aiokafka's TopicPartition: the offset of the next record to read, as an int, an
                OffsetAndMetadata, or a pair of both.
            group_id: The group's name. aiokafka's consumer tells no more of itself, so that it must assign its
                partitions itself: docs/how-to/migrating.md says how.

        Raises:
            IllegalOperation: no transaction is open.
            ValueError: the offsets or the group are none.
            TypeError: a key is no TopicPartition.
            GroupAuthorizationFailedError: the cluster denies the group: abort the transaction.
        """
        self._check_transactional()
        await self._sends.send_offsets(offsets, group_id)

    def _check_transactional(self) -> None:
        if self._sends.config.transactional_id is None:
            raise theirs.IllegalOperation("You need to configure transaction_id to use transactions")


class TransactionContext:
    """A transaction: begun at its start, committed at its end, aborted by an exception."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(self, exc_type: object, *_: object) -> None:
        if exc_type is None:
            await self._producer.commit_transaction()
        elif self._producer._sends.can_abort:
            await self._producer.abort_transaction()
        # Otherwise nothing is open any more: what left the body tells why, or it was ended there.


def _loop_of(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is not None:
        warnings.warn(
            "The `loop` parameter has been deprecated since 0.7.1 and will be removed in a future release.",
            DeprecationWarning,
            stacklevel=3,
        )
        return loop
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "The object should be created within an async function or provide loop directly."
        ) from None
