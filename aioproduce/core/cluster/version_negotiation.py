"""The first question on every connection: which versions of each API the broker speaks (ApiVersions, KIP-511).

Made by `core.cluster.broker_connection` for each connection.

Invariants:

1. Each question asks for an older version than the one before: a broker that refuses what it offers keeps nobody
   here.
2. A broker without the APIs that a producer cannot do without is refused here, with the versions, and not at a
   first request.
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
    """The connection, as far as the question needs it."""

    def ask(self, request: OwnRequest, now: float) -> None:
        """Send a request of its own, as soon as its turn comes."""

    @property
    def settings(self) -> ConnectionSettings:
        """What is equal for all connections."""

    def negotiated(self, versions: ApiVersions, now: float) -> None:
        """The broker has told its versions."""


def negotiate(
    line: Line, client_id: str, now: float, version: int = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
) -> None:
    """Ask in this version, and in older ones where the broker does not know it."""
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
        # Brokers from 2.4 on say which versions they have.
        _, newest = response.versions.get(ApiKey.API_VERSIONS, (0, 0))
        negotiate(line, client_id, now, newest if 0 < newest < version else 0)
        return
    api_versions = ApiVersions.from_response(response)
    for api in _REQUIRED_APIS:
        api_versions.version(api)  # raises, and so ends the connection, where there is none
    line.settings.features.told(response.finalized_features, response.finalized_features_epoch)
    line.negotiated(api_versions, now)
