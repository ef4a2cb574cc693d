"""Protobuf with a schema registry: generated classes, whose files and imports are registered as descriptors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

from aioproduce.errors import IncompatibleSchemaError, MissingExtraError
from aioproduce.serializers.registered import RegisteredSerializer, RegistryOptions, Write
from aioproduce.serializers.schemas import Schema, SchemaReference
from aioproduce.serializers.wire_format import message_indexes, schema_prefix

with MissingExtraError.unless_installed(
    "aioproduce.serializers.ProtobufSerializer", extra="protobuf", name="google.protobuf"
):
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from typing_extensions import Unpack

    from aioproduce.serializers.registry import SchemaRegistryClient

M = TypeVar("M", bound=Message)

FileDescriptorProto: TypeAlias = descriptor_pb2.FileDescriptorProto

ReferenceSubject: TypeAlias = Callable[[str], str]
"""Returns the subject of an imported file from its path."""

# Every registry has these files built in.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")


def _path(imported: str) -> str:
    return imported


@final
class ProtobufSerializer(RegisteredSerializer[M]):
    """Encodes messages of a generated class, with Confluent's prefix.

    The message's file is registered as a descriptor, after the files that it imports, each under its own subject.
    Files that registries have built in (`google/protobuf/`, `google/type/`, `confluent/`) are not registered.

    Args:
        registry: The client of the schema registry.
        message_type: The generated class; messages of other classes are refused.
        reference_subject: Returns the subject of an imported file from its path; by default the path itself.
        options: As in `RegistryOptions`: `subject`, `auto_register`, `use_latest_version`, `schema_id`,
            `normalize`.

    Raises:
        ConfigError: If options contradict each other.
        MissingExtraError: If protobuf is not installed.

    Example:
        >>> orders = ProtobufSerializer(registry, orders_pb2.Order)  # doctest: +SKIP
    """

    _type = "PROTOBUF"
    _form = "serialized"

    def __init__(
        self,
        registry: SchemaRegistryClient,
        message_type: type[M],
        *,
        reference_subject: ReferenceSubject = _path,
        **options: Unpack[RegistryOptions],
    ) -> None:
        self._message_type = message_type
        self._reference_subject = reference_subject
        self._descriptor: Any = message_type.DESCRIPTOR
        super().__init__(registry, self._descriptor.full_name, options, has_schema=True)

    async def _schema_with_references(self) -> Schema:
        return await self._file_schema(self._descriptor.file)

    async def _file_schema(self, file: FileDescriptor) -> Schema:
        """Return a file as the registry's schema, after registering its imports."""
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            subject = self._reference_subject(imported.name)
            schema = await self._file_schema(imported)
            if self._options.way == "register":
                await self._registry.register(subject, schema, normalize=self._options.normalize)
            # Registries before 7.9 do not return the version when registering.
            found = await self._registry.lookup(subject, schema, normalize=self._options.normalize)
            assert found.version is not None  # a lookup always returns it
            references.append(SchemaReference(imported.name, subject, found.version))
        return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", tuple(references))

    async def _writer_for(self, schema_id: int, schema: Schema, subject: str, /) -> Write:
        if self._options.way in ("register", "lookup"):
            indexes = _own_indexes(self._descriptor)
        else:
            indexes = _indexes_in(schema, self._descriptor, subject)
        prefix = schema_prefix(schema_id) + message_indexes(indexes)
        message_type = self._message_type

        def write(message: Any) -> bytes:
            if not isinstance(message, message_type):
                raise TypeError(
                    f"this serializer accepts {message_type.__name__}, not {type(message).__name__}"
                )
            # Deterministic, because equal keys must have equal bytes, and maps have no order.
            return prefix + message.SerializeToString(deterministic=True)

        return write


def _own_indexes(descriptor: Any) -> list[int]:
    """Return a message's position in its own file."""
    indexes = _indexes(FileDescriptorProto.FromString(descriptor.file.serialized_pb), descriptor.full_name)
    assert indexes is not None  # the file contains the message
    return indexes


def _indexes_in(schema: Schema, descriptor: Any, subject: str) -> list[int]:
    """Return the message's position in the registry's file, where other messages may precede it.

    Raises:
        IncompatibleSchemaError: If the file does not contain the message.
    """
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, DecodeError):
        # The registry offers only text, so the position in our own file is used.
        return _own_indexes(descriptor)
    indexes = _indexes(file, descriptor.full_name)
    if indexes is None:
        raise IncompatibleSchemaError(
            f"the schema in the registry has no message {descriptor.full_name}",
            status=None,
            error_code=None,
            subject=subject,
            remedy=f"register the file of {descriptor.full_name} under this subject, or choose another subject",
            retriable=False,
        )
    return indexes


def _indexes(file: FileDescriptorProto, full_name: str) -> list[int] | None:
    """Return the index of the outermost message in the file, then of the next one nested in it, and so on."""
    name = full_name.removeprefix(f"{file.package}.") if file.package else full_name
    indexes: list[int] = []
    level = file.message_type
    for part in name.split("."):
        found = next((index for index, message in enumerate(level) if message.name == part), None)
        if found is None:
            return None
        indexes.append(found)
        level = level[found].nested_type
    return indexes
