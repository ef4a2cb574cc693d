"""The first request on every connection: ApiVersions, which versions of each API the broker supports (KIP-511).

`core.cluster.broker_connection` calls `negotiate()` for each connection.

Invariants:

1. Each request has an older version than the one before, so a broker that refuses what it offers cannot cause an
   endless loop.
2. A broker without the APIs that a producer needs is refused here, with the versions, and not at a later request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from aioproduce.core.cluster.in_flight_request import OwnRequest
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey, ApiVersions
from aioproduce.wire.error_codes import UNSUPPORTED_VERSION
from aioproduce.wire.requests import encode_api_versions

if TYPE_CHECKING:
    from aioproduce.core.cluster.connection_states import ConnectionSettings
    from aioproduce.wire.messages import ApiVersionsResponse

_REQUIRED_APIS: Final = (ApiKey.PRODUCE, ApiKey.METADATA)


class Line(Protocol):
    """The part of a connection that the negotiation uses."""

    def ask(self, request: OwnRequest, now: float) -> None:
        """Send a request of the connection's own as soon as possible."""

    @property
    def settings(self) -> ConnectionSettings:
        """The settings that all connections share."""

    def negotiated(self, versions: ApiVersions, now: float) -> None:
        """Accept the broker's versions."""


def negotiate(
    line: Line, client_id: str, now: float, version: int = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
) -> None:
    """Send ApiVersions in this version, and in older ones if the broker does not support it."""
    line.ask(
        OwnRequest(
            ApiKey.API_VERSIONS,
            lambda version, correlation_id: [encode_api_versions(version, correlation_id, client_id)],
            partial(_answered, line, client_id, version),
            version,
        ),
        now,
    )


def _answered(line: Line, client_id: str, version: int, response: ApiVersionsResponse, now: float) -> None:
    if response.error_code == UNSUPPORTED_VERSION and version > 0:
        # Brokers since Kafka 2.4 report which versions they support.
        _, newest = response.versions.get(ApiKey.API_VERSIONS, (0, 0))
        negotiate(line, client_id, now, newest if 0 < newest < version else 0)
        return
    api_versions = ApiVersions.from_response(response)
    for api in _REQUIRED_APIS:
        api_versions.version(api)  # raises, and so ends the connection, if there is none
    line.settings.features.told(response.finalized_features, response.finalized_features_epoch)
    line.negotiated(api_versions, now)
