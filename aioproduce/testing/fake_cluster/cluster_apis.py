"""ApiVersions, Metadata, CreateTopics and DeleteTopics.

Used by `apis`. Each function needs only its arguments and one exchange, and returns the whole answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.exchange import Body, Exchange
from aioproduce.testing.fake_cluster.state import is_legal_topic
from aioproduce.testing.fake_cluster.views import describe_brokers, describe_topic
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.log import TopicConfig
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.views import MetadataViews, View

BROKER_VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 5),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
}
"""The brokers' default versions: a subset of Apache Kafka 4.3's own table."""

_TRANSACTION_VERSION: Final = "transaction.version"
SUPPORTED_FEATURES: Final = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    _TRANSACTION_VERSION: (0, 2),
}
"""The features of Apache Kafka 4.3.1 with their lowest and highest level."""
FINALIZED_FEATURES: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
}
"""The levels of the features that do not change here, as in a cluster formatted by 4.3.1."""
_FIRST_VERSION_WITH_ZERO: Final = 4

_MAY_DESCRIBE: Final = 1 << 8
_MAY_ALL: Final = 3576
"""What Metadata reports that a client may do with a topic, one bit for each code of Kafka's AclOperation (KIP-430):
Describe alone; and everything that Kafka 4.3 reports without an authorizer."""

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# The maximum that KRaft's controller creates in one request.
_MAX_PARTITIONS: Final = 10_000


def api_versions(
    state: ClusterState, exchange: Exchange, versions: Mapping[int, tuple[int, int]], code: int
) -> Body:
    """Answer ApiVersions; from v3 on the client must name its software (KIP-511) and receives features."""
    if code == ErrorCode.none and exchange.api_version >= 3:
        for field in ("client_software_name", "client_software_version"):
            if _SOFTWARE_NAME.fullmatch(exchange.body[field]) is None:
                code = ErrorCode.invalid_request
    if code != ErrorCode.none:
        return {"error_code": code, "api_keys": ()}
    return {"error_code": code, "api_keys": _ranges(versions), **_features(state, exchange.api_version)}


def _features(state: ClusterState, version: int) -> dict[str, Any]:
    """Return the supported features and the finalized levels; 0 means that a feature is off, and is omitted."""
    finalized = {**FINALIZED_FEATURES, _TRANSACTION_VERSION: state.transaction_version}
    return {
        "supported_features": [
            # Before v4 a range could not begin at 0 (KAFKA-17011): such features are left out.
            {"name": name, "min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest > 0 or version >= _FIRST_VERSION_WITH_ZERO
        ],
        "finalized_features_epoch": state.features_epoch,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in finalized.items()
            if level > 0
        ],
    }


def unsupported_api_versions(versions: Mapping[int, tuple[int, int]]) -> Body:
    """Return the answer, in v0, to an ApiVersions request in a version that is too new: its own range (KIP-511)."""
    own: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: versions[ApiKey.API_VERSIONS]}
    return {"error_code": ErrorCode.unsupported_version, "api_keys": _ranges(own)}


def _ranges(versions: Mapping[int, tuple[int, int]]) -> list[dict[str, int]]:
    return [
        {"api_key": int(api), "min_version": lowest, "max_version": highest}
        for api, (lowest, highest) in sorted(versions.items())
    ]


@final
@dataclass(slots=True, eq=False, repr=False)
class MetadataHandler:
    """Answers Metadata, v0 to v13, and creates topics on demand."""

    _state: ClusterState
    _faults: Faults
    _views: MetadataViews

    def handle(self, exchange: Exchange, now: float) -> Body:
        """Answer with the current state of the cluster, or with the broker's view of it."""
        state, view = self._state, self._views.of(exchange.broker_id, now)
        return {
            "brokers": describe_brokers(state) if view is None else view.brokers,
            "cluster_id": state.cluster_id,
            "controller_id": state.controller_id if view is None else view.controller_id,
            "topics": self._topics(exchange, view),
            "error_code": self._faults.take_top_level_code(ApiKey.METADATA, exchange.broker_id),
        }

    def _topics(self, exchange: Exchange, view: View | None) -> list[dict[str, Any]]:
        wanted = exchange.body["topics"]
        # v0 cannot ask for no topics: an empty list means all.
        if wanted is None or (exchange.api_version == 0 and not wanted):
            names = self._state.topics if view is None else view.topics
            wanted = [{"name": name} for name in names if not self._state.is_hidden(name)]
        return [self._topic(exchange, topic.get("name"), topic.get("topic_id"), view) for topic in wanted]

    def _topic(
        self, exchange: Exchange, name: str | None, topic_id: UUID | None, view: View | None
    ) -> dict[str, Any]:
        if name is None:
            found = self._name(topic_id, view)
            if found is None:
                # Before v12 an answer must have a name.
                missing = None if exchange.api_version >= 12 else ""
                return _no_topic(missing, topic_id, ErrorCode.unknown_topic_id)
            name = found
        fault = self._faults.take_code(ApiKey.METADATA, exchange.broker_id, name)
        if fault is not None:
            return _no_topic(name, topic_id, fault.code)
        if not is_legal_topic(name):
            return _no_topic(name, topic_id, ErrorCode.invalid_topic_exception)
        if self._state.is_hidden(name):
            return _no_topic(name, topic_id, ErrorCode.topic_authorization_failed)
        if view is not None and name in view.topics:
            return view.topics[name]
        topic = self._state.topics.get(name)
        if topic is None:
            # Before v4 the client could not decide.
            if not (self._state.auto_create_topics and exchange.body.get("allow_auto_topic_creation", True)):
                return _no_topic(name, topic_id, ErrorCode.unknown_topic_or_partition)
            topic = self._state.create_topic(name)
            if self._state.announce_created_topics_late:
                return _no_topic(name, topic_id, ErrorCode.leader_not_available)
        elif view is not None:
            return _no_topic(name, topic_id, ErrorCode.unknown_topic_or_partition)
        if view is not None:
            return _no_topic(name, topic_id, ErrorCode.leader_not_available)
        return {**describe_topic(self._state, topic), **self._operations(exchange, name)}

    def _operations(self, exchange: Exchange, name: str) -> dict[str, Any]:
        """Return what the client may do with a topic, if it asks."""
        if not exchange.body.get("include_topic_authorized_operations"):
            return {}
        return {"topic_authorized_operations": _MAY_DESCRIBE if self._state.is_denied(name) else _MAY_ALL}

    def _name(self, topic_id: UUID | None, view: View | None) -> str | None:
        if view is not None and topic_id is not None:
            return view.names.get(topic_id)
        found = self._state.topic_by_id(topic_id)
        return None if found is None else found.name


def _no_topic(name: str | None, topic_id: UUID | None, code: int) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
    }


def create_topics(state: ClusterState, exchange: Exchange) -> Body:
    """Answer CreateTopics; unknown configuration is accepted without effect."""
    return {
        "topics": [
            _create_topic(state, topic, bool(exchange.body["validate_only"]))
            for topic in exchange.body["topics"]
        ]
    }


def _create_topic(state: ClusterState, wanted: dict[str, Any], is_dry_run: bool) -> dict[str, Any]:
    count = len(wanted["assignments"]) or wanted["num_partitions"]
    factor = wanted["replication_factor"]
    config = state.default_config
    code, message = _check_new_topic(state, wanted["name"], count, factor)
    if code == ErrorCode.none:
        try:
            config = _config_from(config, wanted["configs"])
        except ValueError:
            code, message = ErrorCode.invalid_config, "A configuration value is not a number."
    created = None
    if code == ErrorCode.none and not is_dry_run:
        created = state.create_topic(
            wanted["name"],
            None if count == -1 else count,
            replication_factor=None if factor < 1 else factor,
            config=config,
        )
    partitions = [] if created is None else created.partitions
    return {
        "name": wanted["name"],
        "topic_id": None if created is None else created.topic_id,
        "error_code": code,
        "error_message": message,
        "num_partitions": len(partitions) or -1,
        "replication_factor": len(partitions[0].replicas) if partitions else -1,
        "configs": (),
    }


def _check_new_topic(state: ClusterState, name: str, count: int, factor: int) -> tuple[int, str | None]:
    if not is_legal_topic(name):
        return ErrorCode.invalid_topic_exception, "The topic's name is not legal."
    if name in state.topics:
        return ErrorCode.topic_already_exists, f"Topic '{name}' already exists."
    if count < 1 and count != -1:
        return ErrorCode.invalid_partitions, "Number of partitions must be larger than 0."
    if count > _MAX_PARTITIONS:
        return ErrorCode.policy_violation, "Excessively large number of partitions per request."
    if factor > len(state.brokers) or factor == 0 or factor < -1:
        return ErrorCode.invalid_replication_factor, f"There are {len(state.brokers)} brokers."
    return ErrorCode.none, None


def _config_from(defaults: TopicConfig, settings: list[dict[str, Any]]) -> TopicConfig:
    given = {setting["name"]: setting["value"] for setting in settings if setting["value"] is not None}
    changes: dict[str, Any] = {}
    if "max.message.bytes" in given:
        changes["max_message_bytes"] = int(given["max.message.bytes"])
    if "message.timestamp.type" in given:
        changes["is_log_append_time"] = given["message.timestamp.type"] == "LogAppendTime"
    if "cleanup.policy" in given:
        changes["is_compacted"] = "compact" in given["cleanup.policy"]
    if "retention.bytes" in given:
        retention = int(given["retention.bytes"])
        changes["retention_bytes"] = None if retention < 0 else retention
    if "retention.ms" in given:
        retention = int(given["retention.ms"])
        changes["retention_seconds"] = None if retention < 0 else retention / 1000
    if "min.insync.replicas" in given:
        changes["min_insync_replicas"] = int(given["min.insync.replicas"])
    if "unclean.leader.election.enable" in given:
        changes["unclean_leader_election"] = given["unclean.leader.election.enable"] == "true"
    return replace(defaults, **changes)


def delete_topics(state: ClusterState, exchange: Exchange) -> Body:
    """Answer DeleteTopics: by name, from v6 also by id."""
    wanted = exchange.body.get("topics")
    if wanted is None:
        wanted = [{"name": name, "topic_id": None} for name in exchange.body["topic_names"]]
    responses = []
    for entry in wanted:
        by_id = state.topic_by_id(entry["topic_id"])
        name = entry["name"] if entry["name"] is not None else (by_id.name if by_id else None)
        topic = None if name is None else state.topics.get(name)
        code = ErrorCode.none
        if topic is None:
            code = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
        else:
            state.delete_topic(topic.name)
        responses.append(
            {
                "name": name,
                "topic_id": topic.topic_id if topic is not None else entry["topic_id"],
                "error_code": code,
            }
        )
    return {"responses": responses}
