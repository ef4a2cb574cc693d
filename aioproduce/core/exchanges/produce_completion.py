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
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryError,
    DeliveryTimeoutError,
    DisconnectedError,
    ForcedCloseError,
    NoBrokerAvailableError,
    ProducerFatalError,
)
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from aioproduce.wire.messages import PartitionProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from aioproduce._native.delivery import BatchResult
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.produce_transaction import ProduceTransaction
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_accumulator import RecordAccumulator
    from aioproduce.core.batching.sequences import Sequences
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
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

_log = logging.getLogger("aioproduce.sender")


@final
class ProduceCompletion:
    """The decision on the outcome of each batch.

    Attributes:
        settled: See invariant 3.
        keeps_order_by_muting: Whether one request at a time keeps the order of a partition.
        transaction: The open transaction of a transactional producer, which sets it; `None` otherwise.
    """

    __slots__ = (
        "_accumulator",
        "_ambiguous",
        "_bounded_log",
        "_config",
        "_connection_errors",
        "_metadata",
        "_metrics",
        "_sequences",
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
        self._connection_errors = connection_errors
        self._metrics = metrics
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
        answers = _by_topic(response.partitions)
        new_leaders: dict[TopicPartition, tuple[int, int]] = {}
        has_all = True
        topic_id: UUID | None = None
        topic: str | None = None
        for batch in batches:
            if batch.topic_id is not topic_id or batch.topic != topic:
                topic_id, topic = batch.topic_id, batch.topic
                of_topic = answers.get(topic) or answers.get(topic_id) or {}
            found = of_topic.get(batch.partition)
            if found is None:
                has_all = False
                self._lost(
                    batch, codes.NETWORK_EXCEPTION, f"{connection.peer} left it out of its answer", now
                )
                continue
            self._complete(batch, found, now)
            if found.error_code != codes.NONE:
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
            self._complete(batch, _answer(batch, codes.NONE, None), now)

    def _lost(self, batch: ProducerBatch, code: int, reason: str, now: float) -> None:
        batch.possibly_written = True
        if self.transaction is not None:
            self.transaction.is_doubtful()
        self._complete(batch, _answer(batch, code, reason), now, was_answered=False)

    def _complete(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now: float,
        *,
        was_answered: bool = True,
    ) -> None:
        code = answer.error_code
        if code != codes.NONE:
            if code in self._ambiguous or not codes.is_known(code):
                batch.possibly_written = True
            batch.last_error, batch.last_code = _describe(answer), code
            if batch.first_failed_at > now:
                batch.first_failed_at = now
        if batch.state is BatchState.ABANDONED:
            if code in (codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER) and self._sequences is not None:
                self._sequences.batch_succeeded(batch)
            batch.release_abandoned()
        elif code in (codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER):
            self._succeed(batch, answer, now)
        elif code == codes.MESSAGE_TOO_LARGE and self._may_split(batch):
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
            self._metrics.batches.retried(batch, now)
            self._accumulator.reenqueue(batch, now)
        elif now >= batch.deadline and codes.is_retriable(code):
            # The error is a time-out, in whichever order this and `expire()` run.
            self._fail(batch, self._timeout(batch, now, is_unanswered=False), now, answer_came=True)
        else:
            error = self._rejection(batch, answer) if was_answered else self._disconnection(batch, answer)
            self._fail(batch, error, now, self._record_errors(batch, answer), answer_came=True)
        if code in codes.INVALID_METADATA:
            self._metadata.request_update(now)
        if self.keeps_order_by_muting:
            self._accumulator.unmute(batch.topic_partition, now)
        self._accumulator.unblock(batch.topic_partition, now)

    def _succeed(self, batch: ProducerBatch, answer: PartitionProduceResponse, now: float) -> None:
        if self._sequences is not None:
            self._sequences.batch_succeeded(batch)
        # For a repeated batch (DUPLICATE_SEQUENCE_NUMBER) the broker may not remember the offset.
        offset = answer.base_offset if answer.error_code == codes.NONE else -1
        self._metrics.batches.ended(batch, now, is_failed=False)
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
        self._metrics.batches.ended(batch, now, is_failed=True)
        if answer_came:
            batch.answer_failed(error, record_errors)
        else:
            batch.fail(error, record_errors)
        if self._sequences is not None:
            self._sequences.batch_failed(batch)
        self._after_settling(batch)
        if self.transaction is not None:
            self.transaction.delivery_failed(batch, error, now)

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
            self._give_up(batch, self._timeout(batch, now, is_unanswered=is_unanswered), now)

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
        error = DeliveryError(
            f"{batch.record_count} record(s) for {batch.topic_partition} could not be compressed with {codec_name} "
            f"({cause!r}). {_may_be_written(batch)}",
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=True,
        )
        error.__cause__ = cause
        self._give_up(batch, error, now)

    # -- errors ---

    def _timeout(self, batch: ProducerBatch, now: float, *, is_unanswered: bool) -> DeliveryTimeoutError:
        code = batch.last_code
        causes: Mapping[str, str] = {}
        if is_unanswered:
            code = codes.REQUEST_TIMED_OUT
            batch.possibly_written = True
            where = "the latest attempt is not answered"
            if batch.last_error is not None:
                where += f", and an earlier one failed: {batch.last_error}"
        elif batch.last_error is not None:
            where = f"the latest of {batch.attempts} attempts failed: {batch.last_error}"
            if code == codes.NETWORK_EXCEPTION:
                why, causes = self._why_unsent(self._metadata.leader_of(batch.topic, batch.partition))
                where += f"; it was not sent again, {why}" if causes else ""
        elif batch.state is BatchState.COMPRESSING:
            where = "it was never sent, because it is still being compressed"
        else:
            leader = self._metadata.leader_of(batch.topic, batch.partition)
            code = codes.LEADER_NOT_AVAILABLE if leader < 0 else None
            why, causes = self._why_unsent(leader)
            where = f"it was never sent, {why}"
        error = DeliveryTimeoutError(
            f"{batch.record_count} record(s) for {batch.topic_partition} were not acknowledged within "
            f"delivery.timeout.ms ({now - batch.created_at:.3f} s since the batch was opened); {where}. "
            + _may_be_written(batch),
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=True,
            code=code,
        )
        if causes:
            error.__cause__ = NoBrokerAvailableError("; ".join(causes.values()), causes=causes)
        return error

    def _why_unsent(self, leader: int) -> tuple[str, Mapping[str, str]]:
        """Return why a batch was not sent, in words, and the failed connections, if they are the cause.

        If no broker can be reached, no leader is known either: then the connections are the problem to solve.
        """
        failed = self._connection_errors()
        if leader >= 0:
            broker = self._metadata.broker(leader)
            address = "" if broker is None else f"{broker.host}:{broker.port}"
            if address in failed:
                cause = failed[address]
                return f"because broker {leader} cannot be reached: {cause}", {address: cause}
            return f"because broker {leader} accepts no requests now", {}
        if failed and len(failed) == len(self._metadata.brokers):
            return f"because no broker can be reached: {'; '.join(failed.values())}", failed
        return "because the partition has no known leader", {}

    def _rejection(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> BrokerRejectedError:
        code = answer.error_code
        kind = ProducerFatalError if code == codes.CLUSTER_AUTHORIZATION_FAILED else BrokerRejectedError
        return kind(
            f"{batch.topic_partition}: {_describe(answer)}. {_may_be_written(batch)}",
            code=code,
            name=codes.name_of(code),
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=codes.is_retriable(code),
        )

    def _disconnection(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> DisconnectedError:
        return DisconnectedError(
            f"{batch.topic_partition}: {answer.error_message}, and no attempt is left (retries="
            f"{self._config.retries}). {_may_be_written(batch)}",
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=True,
        )

    def forced_close(self, batch: ProducerBatch) -> ForcedCloseError:
        """Return the error of a record that was not acknowledged before a forced close."""
        in_flight = batch.state is BatchState.IN_FLIGHT
        batch.possibly_written = batch.possibly_written or in_flight
        return ForcedCloseError(
            f"the producer was closed before {batch.topic_partition} acknowledged the record: give close() more "
            f"time, or call flush() first. {_may_be_written(batch)}",
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=False,
        )

    def sender_died(self, cause: BaseException, why: str, now: float) -> None:
        """Settle every delivery; the batches' own states cannot be trusted any more."""
        for batch in self._accumulator.incomplete:
            if not batch.result.is_done:
                self._metrics.batches.ended(batch, now, is_failed=True)
                batch.result.fail(self._left_behind(batch, cause, why), batch.record_count)
                if batch.result.has_callbacks:
                    self.settled.append(batch.result)

    def _left_behind(self, batch: ProducerBatch, cause: BaseException, why: str) -> DeliveryError:
        batch.possibly_written = batch.attempts > 0
        error = DeliveryError(
            f"{batch.topic_partition} had not acknowledged the record yet: {why}. " + _may_be_written(batch),
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=False,
        )
        error.__cause__ = cause
        return error

    def _record_errors(
        self, batch: ProducerBatch, answer: PartitionProduceResponse
    ) -> dict[int, BaseException] | None:
        """Return the error of each record, if the broker reported errors of single records (KIP-467)."""
        if not answer.record_errors:
            return None
        complaints = {error.batch_index: error.message for error in answer.record_errors}
        errors: dict[int, BaseException] = {}
        for index in range(batch.record_count):
            if index in complaints:
                # The partition's code is the record's code only if there is one faulty record.
                code = answer.error_code if len(complaints) == 1 else codes.INVALID_RECORD
                text = complaints[index] or answer.error_message or codes.message_of(code)
            else:
                code = answer.error_code
                text = "the broker refused another record of the batch, not this one"
            errors[index] = BrokerRejectedError(
                f"{batch.topic_partition}: {codes.name_of(code)}: {text}. {_may_be_written(batch)}",
                code=code,
                name=codes.name_of(code),
                topic_partition=batch.topic_partition,
                possibly_written=batch.possibly_written,
                attempts=batch.attempts,
                retriable=index not in complaints or codes.is_retriable(code),
                record_index=index if index in complaints else None,
            )
        return errors


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


def _describe(answer: PartitionProduceResponse) -> str:
    code = answer.error_code
    return f"{codes.name_of(code)}: {answer.error_message or codes.message_of(code)}"


def _may_be_written(batch: ProducerBatch) -> str:
    if batch.possibly_written:
        return "It may be in the log, so sending it again can duplicate it"
    return "It is not in the log"
