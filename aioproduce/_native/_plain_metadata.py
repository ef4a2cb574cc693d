"""What `record_metadata.pxd` and `placed_metadata.pxd` make without a frame, for the interpreted hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce.records import RecordMetadata


def record_metadata(kind: type[RecordMetadata], *fields: Any) -> RecordMetadata:
    """Make one."""
    return kind(*fields)


def placed_metadata(kind: type, *fields: Any) -> Any:
    """Make one of another library's."""
    return kind(*fields)
