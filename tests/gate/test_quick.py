"""What `make quick` runs for which change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gate.quick import EVERYTHING, REPOSITORY, Choice, changed_files, choose
from tests.reach import ReachMap, read_map, write_map

if TYPE_CHECKING:
    from pathlib import Path

REACH = ReachMap(
    {
        "aioproduce/blocking/pump.py": ["tests/blocking/test_room.py", "tests/drivers/test_all.py"],
        "aioproduce/cli/send.py": ["tests/cli/test_send.py"],
        "aioproduce/producer/producer.py": ["tests/cli/test_send.py", "tests/drivers/test_all.py"],
    },
    {"tests/blocking/test_room.py": 3.0, "tests/cli/test_send.py": 5.0, "tests/drivers/test_all.py": 20.0},
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The test files of `REACH`, and one that names a page."""
    for tests in REACH.by_source.values():
        for test in tests:
            (tmp_path / test).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / test).write_text("")
    (tmp_path / "tests" / "blocking" / "test_docs.py").write_text('PAGE = "docs/how-to/blocking.md"')
    return tmp_path


def test_a_module_runs_what_reaches_it_the_narrowest_first(tree: Path) -> None:
    choice = choose(["aioproduce/blocking/pump.py"], REACH, root=tree)

    assert choice == Choice(["tests/blocking/test_room.py", "tests/drivers/test_all.py"])


def test_what_does_not_fit_is_left_out_and_named(tree: Path) -> None:
    choice = choose(["aioproduce/blocking/pump.py"], REACH, root=tree, seconds=10.0)

    assert choice == Choice(["tests/blocking/test_room.py"], ["tests/drivers/test_all.py"])


def test_a_test_file_runs_itself_and_first(tree: Path) -> None:
    choice = choose(["tests/drivers/test_all.py", "aioproduce/cli/send.py"], REACH, root=tree)

    assert choice == Choice(["tests/drivers/test_all.py", "tests/cli/test_send.py"])


@pytest.mark.parametrize(
    "path", ["aioproduce/core/sender.py", "aioproduce/wire/reader.py", "aioproduce/_native/x.py"]
)
def test_what_concerns_everything_runs_the_fixed_slice(tree: Path, path: str) -> None:
    choice = choose([path, "tests/cli/test_send.py"], REACH, root=tree)

    assert choice == Choice(["tests/cli/test_send.py", *EVERYTHING])


def test_a_page_runs_the_tests_that_name_it(tree: Path) -> None:
    assert choose(["docs/how-to/blocking.md"], REACH, root=tree) == Choice(["tests/blocking/test_docs.py"])


def test_a_module_that_is_new_runs_the_tests_that_name_it(tree: Path) -> None:
    (tree / "tests" / "cli" / "test_new.py").write_text("from aioproduce.cli.new import main")

    assert choose(["aioproduce/cli/new.py"], REACH, root=tree) == Choice(["tests/cli/test_new.py"])


def test_test_files_of_old_records_that_are_gone_are_left_out(tree: Path) -> None:
    (tree / "tests" / "cli" / "test_send.py").unlink()

    assert choose(["aioproduce/cli/send.py"], REACH, root=tree) == Choice([], ["tests/cli/test_send.py"])


def test_the_fixed_slice_is_there() -> None:
    assert [path for path in EVERYTHING if not (REPOSITORY / path).exists()] == []


def test_a_revision_that_there_is_not_is_an_error() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    with pytest.raises(OSError, match="no-such-revision"):
        changed_files("no-such-revision")


def test_the_map_comes_back_from_its_file(tmp_path: Path) -> None:
    write_map(REACH, tmp_path / "reach.json")

    assert read_map(tmp_path / "reach.json") == REACH
