"""A span for each record, with its context in the headers, and for each transaction, as OpenTelemetry has it.

Called by the Producer, as one of its `interceptors`. Names and attributes are those of the semantic conventions for
messaging, in the version of `SCHEMA_URL`; they are not stable yet.

Invariants:

1. A span that was started is ended, and once: when the record is acknowledged, has failed, or was never queued (it
   was refused, or the task that waited in `send()` was cancelled).
2. The record goes out with its span's context or as it was; what goes wrong here stays here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableSequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

from opentelemetry import metrics, propagate, trace
from opentelemetry.propagators.textmap import Setter
from opentelemetry.trace import SpanKind, Status, StatusCode

from aioproduce.errors import BrokerRejectedError, TransactionOutcome
from aioproduce.reporters._otel_metrics import OPERATION, SCHEMA_URL
from aioproduce.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from aioproduce.producer.interceptors import OnOutcome
    from aioproduce.records import ProducerRecord, RecordMetadata

_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds: the buckets that the conventions ask for."""


_TRANSACTIONAL_ID: Final = "aioproduce.transactional_id"
_OUTCOME: Final = "aioproduce.transaction.outcome"


@final
class TracingInterceptor:
    """Makes a PRODUCER span of each record's way, `send()` to acknowledgement, and measures its duration.

    A transaction is a span, too, from its begin to its outcome.

    The span's parent is what is current where `send()` is awaited. `messaging.client.operation.duration` is
    recorded with it, whether the span is sampled or not.

    Args:
        tracer_provider: The global one by default.
        meter_provider: Likewise.
        propagator: What writes the headers; the global one by default (W3C's `traceparent`).
        client_id: Told as `messaging.client.id`.
        server: `host:port`, told as `server.address` and `server.port`: the bootstrap server, say.
        has_keys: Whether keys that are text are told; turn it off where they are personal data.

    Raises:
        ValueError: the server is not `host:port`.

    Example:
        >>> producer = Producer("localhost:9092", interceptors=[TracingInterceptor()])
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        client_id: str | None = None,
        server: str | None = None,
        has_keys: bool = True,
    ) -> None:
        self._tracer = trace.get_tracer("aioproduce", VERSION, tracer_provider, SCHEMA_URL)
        meter = metrics.get_meter("aioproduce", VERSION, meter_provider, SCHEMA_URL)
        self._durations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self._propagator = propagator
        self._common: dict[str, AttributeValue] = {**OPERATION, **_server(server)}
        self._client: dict[str, AttributeValue] = (
            {} if client_id is None else {"messaging.client.id": client_id}
        )
        self._has_keys = has_keys

    def intercept(self, record: ProducerRecord) -> tuple[ProducerRecord, OnOutcome]:
        """Start the span, and write its context into the record's headers."""
        headers: list[Any] = list(record.headers or ())
        topic = str(record.topic)
        common = {**self._common, "messaging.destination.name": topic}
        span = self._tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes={**common, **self._client, **self._of(record)}
        )
        try:
            inject = propagate.inject if self._propagator is None else self._propagator.inject
            inject(headers, trace.set_span_in_context(span), _SETTER)
            traced = replace(record, headers=headers)
        except BaseException as error:
            _end(span, error)
            raise
        return traced, _Outcome(span, self._durations, common)

    def intercept_transaction(
        self, transactional_id: str
    ) -> tuple[
        AbstractContextManager[Span], Callable[[TransactionOutcome | None, BaseException | None], None]
    ]:
        """Start a span of the transaction, which is current in its body: what is sent there is its child.

        The conventions have no name for a transaction. The transactional.id is an attribute and not in the span's
        name, as names are to be few.
        """
        known = {"messaging.system": "kafka", **self._client, _TRANSACTIONAL_ID: transactional_id}
        span = self._tracer.start_span("transaction", attributes=known)

        def ended(outcome: TransactionOutcome | None, error: BaseException | None) -> None:
            span.set_attribute(_OUTCOME, "unknown" if outcome is None else outcome.value)
            _end(span, error)

        return trace.use_span(span, record_exception=False, set_status_on_exception=False), ended

    def _of(self, record: ProducerRecord) -> dict[str, AttributeValue]:
        """What is known of the record before it is sent."""
        known: dict[str, AttributeValue] = {}
        if record.value is None:
            known["messaging.kafka.message.tombstone"] = True
        if isinstance(record.partition, int):
            known["messaging.destination.partition.id"] = str(record.partition)
        if self._has_keys and (key := _text(record.key)) is not None:
            known["messaging.kafka.message.key"] = key
        return known


@final
class _Outcome:
    """Ends the span of one record."""

    __slots__ = ("_common", "_durations", "_span", "_started_at")

    def __init__(self, span: Span, durations: Histogram, common: dict[str, AttributeValue]) -> None:
        self._span = span
        self._durations = durations
        self._common = common
        self._started_at = time.perf_counter()

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        took = time.perf_counter() - self._started_at
        try:
            if self._span.is_recording():
                self._span.set_attributes(_of_outcome(metadata))
        finally:
            _end(self._span, error)
        failed = {} if error is None else {"error.type": _error_type(error)}
        self._durations.record(took, {**self._common, **failed})


@final
class _HeaderSetter(Setter[MutableSequence[Any]]):
    """Writes a header; that of a record which is passed on is replaced, since a consumer reads but one."""

    def set(self, carrier: MutableSequence[Any], key: str, value: str) -> None:
        carrier[:] = [
            header for header in carrier if not (isinstance(header, tuple) and header[:1] == (key,))
        ]
        carrier.append((key, value.encode()))


_SETTER: Final = _HeaderSetter()


def _of_outcome(metadata: RecordMetadata) -> dict[str, AttributeValue]:
    known: dict[str, AttributeValue] = {}
    if metadata.partition >= 0:
        known["messaging.destination.partition.id"] = str(metadata.partition)
    if metadata.has_offset:
        known["messaging.kafka.offset"] = metadata.offset
    return known


def _end(span: Span, error: BaseException | None) -> None:
    try:
        if error is not None:
            span.set_attribute("error.type", _error_type(error))
            span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__name__))
    finally:
        span.end()


def _error_type(error: BaseException) -> str:
    """Kafka's name of what the broker answered, or the error's class."""
    if isinstance(error, BrokerRejectedError):
        return error.name
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _text(key: object) -> str | None:
    """A key that is text or has one unambiguous text; other bytes have none."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return str(key) if isinstance(key, str | int) else None


def _server(server: str | None) -> dict[str, AttributeValue]:
    if server is None:
        return {}
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"server is 'host:port', not {server!r}")
    return {"server.address": host.strip("[]"), "server.port": int(port)}
