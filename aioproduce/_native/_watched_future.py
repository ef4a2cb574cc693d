"""The base of `DeliveryFuture`, as type checkers see it: one of asyncio's futures.

At run time `Watched` is that of `watcher`. asyncio accepts a delivery because it behaves like a future
(`asyncio.isfuture()`), and neither needs nor gets the class. Type checkers know only the class: without this base,
`asyncio.wait()` and whatever is annotated `asyncio.Future[RecordMetadata]` would refuse a delivery. So
`isinstance(delivery, asyncio.Future)` is False, whatever a type checker says of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import deprecated

    from aioproduce._native.watcher import Watched as _Watched
    from aioproduce.records import RecordMetadata

    class Watched(_Watched, asyncio.Future[RecordMetadata]):
        """What can be waited for, and is a future."""

        @deprecated("the producer alone settles a delivery")
        def set_result(self, result: RecordMetadata, /) -> None:
            """Not there: the producer alone settles a delivery."""

        @deprecated("the producer alone settles a delivery")
        def set_exception(self, exception: type | BaseException, /) -> None:
            """Not there: the producer alone settles a delivery."""

else:
    from aioproduce._native.watcher import Watched as Watched
