"""JSON with a schema in a registry: readers find the schema by its id, and a validator may check values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

from aioproduce.errors import ConfigError
from aioproduce.serializers.plain import COMPACT, Dumps, json_bytes
from aioproduce.serializers.registered import RegistryOptions, T, TextSchemaSerializer, Write
from aioproduce.serializers.schemas import Schema
from aioproduce.serializers.wire_format import schema_prefix

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aioproduce.serializers.registry import SchemaRegistryClient


@final
class JsonSchemaSerializer(TextSchemaSerializer[T]):
    """Encodes values as JSON, with Confluent's prefix and a JSON Schema in the registry.

    Args:
        registry: The client of the schema registry.
        schema: The schema as text, as the decoded JSON, or as a `Schema` with references. `None` if it comes from
            the registry (`use_latest_version`, `schema_id`). Its `title` is the record's name for subjects.
        to_dict: Converts a value to what the encoder encodes, e.g. `dataclasses.asdict`.
        dumps: Another encoder, as for `JsonSerializer`.
        validate: Raises if a value is not valid, e.g. `Draft202012Validator(schema).validate` of jsonschema.
            By default nothing is checked, because validation costs more than everything else.
        options: As in `RegistryOptions`: `subject`, `auto_register`, `use_latest_version`, `schema_id`,
            `normalize`.

    Raises:
        ConfigError: If the schema cannot be read, or if options contradict each other.

    Example:
        >>> orders = JsonSchemaSerializer(registry, {"title": "Order", "type": "object"})
    """

    _type = "JSON"

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | Mapping[str, Any] | bool | Schema | None = None,
        *,
        to_dict: Callable[[T], Any] | None = None,
        dumps: Dumps | None = None,
        validate: Callable[[Any], object] | None = None,
        **options: Unpack[RegistryOptions],
    ) -> None:
        self._schema = self._as_schema(schema)
        self._to_dict = to_dict
        self._dumps = dumps or COMPACT
        self._validate = validate
        super().__init__(registry, _title(self._schema), options, self._schema is not None)

    async def _writer_for(self, schema_id: int, _schema: Schema, _subject: str) -> Write:
        prefix = schema_prefix(schema_id)
        to_dict, dumps, validate = self._to_dict, self._dumps, self._validate

        def write(value: Any) -> bytes:
            given = value if to_dict is None else to_dict(value)
            if validate is not None:
                validate(given)
            return prefix + json_bytes(dumps, given)

        return write


def _title(schema: Schema | None) -> str | None:
    """Return the record's name, which is the schema's title; check that the schema is valid JSON."""
    if schema is None:
        return None
    try:
        read = json.loads(schema.text)
    except ValueError as error:
        raise ConfigError(f"the JSON Schema is not valid JSON: {error}", key="schema") from error
    if not isinstance(read, dict | bool):
        raise ConfigError("a JSON Schema must be an object, true or false", key="schema")
    title = read.get("title") if isinstance(read, dict) else None
    return title if isinstance(title, str) else None
