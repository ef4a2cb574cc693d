"""Every error that aioproduce raises, as one tree.

    ProducerError
    ├── ConfigError (ValueError)             a setting is refused, before anything is made
    ├── ProducerStateError (RuntimeError)    the call does not fit the producer's state
    │   ├── NotStartedError                  before start()
    │   ├── ProducerClosedError              after close(), or while it was closing
    │   ├── WrongEventLoopError              from another event loop than the one that start() ran on
    │   ├── ForkedProcessError               in a child process after fork()
    │   ├── LoopThreadError                  a call of BlockingProducer would wait in its own loop thread
    │   └── SenderDiedError                  the sender task ended because of an error, the `__cause__`
    ├── InvalidRecordError (ValueError)      this record can never be sent as it is; nothing was queued
    │   ├── SerializationError               no serializer for the type, or the serializer raised
    │   ├── InvalidHeadersError              headers of the wrong shape
    │   ├── InvalidTimestampError            neither milliseconds nor an aware datetime
    │   ├── InvalidTopicError                not a valid topic name
    │   ├── PartitionOutOfRangeError         the topic has no such partition
    │   ├── PartitionerError                 a partitioner raised, or its answer is not a partition
    │   ├── ArrowColumnError                 send_arrow() does not accept a column
    │   └── RecordTooLargeError              above max.request.size or buffer.memory
    ├── MaxBlockTimeoutError (TimeoutError)  send() waited for as long as it may; nothing was queued
    │   ├── MetadataTimeoutError             the topic's partitions did not become known in time
    │   ├── SerializationTimeoutError        an async serializer did not finish in time
    │   └── BufferExhaustedError             the buffer had no room in time
    ├── FlushTimeoutError (TimeoutError)     flush() waited for as long as it may; sending goes on
    ├── ClientInstanceIdError (TimeoutError) no broker gave this client an id
    ├── PartialSendError                     send_many() or send_arrow() accepted only the first records
    ├── BatchClosedError (RuntimeError)      a batch of create_batch() is closed, or was sent before
    ├── TopicAuthorizationError              the cluster denies this topic
    ├── BrokerConnectionError (ConnectionError)  no connection to a broker
    │   ├── TlsError                         no encrypted connection to a broker
    │   ├── AuthenticationError              a broker refused the login, or did not prove itself
    │   └── NoBrokerAvailableError           none of the bootstrap servers can be reached
    ├── TokenError                           a token or a password could not be obtained
    ├── ListenError (OSError)                the dashboard or the metrics cannot be served there
    │   └── PortInUseError                   another program listens on that port
    ├── ProtocolError                        bytes are not Kafka's protocol
    │   └── UnsupportedVersionError          the broker and this client share no version
    ├── MissingExtraError (ImportError)      a part of aioproduce needs a library that is not installed
    ├── SchemaRegistryError                  a schema registry refused, or did not answer; nothing was queued
    │   └── IncompatibleSchemaError          the schema breaks the rules of its subject
    ├── WorkerSlotError (RuntimeError)       workers cannot share their metrics in this directory
    ├── SpoolError                           the queue on disk does not take a record
    │   ├── SpoolDirectoryError              its directory cannot be used, or is not one of this version
    │   │   ├── SpoolFormatError             another version of aioproduce wrote it
    │   │   └── SpoolInUseError              another process uses it
    │   ├── SpoolClonedError                 another process forwards a copy of the queue, exactly once
    │   ├── SpoolPositionLostError           the cluster has forgotten what it had of the queue
    │   ├── SpoolFullError (TimeoutError)    it had no room in time; nothing was stored
    │   └── SpoolStorageError                the disk failed
    ├── TransactionError                     a transaction failed; `outcome` and `recover` say what is next
    │   ├── TransactionStateError (RuntimeError)  the call does not fit the transaction's state
    │   ├── TransactionFailedError           a part of it failed: it can only be aborted
    │   ├── TransactionTimedOutError (TimeoutError)  it was open for longer than transaction.timeout.ms: aborted
    │   ├── TransactionUnconfirmedError (TimeoutError)  no answer yet: make the same call again
    │   ├── ProducerFencedError              another producer of the same transactional.id has taken over
    │   └── TransactionsUnavailableError     the cluster refuses transactions to this producer
    ├── OutcomeUnknownError (TimeoutError)   a request ended before its record was acknowledged
    ├── BackgroundFullError                  a service has too many background sends under way
    ├── InvalidDeadlineError (ValueError)    the header that bounds a request is not a number of seconds
    └── DeliveryError                        an accepted record was not acknowledged
        ├── DeliveryTimeoutError (TimeoutError)  delivery.timeout.ms passed
        ├── BrokerRejectedError              the broker answered with an error code
        │   └── ProducerFatalError           no record of this producer can be sent any more
        ├── DisconnectedError                the connection was lost and no attempt was left
        ├── TransactionAbortedError          its transaction was aborted before it was sent
        ├── ForcedCloseError                 close() did not wait for it
        ├── SpoolDroppedError                the queue on disk was full, or the record too old
        └── StillSpooledError                close() left it in the queue on disk, and the next start sends it

`DeliveryError.possibly_written` says whether the record may be in the log in spite of the error. Once the answer to
an attempt was lost, this stays True (invariant 3 of DESIGN.md).

`docs/reference/errors.md` has the causes and remedies of each class.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast

from aioproduce.portable_error import PortableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Mapping, Sequence

    from aioproduce.records import RecordMetadata, TopicPartition

DOCUMENTATION: Final = "https://aioproduce.readthedocs.io/en/stable/reference/errors.html"
"""The page on errors. Each class has a section there, whose anchor is the name of the class in lower case."""

_IF_LEFT_OUT: Final[Mapping[str, Any]] = {"possibly_written": True, "deliveries": (), "causes": {}}
"""The values of attributes that were left out, if not `None`. Unless it is known, a record may be in the log."""


class ProducerError(PortableError):
    """The root of the tree.

    Every error can be copied and pickled. Its traceback ends with the address of its section of the reference of
    errors (as a note, so `str()` is the message alone).

    Attributes:
        documentation: That address.
    """

    documentation: ClassVar[str] = f"{DOCUMENTATION}#producererror"
    # Of the class, since thousands of errors may be made per second: Python looks notes up as any attribute.
    __notes__: list[str] = cast("list[str]", (f"See {documentation}",))

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] == "aioproduce":  # a user's own class keeps its parent's section
            cls.documentation = f"{DOCUMENTATION}#{cls.__name__.lower()}"
            cls.__notes__ = cast("list[str]", (f"See {cls.documentation}",))
            _let_attributes_be_left_out(cls)

    def add_note(self, note: str, /) -> None:
        """Add a note, as of any exception, after the address that all errors of the class show."""
        if "__notes__" not in vars(self):
            self.__notes__ = list(type(self).__notes__)
        super().add_note(note)


def _let_attributes_be_left_out(kind: type[ProducerError]) -> None:
    """Give each keyword of `__init__` without a default one at run time; mypy and readers know it as required.

    Celery's JSON results, and others, keep the type and `args` of an exception and make it again as `kind(*args)`.
    """
    init = vars(kind).get("__init__")
    if isinstance(init, FunctionType):
        names = init.__code__.co_varnames[init.__code__.co_argcount :][: init.__code__.co_kwonlyargcount]
        left_out = {name: _IF_LEFT_OUT.get(name) for name in names}
        init.__kwdefaults__ = left_out | (init.__kwdefaults__ or {})


class ConfigError(ProducerError, ValueError):
    """A setting that is unknown, out of range, refused, or contradicts another.

    Attributes:
        key: Kafka's dotted key, e.g. `linger.ms`; `None` if several keys are involved.
        suggestion: The key that was probably meant, or `None`.
        origin: The file and the line of the setting; `None` if it did not come from a file.
    """

    origin: str | None = None

    def __init__(self, message: str, *, key: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.suggestion = suggestion


class ProducerStateError(ProducerError, RuntimeError):
    """The call does not fit the producer's state."""


class NotStartedError(ProducerStateError):
    """The producer was used before `start()`."""


class ProducerClosedError(ProducerStateError):
    """The producer is closed, or was closed while the call waited."""


class WrongEventLoopError(ProducerStateError):
    """The producer was used from another event loop than the one that started it."""


class ForkedProcessError(ProducerStateError):
    """The producer was inherited through `fork()`. Its sockets and futures belong to the parent process."""


class LoopThreadError(ProducerStateError):
    """A call of a `BlockingProducer` would wait in its own loop thread, in a delivery callback for example."""


class SenderDiedError(ProducerStateError):
    """The sender task ended because of an error, which is the `__cause__`."""


class InvalidRecordError(ProducerError, ValueError):
    """This record can never be sent as it is. Nothing was queued; other records are not affected."""


class SerializationError(InvalidRecordError):
    """A key or value could not be turned into bytes. If a serializer raised, its error is the `__cause__`.

    Attributes:
        field: `"key"` or `"value"`.
        topic: The topic; `None` for a batch of `create_batch()`, which has no topic yet.
    """

    def __init__(self, message: str, *, field: str, topic: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.topic = topic


class InvalidHeadersError(InvalidRecordError):
    """Headers are not pairs of a name (str) and a value (bytes or `None`)."""


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is neither milliseconds since the epoch nor an aware datetime."""


class InvalidTopicError(InvalidRecordError):
    """The name is not a valid topic name.

    Attributes:
        topic: The name as given.
    """

    def __init__(self, message: str, *, topic: object) -> None:
        super().__init__(message)
        self.topic = topic


class PartitionOutOfRangeError(InvalidRecordError):
    """The topic has no such partition.

    Attributes:
        topic: The topic.
        partition: The partition that was asked for.
        partition_count: How many partitions the topic has; they are 0 to `partition_count - 1`.
    """

    def __init__(self, message: str, *, topic: str, partition: int, partition_count: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.partition_count = partition_count


class RecordTooLargeError(InvalidRecordError):
    """The record is larger than a limit of this producer.

    The topic has a limit of its own, `max.message.bytes`. If a record exceeds that, the delivery fails with a
    `BrokerRejectedError` named MESSAGE_TOO_LARGE.

    Attributes:
        size: The record's size in bytes, an upper estimate.
        limit: The limit in bytes.
        limited_by: The key that sets the limit, e.g. `max.request.size`.
    """

    def __init__(self, message: str, *, size: int, limit: int, limited_by: str) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit
        self.limited_by = limited_by


class PartitionerError(InvalidRecordError):
    """A partitioner of the user's own raised (`__cause__`), or its answer is not a partition of the topic.

    Attributes:
        topic: The topic.
        answer: The answer; `None` if the partitioner raised.
    """

    def __init__(self, message: str, *, topic: str, answer: object) -> None:
        super().__init__(message)
        self.topic = topic
        self.answer = answer


class ArrowColumnError(InvalidRecordError):
    """A column of Arrow data is missing, or `send_arrow()` does not accept its type. Nothing was queued.

    Attributes:
        column: The column's name.
    """

    def __init__(self, message: str, *, column: str) -> None:
        super().__init__(message)
        self.column = column


class MaxBlockTimeoutError(ProducerError, TimeoutError):
    """`send()` waited for as long as `max.block.ms` (or `timeout=`) allows. Nothing was queued.

    Attributes:
        waited: Seconds waited.
    """

    def __init__(self, message: str, *, waited: float) -> None:
        super().__init__(message)
        self.waited = waited


class MetadataTimeoutError(MaxBlockTimeoutError):
    """The topic's partitions did not become known in time.

    Attributes:
        topic: The topic.
        code: Kafka's latest error code for the topic, e.g. 3 (UNKNOWN_TOPIC_OR_PARTITION); 0 if no broker reported
            one.
    """

    def __init__(self, message: str, *, waited: float, topic: str, code: int = 0) -> None:
        super().__init__(message, waited=waited)
        self.topic = topic
        self.code = code


class SerializationTimeoutError(MaxBlockTimeoutError):
    """An async serializer (one that asks a schema registry, for example) did not finish in time.

    Attributes:
        field: `"key"` or `"value"`.
        topic: The topic.
    """

    def __init__(self, message: str, *, waited: float, field: str, topic: str) -> None:
        super().__init__(message, waited=waited)
        self.field = field
        self.topic = topic


class BufferExhaustedError(MaxBlockTimeoutError):
    """The buffer had no room in time (or at once, for `try_send()`).

    Attributes:
        needed: The bytes that the record needs.
        available: The bytes that were free at that moment.
    """

    def __init__(self, message: str, *, waited: float, needed: int, available: int) -> None:
        super().__init__(message, waited=waited)
        self.needed = needed
        self.available = available


class FlushTimeoutError(ProducerError, TimeoutError):
    """Not every record was settled within the time-out of `flush()`. The records are still being sent."""


class ClientInstanceIdError(ProducerError, TimeoutError):
    """No broker gave this client an id (KIP-714), and none may ever do so."""


class PartialSendError(ProducerError):
    """A bulk call could not accept a record. The records before it are accepted, and are still being sent.

    Attributes:
        deliveries: The futures of the accepted records, in order.
        index: The number of the record that was not accepted, counted from 0. Its error is the `__cause__`.
    """

    def __init__(self, message: str, *, deliveries: Sequence[Awaitable[RecordMetadata]], index: int) -> None:
        super().__init__(message)
        self.deliveries = deliveries
        self.index = index


class BatchClosedError(ProducerError, RuntimeError):
    """A batch of `create_batch()` is closed, or was sent before. A batch is sent once."""


class TopicAuthorizationError(ProducerError):
    """The cluster denies access to a topic.

    Attributes:
        topic: The topic.
    """

    def __init__(self, message: str, *, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class BrokerConnectionError(ProducerError, ConnectionError):
    """No connection to a broker.

    Attributes:
        host: The broker's host, or `None`.
        port: The broker's port, or `None`.
    """

    def __init__(self, message: str, *, host: str | None = None, port: int | None = None) -> None:
        super().__init__(message)
        self.host = host
        self.port = port


class NoBrokerAvailableError(BrokerConnectionError):
    """None of the brokers can be reached.

    Attributes:
        causes: Each address (`host:port`), and what went wrong there last.
    """

    def __init__(self, message: str, *, causes: Mapping[str, str]) -> None:
        super().__init__(message)
        self.causes: dict[str, str] = dict(causes)


class TlsError(BrokerConnectionError):
    """There is no encrypted connection to a broker, because of a setting, a certificate, or a peer without TLS.

    Attributes:
        reason: The fault in a fixed phrase, e.g. `"certificate expired"`, or OpenSSL's own words.
        setting: Kafka's key of the setting to look at first, e.g. `ssl.truststore.location`; `None` if no
            setting is at fault.
        is_transient: Whether it may pass by itself, as a connection that was cut does; if not, somebody has to act.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        setting: str | None = None,
        host: str | None = None,
        port: int | None = None,
        is_transient: bool = False,
    ) -> None:
        super().__init__(message, host=host, port=port)
        self.reason = reason
        self.setting = setting
        self.is_transient = is_transient


class AuthenticationError(BrokerConnectionError):
    """A broker refused the login, does not know the mechanism, or did not prove that it knows the password.

    The producer tries again, with growing pauses, because a password may be corrected meanwhile. Accepted records
    fail by their delivery time-out. `start(require_broker=True)` and `check()` raise this error at once.

    Attributes:
        mechanism: The SASL mechanism.
        setting: Kafka's key of the setting to look at first, e.g. `sasl.jaas.config`; `None` if no setting is at
            fault.
        is_transient: Whether it may pass by itself; if not, somebody has to act.
    """

    def __init__(
        self,
        message: str,
        *,
        mechanism: str,
        setting: str | None = None,
        host: str | None = None,
        port: int | None = None,
        is_transient: bool = False,
    ) -> None:
        super().__init__(message, host=host, port=port)
        self.mechanism = mechanism
        self.setting = setting
        self.is_transient = is_transient


class TokenError(ProducerError):
    """A token or a password for the login could not be obtained from its endpoint or provider.

    Attributes:
        setting: Kafka's key of the setting to look at first, e.g. `sasl.oauthbearer.token.endpoint.url`.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class ListenError(ProducerError, OSError):
    """The dashboard, or the server of the metrics, cannot listen at its address.

    Attributes:
        host: The address.
        port: The port.
    """

    def __init__(self, message: str, *, host: str, port: int) -> None:
        super().__init__(message)
        self.host = host
        self.port = port


class PortInUseError(ListenError):
    """Another program listens on that port."""


class ProtocolError(ProducerError):
    """Bytes are not a message of Kafka's protocol. The connection that they came from is dropped."""


class UnsupportedVersionError(ProtocolError):
    """The broker and this client share no version of an API that is needed.

    Attributes:
        api: The API's name.
        broker_versions: `(min, max)` of the broker; `None` if it does not offer the API.
        client_versions: `(min, max)` of this client.
    """

    def __init__(
        self,
        message: str,
        *,
        api: str,
        broker_versions: tuple[int, int] | None,
        client_versions: tuple[int, int],
    ) -> None:
        super().__init__(message)
        self.api = api
        self.broker_versions = broker_versions
        self.client_versions = client_versions


class MissingExtraError(ProducerError, ImportError):
    """A part of aioproduce needs a library that is not installed.

    Attributes:
        extra: What to install: `pip install 'aioproduce[extra]'`.
        name: The module that is missing.
    """

    def __init__(self, what: str, *, extra: str, name: str | None) -> None:
        missing = f"{what} needs {name}, which is not installed: pip install 'aioproduce[{extra}]'"
        super().__init__(missing if extra else what)
        self.extra = extra
        self.name = name

    @classmethod
    @contextmanager
    def unless_installed(cls, what: str, *, extra: str, name: str) -> Iterator[None]:
        """Raise this error if the library cannot be imported within.

        An import that fails within that library is raised as it is.
        """
        try:
            yield
        except ImportError as missing:
            if missing.name is None or missing.name.partition(".")[0] != name.partition(".")[0]:
                raise
            raise cls(what, extra=extra, name=name) from missing


class SchemaRegistryError(ProducerError):
    """A schema registry refused a request, or its answer cannot be used. Nothing was queued.

    Attributes:
        status: The HTTP status; `None` if there was no answer.
        error_code: The registry's own code, e.g. 40401 (subject not found); `None` if it sent none.
        subject: The subject; `None` if the request was not about one.
        remedy: What to do about it.
        retriable: Whether the same request may succeed later: the registry was away, overloaded or failing.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None,
        error_code: int | None,
        subject: str | None,
        remedy: str,
        retriable: bool,
    ) -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.status = status
        self.error_code = error_code
        self.subject = subject
        self.remedy = remedy
        self.retriable = retriable


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema breaks the compatibility rules of its subject, or the message is not in the subject's schema."""


class WorkerSlotError(ProducerError, RuntimeError):
    """The directory that workers share for their metrics cannot be used.

    Attributes:
        directory: The directory.
    """

    def __init__(self, message: str, *, directory: str) -> None:
        super().__init__(message)
        self.directory = directory


class SpoolError(ProducerError):
    """The queue on disk of a SpooledProducer does not take a record."""


class SpoolDirectoryError(SpoolError):
    """A queue's directory cannot be used.

    Attributes:
        directory: The directory.
    """

    def __init__(self, message: str, *, directory: str) -> None:
        super().__init__(message)
        self.directory = directory


class SpoolFormatError(SpoolDirectoryError):
    """A queue's directory has a format that this version of aioproduce does not read. Nothing was written to it."""


class SpoolInUseError(SpoolDirectoryError):
    """Another producer uses a queue's directory."""


class SpoolClonedError(SpoolError):
    """Another process forwards the same queue to the same cluster, exactly once: one of the two is a copy.

    Attributes:
        directory: The queue's directory.
    """

    def __init__(self, message: str, *, directory: str) -> None:
        super().__init__(message)
        self.directory = directory


class SpoolPositionLostError(SpoolError):
    """The cluster does not know any more which records of a queue it has, and the queue forwards exactly once.

    Attributes:
        directory: The queue's directory.
        topic: The topic.
        position: The position that is known here: a transaction after it may have been committed.
    """

    def __init__(self, message: str, *, directory: str, topic: str, position: int) -> None:
        super().__init__(message)
        self.directory = directory
        self.topic = topic
        self.position = position


class SpoolFullError(SpoolError, TimeoutError):
    """The queue had no room for a record in time. Nothing was stored."""


class SpoolStorageError(SpoolError):
    """The disk failed, and a record could not be stored.

    Attributes:
        possibly_stored: Whether the record may be in the queue in spite of the error, and so may be sent.
    """

    def __init__(self, message: str, *, possibly_stored: bool) -> None:
        super().__init__(message)
        self.possibly_stored = possibly_stored


class OutcomeUnknownError(ProducerError, TimeoutError):
    """The time of a request was over before its record was acknowledged. The record is still being sent.

    It may be in the log already, or may come to be until `delivery.timeout.ms` has passed. Sending it again can
    duplicate it.

    Attributes:
        topic: The topic.
        waited: The seconds since the service was asked to send the record.
        delivery: The record's future; it can still be awaited.
    """

    def __init__(
        self, message: str, *, topic: str, waited: float, delivery: Awaitable[RecordMetadata]
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.waited = waited
        self.delivery = delivery


class BackgroundFullError(ProducerError):
    """As many background sends are under way as the service allows. Nothing was queued.

    Attributes:
        limit: The limit.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class InvalidDeadlineError(ProducerError, ValueError):
    """The header that says how long a request may take is not a number of seconds above 0. Nothing was queued.

    Attributes:
        header: The header's name.
    """

    def __init__(self, message: str, *, header: str) -> None:
        super().__init__(message)
        self.header = header


class TransactionOutcome(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """It was either committed or aborted, and nobody can tell which."""


Recover: TypeAlias = Literal["abort", "call again", "begin", "init", "new producer"]
"""What to do next: abort the transaction; make the same call again; begin the next transaction; call
`init_transactions()`; make another producer."""


class TransactionError(ProducerError):
    """A transaction, or one of its calls, failed.

    Attributes:
        outcome: What became of the transaction; `None` while it is open.
        recover: What to do next.
        code: Kafka's code of the answer; `None` if no answer came.
    """

    def __init__(
        self,
        message: str,
        *,
        recover: Recover,
        outcome: TransactionOutcome | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.recover = recover
        self.outcome = outcome
        self.code = code

    @property
    def is_fatal(self) -> bool:
        """Whether this producer cannot be used any more."""
        return self.recover == "new producer"


class TransactionStateError(TransactionError, ProducerStateError):
    """The call does not fit the state of the transaction. It changed nothing."""


class TransactionFailedError(TransactionError):
    """A part of the transaction failed, so it can only be aborted. The `__cause__` is that failure."""


class TransactionTimedOutError(TransactionError, TimeoutError):
    """The transaction was open for longer than `transaction.timeout.ms`. It is aborted, or can only be aborted."""


class TransactionUnconfirmedError(TransactionError, TimeoutError):
    """No answer came within `max.block.ms`. The producer goes on asking; the same call waits for the answer."""


class ProducerFencedError(TransactionError):
    """Another producer with the same `transactional.id` has taken over. This one cannot be used any more."""


class TransactionsUnavailableError(TransactionError):
    """The cluster refuses transactions to this producer, because of a permission or a setting."""


class DeliveryError(ProducerError):
    """An accepted record was not acknowledged.

    Attributes:
        topic_partition: The topic and the partition of the record.
        possibly_written: Whether the record may be in the log in spite of the error.
        attempts: How many times the record was written to a connection.
        retriable: Whether sending it again may succeed (a duplicate is possible if `possibly_written`).
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        possibly_written: bool,
        attempts: int,
        retriable: bool,
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.possibly_written = possibly_written
        self.attempts = attempts
        self.retriable = retriable


class DeliveryTimeoutError(DeliveryError, TimeoutError):
    """`delivery.timeout.ms` passed before the record was acknowledged.

    Attributes:
        code: Kafka's code of the obstacle: that of the latest answer; REQUEST_TIMED_OUT if the latest attempt was
            not answered; NETWORK_EXCEPTION if its connection was lost; LEADER_NOT_AVAILABLE if the record was never
            sent because the partition has no known leader; `None` if it was never sent because the broker accepts
            nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        possibly_written: bool,
        attempts: int,
        retriable: bool,
        code: int | None = None,
    ) -> None:
        super().__init__(
            message,
            topic_partition=topic_partition,
            possibly_written=possibly_written,
            attempts=attempts,
            retriable=retriable,
        )
        self.code = code


class DisconnectedError(DeliveryError):
    """The connection was lost before an answer came, and no attempt was left."""


class ForcedCloseError(DeliveryError):
    """The producer was closed before the record was acknowledged."""


class SpoolDroppedError(DeliveryError):
    """The record was dropped from the queue on disk: the queue was full, or the record was too old.

    The queue's settings allow that: `when_full="drop_oldest"`, `max_age_ms`.
    """


class StillSpooledError(DeliveryError):
    """The producer was closed before the cluster acknowledged the record.

    The record is in the queue on disk, and the next producer with the same directory sends it.

    Attributes:
        stored: True.
    """

    stored: ClassVar[bool] = True


class TransactionAbortedError(DeliveryError):
    """The record's transaction was aborted, or failed, before the record was sent."""


class BrokerRejectedError(DeliveryError):
    """The broker answered with an error code.

    Attributes:
        code: Kafka's error code.
        name: The name of the code, e.g. `NOT_LEADER_OR_FOLLOWER`; `UNKNOWN_CODE_999` if it is not known here.
        record_index: The number of the record within its batch, if the broker named it (KIP-467).
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        name: str,
        topic_partition: TopicPartition,
        possibly_written: bool,
        attempts: int,
        retriable: bool,
        record_index: int | None = None,
    ) -> None:
        super().__init__(
            message,
            topic_partition=topic_partition,
            possibly_written=possibly_written,
            attempts=attempts,
            retriable=retriable,
        )
        self.code = code
        self.name = name
        self.record_index = record_index


class ProducerFatalError(BrokerRejectedError):
    """The cluster does not let this producer send at all: it denies idempotent writes, for example."""
