"""Translates failures to confluent-kafka's `KafkaException(KafkaError)` with librdkafka's codes.

Used by `confluent.AIOProducer` and its parts.

Invariants:

1. Every raised error is a `KafkaException` whose first argument is a `KafkaError`. If aioproduce had an error of
   its own, with more detail, that is the `__cause__`.
2. `KafkaError.retriable()` is true only if a repetition may succeed and cannot duplicate the record.
3. For an error of a transactional call, at most one of three is true, and says what to do: `retriable()` (repeat
   the call), `txn_requires_abort()` (abort, and begin the next transaction), `fatal()` (create another producer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce import errors as ours

with ours.MissingExtraError.unless_installed(
    "aioproduce.compat.confluent", extra="confluent", name="confluent_kafka"
):
    from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ConfluentConfigError",
    "ConfluentNotSupportedError",
    "KafkaError",
    "KafkaException",
    "kafka_error",
    "kafka_exception",
    "transaction_exception",
]

# Tried in this order: subclasses first.
_CODES: Final[tuple[tuple[type[ours.ProducerError], int], ...]] = (
    (ours.DeliveryTimeoutError, KafkaError._MSG_TIMED_OUT),
    (ours.DisconnectedError, KafkaError._TRANSPORT),
    # Compression failed, or the sender failed.
    (ours.DeliveryError, KafkaError._FAIL),
    (ours.RecordTooLargeError, KafkaError.MSG_SIZE_TOO_LARGE),
    (ours.PartitionOutOfRangeError, KafkaError._UNKNOWN_PARTITION),
    (ours.InvalidTopicError, KafkaError.TOPIC_EXCEPTION),
    (ours.InvalidRecordError, KafkaError._INVALID_ARG),
    (ours.TopicAuthorizationError, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    (ours.BufferExhaustedError, KafkaError._QUEUE_FULL),
    (ours.MaxBlockTimeoutError, KafkaError._MSG_TIMED_OUT),
    (ours.NoBrokerAvailableError, KafkaError._ALL_BROKERS_DOWN),
    (ours.FlushTimeoutError, KafkaError._TIMED_OUT),
    (ours.ProducerClosedError, KafkaError._STATE),
    (ours.SenderDiedError, KafkaError._FATAL),
    (ours.ProducerStateError, KafkaError._STATE),
    (ours.ConfigError, KafkaError._INVALID_ARG),
)


def _own_error(code: int, message: str | KafkaError) -> KafkaError:
    """The one argument of a `KafkaException`; of those that are made again from their `args` it is the message."""
    return KafkaError(code, message) if isinstance(message, str) else message


@final
class ConfluentConfigError(KafkaException, ours.ConfigError):
    """An option that is unknown, out of range, or not supported by this producer.

    It is confluent-kafka's `KafkaException` (with `KafkaError._INVALID_ARG`) and aioproduce's `ConfigError`.

    Attributes:
        key: The option.
        suggestion: The option that was probably meant, or `None`.
    """

    def __init__(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> None:
        KafkaException.__init__(self, _own_error(KafkaError._INVALID_ARG, message))
        self.key = key
        self.suggestion = suggestion

    def __str__(self) -> str:
        return str(self.args[0].str())


@final
class ConfluentNotSupportedError(KafkaException, ours.ProducerError, NotImplementedError):
    """A feature of confluent-kafka's producer that this one does not support.

    It is confluent-kafka's `KafkaException` (with `KafkaError._NOT_IMPLEMENTED`) and a `NotImplementedError`.

    Attributes:
        feature: The missing feature.
    """

    def __init__(self, message: str, *, feature: str) -> None:
        KafkaException.__init__(self, _own_error(KafkaError._NOT_IMPLEMENTED, message))
        self.feature = feature

    def __str__(self) -> str:
        return str(self.args[0].str())


def kafka_error(error: BaseException) -> KafkaError:
    """Return librdkafka's code for an error, with aioproduce's more detailed message.

    Args:
        error: Any error; one that is not aioproduce's becomes `_APPLICATION`.

    Example:
        >>> from aioproduce.errors import ProducerClosedError
        >>> kafka_error(ProducerClosedError("closed")).name()
        '_STATE'
    """
    if isinstance(error, ours.TransactionError) and not isinstance(error, ours.TransactionStateError):
        return _transaction_error(error)
    is_fatal = isinstance(error, ours.ProducerFatalError | ours.SenderDiedError)
    is_retriable = isinstance(error, ours.DeliveryError) and error.retriable and not error.possibly_written
    is_retriable |= isinstance(error, ours.BufferExhaustedError)
    return KafkaError(_code_of(error), str(error), is_fatal, is_retriable)


def _code_of(error: BaseException) -> int:
    if isinstance(error, ours.BrokerRejectedError):
        return error.code
    if isinstance(error, ours.ForcedCloseError | ours.TransactionAbortedError):
        # librdkafka distinguishes messages that were never sent from those that may have been received.
        return int(KafkaError._PURGE_INFLIGHT if error.possibly_written else KafkaError._PURGE_QUEUE)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return int(KafkaError._APPLICATION)


def kafka_exception(
    error: BaseException, make_error: Callable[[BaseException], KafkaError] = kafka_error
) -> KafkaException:
    """Return an error as `KafkaException(KafkaError)`, with the error itself as its `__cause__`."""
    if isinstance(error, KafkaException):
        return error
    exception = KafkaException(make_error(error))
    exception.__cause__ = error
    return exception


def transaction_exception(error: BaseException) -> KafkaException:
    """Return the error of a transactional call; if the transaction had failed, that failure."""
    cause = error.__cause__
    is_refused = isinstance(error, ours.TransactionStateError) and error.recover == "abort"
    if is_refused and isinstance(cause, ours.TransactionError):
        return kafka_exception(error, lambda _: _transaction_error(cause))
    return kafka_exception(error)


def _transaction_error(error: ours.TransactionError) -> KafkaError:
    is_aborted = error.recover == "begin" and error.outcome is ours.TransactionOutcome.ABORTED
    return KafkaError(
        _transaction_code(error),
        str(error),
        # librdkafka's producers end after an error for which ours would call init_transactions().
        error.is_fatal or error.recover == "init",
        isinstance(error, ours.TransactionUnconfirmedError),
        error.recover == "abort" or is_aborted,
    )


def _transaction_code(error: ours.TransactionError) -> int:
    # With transaction.version 1 the coordinator's timeout looks like a fence, in librdkafka, too.
    is_epoch_over = error.recover == "init" and error.outcome is not None
    if is_epoch_over or isinstance(error, ours.ProducerFencedError):
        return int(KafkaError._FENCED)
    if isinstance(error, ours.TransactionUnconfirmedError):
        return int(KafkaError._TIMED_OUT)
    if isinstance(error, ours.TransactionTimedOutError):
        return int(KafkaError.TRANSACTION_ABORTABLE)
    if error.code is not None:
        return error.code
    return int(KafkaError._STATE) if error.__cause__ is None else _code_of(error.__cause__)
