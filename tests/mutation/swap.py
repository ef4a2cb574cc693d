"""Put a mutant's code into the functions that are there.

The `__code__` of a function is replaced, so that every reference sees the change: imports by name, tables, bound
methods, properties, the inside of decorators. The functions are found among all objects, by their code.

Only for a process that ends afterwards: nothing puts the code back.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from tests.mutation.mutants import mutated_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.mutation.mutants import Mutant

    Functions = dict[tuple[str, str], list[FunctionType]]


class NotSwappableError(Exception):
    """A mutant cannot be put in place of the function, or is the same code."""


def functions_of(paths: Iterable[Path]) -> Functions:
    """All functions of these files that exist now: by file and qualified name."""
    files = {str(path) for path in paths}
    found: Functions = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return dict(found)


def swap(mutant: Mutant, functions: Functions) -> None:
    """Make the functions in this process those of the mutant."""
    name = mutant.unit
    present = functions.get((str(mutant.path), name), [])
    if not present:
        raise NotSwappableError(f"no function {name} in this process")
    code = _code_of(mutated_code(mutant), present[0].__code__)
    for function in present:
        if code.co_freevars != function.__code__.co_freevars:
            raise NotSwappableError(f"{name} would close over other names")
        function.__code__ = code


def _code_of(module: CodeType, original: CodeType) -> CodeType:
    for code in _codes(module):
        if (code.co_qualname, code.co_firstlineno) == (original.co_qualname, original.co_firstlineno):
            return code
    raise NotSwappableError(f"no code of {original.co_qualname}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
