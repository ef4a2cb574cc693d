"""Schemas of a registry, as values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]


class SchemaReference(NamedTuple):
    """Another schema that a schema uses.

    Attributes:
        name: The schema's name for it: for Avro the type's full name, for Protobuf the path of the import.
        subject: The subject that it is registered under.
        version: Its version there.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text with its references.

    Args:
        text: The schema: JSON for Avro and JSON Schema; for Protobuf the `.proto` text, or a
            FileDescriptorProto as base64.
        schema_type: `"AVRO"`, `"PROTOBUF"` or `"JSON"`.
        references: Other schemas that it uses, already in the registry.
        writing_rules: The names of the registry's rules that apply when a value is written (data contracts:
            encryption, conditions).

    Example:
        >>> Schema('{"type": "string"}').schema_type
        'AVRO'
    """

    text: str
    schema_type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    writing_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema under a subject.

    Attributes:
        subject: The subject.
        schema_id: Its id, the same under every subject.
        version: Its version under this subject, from 1; `None` if the registry did not return it.
        schema: The schema itself.
    """

    subject: str
    schema_id: int
    version: int | None
    schema: Schema


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A registry's verdict on a schema that is not registered yet.

    Attributes:
        is_compatible: Whether it could be registered.
        messages: The problems, in the registry's words.
    """

    is_compatible: bool
    messages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_compatible
