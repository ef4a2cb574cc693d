"""The types of keys and values, for type checkers: bytes, or the input types of the producer's serializers.

Classes that send use them. At run time they have no effect and no cost: `Producer[str, Order]` is `Producer`.
`typing.Generic` would store the types in the instance, and CPython 3.12 and later would then look up its `send` for
each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.records import BytesLike

if TYPE_CHECKING:
    from typing import Generic as Generic

    from typing_extensions import TypeVar

    # Their defaults: a plain `Producer` annotation means no serializers.
    K = TypeVar("K", contravariant=True, default=BytesLike)
    V = TypeVar("V", contravariant=True, default=BytesLike)
    # Input types of the serializers; a lambda does not declare its own.
    KeyInput = TypeVar("KeyInput", default=Any)
    ValueInput = TypeVar("ValueInput", default=Any)
else:
    # At run time only the subscription must work.
    K = V = None

    class Generic:
        """Accepts type parameters and ignores them."""

        __slots__ = ()

        def __class_getitem__(cls, types: object) -> type:
            """Return the class itself."""
            return cls
