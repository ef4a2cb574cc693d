"""A fake registry per test, and the backends that everything without a producer runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    """A registry of the test's own, over HTTP."""
    with FakeSchemaRegistry() as started:
        yield started


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked here is on the loopback, whatever the machine's environment says of proxies."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(autouse=True)
def confluents_clients() -> Iterator[None]:
    """Whatever the test opened of them is closed."""
    yield
    confluent.close_all()


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """For `anyio.run(..., backend=backend)`."""
    name: str = request.param
    return name
