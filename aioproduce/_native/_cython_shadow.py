"""What the modules of this folder call of `cython`, for where Cython is not installed: only a build needs it.

Decorators give back what they are given; a declared or converted value keeps its own type. C types stand in
annotations, which nobody evaluates: `typings/cython.pyi` has them, for mypy.
"""

from __future__ import annotations

from typing import Any

compiled = False


def __getattr__(_name: str) -> object:
    """A C type."""
    return object


def _unchanged(target: Any) -> Any:
    return target


def _decorator(*_arguments: object, **_options: object) -> Any:
    return _unchanged


def cast(_type: object, value: Any) -> Any:
    """The value."""
    return value


cclass = cfunc = inline = no_gc = _unchanged
annotation_typing = exceptval = freelist = _decorator
declare = cast
