"""Which subject of the registry a schema stands under: Confluent's three strategies, and one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aioproduce.serializers.protocol import SerializationContext

SubjectStrategy: TypeAlias = "Callable[[SerializationContext, str | None], str]"
"""The subject for a record, from its context and its schema's full name (None where it has no name).

It is called for each record, so it must be quick; each subject that it gives is asked for once.
"""


def topic_name(context: SerializationContext, _record: str | None) -> str:
    """`<topic>-key` or `<topic>-value`: one type in a topic (TopicNameStrategy, the default)."""
    return f"{context.topic}-{context.field}"


def record_name(_context: SerializationContext, record: str | None) -> str:
    """The schema's full name: a type evolves as one, whatever the topic (RecordNameStrategy)."""
    return _named(record)


def topic_record_name(context: SerializationContext, record: str | None) -> str:
    """`<topic>-<full name>`: several types in a topic, that evolve for each topic (TopicRecordNameStrategy)."""
    return f"{context.topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if record is None:
        raise ValueError(
            "this schema has no name to make a subject of: use topic_name, or name the record (for JSON Schema: "
            "its title)"
        )
    return record
