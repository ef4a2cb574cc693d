"""The functions of `_metadata.pxd`, for interpreted code."""

from __future__ import annotations

from typing import Any


def record_metadata(kind: type, *fields: Any) -> Any:
    """Make a named tuple of its fields."""
    return kind(*fields)


placed_metadata = record_metadata
