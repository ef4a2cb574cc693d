"""The base of `DeliveryFuture` for type checkers: a future of asyncio.

At run time `Watched` is the class of `watcher`. asyncio accepts a delivery because it behaves like a future
(`asyncio.isfuture()`), and neither needs nor gets the class. Type checkers know only the class: without this base,
they would refuse a delivery for `asyncio.wait()` and for parameters of `asyncio.Future[RecordMetadata]`. At run
time `isinstance(delivery, asyncio.Future)` is False, although type checkers take it as True.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import deprecated

    from aioproduce._native.watcher import Watched as _Watched
    from aioproduce.records import RecordMetadata

    class Watched(_Watched, asyncio.Future[RecordMetadata]):
        """An outcome that tasks can wait for, as a future."""

        @deprecated("the producer alone settles a delivery")
        def set_result(self, result: RecordMetadata, /) -> None:
            """Does not exist: only the producer settles a delivery."""

        @deprecated("the producer alone settles a delivery")
        def set_exception(self, exception: type | BaseException, /) -> None:
            """Does not exist: only the producer settles a delivery."""

else:
    from aioproduce._native.watcher import Watched as Watched
