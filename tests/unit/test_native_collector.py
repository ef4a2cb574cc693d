"""`collector`: a compiled build hides an object from the garbage collector, an interpreted one leaves it."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.native_builds import BUILDS, is_compiled, native_module


class Leaf:
    """A thing that the collector looks at."""


@pytest.mark.parametrize("build", BUILDS)
def test_untrack(build: str) -> None:
    collector = native_module("collector", build)
    leaf = Leaf()
    collector.untrack(leaf)
    assert gc.is_tracked(leaf) is not is_compiled(collector)


@pytest.mark.parametrize("build", BUILDS)
def test_what_is_hidden_dies_as_before(build: str) -> None:
    collector = native_module("collector", build)
    leaf = Leaf()
    died = weakref.ref(leaf)
    collector.untrack(leaf)
    collector.untrack(leaf)
    del leaf
    assert died() is None
