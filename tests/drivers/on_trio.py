"""The same test under trio: a function that runs its body there, in addition to the one that pytest-asyncio runs.

Made by `conftest.py` of each `async def test_...` of a module `test_producer_*`, but those marked `asyncio_only`. A
fixture that lives on the test's own loop has one for trio, aside: `ASIDE`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from tests.drivers.concurrency import in_nursery, senders

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ASIDE: Final = {"cluster": "cluster_on_thread", "nothing_left": None}
"""Fixtures on asyncio's loop: what stands for them under trio."""


def under_trio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test function of a coroutine function."""
    signature = inspect.signature(test)
    names = {name: ASIDE.get(name, name) for name in signature.parameters}

    def run(**fixtures: Any) -> None:
        del fixtures["backend"]
        given = {name: None if aside is None else fixtures[aside] for name, aside in names.items()}

        async def main() -> None:
            async with in_nursery():
                await test(**given)
            await _ended()

        trio.run(main)

    parameters = [inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY)]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names.values() if name]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(run, name, getattr(test, name))
    run.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("backend", ["trio"])(run)
    return marked


async def _ended() -> None:
    """A producer that was killed or closed has left no task, or leaves none within some turns of the loop."""
    while senders():  # noqa: ASYNC110 (a hang is the failure)
        await trio.sleep(0.001)
