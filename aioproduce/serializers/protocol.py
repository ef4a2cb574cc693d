"""The interface of a serializer: one method that returns bytes or an awaitable.

`SerializingProducer` calls it for each key and value that is not None. A serializer that can answer at once returns
bytes, which costs nothing extra. One that must ask another service (a registry, a key service) returns an
awaitable. The result of each call decides, not the serializer's type: the schema of a topic is requested once, and
all later records return bytes directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from aioproduce.records import Header

T_contra = TypeVar("T_contra", contravariant=True)

Field: TypeAlias = Literal["key", "value"]
"""The part of a record to serialize."""

Serialized: TypeAlias = "bytes | bytearray | memoryview | None"
"""The serialized form: bytes, or None for a null key or value."""


class SerializationContext(NamedTuple):
    """The record's properties that a serializer may use.

    Attributes:
        topic: The record's topic.
        field: `"key"` or `"value"`.
        headers: The record's headers, read-only.
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
        """Return the bytes of a value that is not None, or an awaitable of them.

        An exception fails that `send()`: errors of aioproduce unchanged, all others as the cause of a
        SerializationError.
        """
        ...


SerializerLike: TypeAlias = "Serializer[T_contra] | Callable[[T_contra], Serialized | Awaitable[Serialized]]"
"""A serializer, or a function of the value alone: `str.encode`, `json_bytes`, an `async def`."""

Serialize: TypeAlias = Callable[[Any, SerializationContext], "Serialized | Awaitable[Serialized]"]
"""The common form in which the producer calls both."""


def serialize_of(serializer: SerializerLike[Any] | None, field: Field) -> Serialize | None:
    """Return the callable for the producer.

    Raises:
        TypeError: If the argument is neither a serializer nor a function.
    """
    if serializer is None:
        return None
    if isinstance(serializer, type):
        raise TypeError(f"{field}_serializer is the class {serializer.__name__}: pass an instance")
    if isinstance(serializer, Serializer):
        return serializer.serialize
    if callable(serializer):
        function = serializer
        return lambda value, _context: function(value)
    raise TypeError(
        f"{field}_serializer has a method serialize(value, context) or is a function of the value, not "
        f"{type(serializer).__name__}"
    )
