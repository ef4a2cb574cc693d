"""The sensors that every batch, request and turn of the sender passes: of batches, of topics and of brokers.

Owned by `metrics.ProducerMetrics`, which is a `RequestMetrics` itself; the core and the driver record into them.
Compiled, because half a dozen of them hear of each batch. Times come in as seconds and are kept as milliseconds.

Invariants:

1. The stages of a batch's life add up to the time from its creation to its outcome.
2. Nothing here raises, whatever is recorded, and nothing but topics and brokers makes it grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD
from aioproduce._native.stats import Distribution, Meter, Spread, Windows

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from aioproduce._native.record_batch import RecordBatchBuffer

    class RecordedBatch(Protocol):
        """A batch; what has not happened yet is at infinity."""

        topic: str
        records: RecordBatchBuffer
        size: int
        created_at: float
        closed_at: float
        first_sent_at: float
        first_failed_at: float


class TopicMetrics:
    """What is counted of one topic, as `BatchMetrics` has it of all; and `bytes`: sent, as compressed."""

    def __init__(self, windows: Windows) -> None:
        self.records: Meter = Meter(windows)
        self.bytes: Meter = Meter(windows)
        self.compression: Spread = Spread(windows)
        self.retries: Meter = Meter(windows)
        self.errors: Meter = Meter(windows)


def _never_silent(_now: float) -> float:
    return 0.0


class NodeMetrics:
    """What is counted of one broker, or of all of them together.

    Args:
        windows: How long what is recorded counts.
        together: Those of all brokers, which hear of everything too.
        latencies: Of all brokers, likewise.

    Attributes:
        requests: Their sizes in bytes.
        outgoing: Bytes written; `incoming` those read.
        latency: Of Produce requests; of each broker only.
        operations: Reads and writes; of all brokers together only.
        in_flight: Looks up how many requests are not answered yet; of each broker only, set by who connects to it.
        silent_for: Looks up for how many seconds requests have waited without a byte; likewise.
    """

    def __init__(
        self, windows: Windows, together: NodeMetrics | None = None, latencies: Distribution | None = None
    ) -> None:
        self._all = together
        self._latencies = latencies
        self.requests: Spread = Spread(windows)
        self.outgoing: Meter = Meter(windows)
        self.responses: Meter = Meter(windows)
        self.incoming: Meter = Meter(windows)
        self.latency: Spread = Spread(windows)
        self.operations: Meter = Meter(windows)
        self.in_flight: Callable[[], int] = int
        self.silent_for: Callable[[float], float] = _never_silent

    def sent(self, size: cython.Py_ssize_t, now: cython.double) -> None:
        """A request was written."""
        self.requests.record(size, now)
        self.outgoing.record(size, now)
        if self._all is None:
            self.operations.record(1, now)
        else:
            self._all.sent(size, now)

    def received(self, size: cython.Py_ssize_t, responses: cython.Py_ssize_t, now: cython.double) -> None:
        """Bytes came, and with them the ends of so many answers."""
        self.incoming.record(size, now)
        if responses:
            self.responses.record(responses, now)
        if self._all is None:
            self.operations.record(1, now)
        else:
            self._all.received(size, responses, now)

    def answered(self, latency: cython.double, now: cython.double) -> None:
        """A Produce request has its answer, after so many seconds."""
        self.latency.record(latency * 1e3, now)
        if self._latencies is not None:
            self._latencies.record(latency * 1e3, now)


class RequestMetrics:
    """What is counted of requests and of the sender's turns.

    Attributes:
        nodes: By broker id, from the first connection on; bootstrap servers have negative ids.
        request_latency: Of Produce requests.
        steps_worked: How long each turn of the sender took, in ns; before it, it slept `steps_waited`.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.nodes: dict[int, NodeMetrics] = {}
        self.all_nodes: NodeMetrics = NodeMetrics(windows)
        self.request_latency: Distribution = Distribution(windows)
        self.throttle: Distribution = Distribution(windows)
        self.steps_worked: Spread = Spread(windows)
        self.steps_waited: Spread = Spread(windows)
        self.loop_lag: Distribution = Distribution(windows)

    def node(self, node_id: cython.Py_ssize_t) -> NodeMetrics:
        """That broker's, by its number."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeMetrics(self._windows, self.all_nodes, self.request_latency)
        return found

    def throttled(self, seconds: cython.double, now: cython.double) -> None:
        """An answer told how long its broker throttles this client; 0 counts, as in Kafka."""
        self.throttle.record(seconds * 1e3, now)

    def stepped(self, waited: cython.double, worked: cython.double, now: cython.double) -> None:
        """The sender slept, and then did what there was to do."""
        self.steps_waited.record(waited * 1e9, now)
        self.steps_worked.record(worked * 1e9, now)

    def lagged(self, seconds: cython.double, now: cython.double) -> None:
        """The event loop ran what was due so much later."""
        self.loop_lag.record(seconds * 1e3, now)


class BatchMetrics:
    """What is counted of batches.

    Attributes:
        topics: The same by topic, from the first batch or error on.
        size: Bytes as sent.
        compression: Compressed size of the records over their size.
        queue_time: From creation to each sending.
        records: Sent, each attempt counted.
        record_size: Bytes of records before compression.
        retries: Records that were queued again.
        errors: Records that failed, or were refused.
        batching_time: Until it was full or its linger over.
        await_send_time: From then until it was sent first.
        in_flight_time: Of the first attempt.
        retry_time: From the failure of that to the outcome.
        delivery_time: All four.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.topics: dict[str, TopicMetrics] = {}
        self.size: Distribution = Distribution(windows)
        self.compression: Spread = Spread(windows)
        self.queue_time: Distribution = Distribution(windows)
        self.records: Meter = Meter(windows)
        self.records_per_request: Spread = Spread(windows)
        self.record_size: Spread = Spread(windows)
        self.retries: Meter = Meter(windows)
        self.errors: Meter = Meter(windows)
        self.batching_time: Distribution = Distribution(windows)
        self.await_send_time: Distribution = Distribution(windows)
        self.in_flight_time: Distribution = Distribution(windows)
        self.retry_time: Distribution = Distribution(windows)
        self.delivery_time: Distribution = Distribution(windows)

    def topic(self, name: str) -> TopicMetrics:
        """That topic's."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics(self._windows)
        return found

    def sent(self, batches: Sequence[RecordedBatch], now: cython.double) -> None:
        """These batches were handed to a connection, in one request."""
        total: cython.Py_ssize_t = 0
        for batch in batches:
            records = batch.records
            count: cython.Py_ssize_t = records.record_count
            whole: cython.Py_ssize_t = records.size
            size: cython.Py_ssize_t = batch.size
            # Of the records alone, as Kafka's MemoryRecordsBuilder has it: the header is not compressed.
            ratio: cython.double = (size - RECORD_BATCH_OVERHEAD) / (whole - RECORD_BATCH_OVERHEAD)
            topic: TopicMetrics = self.topic(batch.topic)
            topic.records.record(count, now)
            topic.bytes.record(size, now)
            topic.compression.record(ratio, now)
            self.compression.record(ratio, now)
            self.size.record(size, now)
            self.queue_time.record((now - batch.created_at) * 1e3, now)
            self.record_size.record_sum(whole - RECORD_BATCH_OVERHEAD, count, records.largest_record, now)
            total += count
        self.records.record(total, now)
        self.records_per_request.record(total, now)

    def retried(self, batch: RecordedBatch, now: cython.double) -> None:
        """A batch goes back to its queue."""
        count: cython.Py_ssize_t = batch.records.record_count
        topic: TopicMetrics = self.topic(batch.topic)
        self.retries.record(count, now)
        topic.retries.record(count, now)

    def ended(self, batch: RecordedBatch, now: cython.double, *, is_failed: cython.bint) -> None:
        """A batch has its outcome."""
        created_at: cython.double = batch.created_at
        sent_at: cython.double = batch.first_sent_at
        closed_at: cython.double = min(batch.closed_at, sent_at, now)
        failed_at: cython.double = min(batch.first_failed_at, now)
        self.delivery_time.record((now - created_at) * 1e3, now)
        self.batching_time.record((closed_at - created_at) * 1e3, now)
        self.await_send_time.record((min(sent_at, now) - closed_at) * 1e3, now)
        if sent_at <= now:
            self.in_flight_time.record((failed_at - sent_at) * 1e3, now)
            if failed_at != now:
                self.retry_time.record((now - failed_at) * 1e3, now)
        if is_failed:
            count: cython.Py_ssize_t = batch.records.record_count
            topic: TopicMetrics = self.topic(batch.topic)
            self.errors.record(count, now)
            topic.errors.record(count, now)
