"""The ways in which asyncio cancels a coroutine, for `test_cancellation` and `test_cancellation_transactions`.

Each runs a call to its end, and has `Progress.fire` cancel it at the moment that is asked for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio

from aioproduce.errors import DeliveryError
from tests.simulation.cancelling import Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.cancelling import Progress, Way


async def by_cancel(progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Cancel its task, once."""
    task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(Observed(call(), progress), name="call")
    progress.fire = task.cancel
    await asyncio.wait([task])
    return await task


async def _again_and_again(progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Cancel its task at each suspension from then on."""
    progress.repeats = True
    return await by_cancel(progress, call)


async def by_timeout(progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """By a scope of asyncio's whose time is over."""
    async with asyncio.timeout(None) as scope:
        progress.fire = lambda: scope.reschedule(asyncio.get_running_loop().time())
        return await Observed(call(), progress)


async def by_task_group(progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """By a sibling that fails."""

    class SiblingFailed(Exception):
        pass

    ended = asyncio.get_running_loop().create_future()

    def fail() -> None:
        if not ended.done():
            ended.set_exception(SiblingFailed())

    async def sibling() -> None:
        await ended

    progress.fire = fail
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sibling())
            task: asyncio.Task[Any] = group.create_task(Observed(call(), progress))
            await asyncio.wait([task])
            if not ended.done():
                ended.set_result(None)
    except* (SiblingFailed, DeliveryError):
        pass
    return await task


async def by_cancel_scope(progress: Progress, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """anyio's cancels again and again."""
    with anyio.CancelScope() as scope:
        progress.fire = scope.cancel
        progress.repeats = True
        return await Observed(call(), progress)
    raise asyncio.CancelledError  # as `_outcome()` wants to hear it


WAYS: dict[str, Way] = {
    "cancel": by_cancel,
    "cancel again and again": _again_and_again,
    "timeout": by_timeout,
    "task group": by_task_group,
    "cancel scope": by_cancel_scope,
}
