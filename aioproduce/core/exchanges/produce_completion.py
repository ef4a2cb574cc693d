"""The outcome of a batch after an answer, a lost connection, its delivery time-out, or a forced close.

Called by the Sender. Only this module decides between success, retry, split and failure, and whether a failed
record may still be in the log.

Invariants:

1. Every path through here settles the batch's futures once, or puts the batch back into its queue.
2. A batch whose answer was lost, or has an ambiguous code, is `possibly_written` from then on.
3. `settled` gets every result that has callbacks, in the order of completion. The driver runs them after the step,
   never within it: a callback may send again or close.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.exchanges.delivery_errors import DeliveryErrors, description_of
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from aioproduce.wire.messages import PartitionProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from aioproduce._native.delivery import BatchResult
    from aioproduce._native.sensors import BatchMetrics
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.produce_transaction import ProduceTransaction
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.errors import DeliveryError
    from aioproduce.metrics import ProducerMetrics
    from aioproduce.wire.messages import ProduceResponse

_AMBIGUOUS: Final = frozenset(
    {
        codes.UNKNOWN_SERVER_ERROR,
        codes.REQUEST_TIMED_OUT,
        codes.NETWORK_EXCEPTION,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        codes.KAFKA_STORAGE_ERROR,
    }
)
"""Codes after which the batch may be in the log. Codes that this client does not know count as ambiguous, too."""

_AMBIGUOUS_FOR_ALL: Final = _AMBIGUOUS | {codes.NOT_LEADER_OR_FOLLOWER}
"""The same with acks=all: a leader that has appended waits for its followers. If it loses the leadership meanwhile,
it answers this code (Partition.checkEnoughReplicasReachOffset), but the next leader may have the batch."""

_NO_TOPIC: Final = object()
# Constants of the module, because a foreign attribute costs a look-up, and one of an Enum a call.
_ABANDONED: Final = BatchState.ABANDONED
_NONE: Final = codes.NONE
_DUPLICATE: Final = codes.DUPLICATE_SEQUENCE_NUMBER
_TOO_LARGE: Final = codes.MESSAGE_TOO_LARGE
_INVALID_METADATA: Final = codes.INVALID_METADATA

_log = logging.getLogger("aioproduce.sender")


class ProduceCompletion:
    """The decision on the outcome of each batch.

    Attributes:
        errors: Makes the errors of batches.
        settled: See invariant 3.
        keeps_order_by_muting: Whether one request at a time keeps the order of a partition.
        transaction: The open transaction of a transactional producer, which sets it; `None` otherwise.
    """

    __slots__ = (
        "_accumulator",
        "_ambiguous",
        "_batch_metrics",
        "_bounded_log",
        "_config",
        "_metadata",
        "_metrics",
        "_sequences",
        "errors",
        "keeps_order_by_muting",
        "settled",
        "transaction",
    )

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        metadata: ClusterMetadata,
        sequences: Sequences | None,
        metrics: ProducerMetrics,
        connection_errors: Callable[[], Mapping[str, str]],
    ) -> None:
        self._config = config
        self.errors: DeliveryErrors = DeliveryErrors(config.retries, metadata, connection_errors)
        self._metrics = metrics
        self._batch_metrics: BatchMetrics = metrics.batches
        self._accumulator = accumulator
        self._metadata = metadata
        self._sequences = sequences
        self._bounded_log = BoundedLog(_log)
        self._ambiguous = _AMBIGUOUS_FOR_ALL if config.acks == -1 else _AMBIGUOUS
        self.keeps_order_by_muting: bool = config.max_in_flight == 1
        self.settled: deque[BatchResult] = deque()
        self.transaction: ProduceTransaction | None = None

    # -- answers ---

    def answered(
        self,
        batches: Sequence[ProducerBatch],
        response: ProduceResponse,
        connection: BrokerConnection,
        now: float,
    ) -> bool:
        """Handle the answer to the request that carried these batches.

        Returns:
            Whether the broker acknowledged all of them.
        """
        if self.transaction is not None:
            self.transaction.answered_produce(now)
        answers = _in_order(batches, response.partitions)
        new_leaders: dict[TopicPartition, tuple[int, int]] = {}
        has_all = True
        for index in range(len(batches)):
            batch, found = batches[index], answers[index]
            if found is None:
                has_all = False
                self._lost(
                    batch, codes.NETWORK_EXCEPTION, f"{connection.peer} left it out of its answer", now
                )
                continue
            self._complete(batch, found, now, True)
            if found.error_code != _NONE:
                has_all = False
                if found.leader_id >= 0 and found.leader_epoch >= 0:
                    new_leaders[batch.topic_partition] = (found.leader_id, found.leader_epoch)
        if new_leaders:
            for topic_partition in self._metadata.update_leaders(new_leaders, response.node_endpoints):
                self._accumulator.leader_changed(topic_partition, now)
        return has_all

    def unanswered(
        self, batches: Sequence[ProducerBatch], reason: str, *, timed_out: bool, now: float
    ) -> None:
        """Handle the loss of the connection that carried these batches; it uses their memory no more."""
        code = codes.REQUEST_TIMED_OUT if timed_out else codes.NETWORK_EXCEPTION
        for batch in batches:
            self._lost(batch, code, reason, now)

    def written(self, batches: Sequence[ProducerBatch], now: float) -> None:
        """Complete batches that were sent with acks=0: the transport has written their last byte."""
        for batch in batches:
            self._complete(batch, _answer(batch, codes.NONE, None), now, True)

    def _lost(self, batch: ProducerBatch, code: int, reason: str, now: float) -> None:
        batch.possibly_written = True
        if self.transaction is not None:
            self.transaction.is_doubtful()
        self._complete(batch, _answer(batch, code, reason), now, False)

    def _complete(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now: float,
        was_answered: bool,
    ) -> None:
        code = answer.error_code
        if code != _NONE:
            if code in self._ambiguous or not codes.is_known(code):
                batch.possibly_written = True
            batch.last_error, batch.last_code = description_of(answer), code
            if batch.first_failed_at > now:
                batch.first_failed_at = now
        if batch.state is _ABANDONED:
            if code in (_NONE, _DUPLICATE) and self._sequences is not None:
                self._sequences.batch_succeeded(batch)
            batch.release_abandoned()
        elif code in (_NONE, _DUPLICATE):
            self._succeed(batch, answer, now)
        elif code == _TOO_LARGE and self._may_split(batch):
            self._bounded_log.warning(
                (batch.topic, code),
                now,
                "a batch of %d bytes is too large for %s, splitting it: batch.size is above the topic's "
                "max.message.bytes",
                batch.size,
                batch.topic_partition,
            )
            self._metrics.batch_splits.record(1, now)
            self._accumulator.split_and_reenqueue(batch, now)
        elif self._may_retry(batch, answer, now):
            self._bounded_log.warning(
                (batch.topic_partition, code), now, "retrying %s: %s", batch.topic_partition, batch.last_error
            )
            self._batch_metrics.batch_retried(batch.topic, batch.record_count, now)
            self._accumulator.reenqueue(batch, now)
        elif now >= batch.deadline and codes.is_retriable(code):
            # The error is a time-out, in whichever order this and `expire()` run.
            self._fail(batch, self.errors.timeout(batch, now, is_unanswered=False), now, answer_came=True)
        else:
            make_error = self.errors.rejection if was_answered else self.errors.disconnection
            error = make_error(batch, answer)
            self._fail(batch, error, now, self.errors.record_errors(batch, answer), answer_came=True)
        if code != _NONE and code in _INVALID_METADATA:
            self._metadata.request_update(now)
        if self.keeps_order_by_muting:
            self._accumulator.unmute(batch.topic_partition, now)
        self._accumulator.unblock(batch.topic_partition, now)

    def _succeed(self, batch: ProducerBatch, answer: PartitionProduceResponse, now: float) -> None:
        if self._sequences is not None:
            self._sequences.batch_succeeded(batch)
        # For a repeated batch (DUPLICATE_SEQUENCE_NUMBER) the broker may not remember the offset.
        offset = answer.base_offset if answer.error_code == _NONE else -1
        self._record_end(batch, now)
        batch.succeed(offset, answer.log_append_time, answer.log_start_offset)
        self._after_settling(batch)

    def _may_split(self, batch: ProducerBatch) -> bool:
        # A batch may be in the log already if the limit was lowered since, or the new leader's is lower. The broker
        # compares the sequences of whole batches, so it would not recognise the parts and would write them again.
        return batch.record_count > 1 and not (self._sequences is not None and batch.possibly_written)

    def _may_retry(self, batch: ProducerBatch, answer: PartitionProduceResponse, now: float) -> bool:
        # `attempts` counts the first one, which is no retry.
        if now >= batch.deadline or batch.attempts > self._config.retries:
            return False
        if self.transaction is not None and not self.transaction.is_open_for_retries:
            return False
        if self._sequences is not None:
            return self._sequences.may_retry(batch, answer.error_code, answer.log_start_offset)
        return codes.is_retriable(answer.error_code)

    def _fail(
        self,
        batch: ProducerBatch,
        error: DeliveryError,
        now: float,
        record_errors: dict[int, BaseException] | None = None,
        *,
        answer_came: bool = False,
    ) -> None:
        self._record_end(batch, now)
        self._batch_metrics.batch_failed(batch.topic, batch.record_count, now)
        if answer_came:
            batch.answer_failed(error, record_errors)
        else:
            batch.fail(error, record_errors)
        if self._sequences is not None:
            self._sequences.batch_failed(batch)
        self._after_settling(batch)
        if self.transaction is not None:
            self.transaction.delivery_failed(batch, error, now)

    def _record_end(self, batch: ProducerBatch, now: float) -> None:
        self._batch_metrics.batch_ended(
            batch.created_at, batch.closed_at, batch.first_sent_at, batch.first_failed_at, now
        )

    def _after_settling(self, batch: ProducerBatch) -> None:
        self._accumulator.settled(batch)
        if batch.result.has_callbacks:
            self.settled.append(batch.result)

    # -- time and close ---

    def expire(self, now: float) -> None:
        """Fail batches that have reached their delivery time-out, queued or in flight."""
        for batch in self._accumulator.expired(now):
            if batch.is_settled:
                continue  # it failed with its transaction, when a batch before it expired
            is_unanswered = batch.state is BatchState.IN_FLIGHT
            self._give_up(batch, self.errors.timeout(batch, now, is_unanswered=is_unanswered), now)

    def fail_all(self, make_error: Callable[[ProducerBatch], DeliveryError], now: float) -> None:
        """Fail every pending batch: a forced close, or a producer that can never send."""
        for batch in self._accumulator.incomplete:
            if not batch.is_settled:  # as in `expire()`
                self._give_up(batch, make_error(batch), now)

    def fail_queued(self, make_error: Callable[[ProducerBatch], DeliveryError], now: float) -> None:
        """Fail every batch that is not in flight: its transaction is not committed."""
        for batch in self._accumulator.incomplete:
            if batch.is_in_queue:
                self._give_up(batch, make_error(batch), now)

    def _give_up(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        if batch.is_in_queue:
            self._accumulator.remove_queued(batch, now)
        self._fail(batch, error, now)
        self._accumulator.unblock(batch.topic_partition, now)

    def compression_failed(
        self, batch: ProducerBatch, codec_name: str, cause: BaseException, now: float
    ) -> None:
        """Fail a batch that could not be compressed."""
        error = self.errors.compression(batch, codec_name, cause)
        self._give_up(batch, error, now)

    def sender_died(self, cause: BaseException, why: str, now: float) -> None:
        """Settle every delivery; the batches' own states cannot be trusted any more."""
        for batch in self._accumulator.incomplete:
            if not batch.result.is_done:
                self._record_end(batch, now)
                self._batch_metrics.batch_failed(batch.topic, batch.record_count, now)
                batch.result.fail(self.errors.left_behind(batch, cause, why), batch.record_count)
                if batch.result.has_callbacks:
                    self.settled.append(batch.result)


def _in_order(
    batches: Sequence[ProducerBatch], answers: Sequence[PartitionProduceResponse]
) -> Sequence[PartitionProduceResponse | None]:
    """Return the answer for each batch, or `None`. Brokers answer in the request's order, as a rule."""
    if len(answers) == len(batches):
        for index in range(len(batches)):
            batch, answer = batches[index], answers[index]
            # By identity: the hash of a UUID is Python code, and the ids of the same topics are the same objects.
            if answer.partition != batch.partition or (
                answer.topic != batch.topic
                if answer.topic_id is None
                else answer.topic_id is not batch.topic_id
            ):
                break
        else:
            return answers
    by_topic = _by_topic(answers)
    found: list[PartitionProduceResponse | None] = []
    for batch in batches:
        of_topic = by_topic.get(batch.topic) or by_topic.get(batch.topic_id) or {}
        found.append(of_topic.get(batch.partition))
    return found


def _by_topic(
    answers: Sequence[PartitionProduceResponse],
) -> dict[str | UUID | None, dict[int, PartitionProduceResponse]]:
    """Return answers by topic name (from Produce v13 on, by topic id) and by partition."""
    by_topic: dict[str | UUID | None, dict[int, PartitionProduceResponse]] = {}
    previous: object = _NO_TOPIC
    for answer in answers:
        topic = answer.topic_id if answer.topic is None else answer.topic
        # Answers of one topic are adjacent and share one id object. A look-up by id takes a microsecond.
        if topic is not previous:
            previous = topic
            of_topic = by_topic.setdefault(topic, {})
        of_topic[answer.partition] = answer
    return by_topic


def _answer(batch: ProducerBatch, code: int, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        topic=batch.topic,
        topic_id=batch.topic_id,
        partition=batch.partition,
        error_code=code,
        base_offset=-1,
        log_append_time=-1,
        log_start_offset=-1,
        error_message=message,
    )
