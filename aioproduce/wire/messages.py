"""Brokers' answers as typed values that are the same for every version of the protocol.

Created by `wire.responses` (and by tests), read by the core. All are immutable.

1. A field that a version lacks has the default value of Kafka's schema: -1, `None` or empty.
2. Durations are in seconds. Instants on the broker's clock are in milliseconds since the epoch, as in records.
3. Error codes are plain ints, and unknown ones are kept (see `wire.error_codes`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioproduce.records import TopicPartition


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """The version ranges that a broker supports.

    Attributes:
        error_code: 0, or 35 (UNSUPPORTED_VERSION) if the requested version is too new for the broker.
        versions: API key -> (lowest, highest) version.
        throttle: Seconds that the client shall wait (KIP-219).
        finalized_features: Name -> (lowest, highest) level that the whole cluster has agreed on (KIP-584); empty
            if the broker does not report them.
        finalized_features_epoch: The epoch of that agreement, or -1 if not reported; a higher one is newer.
    """

    error_code: int
    versions: dict[int, tuple[int, int]]
    throttle: float = 0.0
    finalized_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized_features_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition: its leader (-1: none), the leader's epoch (-1: unknown) and its replicas."""

    partition: int
    error_code: int
    leader_id: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic.

    Attributes:
        name: The name; `None` only for an unknown topic that was asked for by id.
        topic_id: The id; `None` from brokers older than 2.8 and for an unknown topic.
        error_code: The topic's own error code, 0 for none.
        is_internal: Whether it is one of Kafka's own topics.
        partitions: The partitions in the order of the response, which need not be sorted by number.
        authorized_operations: What this client may do with the topic, as one bit per code of Kafka's
            AclOperation (KIP-430); `None` if not requested or not reported.
    """

    name: str | None
    topic_id: UUID | None
    error_code: int
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    authorized_operations: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """The cluster as one broker sees it.

    Attributes:
        throttle: Seconds that the client shall wait (KIP-219).
        error_code: The whole response's error code: 0 before v13, or 129 (REBOOTSTRAP_REQUIRED, KIP-1102).
        brokers: The live brokers.
        cluster_id: The cluster's id, `None` before v2.
        controller_id: The controller's node id, or -1.
        topics: The requested topics.
    """

    throttle: float
    error_code: int
    brokers: tuple[BrokerAddress, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """A producer id and its epoch; both are -1 if `error_code` is not 0."""

    throttle: float
    error_code: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class RecordError:
    """A record that made the broker refuse its batch (KIP-467): its index in the batch, and the reason."""

    batch_index: int
    message: str | None


class PartitionProduceResponse(NamedTuple):
    """The result for one batch, a tuple because that takes a third of the time of a frozen dataclass.

    Attributes:
        topic: The topic's name; `None` from v13 on, where `topic_id` identifies the topic.
        topic_id: The topic's id, `None` before v13.
        partition: The partition's number.
        error_code: 0 if the batch is in the log.
        base_offset: The offset of its first record, or -1.
        log_append_time: Milliseconds since the epoch if the topic uses the broker's time, else -1.
        log_start_offset: Where the partition's log begins, or -1.
        record_errors: The records that the broker refused, if it reports them.
        error_message: The broker's own message, or `None`.
        leader_id: The new leader on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951), or -1.
        leader_epoch: The new leader's epoch, or -1.
    """

    topic: str | None
    topic_id: UUID | None
    partition: int
    error_code: int
    base_offset: int
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1


class ProduceResponse(NamedTuple):
    """The results for all batches of one Produce request.

    Attributes:
        throttle: Seconds that the client shall wait (KIP-219).
        partitions: One result for each batch.
        node_endpoints: Where the new leaders named in `partitions` listen (KIP-951).
    """

    throttle: float
    partitions: tuple[PartitionProduceResponse, ...]
    node_endpoints: tuple[BrokerAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsResponse:
    """The metrics that the cluster requests from this client (KIP-714).

    Attributes:
        throttle: Seconds that the client shall wait (KIP-219).
        error_code: 0 if the other fields are valid.
        client_instance_id: The id that the broker assigned to this client, or the id in the request.
        subscription_id: The id of these subscriptions; every push names it.
        accepted_compression_types: The ids of the codecs that a push may use, in the broker's order of preference.
        push_interval: Seconds between pushes.
        telemetry_max_bytes: The largest push that the broker accepts, in compressed bytes.
        delta_temporality: Whether totals count from the last push and not from the start.
        requested_metrics: Prefixes of the names of the requested metrics; if empty, none are requested.
    """

    throttle: float
    error_code: int
    client_instance_id: UUID | None
    subscription_id: int
    accepted_compression_types: tuple[int, ...]
    push_interval: float
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PushTelemetryResponse:
    """Whether the broker accepted the metrics."""

    throttle: float
    error_code: int


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """Whether the broker offers the mechanism.

    Attributes:
        error_code: 0, 33 (UNSUPPORTED_SASL_MECHANISM) or 34 (ILLEGAL_SASL_STATE: the listener does not
            accept logins).
        mechanisms: The mechanisms that the broker offers.
        throttle: Always 0, because the answer has no such field.
    """

    error_code: int
    mechanisms: tuple[str, ...]
    throttle: float = 0.0


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """One message of the broker during a login.

    Attributes:
        error_code: 0, or 58 (SASL_AUTHENTICATION_FAILED).
        error_message: The broker's message for that error.
        auth_bytes: The mechanism's bytes. They are not in the repr.
        session_lifetime: Seconds after which the broker ends the connection unless the client logs in again
            (KIP-368). If 0 or less, it does not.
        throttle: Always 0, because the answer has no such field.
    """

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime: float = 0.0
    throttle: float = 0.0


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """The broker that coordinates the requested group or transactional id.

    Attributes:
        throttle: Seconds that the client shall wait.
        error_code: 0, or the reason why there is no address.
        address: The broker; meaningless after an error.
    """

    throttle: float
    error_code: int
    address: BrokerAddress


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """An error code for each partition."""

    throttle: float
    partitions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse:
    """Whether the group is now part of the transaction."""

    throttle: float
    error_code: int


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    """An error code for each partition."""

    throttle: float
    partitions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """A group's committed offsets.

    Attributes:
        throttle: Seconds that the client shall wait.
        error_code: 0, or the reason why there are no offsets.
        offsets: An error code and an offset for each partition; -1: none is committed.
    """

    throttle: float
    error_code: int
    offsets: Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """Whether the transaction has ended.

    Attributes:
        throttle: Seconds that the client shall wait.
        error_code: 0, or the reason why not.
        producer_id: The id for the next transaction (KIP-890, v5 and later); -1: unchanged.
        producer_epoch: The epoch for the next transaction (KIP-890, v5 and later); -1: unchanged.
    """

    throttle: float
    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id, as its coordinator reports it.

    Attributes:
        error_code: 0, or the reason why nothing is reported.
        transactional_id: The transactional id.
        state: Kafka's name for the state, e.g. `Ongoing`, `CompleteAbort`.
        timeout: Seconds that a transaction may be open.
        started_at_ms: Milliseconds since the epoch; -1: no transaction is open.
        producer_id: The producer's id.
        producer_epoch: The producer's epoch.
        partitions: The partitions that the open transaction writes to.
    """

    error_code: int
    transactional_id: str
    state: str
    timeout: float
    started_at_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    """The states of transactional ids, by id."""

    throttle: float
    transactions: Mapping[str, TransactionDescription]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One of the transactional ids of a coordinator.

    Attributes:
        transactional_id: The transactional id.
        producer_id: The producer's id.
        state: Kafka's name for the state, e.g. `Ongoing`.
    """

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    """The transactional ids that a broker coordinates.

    Attributes:
        throttle: Seconds that the client shall wait.
        error_code: 0, or the reason why there are none.
        unknown_states: The requested states that the broker does not know.
        transactions: The transactional ids that match the request.
    """

    throttle: float
    error_code: int
    unknown_states: tuple[str, ...]
    transactions: tuple[TransactionListing, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """The state of one producer, as the leader of a partition reports it.

    Attributes:
        producer_id: The producer's id.
        producer_epoch: The producer's epoch.
        last_sequence: The last sequence number in the log; -1: none.
        last_timestamp_ms: The timestamp of its last batch in milliseconds since the epoch; -1: none.
        coordinator_epoch: The epoch of the coordinator that wrote its last marker; -1: none.
        open_from: The first offset of its open transaction; -1: no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_from: int


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """The producers of one partition, or the error."""

    error_code: int
    message: str | None
    producers: tuple[ActiveProducer, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    """The producers of partitions."""

    throttle: float
    partitions: Mapping[TopicPartition, PartitionProducers]


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersResponse:
    """An error code for each partition, by producer id; the protocol has no throttle time here."""

    throttle: float
    markers: Mapping[int, Mapping[TopicPartition, int]]


Message: TypeAlias = (
    ApiVersionsResponse
    | MetadataResponse
    | InitProducerIdResponse
    | ProduceResponse
    | GetTelemetrySubscriptionsResponse
    | PushTelemetryResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
    | FindCoordinatorResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | OffsetFetchResponse
    | EndTxnResponse
    | DescribeTransactionsResponse
    | ListTransactionsResponse
    | DescribeProducersResponse
    | WriteTxnMarkersResponse
)
"""Every answer that the core receives."""
