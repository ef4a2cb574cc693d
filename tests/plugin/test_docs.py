"""`docs/how-to/testing.md` and `examples/test_with_plugin.py` run as they stand."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.gate.marks import others_extended
from tests.plugin.backends import ANYIO_ASYNCIO, ASYNCIO_AUTO, ASYNCIO_STRICT, PYTEST_TRIO, Backend
from tests.plugin.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "testing.md").read_text()
FILES = dict(re.findall(r"```python\n# (test_\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
EXAMPLE = REPOSITORY / "examples" / "test_with_plugin.py"


def test_every_program_of_the_page_is_found() -> None:
    assert len(FILES) == PAGE.count("```python\n# test_") == 9


@pytest.mark.parametrize(
    "backend",
    others_extended(
        [ANYIO_ASYNCIO, ASYNCIO_STRICT, PYTEST_TRIO], keep=[ASYNCIO_STRICT], reason="runs pytest in a process"
    ),
    ids=lambda each: each.name,
)
@pytest.mark.extended("runs pytest in a process; the example stays in the gate")
def test_the_page(
    backend: Backend, pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    ours = {ANYIO_ASYNCIO: "test_anyio", PYTEST_TRIO: "test_trio"}
    names = [name for name in FILES if name not in ours.values()]
    if backend in ours:
        names = [ours[backend]]
    pytester.makepyfile(**{name: FILES[name] for name in names})

    result = run_pytest(*backend.arguments)

    result.assert_outcomes(passed=sum(FILES[name].count("def test_") for name in names))


@pytest.mark.extended("runs pytest in a process")
def test_the_message_that_is_shown(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(FILES["test_anyio"].replace('json={"id": 42}', 'json={"id": 43}'))
    shown = re.search(r"```text\nAssertionError: (.*?)\n```", PAGE, re.DOTALL)
    assert shown

    result = run_pytest(*ANYIO_ASYNCIO.arguments)

    result.assert_outcomes(failed=1)
    for line in shown[1].splitlines():
        assert re.sub(r"partition \d", "partition 3", line.strip()) in re.sub(
            r"partition \d", "partition 3", result.stdout.str()
        )


@pytest.mark.parametrize(
    "backend",
    others_extended([ANYIO_ASYNCIO, ASYNCIO_AUTO], keep=[ASYNCIO_AUTO], reason="runs pytest in a process"),
    ids=lambda each: each.name,
)
def test_the_example(
    backend: Backend, pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    """By anyio, as it says, and where pytest-asyncio takes every async test, as in this repository."""
    pytester.makepyfile(test_with_plugin=EXAMPLE.read_text())

    run_pytest(*backend.arguments).assert_outcomes(passed=5)
