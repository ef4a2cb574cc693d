"""The sensors of batches, topics and brokers, which every batch, request and turn of the sender updates.

`metrics.ProducerMetrics` owns them, and is a `RequestMetrics` itself. The core and the driver record into them.
They are compiled, because each batch updates half a dozen. Arguments are seconds; stored times are milliseconds.

Invariants:

1. The stages of a batch's life add up to the time from its creation to its outcome.
2. No recorded value raises an error. The memory grows with the number of topics and brokers only.
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
    from collections.abc import Callable


class TopicMetrics:
    """The metrics of one topic, as `BatchMetrics` has for all topics, and `bytes`: sent, compressed."""

    def __init__(self, windows: Windows) -> None:
        self.records: Meter = Meter(windows)
        self.bytes: Meter = Meter(windows)
        self.compression: Spread = Spread(windows)
        self.retries: Meter = Meter(windows)
        self.errors: Meter = Meter(windows)


def _never_silent(_now: float) -> float:
    return 0.0


class NodeMetrics:
    """The metrics of one broker, or of all brokers together.

    Args:
        windows: The windows over which values count.
        together: The metrics of all brokers, which record everything as well.
        latencies: The latencies of all brokers, which record everything as well.

    Attributes:
        requests: Sizes of requests in bytes.
        outgoing: Bytes written; `incoming` are those read.
        latency: Latencies of Produce requests; only for a single broker.
        operations: Reads and writes; only for all brokers together.
        in_flight: Returns the number of unanswered requests; only for a single broker. Its connection sets it.
        silent_for: Returns the seconds that requests have waited without a byte; set in the same way.
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
        """Record a written request."""
        self.requests.record(size, now)
        self.outgoing.record(size, now)
        if self._all is None:
            self.operations.record(1, now)
        else:
            self._all.sent(size, now)

    def received(self, size: cython.Py_ssize_t, responses: cython.Py_ssize_t, now: cython.double) -> None:
        """Record bytes that came, and the number of answers that they completed."""
        self.incoming.record(size, now)
        if responses:
            self.responses.record(responses, now)
        if self._all is None:
            self.operations.record(1, now)
        else:
            self._all.received(size, responses, now)

    def answered(self, latency: cython.double, now: cython.double) -> None:
        """Record the answer to a Produce request, after `latency` seconds."""
        self.latency.record(latency * 1e3, now)
        if self._latencies is not None:
            self._latencies.record(latency * 1e3, now)


class RequestMetrics:
    """The metrics of requests and of the sender's turns.

    Attributes:
        nodes: Metrics by broker id, from the first connection on; bootstrap servers have negative ids.
        request_latency: Latencies of Produce requests.
        steps_worked: The duration of each turn of the sender, in ns. It slept for `steps_waited` before the turn.
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
        """Return the metrics of a broker."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeMetrics(self._windows, self.all_nodes, self.request_latency)
        return found

    def throttled(self, seconds: cython.double, now: cython.double) -> None:
        """Record the throttle time in a broker's answer; 0 counts, as in Kafka."""
        self.throttle.record(seconds * 1e3, now)

    def stepped(self, waited: cython.double, worked: cython.double, now: cython.double) -> None:
        """Record a turn of the sender: its sleep, then its work."""
        self.steps_waited.record(waited * 1e9, now)
        self.steps_worked.record(worked * 1e9, now)

    def lagged(self, seconds: cython.double, now: cython.double) -> None:
        """Record the delay of a due callback in the event loop."""
        self.loop_lag.record(seconds * 1e3, now)


class BatchMetrics:
    """The metrics of batches.

    Attributes:
        topics: Metrics by topic, from the first batch or error on.
        size: Bytes of sent batches.
        compression: Compressed size of the records over their size.
        queue_time: From a batch's creation to each attempt.
        records: Records sent; each attempt counts.
        record_size: Bytes of records before compression.
        retries: Records that were queued again.
        errors: Records that failed, or were refused.
        batching_time: From creation until the batch was full or its linger was over.
        await_send_time: From then to the first attempt.
        in_flight_time: The duration of the first attempt.
        retry_time: From the failure of the first attempt to the outcome.
        delivery_time: The sum of these four.
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
        """Return the metrics of a topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics(self._windows)
        return found

    def batch_sent(
        self,
        topic_name: str,
        count: cython.Py_ssize_t,
        whole: cython.Py_ssize_t,
        largest: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        queued: cython.double,
        now: cython.double,
    ) -> None:
        """Record a batch that a request carries to a connection.

        Args:
            topic_name: The batch's topic.
            count: Its records.
            whole: Its bytes before compression, with the header.
            largest: Bytes of its largest record.
            size: Its bytes on the wire.
            queued: Seconds since its creation.
            now: The current instant.
        """
        records: cython.Py_ssize_t = whole - RECORD_BATCH_OVERHEAD
        # The ratio of the records alone, as in Kafka's MemoryRecordsBuilder: the header is not compressed.
        ratio: cython.double = (size - RECORD_BATCH_OVERHEAD) / records
        topic: TopicMetrics = self.topic(topic_name)
        topic.records.record(count, now)
        topic.bytes.record(size, now)
        topic.compression.record(ratio, now)
        self.compression.record(ratio, now)
        self.size.record(size, now)
        self.queue_time.record(queued * 1e3, now)
        self.record_size.record_sum(records, count, largest, now)

    def request_sent(self, count: cython.Py_ssize_t, now: cython.double) -> None:
        """Record the records of all batches of one request."""
        self.records.record(count, now)
        self.records_per_request.record(count, now)

    def batch_retried(self, topic_name: str, count: cython.Py_ssize_t, now: cython.double) -> None:
        """Record a batch that returns to its queue."""
        topic: TopicMetrics = self.topic(topic_name)
        self.retries.record(count, now)
        topic.retries.record(count, now)

    def batch_ended(
        self,
        created_at: cython.double,
        closed_at: cython.double,
        sent_at: cython.double,
        failed_at: cython.double,
        now: cython.double,
    ) -> None:
        """Record the times of a batch that has its outcome.

        Args:
            created_at: When it was opened.
            closed_at: When it was full or its linger was over; infinity: not yet.
            sent_at: When it was first sent; infinity: never.
            failed_at: When an attempt first failed; infinity: never.
            now: The current instant.
        """
        closed_at = min(closed_at, sent_at, now)
        failed_at = min(failed_at, now)
        self.delivery_time.record((now - created_at) * 1e3, now)
        self.batching_time.record((closed_at - created_at) * 1e3, now)
        self.await_send_time.record((min(sent_at, now) - closed_at) * 1e3, now)
        if sent_at <= now:
            self.in_flight_time.record((failed_at - sent_at) * 1e3, now)
            if failed_at != now:
                self.retry_time.record((now - failed_at) * 1e3, now)

    def batch_failed(self, topic_name: str, count: cython.Py_ssize_t, now: cython.double) -> None:
        """Record the records of a batch that failed."""
        topic: TopicMetrics = self.topic(topic_name)
        self.errors.record(count, now)
        topic.errors.record(count, now)
