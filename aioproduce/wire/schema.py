"""kio's generated message classes, imported one by one when they are first needed.

Called by `wire.reader`, `wire.requests` and the embedded broker. A class is only a description here: which
fields, in which order, of which type.

1. Nothing of kio is imported with this module: importing one message of kio takes tens of milliseconds the
   first time (and it imports Hypothesis where that is installed), which `import aioproduce` must not pay.
2. An API or version that kio does not know is a ProtocolError, never an ImportError.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from aioproduce.errors import ProtocolError, UnsupportedVersionError

if TYPE_CHECKING:
    from types import ModuleType


@cache
def request_class(api_key: int, api_version: int) -> type[Any]:
    """Return kio's class of the request.

    Raises:
        UnsupportedVersionError: If kio knows the API but not this version.
        ProtocolError: If kio does not know the API.
    """
    return _load(api_key, api_version, is_request=True)


@cache
def response_class(api_key: int, api_version: int) -> type[Any]:
    """Return kio's class of the response; raises as `request_class()` does."""
    return _load(api_key, api_version, is_request=False)


@cache
def request_module(api_key: int, api_version: int) -> ModuleType:
    """Return the module of the request's class, where the classes nested in it live too."""
    import sys

    return sys.modules[request_class(api_key, api_version).__module__]


def known_versions(api_key: int) -> tuple[int, int] | None:
    """Return the (lowest, highest) version that kio knows of the API, or None where it knows none."""
    from kio.schema.index import api_key_map, schema_name_map

    name = api_key_map.get(api_key)
    if name is None:
        return None
    versions = schema_name_map[name]
    return min(versions), max(versions)


def _load(api_key: int, api_version: int, *, is_request: bool) -> type[Any]:
    from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema

    load = load_request_schema if is_request else load_response_schema
    try:
        return load(api_key, api_version)
    except UnknownAPIKey:
        raise ProtocolError(f"API key {api_key} is not one of Kafka's that this client knows") from None
    except UnknownEntity:
        ours = known_versions(api_key)
        assert ours is not None  # the API is known, only the version is not
        raise UnsupportedVersionError(
            f"version {api_version} of API key {api_key} is not known here, only v{ours[0]} to v{ours[1]}",
            api=str(api_key),
            broker_versions=(api_version, api_version),
            client_versions=ours,
        ) from None
