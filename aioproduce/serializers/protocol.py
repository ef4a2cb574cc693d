"""What a serializer is: one method, that gives bytes at once or something to await.

Called by `SerializingProducer` for each key and value that is not None. A serializer that can answer at once
gives bytes, and costs what it costs; one that must ask somebody (a registry, a key service) gives an awaitable,
that time only if it likes. Whether it did is told by what it gave, never by what it is: the schema of a topic
is asked for once, and all records after the first take the short way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from aioproduce.records import Header

T_contra = TypeVar("T_contra", contravariant=True)

Field: TypeAlias = Literal["key", "value"]
"""Which part of a record is serialized."""

Serialized: TypeAlias = "bytes | bytearray | memoryview | None"
"""What is sent: bytes, or None for a null key or value."""


class SerializationContext(NamedTuple):
    """What a serializer is told of the record.

    Attributes:
        topic: The topic that the record goes to.
        field: `"key"` or `"value"`.
        headers: The record's headers, to read.
    """

    topic: str
    field: Field
    headers: Sequence[Header] = ()


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """Turns a key or value into bytes.

    Example:
        >>> class Upper:
        ...     def serialize(self, value: str, context: SerializationContext) -> bytes:
        ...         return value.upper().encode()
    """

    def serialize(
        self, value: T_contra, context: SerializationContext, /
    ) -> Serialized | Awaitable[Serialized]:
        """The bytes of a value that is not None, or what to await for them.

        What it raises fails that `send()`: errors of aioproduce as they are, all others as the cause of a
        SerializationError.
        """
        ...


SerializerLike: TypeAlias = "Serializer[T_contra] | Callable[[T_contra], Serialized | Awaitable[Serialized]]"
"""A serializer, or a function of the value alone: `str.encode`, `json_bytes`, an `async def`."""

Serialize: TypeAlias = Callable[[Any, SerializationContext], "Serialized | Awaitable[Serialized]"]
"""Either of them as the producer calls it."""


def serialize_of(serializer: SerializerLike[Any] | None, field: Field) -> Serialize | None:
    """The one form that the producer calls.

    Raises:
        TypeError: neither a serializer nor a function.
    """
    if serializer is None:
        return None
    if isinstance(serializer, type):
        raise TypeError(f"{field}_serializer is the class {serializer.__name__}: give an object of it")
    if isinstance(serializer, Serializer):
        return serializer.serialize
    if callable(serializer):
        function = serializer
        return lambda value, _context: function(value)
    raise TypeError(
        f"{field}_serializer has a method serialize(value, context) or is a function of the value, not "
        f"{type(serializer).__name__}"
    )
