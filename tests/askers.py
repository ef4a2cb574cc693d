"""Requests by a name: where a test of connections only asks which request came back, a name does for who asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproduce.core.cluster.in_flight_request import Asker, InFlightRequest


def named(name: object) -> Asker:
    """A name as the asker of a request; nobody tells it anything."""
    return cast("Asker", name)


def name(request: InFlightRequest) -> Any:
    """The name that a request was sent by."""
    return request.asker


def names(requests: Iterable[InFlightRequest]) -> list[Any]:
    """The names that requests were sent by."""
    return [request.asker for request in requests]
