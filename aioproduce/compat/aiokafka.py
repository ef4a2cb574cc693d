"""A drop-in for aiokafka's producer: `from aioproduce.compat.aiokafka import AIOKafkaProducer`.

The names, arguments, defaults, results and exception classes are aiokafka's (0.14; needs the extra `aiokafka`,
which provides the consumer anyway). The producer underneath is aioproduce's.
docs/how-to/migrate-from-aiokafka.md lists the differences.

Invariants:

1. An accepted record is delivered or fails within a bounded time. Nothing here waits for ever.
2. Records of one partition are written in the order in which they were accepted. Without idempotence, one request
   per broker is in flight, and a partition whose batch is being retried sends nothing after it.
3. A producer that is garbage-collected without being stopped emits a warning, and calls the loop's exception
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
"""Arguments that are not settings."""


class AIOKafkaProducer(PositionalCalls):
    """aiokafka's producer.

    Arguments are aiokafka's, documented there. Their meaning here:

    Args:
        loop: Deprecated, as in aiokafka.
        bootstrap_servers: `"host[:port]"`, several with commas or in a list; port 9092 by default.
        client_id: `aiokafka-producer-N` by default.
        metadata_max_age_ms: Maximum age of metadata, ms.
        request_timeout_ms: How long a broker may take to answer, ms. `send()` waits as long for the topic and
            for room. Without idempotence, a record fails after `linger_ms + 2 * request_timeout_ms`; with it,
            after 120 s or that time, if it is longer.
        api_version: Deprecated, as in aiokafka.
        acks: 0, 1, -1 or `"all"`; 1 by default, `"all"` with idempotence.
        key_serializer: Called with every key, including None.
        value_serializer: Called with every value, including None.
        compression_type: `gzip`, `snappy`, `lz4`, `zstd` or None.
        max_batch_size: Bytes of a partition's batch. It bounds batches, not memory: all batches together have
            32 MiB, or twice the larger of this and `max_request_size`.
        partitioner: `partitioner(key_bytes, all_partitions, available_partitions)`. By default, keys are hashed as
            in aiokafka (murmur2), and keyless records fill a batch of one partition, then of another.
        max_request_size: Maximum bytes of a request, and so of a record.
        linger_ms: How long an incomplete batch waits for more records, ms.
        retry_backoff_ms: Wait before the first retry, ms; it doubles with each, up to 1 s.
        security_protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
        ssl_context: Required by `SSL` and `SASL_SSL`.
        connections_max_idle_ms: Idle time after which a connection is closed, ms; None: never.
        enable_idempotence: Prevents duplicates and reordering by retries.
        transactional_id: The name under which transactions continue after a restart. Only one producer at a time
            may use it.
        transaction_timeout_ms: How long a transaction may be open, ms.
        sasl_mechanism: The mechanism of `SASL_PLAINTEXT` and `SASL_SSL`, like all further arguments.
        sasl_plain_password: The password.
        sasl_plain_username: The user.
        sasl_kerberos_service_name: The service.
        sasl_kerberos_domain_name: The domain.
        sasl_oauth_token_provider: An `AbstractTokenProvider`.

    Raises:
        ValueError: If aiokafka refuses a value, or (ConfigError) if aioproduce does.
        RuntimeError: If no event loop is running.

    Example:
        >>> async def main():
        ...     producer = AIOKafkaProducer(bootstrap_servers="localhost:9092")
        ...     await producer.start()
        ...     try:
        ...         metadata = await producer.send_and_wait("orders", b"42")
        ...     finally:
        ...         await producer.stop()
    """

    # As in `Producer`: CPython 3.12 and later look up `send()` for each record if the `__dict__` is not empty.
    __slots__ = (
        # In the interpreted build, PositionalCalls already has them.
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
        if getattr(self, "_closed", True):  # else its constructor raised
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
            KafkaConnectionError: If no bootstrap server can be reached. The call may be repeated.
            TransactionalIdAuthorizationFailed: If the cluster denies the `transactional_id`.
            KafkaTimeoutError: If there is no producer id within `request_timeout_ms`. The call may be repeated.
            ProducerClosed: If the producer was stopped.
        """
        if self._loop is not asyncio.get_running_loop():
            raise AssertionError("Please create objects with the same loop as running with")
        await self._sends.start()

    async def stop(self) -> None:
        """Send accepted records, and close all connections. An open transaction is aborted."""
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
        """Send accepted records without lingering, and wait until they are acknowledged or failed."""
        await self._sends.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic.

        Raises:
            UnknownTopicOrPartitionError: If it did not become known within `request_timeout_ms`.
        """
        return await self._sends.partitions_for(topic)

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch, for `send_batch()`."""
        return BatchBuilder(
            self._sends.create_batch(), self._sends.key_serializer, self._sends.value_serializer
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> DeliveryFuture | asyncio.Future[None]:
        """Send a whole batch, after the records that were accepted for its partition before.

        Returns:
            A future of the metadata of its first record, or of None for an empty batch.

        Raises:
            ProducerClosed: If the producer was stopped.
            KafkaTimeoutError: If there was no room within `request_timeout_ms`.
            IllegalStateError: If the batch was already sent.
        """
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"send_batch() needs a batch from create_batch(), not {type(batch).__name__}")
        return future_of(await self._sends.send_batch(batch.ours(), topic, partition))

    # -- transactions ---

    async def begin_transaction(self) -> None:
        """Begin a transaction, in which any task may send, after the end of the previous one.

        Raises:
            IllegalOperation: If there is no `transactional_id`. All following methods raise this, too.
            AssertionError: If a transaction is open, or has failed and was not aborted.
            ProducerFenced: If another producer with the same `transactional_id` has taken over.
        """
        self._check_transactional()
        await self._sends.begin()

    async def commit_transaction(self) -> None:
        """Send the remaining records, and make all of the transaction visible.

        A call that is cancelled, or that waits longer than `request_timeout_ms`, stops waiting, but the commit
        continues. The same call again waits for it.

        Raises:
            AssertionError: If no transaction is open.
            ProducerFenced: If another producer has taken over, or if the transaction was open for longer than
                `transaction_timeout_ms`.
            KafkaTimeoutError: If there was no answer within `request_timeout_ms`.
            KafkaError: If a record or its offsets failed, for the same reason: abort the transaction.
        """
        self._check_transactional()
        await self._sends.commit()

    async def abort_transaction(self) -> None:
        """Hide all of the transaction from readers of committed records; unsent records fail.

        Raises:
            AssertionError: If no transaction is open.
            ProducerFenced: If another producer has taken over.
            KafkaTimeoutError: If there was no answer within `request_timeout_ms`; the abort continues.
        """
        self._check_transactional()
        await self._sends.abort()

    def transaction(self) -> TransactionContext:
        """Return a transaction as an async context manager."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Commit a consumer group's offsets with the open transaction.

        Args:
            offsets: By aiokafka's TopicPartition: the offset of the next record to read, as an int, an
                OffsetAndMetadata, or a pair of both.
            group_id: The group's name. aiokafka's consumer does not expose more of its membership, so it must
                assign its partitions itself; see docs/how-to/migrate-from-aiokafka.md.

        Raises:
            IllegalOperation: If no transaction is open.
            ValueError: If the offsets or the group are not valid.
            TypeError: If a key is not a TopicPartition.
            GroupAuthorizationFailedError: If the cluster denies the group: abort the transaction.
        """
        self._check_transactional()
        await self._sends.send_offsets(offsets, group_id)

    def _check_transactional(self) -> None:
        if self._sends.config.transactional_id is None:
            raise theirs.IllegalOperation("You need to configure transaction_id to use transactions")


class TransactionContext:
    """A transaction: begun at its start, committed at its end, aborted after an exception."""

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
        # Otherwise it is no longer open: the body ended it, or the body's exception shows why.


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
