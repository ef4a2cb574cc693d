"""What the modules of this folder use of `cython`: for type checkers, and where Cython is not installed.

Only a build needs Cython. Type checkers never see Cython's own module: an editor reads the same types wherever the
package is installed. A C type is the Python type that stands for it in interpreted code: a pointer to bytes is a
bytearray. Decorators return what they are given. A declared or converted value keeps its own type.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

_T = TypeVar("_T")

compiled: Final = False

bint: TypeAlias = builtins.bool
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
uchar: TypeAlias = builtins.int
double: TypeAlias = builtins.float
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
Py_ssize_t: TypeAlias = builtins.int
void: TypeAlias = None
p_uchar: TypeAlias = builtins.bytearray
p_int: TypeAlias = builtins.memoryview
p_longlong: TypeAlias = builtins.memoryview


def _unchanged(target: _T) -> _T:
    return target


def cclass(target: _T) -> _T:
    """Make the class an extension type."""
    return target


def cfunc(target: _T) -> _T:
    """Make the function a C function."""
    return target


def inline(target: _T) -> _T:
    """Let C inline the function."""
    return target


def no_gc(target: _T) -> _T:
    """Hide the class from the garbage collector."""
    return target


def annotation_typing(_wanted: builtins.bool) -> Callable[[_T], _T]:
    """Take annotations for C types, or do not."""
    return _unchanged


def freelist(_size: builtins.int) -> Callable[[_T], _T]:
    """Keep the memory of some instances for the next ones."""
    return _unchanged


def exceptval(_value: object = None, *, check: builtins.bool = False) -> Callable[[_T], _T]:  # noqa: ARG001
    """Say which result of a C function means an exception."""
    return _unchanged


def declare(_type: type[_T], value: Any = None) -> _T:
    """Return the value."""
    unchanged: _T = value
    return unchanged


def cast(_type: type[_T], value: Any) -> _T:
    """Return the value."""
    unchanged: _T = value
    return unchanged
