"""The plugins that run async tests, and what an async test and fixture look like under each."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class Backend:
    """One of them.

    Attributes:
        name: For the test's id.
        arguments: With which the inner pytest is run: other plugins that would take the tests are left out.
        header: What each test file begins with.
        fixture: The decorator of an async fixture.
    """

    name: str
    arguments: tuple[str, ...]
    header: str
    fixture: str

    def source(self, tests: str) -> str:
        """A test file for it."""
        header = dedent(self.header).strip()
        return f"{header}\n\n{dedent(tests).strip()}\n".replace("@async_fixture", f"@{self.fixture}")


ASYNCIO_AUTO: Final = Backend(
    "asyncio-auto",
    ("-p", "no:trio", "-o", "asyncio_mode=auto"),
    "import pytest, pytest_asyncio",
    "pytest_asyncio.fixture",
)
ASYNCIO_STRICT: Final = Backend(
    "asyncio-strict",
    ("-p", "no:trio", "-o", "asyncio_mode=strict"),
    "import pytest, pytest_asyncio\n\npytestmark = pytest.mark.asyncio",
    "pytest_asyncio.fixture",
)
ANYIO_ASYNCIO: Final = Backend(
    "anyio-asyncio",
    ("-p", "no:trio", "-p", "no:asyncio"),
    """
    import pytest

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend():
        return "asyncio"
    """,
    "pytest.fixture",
)
ANYIO_TRIO: Final = Backend(
    "anyio-trio",
    ("-p", "no:trio", "-p", "no:asyncio"),
    ANYIO_ASYNCIO.header.replace('"asyncio"', '"trio"'),
    "pytest.fixture",
)
PYTEST_TRIO: Final = Backend(
    "pytest-trio",
    ("-p", "no:asyncio"),
    "import pytest, pytest_trio\n\npytestmark = pytest.mark.trio",
    "pytest_trio.trio_fixture",
)

ON_ASYNCIO: Final = (ASYNCIO_AUTO, ASYNCIO_STRICT, ANYIO_ASYNCIO)
ON_TRIO: Final = (ANYIO_TRIO, PYTEST_TRIO)
