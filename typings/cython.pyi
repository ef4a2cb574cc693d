# For mypy, which finds no types in Cython's own module. C types are the Python types that stand for them in
# interpreted code: a pointer to bytes is a bytearray.
import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")

compiled: bool

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

def cclass(target: _T) -> _T: ...
def cfunc(target: _T) -> _T: ...
def inline(target: _T) -> _T: ...
def no_gc(target: _T) -> _T: ...
def annotation_typing(_wanted: builtins.bool) -> Callable[[_T], _T]: ...
def freelist(_size: builtins.int) -> Callable[[_T], _T]: ...
def exceptval(_value: object = None, *, check: builtins.bool = False) -> Callable[[_T], _T]: ...
def declare(_type: object = None, _value: Any = None) -> Any: ...
def cast(_type: object, value: Any) -> Any: ...
