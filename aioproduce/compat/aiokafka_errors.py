"""Translates aioproduce's errors and the outcomes of records into aiokafka's classes, with one table.

Used where an error leaves the drop-in: by its calls, and by deliveries when their result is read. A record that
succeeds costs nothing here, except for its metadata when that is read.

Invariants:

1. Every error of aioproduce becomes the one that aiokafka raises for the same cause. The original is its
   `__cause__`, with its attributes (`possibly_written`, `attempts`).
2. The message is aioproduce's, with cause and remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproduce import errors as ours
from aioproduce._native.tuple_outcomes import TupleOutcomes
from aioproduce.wire import error_codes as codes

with ours.MissingExtraError.unless_installed("aioproduce.compat.aiokafka", extra="aiokafka", name="aiokafka"):
    from aiokafka import errors as theirs
    from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["outcomes", "theirs", "translated", "whole"]


def outcomes(*, is_acknowledged: bool) -> TupleOutcomes:
    """Return the translation of outcomes to aiokafka's RecordMetadata or exceptions; None with acks=0."""
    return TupleOutcomes(RecordMetadata, TopicPartition, translated, is_acknowledged=is_acknowledged)


def translated(error: BaseException) -> BaseException:
    """Return aiokafka's error for this one, with this one as its cause.

    Args:
        error: An error of aioproduce; any other is returned unchanged.
    """
    if not isinstance(error, ours.ProducerError):
        return error
    for kind in type(error).__mro__:
        make = _TABLE.get(kind)
        if make is not None:
            their = make(error)
            if their is not error:
                their.__cause__ = error
            return their
    raise AssertionError("the root of our errors is in the table")


def whole(timestamp: Any) -> int | None:
    """Return a timestamp as aiokafka reads it: `time.time() * 1000` is accepted, without its fraction.

    Raises:
        TypeError: If it is not a number.
    """
    if timestamp is None or type(timestamp) is int:
        return timestamp
    if not hasattr(timestamp, "__int__"):
        raise TypeError(f"a timestamp must be a number of milliseconds, not {type(timestamp).__name__}")
    return int(timestamp)


def _made(kind: Callable[[str], BaseException], text: str = "{}") -> Callable[[Any], BaseException]:
    """Return a function that creates aiokafka's error with our message."""
    return lambda error: kind(text.format(error))


def _of_code(code: int, message: str) -> BaseException:
    kind = theirs.for_code(code)
    if code == codes.INVALID_PRODUCER_EPOCH:
        kind = theirs.ProducerFenced
    elif code == codes.NETWORK_EXCEPTION:
        # Kafka's clients use this code internally; for aiokafka it is a different error, of old brokers.
        kind = theirs.KafkaConnectionError
    error: BaseException = kind(message)
    return error


def _denied(error: Any) -> BaseException:
    denied: BaseException = theirs.TopicAuthorizationFailedError(error.topic)
    return denied


def _rejected(error: Any) -> BaseException:
    if error.code == codes.TOPIC_AUTHORIZATION_FAILED:
        return _denied(error.topic_partition)
    return _of_code(error.code, str(error))


def _timed_out(error: Any) -> BaseException:
    """Return the error with which aiokafka gives up: that of the latest attempt."""
    if error.code is None:
        return _made(theirs.NodeNotReadyError)(error)
    return _of_code(error.code, str(error))


def _of_transaction(error: Any) -> BaseException:
    """Return the reason of the transaction's failure: a record's error, or the coordinator's code."""
    if isinstance(error.__cause__, ours.ProducerError):
        return _made(type(translated(error.__cause__)))(error)
    if error.code == codes.PRODUCER_FENCED:  # aiokafka knows only its older code
        return _made(theirs.ProducerFenced)(error)
    return _made(theirs.KafkaError)(error) if error.code is None else _of_code(error.code, str(error))


def _not_sent(error: Any) -> BaseException:
    """Return the error of an unsent record of a failed transaction, which has the same reason."""
    if isinstance(error.__cause__, ours.TransactionError):
        return _made(type(translated(error.__cause__)))(error)
    return _made(theirs.KafkaError)(error)


def _timestamp(error: Any) -> BaseException:
    return ValueError(str(error)) if "2^63" in str(error) else TypeError(str(error))


def _topic(error: Any) -> BaseException:
    if not isinstance(error.topic, str):
        return TypeError(str(error))
    return _made(theirs.InvalidTopicError)(error)


def _partitioner(error: Any) -> BaseException:
    """Return the exception of the user's partitioner, which aiokafka does not wrap."""
    cause: BaseException | None = error.__cause__
    if cause is None:
        return _made(theirs.UnknownTopicOrPartitionError)(error)
    error.__cause__ = None  # else each would be the other's cause
    return cause


def _kept(error: BaseException) -> BaseException:
    return error


_UNEXPECTED: Final = "Unexpected error during batch delivery: {}"

_TABLE: Final[dict[type, Callable[[Any], BaseException]]] = {
    ours.ProducerError: _made(theirs.KafkaError),
    # Refused before anything is created: aiokafka raises ValueError, which these errors are. aiokafka has no
    # equivalent of missing features and extras.
    ours.ConfigError: _kept,
    ours.MissingExtraError: _kept,
    ours.ProducerStateError: _made(theirs.IllegalStateError),
    ours.ProducerClosedError: _made(theirs.ProducerClosed),
    ours.SenderDiedError: _made(theirs.KafkaError, _UNEXPECTED),
    ours.InvalidRecordError: _made(TypeError),
    ours.SerializationError: _made(TypeError),
    ours.InvalidHeadersError: _made(TypeError),
    ours.InvalidTimestampError: _timestamp,
    ours.InvalidTopicError: _topic,
    ours.PartitionOutOfRangeError: _made(AssertionError, "Unrecognized partition: {}"),
    ours.PartitionerError: _partitioner,
    ours.RecordTooLargeError: _made(theirs.MessageSizeTooLargeError),
    # aiokafka's error for a topic that does not become known, for whatever reason.
    ours.MetadataTimeoutError: _made(theirs.UnknownTopicOrPartitionError),
    ours.MaxBlockTimeoutError: _made(theirs.KafkaTimeoutError),
    ours.FlushTimeoutError: _made(theirs.KafkaTimeoutError),
    ours.TopicAuthorizationError: _denied,
    ours.BrokerConnectionError: _made(theirs.KafkaConnectionError),
    ours.ProtocolError: _made(theirs.KafkaProtocolError),
    ours.UnsupportedVersionError: _made(theirs.IncompatibleBrokerVersion),
    ours.BatchClosedError: _made(theirs.IllegalStateError),
    ours.TransactionError: _of_transaction,
    # aiokafka's error for a send outside of a transaction; its other calls use assertions (`aiokafka_path`).
    ours.TransactionStateError: _made(theirs.IllegalOperation),
    # aiokafka treats the coordinator's timeout as a fence, too: "or transaction timeout occurred".
    ours.TransactionTimedOutError: _made(theirs.ProducerFenced),
    ours.ProducerFencedError: _made(theirs.ProducerFenced),
    ours.TransactionUnconfirmedError: _made(theirs.KafkaTimeoutError),
    ours.TransactionAbortedError: _not_sent,
    ours.DeliveryError: _made(theirs.KafkaError, _UNEXPECTED),
    ours.DeliveryTimeoutError: _timed_out,
    ours.BrokerRejectedError: _rejected,
    ours.DisconnectedError: _made(theirs.KafkaConnectionError),
    ours.ForcedCloseError: _made(theirs.ProducerClosed),
}
