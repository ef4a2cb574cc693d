"""One target under atheris, in a process of its own: `python -m tests.fuzz.engine TARGET [libFuzzer's arguments]`.

Started by `campaign`. Only `aioproduce` is instrumented: its modules as they are imported, the readers that
`wire.reader` compiles as they are made, and what else a target names.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from io import StringIO
from random import Random
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import atheris

from tests.interpreted_finder import InterpretedNative

if TYPE_CHECKING:
    from tests.fuzz.target import Target


# Their compiled modules have no lines that the fuzzer could see. `_native` stays: a target may compare its builds.
_INTERPRETED = ("aioproduce.core", "aioproduce.drivers", "aioproduce.wire")


def main() -> None:
    """Load the target, instrumented, and hand over to libFuzzer, which ends the process."""
    name, *arguments = sys.argv[1:]
    # Nobody reads what is logged of a million lives.
    logging.getLogger("aioproduce").setLevel(logging.CRITICAL)
    sys.meta_path[:0] = map(InterpretedNative, _INTERPRETED)
    with redirect_stderr(StringIO()) as told, atheris.instrument_imports(include=["aioproduce"]):
        _instrument_compiled_readers()
        from tests.fuzz.target import load

        target = load(name)
    if "Instrumenting aioproduce" not in told.getvalue():
        sys.exit("nothing of aioproduce was instrumented: it was imported too early")
    for module in target.uninstrumented():
        _instrument(module)
    mutate = _mutator(target)
    options = {} if mutate is None else {"custom_mutator": mutate}
    atheris.Setup([f"fuzz:{name}", *arguments], target.run, internal_libfuzzer=True, **options)
    atheris.Fuzz()


def _instrument_compiled_readers() -> None:
    from aioproduce.wire import reader

    compile_reader = reader._compile

    def compile_instrumented(cls: type[Any]) -> Any:
        return atheris.instrument_func(compile_reader(cls))

    vars(reader)["_compile"] = compile_instrumented


def _instrument(module: ModuleType) -> None:
    for function in _functions(vars(module).values(), module.__name__):
        atheris.instrument_func(function)


def _functions(values: Iterable[object], module: str) -> Iterable[FunctionType]:
    for value in values:
        if isinstance(value, staticmethod):
            value = value.__func__
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield value
        elif isinstance(value, type) and value.__module__ == module:
            yield from _functions(vars(value).values(), module)


def _mutator(target: Target) -> Callable[[bytes, int, int], bytes] | None:
    mutate = target.mutate
    if mutate is None:
        return None
    return lambda data, largest, seed: mutate(data, largest, Random(seed), atheris.Mutate)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("start it by `python -m tests.fuzz`: with other hashes the same seed takes another way")
    main()
