"""The common base of serializers with a registry: it finds the schema's id for a record's subject, once.

Each format implements how to encode a value with a schema (`_writer_for`). This module decides which schema that
is, and whether to ask the registry.

Invariants:

1. For a known subject, `serialize()` returns bytes after one dict lookup and without a coroutine.
2. A refusal or failure of the registry is raised by that `serialize()`; the next one asks again.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypedDict

from aioproduce.errors import ConfigError, IncompatibleSchemaError
from aioproduce.serializers.protocol import SerializationContext
from aioproduce.serializers.schemas import RegisteredSchema, Schema, SchemaType
from aioproduce.serializers.subjects import SubjectStrategy, topic_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from aioproduce.serializers.registry import SchemaRegistryClient

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Write: TypeAlias = Callable[[Any], bytes]

# Bounded, because a custom strategy may return ever new subjects.
_MAX_SUBJECTS: Final = 1000


class RegistryOptions(TypedDict, total=False):
    """The options of every serializer with a registry, besides its schema.

    Attributes:
        subject: The subject strategy: `topic_name` (default), `record_name`, `topic_record_name`, or a function
            of `(context, record_name)`.
        auto_register: Whether to register a schema that the subject lacks. By default true, unless
            `use_latest_version` or `schema_id` is set. If false, the schema must already be registered.
        use_latest_version: Whether to encode with the newest schema of the subject instead of the given one.
        schema_id: Encode with the schema of this id instead.
        normalize: Whether the registry treats schemas as equal that differ only in order and spelling.
    """

    subject: SubjectStrategy
    auto_register: bool | None
    use_latest_version: bool
    schema_id: int | None
    normalize: bool


_Way: TypeAlias = Literal["register", "lookup", "latest", "id"]


@dataclass(frozen=True, slots=True)
class _Options:
    strategy: SubjectStrategy
    way: _Way
    schema_id: int
    normalize: bool


def _options(
    subject: SubjectStrategy = topic_name,
    auto_register: bool | None = None,
    use_latest_version: bool = False,
    schema_id: int | None = None,
    normalize: bool = False,
) -> _Options:
    ways: list[_Way] = []
    if schema_id is not None:
        ways.append("id")
    if use_latest_version:
        ways.append("latest")
    if auto_register:
        ways.append("register")
    if len(ways) > 1:
        raise ConfigError("set only one of auto_register=True, use_latest_version=True and schema_id")
    if not ways:
        ways.append("register" if auto_register is None else "lookup")
    if not callable(subject):
        raise ConfigError(
            "subject must be a function of (context, record_name), e.g. aioproduce.serializers.topic_name",
            key="subject",
        )
    if schema_id is not None and not 0 <= schema_id <= 0x7FFFFFFF:
        raise ConfigError("schema_id must be a number from 0 to 2^31 - 1", key="schema_id")
    return _Options(subject, ways[0], schema_id or 0, normalize)


class RegisteredSerializer(ABC, Generic[T]):
    """A serializer whose schema is in a registry."""

    _type: ClassVar[SchemaType]
    # The form in which to request schema texts from the registry.
    _form: ClassVar[str] = ""

    def __init__(
        self, registry: SchemaRegistryClient, record: str | None, options: Mapping[str, Any], has_schema: bool
    ) -> None:
        unknown = options.keys() - RegistryOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} does not have an option {min(unknown)!r}")
        self._registry = registry
        self._record = record
        self._options = _options(**options)
        self._strategy = self._options.strategy
        self._follows_latest = self._options.way == "latest"
        if not has_schema and self._options.way in ("register", "lookup"):
            raise ConfigError(
                f"{type(self).__name__} needs a schema, or use_latest_version=True, or schema_id",
                key="schema",
            )
        self._writes: dict[str, Write] = {}
        self._latest: dict[str, RegisteredSchema] = {}

    def serialize(self, value: T, context: SerializationContext, /) -> bytes | Awaitable[bytes]:
        """Return the value in Confluent's wire format, directly if the subject's schema is known.

        Raises:
            SchemaRegistryError: If the registry refused the schema, or did not answer.
            Exception: If the value does not fit the schema.
        """
        subject = self._strategy(context, self._record)
        write = self._writes.get(subject)
        if write is None or (self._follows_latest and not self._is_latest(subject)):
            return self._serialize_first(value, subject)
        return write(value)

    async def prepare(self, topic: str, field: Literal["key", "value"] = "value") -> str:
        """Ask the registry now, at a service's start, so that `send()` need not and failures show early.

        Args:
            topic: The topic that records will go to.
            field: Whether this serializer is for keys or for values.

        Returns:
            The subject.

        Raises:
            SchemaRegistryError: If the registry refused the schema, or did not answer.
        """
        subject = self._strategy(SerializationContext(topic, field), self._record)
        await self._prepare(subject)
        return subject

    async def _serialize_first(self, value: T, subject: str) -> bytes:
        return (await self._prepare(subject))(value)

    async def _prepare(self, subject: str) -> Write:
        found = await self._find(subject)
        if found.schema.schema_type != self._type:
            raise _unusable(
                found, f"is {found.schema.schema_type}, but {type(self).__name__} writes {self._type}"
            )
        if found.schema.writing_rules:
            # Without the rules, data that must be encrypted could be sent in clear text.
            rules = ", ".join(found.schema.writing_rules)
            raise _unusable(found, f"has rules that this producer does not execute ({rules})")
        write = await self._writer_for(found.schema_id, found.schema, subject)
        if len(self._writes) >= _MAX_SUBJECTS and subject not in self._writes:
            oldest = next(iter(self._writes))
            del self._writes[oldest]
            self._latest.pop(oldest, None)
        self._writes[subject] = write
        if self._follows_latest:
            self._latest[subject] = found
        return write

    async def _find(self, subject: str) -> RegisteredSchema:
        """Return the schema to encode with, and its id."""
        options = self._options
        if options.way == "id":
            schema = await self._registry.schema(options.schema_id, form=self._form)
            return RegisteredSchema(subject, options.schema_id, None, schema)
        if options.way == "latest":
            return await self._registry.latest(subject, form=self._form)
        schema = await self._schema_with_references()
        if options.way == "register":
            return await self._registry.register(subject, schema, normalize=options.normalize)
        return await self._registry.lookup(subject, schema, normalize=options.normalize)

    def _is_latest(self, subject: str) -> bool:
        return self._registry.known_latest(subject, form=self._form) is self._latest.get(subject)

    @abstractmethod
    async def _schema_with_references(self) -> Schema:
        """Return the serializer's own schema, with its references in the registry."""

    @abstractmethod
    async def _writer_for(self, schema_id: int, schema: Schema, subject: str, /) -> Write:
        """Return the function that encodes values with a schema, after all work that can be done once."""


class TextSchemaSerializer(RegisteredSerializer[T]):
    """A serializer whose schema is a text, given by the user or by the registry."""

    _schema: Schema | None

    @property
    def schema(self) -> Schema:
        """The serializer's own schema, for `SchemaRegistryClient.check_compatibility()`.

        Raises:
            ValueError: If the schema comes from the registry.
        """
        if self._schema is None:
            raise ValueError("this serializer has no schema of its own: it uses the registry's")
        return self._schema

    async def _schema_with_references(self) -> Schema:
        return self.schema

    def _as_schema(self, given: object) -> Schema | None:
        """Return the constructor's argument as a schema, or None for none."""
        if given is not None and not isinstance(given, Schema):
            given = Schema(given if isinstance(given, str) else json.dumps(given), self._type)
        if given is not None and given.schema_type != self._type:
            raise ConfigError(
                f"{type(self).__name__} does not accept a {given.schema_type} schema", key="schema"
            )
        return given


def _unusable(found: RegisteredSchema, what: str) -> IncompatibleSchemaError:
    return IncompatibleSchemaError(
        f"the schema with the id {found.schema_id} in the registry {what}",
        status=None,
        error_code=None,
        subject=found.subject,
        remedy="choose another subject or schema_id, or a serializer that can write it",
        retriable=False,
    )
