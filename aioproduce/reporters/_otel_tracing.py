"""OpenTelemetry spans for each record, with the context in its headers, and for each transaction.

Used by the Producer as one of its `interceptors`. Names and attributes are those of the semantic conventions for
messaging, in the version of `SCHEMA_URL`; they are not stable yet.

Invariants:

1. Each started span is ended exactly once: when the record is acknowledged, has failed, or was never queued (it
   was refused, or the task that waited in `send()` was cancelled).
2. The record is sent with its span's context or unchanged. A failure here does not affect the record.
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
"""The buckets of the conventions, in seconds."""


_TRANSACTIONAL_ID: Final = "aioproduce.transactional_id"
_OUTCOME: Final = "aioproduce.transaction.outcome"


@final
class TracingInterceptor:
    """Creates a PRODUCER span for each record, from `send()` to the acknowledgement, and measures its duration.

    Each transaction also has a span, from its begin to its outcome.

    The span's parent is the current span when `send()` is awaited. `messaging.client.operation.duration` is
    recorded whether the span is sampled or not.

    Args:
        tracer_provider: By default the global one.
        meter_provider: By default the global one.
        propagator: Writes the headers; by default the global one (W3C's `traceparent`).
        client_id: The attribute `messaging.client.id`.
        server: `host:port` for the attributes `server.address` and `server.port`, e.g. the bootstrap server.
        has_keys: Whether to record text keys; turn it off if they are personal data.

    Raises:
        ValueError: If the server is not `host:port`.

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
        """Start a span of the transaction and make it current in its body: records sent there are its children.

        The conventions do not define a name for a transaction. The transactional.id is an attribute and not part of
        the span's name, because the number of names should be small.
        """
        known = {"messaging.system": "kafka", **self._client, _TRANSACTIONAL_ID: transactional_id}
        span = self._tracer.start_span("transaction", attributes=known)

        def ended(outcome: TransactionOutcome | None, error: BaseException | None) -> None:
            span.set_attribute(_OUTCOME, "unknown" if outcome is None else outcome.value)
            _end(span, error)

        return trace.use_span(span, record_exception=False, set_status_on_exception=False), ended

    def _of(self, record: ProducerRecord) -> dict[str, AttributeValue]:
        """Return the attributes that are known before the record is sent."""
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
    """Writes a header and replaces that of a forwarded record, because consumers read only one."""

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
    """Return Kafka's name for the broker's error, or the error's class."""
    if isinstance(error, BrokerRejectedError):
        return error.name
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _text(key: object) -> str | None:
    """Return the text of a key that is text or decodes as UTF-8; None for other bytes."""
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
        raise ValueError(f"server must be 'host:port', not {server!r}")
    return {"server.address": host.strip("[]"), "server.port": int(port)}
