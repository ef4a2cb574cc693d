"""kio's generated message classes, each imported on first use.

Used by `wire.reader`, `wire.requests` and the embedded broker. A class serves only as a description of its
fields, their order and their types.

1. This module imports nothing of kio. The first import of a kio message takes tens of milliseconds (it also
   imports Hypothesis if that is installed), and `import aioproduce` must not take that long.
2. An API or version that kio does not know raises ProtocolError, never ImportError.
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
    """Return kio's class of the response; it raises the same errors as `request_class()`."""
    return _load(api_key, api_version, is_request=False)


@cache
def request_module(api_key: int, api_version: int) -> ModuleType:
    """Return the module of the request's class, which also holds its nested classes."""
    import sys

    return sys.modules[request_class(api_key, api_version).__module__]


def known_versions(api_key: int) -> tuple[int, int] | None:
    """Return the (lowest, highest) version of the API that kio knows, or None if it knows none."""
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
        raise ProtocolError(f"API key {api_key} is not known to this client") from None
    except UnknownEntity:
        ours = known_versions(api_key)
        assert ours is not None  # the API is known, only the version is not
        raise UnsupportedVersionError(
            f"version {api_version} of API key {api_key} is unknown to this client, which knows v{ours[0]} "
            f"to v{ours[1]}",
            api=str(api_key),
            broker_versions=(api_version, api_version),
            client_versions=ours,
        ) from None
