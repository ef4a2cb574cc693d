"""Avro with a schema registry: fastavro encodes, the registry assigns the schema's id."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, final

from aioproduce.errors import ConfigError, MissingExtraError
from aioproduce.serializers.registered import RegistryOptions, T, TextSchemaSerializer, Write
from aioproduce.serializers.schemas import Schema, SchemaReference
from aioproduce.serializers.wire_format import schema_prefix

with MissingExtraError.unless_installed(
    "aioproduce.serializers.AvroSerializer", extra="avro", name="fastavro"
):
    import fastavro

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aioproduce.serializers.registry import SchemaRegistryClient


@final
class AvroSerializer(TextSchemaSerializer[T]):
    """Encodes values as Avro, with Confluent's prefix.

    Args:
        registry: The client of the schema registry.
        schema: The schema as JSON text, as the decoded JSON, or as a `Schema` with references. `None` if it
            comes from the registry (`use_latest_version`, `schema_id`).
        to_dict: Converts a value to what fastavro encodes, e.g. `dataclasses.asdict`.
        strict: Whether to refuse a value with fields that its record does not have. Otherwise fastavro silently
            drops them.
        options: As in `RegistryOptions`: `subject`, `auto_register`, `use_latest_version`, `schema_id`,
            `normalize`.

    Raises:
        ConfigError: If the schema cannot be read, or if options contradict each other.
        MissingExtraError: If fastavro is not installed.

    Example:
        >>> orders = AvroSerializer(registry, '{"type": "string"}')
    """

    _type = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | Mapping[str, Any] | Sequence[Any] | Schema | None = None,
        *,
        to_dict: Callable[[T], Any] | None = None,
        strict: bool = True,
        **options: Unpack[RegistryOptions],
    ) -> None:
        self._schema = self._as_schema(schema)
        self._to_dict = to_dict
        self._strict = strict
        record = None
        if self._schema is not None:
            read = _read(self._schema.text)
            if not self._schema.references:
                _parse(read, {})  # to fail here and not at the first record
            record = _full_name(read)
        super().__init__(registry, record, options, self._schema is not None)

    async def _writer_for(self, schema_id: int, schema: Schema, _subject: str) -> Write:
        prefix = schema_prefix(schema_id)
        to_dict = self._to_dict
        named: dict[str, Any] = {}
        await self._load(schema.references, named, set())
        parsed = _parse(_read(schema.text), named)
        if parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes"):
            return _bytes_writer(prefix, to_dict)
        # Local names, because every record uses them.
        write_value, buffer_of, strict = fastavro.schemaless_writer, BytesIO, self._strict
        start = len(prefix)

        def write(value: Any) -> bytes:
            buffer = buffer_of(prefix)
            buffer.seek(start)
            write_value(
                buffer, parsed, value if to_dict is None else to_dict(value), strict_allow_default=strict
            )
            return buffer.getvalue()

        return write

    async def _load(
        self, references: Sequence[SchemaReference], named: dict[str, Any], loaded: set[tuple[str, int]]
    ) -> None:
        """Load the types that a schema refers to, and those that these refer to, into fastavro's names."""
        for _, subject, version in references:
            if (subject, version) in loaded:
                continue
            loaded.add((subject, version))
            schema = (await self._registry.version(subject, version)).schema
            await self._load(schema.references, named, loaded)
            _parse(_read(schema.text), named)


def _bytes_writer(prefix: bytes, to_dict: Callable[[Any], Any] | None) -> Write:
    """Return a writer for the schema "bytes" alone, which writes values without Avro's length, as Java does."""

    def write(value: Any) -> bytes:
        given = value if to_dict is None else to_dict(value)
        if not isinstance(given, bytes | bytearray | memoryview):
            raise TypeError(f'the schema is "bytes", but the value is {type(given).__name__}')
        return prefix + bytes(given)

    return write


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        # A bare name is also a schema: "string" without its quotation marks, as people write it.
        if text.strip().isidentifier():
            return text.strip()
        raise ConfigError(f"the Avro schema is not valid JSON: {error}", key="schema") from error


def _parse(read: Any, named: dict[str, Any]) -> Any:
    try:
        return fastavro.parse_schema(read, named_schemas=named)
    except Exception as error:  # KeyError, TypeError or one of fastavro's own
        raise ConfigError(
            f"fastavro cannot read the Avro schema: {type(error).__name__}: {error}", key="schema"
        ) from error


def _full_name(read: Any) -> str | None:
    """Return the name for subjects: a record's full name, or a primitive's; None for a union."""
    if isinstance(read, str):
        return read
    if not isinstance(read, dict):
        return None
    name = read.get("name")
    if name is None:
        kind = read.get("type")
        return kind if isinstance(kind, str) else None
    namespace = read.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else str(name)
