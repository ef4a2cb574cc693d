"""A mutant's code takes the place of the function, wherever that is referred to."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.swap import NotSwappableError, functions_of, swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = """
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Base:
    count: int = 0

    def step(self):
        return self.count + 1


class Counter(Base):
    @property
    def doubled(self):
        return self.count * 2

    @classmethod
    def of(cls, count):
        return cls(count + 10)

    @staticmethod
    def plain(count):
        return count + 100

    def step(self):
        return super().step() + 20

    async def later(self):
        return self.count + 1000

    def each(self):
        yield self.count + 1


@contextmanager
def within(value):
    yield value + 5


def make(by):
    def add(value):
        return value + by

    return add


TABLE = {"make": make}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mutation_swap_example.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture
def example(path: Path) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


def mutant(path: Path, beginning: str) -> Mutant:
    (found,) = (each for each in mutants_of("example", path) if each.name.startswith(f"example:{beginning}"))
    return found


def test_every_reference_sees_the_change(path: Path, example: Any) -> None:
    functions = functions_of([path])
    counter, bound, table = example.Counter(3), example.Counter(3).step, example.TABLE["make"]
    assert [counter.doubled, example.Counter.of(1).count, counter.plain(1), bound()] == [6, 11, 101, 24]
    for name in (
        "Counter.doubled arithmetic",
        "Counter.of arithmetic",
        "Counter.plain arithmetic",
        "Counter.step arithmetic",
        "Counter.each arithmetic",
        "Counter.later arithmetic",
        "Base.step arithmetic",
        "within arithmetic",
        "make.add arithmetic",
    ):
        swap(mutant(path, name), functions)
    assert [counter.doubled, example.Counter.of(1).count, counter.plain(1)] == [1, -9, -99]
    assert bound() == (3 - 1) - 20
    assert list(counter.each()) == [2]
    with example.within(7) as value:
        assert value == 2
    assert table(1)(10) == 9
    with pytest.raises(StopIteration) as ended:
        counter.later().send(None)
    assert ended.value.value == 3 - 1000


def test_a_function_that_is_not_there_cannot_be_swapped(path: Path, example: Any) -> None:
    functions = functions_of([path])
    functions.pop((str(path), "make"))
    with pytest.raises(NotSwappableError, match="no function make"):
        swap(mutant(path, "make.add arithmetic"), functions)


def test_a_method_that_would_close_over_nothing_cannot_be_swapped(path: Path, example: Any) -> None:
    functions = functions_of([path])
    with pytest.raises(NotSwappableError, match="close over"):
        swap(mutant(path, "Counter.step returned"), functions)
