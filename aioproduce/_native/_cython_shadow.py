"""What the modules of this folder use of `cython`: for where Cython is not installed, and for mypy.

Cython is needed to build, never to run. An interpreted module that cannot import `cython` gets this in its
place; mypy always sees this, because Cython's own `cython` has no type information.

1. Decorators give back what they are given; a declaration declares nothing.
2. C types are the Python types that stand for them in interpreted code: a pointer to bytes is a bytearray.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")

compiled: bool = False

bint: TypeAlias = builtins.bool
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
uchar: TypeAlias = builtins.int
ulong: TypeAlias = builtins.int
double: TypeAlias = builtins.float
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
Py_ssize_t: TypeAlias = builtins.int
size_t: TypeAlias = builtins.int
void: TypeAlias = None
p_uchar: TypeAlias = builtins.bytearray
p_int: TypeAlias = builtins.memoryview
p_longlong: TypeAlias = builtins.memoryview


def _unchanged(target: _T) -> _T:
    return target


cclass = cfunc = inline = no_gc = _unchanged


def annotation_typing(_wanted: builtins.bool) -> Callable[[_T], _T]:
    """Whether annotations are C types: to an interpreted function they are not."""
    return _unchanged


def freelist(_size: builtins.int) -> Callable[[_T], _T]:
    """How many instances that died are kept, to be used again."""
    return _unchanged


def exceptval(_value: object = None, *, check: builtins.bool = False) -> Callable[[_T], _T]:
    """Name a C function's error value; an interpreted function just raises."""
    del check
    return _unchanged


def declare(_type: object = None, _value: Any = None) -> Any:
    """Declare a variable: in interpreted code, just its value."""
    return _value


def cast(_type: object, value: Any) -> Any:
    """Convert between C types; in interpreted code values keep their own."""
    return value
