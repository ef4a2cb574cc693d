"""The APIs and versions that this client supports, and the versions negotiated per connection.

Used by `core.cluster.broker_connection` for negotiation and by every module that names an API.

1. `CLIENT_VERSIONS` holds exactly the versions that `wire.requests` can write and `wire.responses` can read.
2. The negotiated version is the highest that both sides support. It belongs to one connection and not to the
   cluster, because brokers differ during a rolling upgrade.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import ProtocolError, UnsupportedVersionError
from aioproduce.wire.error_codes import NONE, message_of, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.wire.messages import ApiVersionsResponse


class ApiKey(IntEnum):
    """Kafka's API keys that a producer or the embedded broker uses."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def display_name(self) -> str:
        """The name as in Kafka's documentation, e.g. `InitProducerId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


CLIENT_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = MappingProxyType(
    {
        # v3 is the first that carries record batch v2 (Kafka 0.11); v13 names topics by id.
        ApiKey.PRODUCE: (3, 13),
        # v0 cannot ask for no topics and does not report the controller. Every broker with Produce v3 has v1.
        ApiKey.METADATA: (1, 13),
        ApiKey.API_VERSIONS: (0, 4),
        # v6 (KIP-939, two-phase commit) is not stable in Kafka 4.3.
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.FIND_COORDINATOR: (0, 6),
        # Later versions are for use between brokers.
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        # A spool that forwards exactly once reads its positions. v7 is the first that can wait for the end of open
        # transactions (KIP-447); v8 asks for several groups.
        ApiKey.OFFSET_FETCH: (7, 7),
        # `aioproduce txn` uses these.
        ApiKey.LIST_TRANSACTIONS: (0, 2),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
        # In v0 the mechanism's bytes follow without Kafka's framing. Every broker with Produce v3 has v1.
        ApiKey.SASL_HANDSHAKE: (1, 1),
        # v1 reports how long the session lasts (KIP-368).
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        # KIP-714: brokers that do not collect client metrics do not offer these.
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
        ApiKey.PUSH_TELEMETRY: (0, 0),
    }
)
"""API -> (lowest, highest) version that this client supports."""


@final
class ApiVersions:
    """The version ranges of the broker at the other end of one connection.

    Args:
        broker_versions: API key -> (lowest, highest) version that the broker supports.

    Example:
        >>> ApiVersions({0: (0, 11), 3: (0, 12)}).version(ApiKey.PRODUCE)
        11
    """

    __slots__ = ("_agreed", "broker_versions")

    def __init__(self, broker_versions: Mapping[int, tuple[int, int]]) -> None:
        self.broker_versions: MappingProxyType[int, tuple[int, int]] = MappingProxyType(dict(broker_versions))
        # The sender asks once per request, so all answers are computed here.
        self._agreed = {
            api: min(highest, self.broker_versions[api][1])
            for api, (lowest, highest) in CLIENT_VERSIONS.items()
            if api in self.broker_versions
            and max(lowest, self.broker_versions[api][0]) <= min(highest, self.broker_versions[api][1])
        }

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> ApiVersions:
        """Create the ranges from the broker's answer.

        Raises:
            ProtocolError: If the answer is an error. The caller handles UNSUPPORTED_VERSION (35) first, by
                asking again in a version that the answer offers.
        """
        if response.error_code != NONE:
            name = name_of(response.error_code)
            raise ProtocolError(
                f"the broker answered ApiVersions with {name}: {message_of(response.error_code)}"
            )
        return cls(response.versions)

    def version(self, api: ApiKey) -> int:
        """Return the highest version of the API that both sides support.

        Raises:
            UnsupportedVersionError: If both sides have no version in common. The message names both ranges.
        """
        agreed = self._agreed.get(api)
        if agreed is None:
            raise self._unsupported(api)
        return agreed

    def supports(self, api: ApiKey) -> bool:
        """Return whether the two sides have a version of the API in common."""
        return api in self._agreed

    def _unsupported(self, api: ApiKey) -> UnsupportedVersionError:
        ours = CLIENT_VERSIONS[api]
        theirs = self.broker_versions.get(api)
        if theirs is None:
            problem = f"the broker does not offer {api.display_name}; this client supports {_range(ours)}"
        else:
            problem = (
                f"the broker supports {api.display_name} {_range(theirs)}, this client {_range(ours)}: "
                "they have no version in common"
            )
        if theirs is not None and theirs[0] > ours[1]:
            remedy = "the broker is too new for this client: use a newer aioproduce"
        elif api is ApiKey.PRODUCE:
            remedy = (
                "the broker is too old for record batch v2 (before Kafka 0.11): upgrade it. It supports "
                + self._describe()
            )
        else:
            remedy = "the broker is too old for this request: upgrade it. It supports " + self._describe()
        return UnsupportedVersionError(
            f"{problem}; {remedy}", api=api.display_name, broker_versions=theirs, client_versions=ours
        )

    def _describe(self) -> str:
        ranges = (
            f"{api.display_name} {_range(self.broker_versions[api])}"
            for api in CLIENT_VERSIONS
            if api in self.broker_versions
        )
        return ", ".join(ranges) or "none of the APIs that a producer needs"

    def __repr__(self) -> str:
        return f"<ApiVersions {self._describe()}>"


def _range(versions: tuple[int, int]) -> str:
    return f"v{versions[0]} to v{versions[1]}"
