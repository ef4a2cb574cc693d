"""Kafka's error codes: their names, which of them are worth another try, and what each means to a producer.

Called by the core, which decides by code, and by whatever builds an error message.

1. A code is always a plain int. One that this client does not know is carried through as it came, is
   called `UNKNOWN_CODE_<n>`, and is never retriable (Java takes it for UNKNOWN_SERVER_ERROR, likewise final).
2. Names, retriability and `INVALID_METADATA` equal those of `org.apache.kafka.common.protocol.Errors` in
   Kafka 4.3.1 (read from its jar: a code is retriable if its exception is a RetriableException, and makes
   metadata stale if it is an InvalidMetadataException); the tests hold them against that jar's list.
"""

from __future__ import annotations

from typing import Final

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
REPLICA_NOT_AVAILABLE: Final = 9
MESSAGE_TOO_LARGE: Final = 10
OFFSET_METADATA_TOO_LARGE: Final = 12
NETWORK_EXCEPTION: Final = 13
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_TOPIC_EXCEPTION: Final = 17
RECORD_LIST_TOO_LARGE: Final = 18
NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
INVALID_REQUIRED_ACKS: Final = 21
ILLEGAL_GENERATION: Final = 22
INVALID_GROUP_ID: Final = 24
UNKNOWN_MEMBER_ID: Final = 25
INVALID_COMMIT_OFFSET_SIZE: Final = 28
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
POLICY_VIOLATION: Final = 44
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
INVALID_TRANSACTION_TIMEOUT: Final = 50
CONCURRENT_TRANSACTIONS: Final = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
OPERATION_NOT_ATTEMPTED: Final = 55
KAFKA_STORAGE_ERROR: Final = 56
SASL_AUTHENTICATION_FAILED: Final = 58
UNKNOWN_PRODUCER_ID: Final = 59
LISTENER_NOT_FOUND: Final = 72
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
PREFERRED_LEADER_NOT_AVAILABLE: Final = 80
FENCED_INSTANCE_ID: Final = 82
ELIGIBLE_LEADERS_NOT_AVAILABLE: Final = 83
ELECTION_NOT_NEEDED: Final = 84
INVALID_RECORD: Final = 87
THROTTLING_QUOTA_EXCEEDED: Final = 89
PRODUCER_FENCED: Final = 90
UNKNOWN_TOPIC_ID: Final = 100
INCONSISTENT_TOPIC_ID: Final = 103
UNKNOWN_SUBSCRIPTION_ID: Final = 117
TELEMETRY_TOO_LARGE: Final = 118
TRANSACTIONAL_ID_NOT_FOUND: Final = 105
STALE_MEMBER_EPOCH: Final = 113
TRANSACTION_ABORTABLE: Final = 120
INVALID_REGULAR_EXPRESSION: Final = 128
REBOOTSTRAP_REQUIRED: Final = 129

RETRIABLE: Final = frozenset(
    (
        CORRUPT_MESSAGE,
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT,
        REPLICA_NOT_AVAILABLE,
        NETWORK_EXCEPTION,
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        41,  # NOT_CONTROLLER
        CONCURRENT_TRANSACTIONS,
        KAFKA_STORAGE_ERROR,
        70,  # FETCH_SESSION_ID_NOT_FOUND
        71,  # INVALID_FETCH_SESSION_EPOCH
        LISTENER_NOT_FOUND,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        78,  # OFFSET_NOT_AVAILABLE
        PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ELECTION_NOT_NEEDED,
        88,  # UNSTABLE_OFFSET_COMMIT
        THROTTLING_QUOTA_EXCEEDED,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
        106,  # FETCH_SESSION_TOPIC_ID_ERROR
        122,  # SHARE_SESSION_NOT_FOUND
        123,  # INVALID_SHARE_SESSION_EPOCH
        133,  # SHARE_SESSION_LIMIT_REACHED
    )
)
"""Codes after which the same request may succeed."""

INVALID_METADATA: Final = frozenset(
    (
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        NETWORK_EXCEPTION,
        KAFKA_STORAGE_ERROR,
        LISTENER_NOT_FOUND,
        FENCED_LEADER_EPOCH,
        PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ELECTION_NOT_NEEDED,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    )
)
"""Codes that say that our metadata is stale: a metadata update is due before the next try."""

_NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    12: "OFFSET_METADATA_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    22: "ILLEGAL_GENERATION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    54: "SECURITY_DISABLED",
    55: "OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR",
    57: "LOG_DIR_NOT_FOUND",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    62: "DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH",
    64: "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    66: "DELEGATION_TOKEN_EXPIRED",
    67: "INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    73: "TOPIC_DELETION_DISABLED",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    77: "STALE_BROKER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    91: "RESOURCE_NOT_FOUND",
    92: "DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL",
    94: "INCONSISTENT_VOTER_SET",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    100: "UNKNOWN_TOPIC_ID",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    103: "INCONSISTENT_TOPIC_ID",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    120: "TRANSACTION_ABORTABLE",
    121: "INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}

_MESSAGES: Final = {
    UNKNOWN_SERVER_ERROR: "the broker failed in a way it does not explain; its log says more",
    NONE: "no error",
    CORRUPT_MESSAGE: "the batch's checksum or layout is wrong",
    UNKNOWN_TOPIC_OR_PARTITION: "the broker does not host this topic or partition",
    LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    NOT_LEADER_OR_FOLLOWER: "the broker is no longer the partition's leader",
    REQUEST_TIMED_OUT: "the broker did not get enough replicas to acknowledge in time",
    REPLICA_NOT_AVAILABLE: "the broker has no replica of the partition at the moment",
    MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    OFFSET_METADATA_TOO_LARGE: "the metadata of an offset is too long",
    NETWORK_EXCEPTION: "the connection ended before an answer came",
    TRANSACTIONAL_ID_NOT_FOUND: "no coordinator knows this transactional.id",
    COORDINATOR_LOAD_IN_PROGRESS: "the transaction coordinator is still loading its state",
    COORDINATOR_NOT_AVAILABLE: "the transaction coordinator is not available at the moment",
    NOT_COORDINATOR: "the broker is no longer the transaction coordinator",
    INVALID_TOPIC_EXCEPTION: "the topic's name is not legal, or the topic may not be written to",
    RECORD_LIST_TOO_LARGE: "the batch is larger than the topic's segment.bytes",
    NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic's min.insync.replicas",
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the records are in the leader's log, but fewer replicas are in sync than min.insync.replicas"
    ),
    ILLEGAL_GENERATION: "the consumer group has another generation now",
    INVALID_GROUP_ID: "the consumer group's name is not legal",
    UNKNOWN_MEMBER_ID: "the consumer group has no such member now",
    GROUP_AUTHORIZATION_FAILED: "the principal may not use this consumer group",
    INVALID_REQUIRED_ACKS: "the broker takes only acks 0, 1 or all",
    TOPIC_AUTHORIZATION_FAILED: "the principal may not write to this topic; grant it WRITE on the topic",
    CLUSTER_AUTHORIZATION_FAILED: (
        "the principal lacks a right on the cluster; idempotence needs IDEMPOTENT_WRITE before Kafka 3.0"
    ),
    INVALID_TIMESTAMP: (
        "a record's timestamp is outside message.timestamp.before.max.ms or message.timestamp.after.max.ms"
    ),
    UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this SASL mechanism",
    ILLEGAL_SASL_STATE: "the listener wants another security.protocol than this client speaks",
    UNSUPPORTED_VERSION: "the broker does not know this version of the request",
    INVALID_REQUEST: "the broker finds the request malformed; its log says more",
    UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's log.message.format.version is too old for this request",
    POLICY_VIOLATION: "a policy of the cluster forbids this request",
    OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker misses records that this producer sent there earlier",
    DUPLICATE_SEQUENCE_NUMBER: "the broker already has these records",
    INVALID_PRODUCER_EPOCH: "the producer's epoch is older than the one that the broker knows",
    INVALID_TXN_STATE: "the transaction is not in a state that allows this",
    INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id any more",
    INVALID_TRANSACTION_TIMEOUT: "the broker does not let transactions be open for so long",
    CONCURRENT_TRANSACTIONS: "the coordinator is still busy with this producer's previous transaction",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the principal may not use this transactional id",
    KAFKA_STORAGE_ERROR: "the broker's disk failed, and the partition's leader will move",
    SASL_AUTHENTICATION_FAILED: "the broker refused the credentials",
    UNKNOWN_PRODUCER_ID: "the broker has forgotten the producer: its records there expired",
    LISTENER_NOT_FOUND: "the partition's leader lacks the listener that the client connected through",
    FENCED_LEADER_EPOCH: "the leader epoch in the request is older than the broker's",
    UNKNOWN_LEADER_EPOCH: "the leader epoch in the request is newer than the broker's",
    FENCED_INSTANCE_ID: "the consumer group has another member with this group.instance.id",
    STALE_MEMBER_EPOCH: "the consumer group has another epoch now",
    UNSUPPORTED_COMPRESSION_TYPE: "the broker or the topic's format does not take this compression.type",
    INVALID_RECORD: "the broker's validation refused a record, e.g. one without a key on a compacted topic",
    THROTTLING_QUOTA_EXCEEDED: "a quota is used up",
    PRODUCER_FENCED: "another producer with the same transactional id has taken over",
    UNKNOWN_TOPIC_ID: "the broker does not know the topic's id: the topic was deleted, or re-created",
    INCONSISTENT_TOPIC_ID: "the topic's id differs from the one in the log: the topic was re-created",
    TRANSACTION_ABORTABLE: "the transaction has to be aborted before anything else is sent",
    REBOOTSTRAP_REQUIRED: "the broker asks the client to start again from bootstrap.servers",
}


def name_of(code: int) -> str:
    """Return Kafka's name of the code, or `UNKNOWN_CODE_<n>` for one this client does not know.

    Example:
        >>> name_of(6), name_of(999)
        ('NOT_LEADER_OR_FOLLOWER', 'UNKNOWN_CODE_999')
    """
    name = _NAMES.get(code)
    return f"UNKNOWN_CODE_{code}" if name is None else name


def is_known(code: int) -> bool:
    """Say whether this client knows the code; what an unknown one leaves undecided is undecided."""
    return code in _NAMES


def is_retriable(code: int) -> bool:
    """Say whether the same request may succeed if it is sent again; False for an unknown code."""
    return code in RETRIABLE


def message_of(code: int) -> str:
    """Return what the code means to a producer, in a few words that fit into a longer message."""
    message = _MESSAGES.get(code)
    if message is not None:
        return message
    if code in _NAMES:
        return f"the broker answered {_NAMES[code]}; its log says more"
    return f"the broker, newer than this client, answered error code {code}, which this client does not know"
