"""The types of keys and values, for type checkers: bytes, or what the producer's serializers take.

Named by whatever sends. At run time they decide nothing, and cost nothing: `Producer[str, Order]` is `Producer`.
`typing.Generic` would note the types in the instance, whose `send` CPython 3.12 and later then look up for each
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.records import BytesLike

if TYPE_CHECKING:
    from typing import Generic as Generic

    from typing_extensions import TypeVar

    # What an annotation without them means, `Producer`: no serializers.
    K = TypeVar("K", contravariant=True, default=BytesLike)
    V = TypeVar("V", contravariant=True, default=BytesLike)
    # What a serializer takes; a lambda does not tell.
    KeyInput = TypeVar("KeyInput", default=Any)
    ValueInput = TypeVar("ValueInput", default=Any)
else:
    # Only what subscripts at run time is there then.
    K = V = None

    class Generic:
        """Takes the types, and forgets them."""

        __slots__ = ()

        def __class_getitem__(cls, types: object) -> type:
            """Return the class itself."""
            return cls
