"""OpenTelemetry, with the SDK's in-memory reader and exporter.

The names of metrics are those of the table in OpenTelemetry's Java instrumentation of Kafka's clients, written out;
the attributes of spans come from the package of the semantic conventions.
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import default_getter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioproduce import Producer, ProducerRecord
from aioproduce.core.transactions.transaction_manager import TransactionManager
from aioproduce.errors import (
    BrokerRejectedError,
    ForcedCloseError,
    InvalidTopicError,
    ProducerFencedError,
    SenderDiedError,
    TransactionOutcome,
)
from aioproduce.reporters.opentelemetry import ProducerMeter, TracingInterceptor
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.producing import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from opentelemetry.sdk.trace import ReadableSpan

    from aioproduce.producer.transactions import Transaction
    from aioproduce.records import RecordMetadata
    from aioproduce.testing import FakeRecord

OF_PRODUCER = (
    "batch_size_avg batch_size_max batch_split_rate batch_split_total buffer_available_bytes buffer_exhausted_rate "
    "buffer_exhausted_total buffer_total_bytes bufferpool_wait_ratio compression_rate_avg connection_close_rate "
    "connection_close_total connection_count connection_creation_rate connection_creation_total "
    "failed_authentication_rate failed_authentication_total io_ratio io_time_ns_avg io_wait_ratio "
    "io_wait_time_ns_avg metadata_age network_io_rate network_io_total produce_throttle_time_avg "
    "produce_throttle_time_max record_queue_time_avg record_queue_time_max record_size_avg record_size_max "
    "records_per_request_avg select_rate select_total "
    "successful_authentication_no_reauth_total successful_authentication_rate waiting_threads"
)
OF_NODES = (
    "incoming_byte_rate incoming_byte_total outgoing_byte_rate outgoing_byte_total request_latency_avg "
    "request_latency_max request_rate request_size_avg request_size_max request_total response_rate response_total"
)
OF_TOPICS = (
    "byte_rate byte_total compression_rate record_error_rate record_error_total record_retry_rate "
    "record_retry_total record_send_rate record_send_total"
)


class Telemetry:
    """An SDK that keeps all in memory."""

    def __init__(self, **settings: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(**settings)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])

    def interceptor(self, **settings: Any) -> TracingInterceptor:
        return TracingInterceptor(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **settings
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Those that have ended."""
        return self._exporter.get_finished_spans()

    def metrics(self) -> dict[str, Any]:
        """What one collection gives, by name."""
        collected = self._reader.get_metrics_data()
        if collected is None:
            return {}
        return {
            metric.name: metric
            for resource in collected.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(topics={"orders": 4}) as cluster:
        yield cluster


def attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def named(telemetry: Telemetry, name: str) -> ReadableSpan:
    (span,) = [span for span in telemetry.spans if span.name == name]
    return span


def carried(record: FakeRecord) -> trace.SpanContext:
    """What a consumer makes of the headers."""
    carrier = {name: (value or b"").decode() for name, value in record.headers}
    context = TraceContextTextMapPropagator().extract(carrier, getter=default_getter)
    return trace.get_current_span(context).get_span_context()


def points(metric: Any) -> list[Any]:
    return list(metric.data.data_points)


# -- metrics ---


async def test_the_names_and_attributes_are_those_of_the_java_instrumentation(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="checkout") as producer:
        meter = ProducerMeter(producer, meter_provider=telemetry.meter_provider)
        for partition in range(4):
            await producer.send_and_wait("orders", b"v", partition=partition)
        found = telemetry.metrics()
        for names, keys in (
            (OF_PRODUCER, {"client-id"}),
            (OF_NODES, {"client-id", "node-id"}),
            (OF_TOPICS, {"client-id", "topic"}),
        ):
            for name in names.split():
                of_name = points(found[f"kafka.producer.{name}"])
                assert of_name, name
                for point in of_name:
                    assert set(point.attributes) == keys, name
                    assert point.attributes["client-id"] == "checkout"
                    assert not math.isnan(point.value)
        # Java has none of nodes; here there is, and so it is told of these.
        in_flight = points(found["kafka.producer.requests_in_flight"])
        assert all(set(point.attributes) == {"client-id", "node-id"} for point in in_flight)
        (sent,) = points(found["kafka.producer.record_send_total"])
        assert (sent.value, sent.attributes["topic"]) == (4, "orders")
        assert type(found["kafka.producer.record_send_total"].data).__name__ == "Sum"
        assert found["kafka.producer.record_send_total"].data.is_monotonic
        assert type(found["kafka.producer.record_send_rate"].data).__name__ == "Gauge"
        units = {
            name: found[f"kafka.producer.{name}"].unit
            for name in ("byte_rate", "record_size_max", "io_ratio")
        }
        assert units == {"byte_rate": "By/s", "record_size_max": "By", "io_ratio": "1"}
        assert found["kafka.producer.record_send_total"].unit == "{record}"
        meter.remove(producer)
        assert "kafka.producer.record_send_rate" not in telemetry.metrics()
        with pytest.raises(ValueError, match="was not added"):
            meter.remove(producer)
        meter.add(producer)
        with pytest.raises(ValueError, match=r"client\.id 'checkout'"):
            ProducerMeter(producer, Producer("localhost:1", client_id="checkout"))


async def test_what_is_nan_is_not_told(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        ProducerMeter(producer, meter_provider=telemetry.meter_provider)
        assert math.isnan(producer.metrics().value("record-size-avg"))
        assert "kafka.producer.record_size_avg" not in telemetry.metrics()
        await producer.send_and_wait("orders", b"v")
        assert "kafka.producer.record_size_avg" in telemetry.metrics()


async def test_messages_sent_are_told_by_the_conventions_too(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    async with Producer(cluster.bootstrap_servers, client_id="checkout") as producer:
        ProducerMeter(producer, meter_provider=telemetry.meter_provider)
        await producer.send_and_wait("orders", b"v")
        await producer.send_and_wait("refunds", b"v")
        await producer.send_and_wait("orders", b"v")
        metric = telemetry.metrics()[messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES]
    assert metric.unit == "{message}"
    by_topic = {point.attributes[messaging.MESSAGING_DESTINATION_NAME]: point for point in points(metric)}
    assert {topic: point.value for topic, point in by_topic.items()} == {"orders": 2, "refunds": 1}
    assert dict(by_topic["orders"].attributes) == {
        messaging.MESSAGING_SYSTEM: "kafka",
        messaging.MESSAGING_OPERATION_NAME: "send",
        messaging.MESSAGING_OPERATION_TYPE: "send",
        messaging.MESSAGING_DESTINATION_NAME: "orders",
        messaging.MESSAGING_CLIENT_ID: "checkout",
    }


async def test_each_collection_reads_each_producer_once_and_anew(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        reads = []

        class Counted:
            config = producer.config

            def metrics(self) -> Any:
                reads.append(threading.current_thread())
                return producer.metrics()

        ProducerMeter(Counted(), meter_provider=telemetry.meter_provider)
        for number in range(1, 4):
            await producer.send_and_wait("orders", b"v")
            found = await asyncio.to_thread(telemetry.metrics)
            assert points(found["kafka.producer.record_send_total"])[0].value == number
            assert len(reads) == number
    assert set(reads) == {threading.current_thread()}, "in the event loop's thread, for every caller"


# -- spans ---


async def test_a_span_tells_of_the_record_s_way(telemetry: Telemetry, cluster: FakeCluster) -> None:
    interceptor = telemetry.interceptor(client_id="checkout", server="kafka.example:9092")
    async with Producer(cluster.bootstrap_servers, interceptors=[interceptor]) as producer:
        await producer.send_and_wait("orders", b"0", partition=2)
        metadata = await producer.send_and_wait("orders", b"1", key=b"customer-7", partition=2)
        await producer.flush()
    span = telemetry.spans[1]
    assert metadata.offset == 1
    assert (span.name, span.kind) == ("send orders", SpanKind.PRODUCER)
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span) == {
        messaging.MESSAGING_SYSTEM: "kafka",
        messaging.MESSAGING_OPERATION_NAME: "send",
        messaging.MESSAGING_OPERATION_TYPE: "send",
        messaging.MESSAGING_DESTINATION_NAME: "orders",
        messaging.MESSAGING_DESTINATION_PARTITION_ID: "2",
        messaging.MESSAGING_KAFKA_OFFSET: 1,
        messaging.MESSAGING_KAFKA_MESSAGE_KEY: "customer-7",
        messaging.MESSAGING_CLIENT_ID: "checkout",
        server_attributes.SERVER_ADDRESS: "kafka.example",
        server_attributes.SERVER_PORT: 9092,
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "aioproduce"


async def test_the_context_goes_out_in_the_headers(telemetry: Telemetry, cluster: FakeCluster) -> None:
    """What a consumer makes of the headers is the span; its parent is what was current at `send()`."""
    tracer = telemetry.tracer_provider.get_tracer("test")
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        with tracer.start_as_current_span("request") as parent:
            delivery = await producer.send("orders", b"v", headers=[("own", b"1"), ("null", None)])
        await delivery
        await producer.flush()
    (record,) = cluster.records("orders")
    assert record.headers[:2] == (("own", b"1"), ("null", None))
    consumed = carried(record)
    (span,) = [span for span in telemetry.spans if span.kind is SpanKind.PRODUCER]
    assert (consumed.trace_id, consumed.span_id) == (span.context.trace_id, span.context.span_id)
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id


async def test_a_record_that_is_passed_on_has_one_context(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        old = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        record = ProducerRecord(topic="orders", value=b"v", headers=iter([old, ("own", b"1")]))
        await producer.send_and_wait(record)
        await producer.flush()
    (sent,) = cluster.records("orders")
    assert [name for name, _ in sent.headers] == ["own", "traceparent"]
    assert old not in sent.headers


@pytest.mark.parametrize(
    ("key", "told"),
    [(b"text", "text"), ("text", "text"), (7, "7"), (b"\xff\xfe", None), (None, None), (1.5, None)],
)
async def test_a_key_is_told_if_it_has_one_text(
    telemetry: Telemetry, cluster: FakeCluster, key: Any, told: str | None
) -> None:
    def serialize(given: Any) -> bytes:
        return given if isinstance(given, bytes) else str(given).encode()

    for has_keys in (True, False):
        interceptor = telemetry.interceptor(has_keys=has_keys)
        async with Producer(
            cluster.bootstrap_servers, interceptors=[interceptor], key_serializer=serialize
        ) as producer:
            await producer.send_and_wait("orders", None, key=key)
            await producer.flush()
    first, second = telemetry.spans
    assert attributes(first).get(messaging.MESSAGING_KAFKA_MESSAGE_KEY) == told
    assert messaging.MESSAGING_KAFKA_MESSAGE_KEY not in attributes(second)
    assert attributes(first)[messaging.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True


async def test_a_record_that_the_broker_refuses(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        cluster.faults.fail_produce(87)
        with pytest.raises(BrokerRejectedError):
            await producer.send_and_wait("orders", b"v", partition=1)
        await producer.flush()
    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)[error_attributes.ERROR_TYPE] == "INVALID_RECORD"
    assert attributes(span)[messaging.MESSAGING_DESTINATION_PARTITION_ID] == "1"
    assert messaging.MESSAGING_KAFKA_OFFSET not in attributes(span)


async def test_a_retry_is_part_of_the_one_span(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, interceptors=[telemetry.interceptor()], retry_backoff_ms=1
    ) as producer:
        cluster.faults.fail_produce(6)  # NOT_LEADER_OR_FOLLOWER
        await producer.send_and_wait("orders", b"v")
        await producer.flush()
        assert producer.metrics().value("record-retry-total") == 1
    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)[messaging.MESSAGING_KAFKA_OFFSET] == 0


async def test_a_record_that_send_refuses(telemetry: Telemetry, cluster: FakeCluster) -> None:
    def serialize(given: Any) -> bytes:
        raise LookupError("no such schema")

    async with Producer(
        cluster.bootstrap_servers, interceptors=[telemetry.interceptor()], key_serializer=serialize
    ) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.send("no topic", b"v")
        with pytest.raises(InvalidTopicError):
            producer.try_send("no topic", b"v")
        with pytest.raises(Exception, match="no such schema"):
            await producer.send("orders", b"v", key="k")
    types = [attributes(span)[error_attributes.ERROR_TYPE] for span in telemetry.spans]
    assert types[:2] == ["aioproduce.errors.InvalidTopicError"] * 2
    assert len(types) == 3
    assert all(span.status.status_code is StatusCode.ERROR for span in telemetry.spans)


async def test_a_send_that_is_cancelled_while_it_waits(telemetry: Telemetry) -> None:
    async with (
        FakeCluster() as cluster,
        Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer,
    ):
        cluster.faults.drop_answers(api=ApiKey.METADATA, times=None)
        for send in (
            lambda: producer.send("orders", b"v"),
            lambda: producer.send_many("orders", [b"v"]),
            lambda: producer.send_arrow("orders", pa.table({"value": [b"v"]})),
        ):
            task = asyncio.ensure_future(_awaited(send))
            await until(lambda: cluster.requests.count(ApiKey.METADATA))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await producer.close(0)
    types = [attributes(span)[error_attributes.ERROR_TYPE] for span in telemetry.spans]
    assert types == ["asyncio.exceptions.CancelledError"] * 3


async def _awaited(send: Any) -> Any:
    return await send()


async def test_a_close_that_gives_up(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        await producer.partitions_for("orders")
        cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        delivery = await producer.send("orders", b"v")
        await producer.send("orders", b"v")
        await producer.close(0)
        with pytest.raises(ForcedCloseError):
            await delivery
    types = [attributes(span)[error_attributes.ERROR_TYPE] for span in telemetry.spans]
    assert types == ["aioproduce.errors.ForcedCloseError"] * 2


async def test_a_sender_that_dies(telemetry: Telemetry, cluster: FakeCluster) -> None:
    """As when a loop that ends cancels all its tasks, the sender's among them."""
    producer = Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()])
    await producer.start()
    await producer.partitions_for("orders")
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    await producer.send("orders", b"v")
    for task in asyncio.all_tasks():
        if task.get_name().startswith("aioproduce sender"):
            task.cancel()
    await until(lambda: telemetry.spans)
    await producer.close()
    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.ERROR
    assert error_attributes.ERROR_TYPE in attributes(span)


async def test_each_row_of_a_bulk_call_has_its_span(telemetry: Telemetry, cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        await producer.send_many("orders", [b"0", b"1", b"2"])
        await producer.send_arrow("orders", pa.table({"value": [b"3", b"4"]}))
        await producer.flush()
    assert len(telemetry.spans) == 5
    assert {carried(record).span_id for record in cluster.records("orders")} == {
        span.context.span_id for span in telemetry.spans
    }


async def test_a_handle_that_is_cancelled_ends_no_span(telemetry: Telemetry, cluster: FakeCluster) -> None:
    """The record goes on, and its span tells what became of it."""
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        delivery = await producer.send("orders", b"v")
        delivery.cancel()
        await producer.flush()
    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)[messaging.MESSAGING_KAFKA_OFFSET] == 0


async def test_an_interceptor_behind_may_fail_or_forget_the_headers(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    class Fails:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyError("on_send")

        def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
            raise KeyError("on_acknowledgement")

    class Forgets:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(topic=record.topic, value=record.value)

    async with Producer(
        cluster.bootstrap_servers, interceptors=[Fails(), telemetry.interceptor(), Forgets(), Fails()]
    ) as producer:
        await producer.send_and_wait("orders", b"v")
        await producer.flush()
    assert cluster.records("orders")[0].headers == ()
    assert len(telemetry.spans) == 1


async def test_a_propagator_that_fails_costs_the_span_only(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    class Fails(CompositePropagator):
        def inject(self, *arguments: Any, **settings: Any) -> None:
            raise LookupError("a bug of the propagator")

    interceptor = telemetry.interceptor(propagator=Fails([]))
    async with Producer(cluster.bootstrap_servers, interceptors=[interceptor]) as producer:
        await producer.send_and_wait("orders", b"v", headers=[("own", b"1")])
    assert cluster.records("orders")[0].headers == (("own", b"1"),)
    (span,) = telemetry.spans
    assert attributes(span)[error_attributes.ERROR_TYPE] == "builtins.LookupError"


async def test_the_duration_is_recorded_with_the_conventions_buckets(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    async with Producer(
        cluster.bootstrap_servers, interceptors=[telemetry.interceptor(client_id="checkout")]
    ) as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"v")
        cluster.faults.fail_produce(87)
        with pytest.raises(BrokerRejectedError):
            await producer.send_and_wait("orders", b"v")
        await producer.flush()
    metric = telemetry.metrics()[messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION]
    assert metric.unit == "s"
    fine, failed = sorted(points(metric), key=lambda point: len(point.attributes))
    assert (fine.count, failed.count) == (3, 1)
    assert failed.attributes[error_attributes.ERROR_TYPE] == "INVALID_RECORD"
    assert fine.attributes[messaging.MESSAGING_DESTINATION_NAME] == "orders"
    assert list(fine.explicit_bounds) == [
        *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
    ]
    spans = [(span.end_time or 0) - (span.start_time or 0) for span in telemetry.spans]
    assert fine.sum + failed.sum == pytest.approx(sum(spans) / 1e9, rel=0.5)


async def test_spans_that_are_not_sampled_are_measured_and_propagated(cluster: FakeCluster) -> None:
    telemetry = Telemetry(sampler=ALWAYS_OFF)
    async with Producer(cluster.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        await producer.send_and_wait("orders", b"v")
        await producer.flush()
    assert telemetry.spans == ()
    context = carried(cluster.records("orders")[0])
    assert context.is_valid
    assert not context.trace_flags.sampled
    assert points(telemetry.metrics()["messaging.client.operation.duration"])[0].count == 1


async def test_without_an_sdk_nothing_is_added(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, interceptors=[TracingInterceptor()]) as producer:
        ProducerMeter(producer)
        await producer.send_and_wait("orders", b"v", headers=[("own", b"1")])
    assert cluster.records("orders")[0].headers == (("own", b"1"),)


@pytest.mark.parametrize("server", ["kafka", ":9092", "kafka:", "kafka:port"])
def test_a_server_has_a_host_and_a_port(server: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        TracingInterceptor(server=server)


async def test_a_transaction_is_a_span_and_its_records_are_children(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    tracer = telemetry.tracer_provider.get_tracer("test")
    settings: dict[str, Any] = {"interceptors": [telemetry.interceptor(client_id="checkout")]}
    async with Producer(cluster.bootstrap_servers, transactional_id="orders-1", **settings) as producer:
        with tracer.start_as_current_span("request") as request:
            async with producer.transaction() as txn:
                await txn.send("orders", b"1")
                with tracer.start_as_current_span("part") as part:
                    await txn.send("orders", b"2")
            assert trace.get_current_span() is request
    transaction = named(telemetry, "transaction")
    assert attributes(transaction) == {
        messaging.MESSAGING_SYSTEM: "kafka",
        messaging.MESSAGING_CLIENT_ID: "checkout",
        "aioproduce.transactional_id": "orders-1",
        "aioproduce.transaction.outcome": "committed",
    }
    assert (transaction.kind, transaction.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert transaction.parent == request.get_span_context()
    sent = [span.parent for span in telemetry.spans if span.name == "send orders"]
    assert sent == [transaction.context, part.get_span_context()]
    assert named(telemetry, "part").parent == transaction.context


async def failing(txn: Transaction) -> None:
    async with txn:
        await txn.send("orders", b"no")
        raise LookupError


async def test_the_span_of_a_transaction_that_is_not_committed(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    """Aborted by its body, fenced, and open when the producer ends: each span ends, once."""

    def told() -> list[tuple[Any, StatusCode, Any]]:
        return [
            (
                span.attributes["aioproduce.transaction.outcome"],
                span.status.status_code,
                span.attributes.get("error.type"),
            )
            for span in telemetry.spans
            if span.name == "transaction" and span.attributes is not None
        ]

    settings: dict[str, Any] = {"transactional_id": "orders-1", "interceptors": [telemetry.interceptor()]}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        with pytest.raises(LookupError):
            await failing(producer.transaction())
        await producer.begin_transaction()
        # Begun by hand, there is no body for it to be current in.
        assert not trace.get_current_span().get_span_context().is_valid
        await producer.send_and_wait("orders", b"no")
        expected: list[Any] = [("aborted", StatusCode.UNSET, None)]
        assert told() == expected
        async with Producer(cluster.bootstrap_servers, **settings) as successor:
            with pytest.raises(ProducerFencedError):
                await producer.commit_transaction()
            expected.append(("aborted", StatusCode.ERROR, "aioproduce.errors.ProducerFencedError"))
            assert told() == expected
            await successor.begin_transaction()
            await successor.send_and_wait("orders", b"no")
        expected.append(("aborted", StatusCode.UNSET, None))
    assert told() == expected


async def test_a_prepared_transaction_s_span_ends_with_its_producer(
    telemetry: Telemetry, cluster: FakeCluster
) -> None:
    settings: dict[str, Any] = {"transactional_id": "orders-1", "interceptors": [telemetry.interceptor()]}
    async with Producer(cluster.bootstrap_servers, **settings) as producer:
        async with producer.transaction() as txn:
            await txn.send("orders", b"1")
            await txn.prepare()
        assert [span.name for span in telemetry.spans] == ["send orders"]
    transaction = named(telemetry, "transaction")
    assert attributes(transaction)["aioproduce.transaction.outcome"] == "unknown"


async def test_a_transaction_s_span_ends_when_the_sender_dies(
    telemetry: Telemetry, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"transactional_id": "orders-1", "interceptors": [telemetry.interceptor()]}
    producer = Producer(cluster.bootstrap_servers, **settings)
    await producer.start()
    await producer.begin_transaction()

    def fail(*_: object) -> None:
        raise LookupError

    monkeypatch.setattr(TransactionManager, "advance", fail)
    with pytest.raises(SenderDiedError):
        await producer.commit_transaction()
    await producer.close()
    assert attributes(named(telemetry, "transaction"))["aioproduce.transaction.outcome"] == "unknown"


async def test_a_group_commit_s_transactions_are_spans(telemetry: Telemetry, cluster: FakeCluster) -> None:
    settings: dict[str, Any] = {"transactional_id": "orders-1", "interceptors": [telemetry.interceptor()]}
    async with (
        Producer(cluster.bootstrap_servers, **settings) as producer,
        producer.group_commit(interval=0.01) as group,
    ):
        await group.send("orders", b"1")
    assert attributes(named(telemetry, "transaction"))["aioproduce.transaction.outcome"] == "committed"


async def test_an_interceptor_cannot_break_a_transaction(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def intercept_transaction(self, transactional_id: str) -> Any:
            if transactional_id == "refuses":
                raise LookupError

            def ended(outcome: object, error: object) -> None:
                raise LookupError

            return self, ended

        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            raise LookupError

    for transactional_id in ("refuses", "fails"):
        settings: dict[str, Any] = {"transactional_id": transactional_id, "interceptors": [Broken()]}
        async with (
            Producer(cluster.bootstrap_servers, **settings) as producer,
            producer.transaction() as txn,
        ):
            await txn.send("orders", b"yes")
        assert txn.outcome is TransactionOutcome.COMMITTED
    assert [
        record.message.split(" failed")[0] for record in caplog.records if record.name == "aioproduce"
    ] == [
        "an interceptor's intercept_transaction",
        "an interceptor",
        "an interceptor",
    ]
