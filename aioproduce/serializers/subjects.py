"""The registry's subject of a schema: Confluent's three strategies, and the type of custom ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aioproduce.serializers.protocol import SerializationContext

SubjectStrategy: TypeAlias = "Callable[[SerializationContext, str | None], str]"
"""Returns the subject for a record, from its context and its schema's full name (None without a name).

It is called for each record, so it must be quick. The registry is asked once for each subject.
"""


def topic_name(context: SerializationContext, _record: str | None) -> str:
    """Return `<topic>-key` or `<topic>-value`: one type per topic (TopicNameStrategy, the default)."""
    return f"{context.topic}-{context.field}"


def record_name(_context: SerializationContext, record: str | None) -> str:
    """Return the schema's full name: a type has one history in all topics (RecordNameStrategy)."""
    return _named(record)


def topic_record_name(context: SerializationContext, record: str | None) -> str:
    """Return `<topic>-<full name>`: several types, each with a history per topic (TopicRecordNameStrategy)."""
    return f"{context.topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if record is None:
        raise ValueError(
            "this schema has no name for a subject: use topic_name, or name the record (for JSON Schema: "
            "its title)"
        )
    return record
