"""Loads and compiles ahead of time what every producer needs.

The caller that starts a producer may call it. Without it, the first answer of each kind delays the event loop
by 10 to 40 ms, because kio's modules are imported and readers are compiled.

1. It changes only when that time is spent. A second call costs nothing.
"""

from __future__ import annotations

from typing import Final

from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey
from aioproduce.wire.reader import entity_reader
from aioproduce.wire.requests import (
    encode_api_versions,
    encode_init_producer_id,
    encode_metadata,
    encode_sasl_authenticate,
    encode_sasl_handshake,
)
from aioproduce.wire.schema import response_class

_RARE: Final = frozenset(
    {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""APIs that few brokers are asked for; they are loaded on first use."""

_LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


def preload(*, with_login: bool = False) -> None:
    """Load the newest version of every supported API, and ApiVersions v0, in which old brokers answer.

    Args:
        with_login: Whether to load the APIs of a login, too.
    """
    left_out = _RARE if with_login else _RARE | _LOGIN
    for api, (_, newest) in CLIENT_VERSIONS.items():
        if api not in left_out:
            entity_reader(response_class(api, newest))
    if with_login:
        encode_sasl_handshake(CLIENT_VERSIONS[ApiKey.SASL_HANDSHAKE][1], 0, "", "")
        encode_sasl_authenticate(CLIENT_VERSIONS[ApiKey.SASL_AUTHENTICATE][1], 0, "", b"")
    entity_reader(response_class(ApiKey.API_VERSIONS, 0))
    encode_api_versions(CLIENT_VERSIONS[ApiKey.API_VERSIONS][1], 0, "")
    encode_init_producer_id(CLIENT_VERSIONS[ApiKey.INIT_PRODUCER_ID][1], 0, "")
    encode_metadata(CLIENT_VERSIONS[ApiKey.METADATA][1], 0, "", [], allow_auto_topic_creation=False)
