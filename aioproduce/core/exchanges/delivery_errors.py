"""The errors of batches: what happened to their records, and whether these may be in the log.

Made by `produce_completion`, which decides the outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryError,
    DeliveryTimeoutError,
    DisconnectedError,
    ForcedCloseError,
    NoBrokerAvailableError,
    ProducerFatalError,
)
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.wire.messages import PartitionProduceResponse


@final
class DeliveryErrors:
    """Makes the error of a batch.

    Args:
        retries: Kafka's `retries`, for a message.
        metadata: The leaders and their addresses.
        connection_errors: Returns the last error of each broker that cannot be reached, by address.
    """

    __slots__ = ("_connection_errors", "_metadata", "_retries")

    def __init__(
        self, retries: int, metadata: ClusterMetadata, connection_errors: Callable[[], Mapping[str, str]]
    ) -> None:
        self._retries = retries
        self._metadata = metadata
        self._connection_errors = connection_errors

    def timeout(self, batch: ProducerBatch, now: float, *, is_unanswered: bool) -> DeliveryTimeoutError:
        """Return the error of a batch that has reached its delivery time-out, in its queue or in flight."""
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

    def rejection(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> BrokerRejectedError:
        """Return the error of a batch that a broker refused."""
        code = answer.error_code
        kind = ProducerFatalError if code == codes.CLUSTER_AUTHORIZATION_FAILED else BrokerRejectedError
        return kind(
            f"{batch.topic_partition}: {description_of(answer)}. {_may_be_written(batch)}",
            code=code,
            name=codes.name_of(code),
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=codes.is_retriable(code),
        )

    def disconnection(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> DisconnectedError:
        """Return the error of a batch whose connection was lost, and which has no attempt left."""
        return DisconnectedError(
            f"{batch.topic_partition}: {answer.error_message}, and no attempt is left (retries="
            f"{self._retries}). {_may_be_written(batch)}",
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

    def left_behind(self, batch: ProducerBatch, cause: BaseException, why: str) -> DeliveryError:
        """Return the error of a batch whose sender died."""
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

    def compression(self, batch: ProducerBatch, codec_name: str, cause: BaseException) -> DeliveryError:
        """Return the error of a batch that could not be compressed."""
        error = DeliveryError(
            f"{batch.record_count} record(s) for {batch.topic_partition} could not be compressed with {codec_name} "
            f"({cause!r}). {_may_be_written(batch)}",
            topic_partition=batch.topic_partition,
            possibly_written=batch.possibly_written,
            attempts=batch.attempts,
            retriable=True,
        )
        error.__cause__ = cause
        return error

    def record_errors(
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


def description_of(answer: PartitionProduceResponse) -> str:
    """Return the name of an answer's error, and what the broker says about it."""
    code = answer.error_code
    return f"{codes.name_of(code)}: {answer.error_message or codes.message_of(code)}"


def _may_be_written(batch: ProducerBatch) -> str:
    if batch.possibly_written:
        return "It may be in the log, so sending it again can duplicate it"
    return "It is not in the log"
