"""Requests for a producer id, which the idempotent protocol needs before it can send.

Any broker can answer them.

Invariants:

1. One request is in flight at most; failures back off.
2. An answer that no retry can change fails the records that wait for the id, and only those. The permission may be
   granted later, so later records try again.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from aioproduce.core.exchanges.exchange import Exchange
from aioproduce.errors import ProducerFatalError, UnsupportedVersionError
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_init_producer_id

if TYPE_CHECKING:
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.exchanges.produce_completion import ProduceCompletion
    from aioproduce.core.retry import ExponentialBackoff
    from aioproduce.wire.messages import InitProducerIdResponse

# Java uses the largest possible time-out: an idempotent producer has no transaction that could time out.
_NO_TRANSACTION_TIMEOUT: Final = (2**31 - 1) / 1000


class ProducerIdRequests(Exchange):
    """The exchange of producer id requests, repeated until there is an id; `timer_at` ends the back-off."""

    __slots__ = (
        "_accumulator",
        "_bounded_log",
        "_client_id",
        "_completion",
        "_connections",
        "_failures",
        "_metadata",
        "_retry",
        "_sequences",
    )

    awaits_connection: bool
    timer_at: float

    def __init__(
        self,
        client_id: str,
        sequences: Sequences,
        metadata: ClusterMetadata,
        accumulator: RecordAccumulator,
        connections: BrokerConnections,
        completion: ProduceCompletion,
        retry: ExponentialBackoff,
        bounded_log: BoundedLog,
    ) -> None:
        super().__init__()
        self._client_id = client_id
        self._sequences = sequences
        self._metadata = metadata
        self._accumulator = accumulator
        self._connections = connections
        self._completion = completion
        self._retry = retry
        self._bounded_log = bounded_log
        self._failures = 0

    def advance(self, now: float) -> None:
        """Ask for a producer id if one is needed."""
        sequences = self._sequences
        for topic_partition in sequences.settle_sequences():
            self._accumulator.unblock(topic_partition, now)
        # It waits for an id, or for answers that settle unresolved sequences.
        self.awaits_connection = not sequences.is_at_rest
        if not sequences.needs_producer_id or self.timer_at != inf:
            return  # there is an id, or a request is in flight, or this backs off
        connection = self._connections.least_loaded(self._metadata.brokers, now)
        if connection is not None:
            self._ask(connection, now)

    def _ask(self, connection: BrokerConnection, now: float) -> None:
        try:
            connection.send(
                ApiKey.INIT_PRODUCER_ID,
                lambda version, correlation_id: [
                    encode_init_producer_id(
                        version, correlation_id, self._client_id, transaction_timeout=_NO_TRANSACTION_TIMEOUT
                    )
                ],
                self,
                now,
            )
        except UnsupportedVersionError:
            # Every broker with record batches v2 supports this request; older brokers are refused when connecting.
            self._failed(codes.UNSUPPORTED_VERSION, now)
            return
        self._sequences.init_begun()

    def answered(self, response: InitProducerIdResponse, now: float) -> bool:
        """Apply an answer."""
        if response.error_code != codes.NONE:
            self._failed(response.error_code, now)
            return False
        self._failures = 0
        self._sequences.init_succeeded(response.producer_id, response.producer_epoch)
        self._accumulator.readiness.unblock_all(now)
        return False

    def lost(self, loss: Lost, now: float) -> None:
        """Ask again, within the back-off: no answer will come."""
        self._failed(None, now)

    def _failed(self, code: int | None, now: float) -> None:
        """Back off after a request without an id: `code` is the broker's answer, `None` after a lost connection."""
        if not self._sequences.needs_producer_id:
            self._sequences.init_failed(is_fatal=False)
        self.timer_at = now + self._retry.backoff(self._failures)
        self._failures += 1
        if code is None or codes.is_retriable(code):
            return
        # Records that wait for the id cannot be sent; later ones try again, as the permission may be granted.
        name, text = codes.name_of(code), codes.message_of(code)
        self._bounded_log.warning(("init", code), now, "no producer id: %s: %s", name, text)
        self._completion.fail_all(
            lambda batch: ProducerFatalError(
                f"the cluster refuses a producer id, which enable.idempotence=true needs: {name}: {text}. "
                "Grant IdempotentWrite on the cluster (or Write on a topic), or set enable.idempotence=false",
                code=code,
                name=name,
                topic_partition=batch.topic_partition,
                possibly_written=batch.possibly_written,
                attempts=batch.attempts,
                retriable=False,
            ),
            now,
        )
