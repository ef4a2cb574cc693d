"""Every exception class of the package, found by looking, and one error of each with a value in every attribute.

For the tests of errors and of the page on them: a class that is added later is in them at once.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Final

import aioproduce
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.errors import ProducerError, TransactionOutcome
from aioproduce.records import TopicPartition

PACKAGE: Final = Path(aioproduce.__file__).parent

# By annotation. A live value (a future, say) has a sample in the tests that are about those.
SAMPLES: Final = MappingProxyType(
    {
        "str": "a text",
        "str | None": "another text",
        "int": 42,
        "int | None": 43,
        "float": 0.5,
        "bool": True,
        "object": ("any", "object"),
        "TopicPartition": TopicPartition("orders", 3),
        "tuple[int, int]": (0, 9),
        "tuple[int, int] | None": (3, 7),
        "tuple[tuple[int, str], ...]": ((0, "bad"),),
        "Sequence[str]": ["one", "two"],
        "Mapping[str, str]": {"localhost:9092": "refused"},
        "Sequence[Awaitable[RecordMetadata]]": [],
        "Awaitable[RecordMetadata]": None,
        "Recover": "call again",
        "TransactionOutcome | None": TransactionOutcome.ABORTED,
        "ExitCode": ExitCode.BAD_INPUT,
    }
)


def modules_with_errors() -> list[str]:
    """The modules that define an exception, by what their source looks like."""
    defines = re.compile(r"^class \w+\(.*(?:Error|Exception)", re.MULTILINE)
    return [
        ".".join(("aioproduce", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in sorted(PACKAGE.rglob("*.py"))
        if defines.search(path.read_text())
    ]


def known_classes() -> set[type[BaseException]]:
    """Every exception class of the modules that are loaded by now."""

    def below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
        for derived in kind.__subclasses__():
            yield derived
            yield from below(derived)

    # From CPython 3.12 on, results are given by a StopIteration of our own, which is no error.
    ours = (kind for kind in below(BaseException) if kind.__module__.partition(".")[0] == "aioproduce")
    return {kind for kind in ours if not issubclass(kind, StopIteration)}


def all_classes() -> list[type[BaseException]]:
    """Every exception class of the package, by name."""
    for module in modules_with_errors():
        importlib.import_module(module)
    return sorted(known_classes(), key=lambda kind: (kind.__module__, kind.__name__))


def public_errors() -> list[type[ProducerError]]:
    """Those that a user meets: all that derive from `ProducerError` and are not private."""
    return [
        kind
        for kind in all_classes()
        if issubclass(kind, ProducerError) and not kind.__name__.startswith("_")
    ]


def parameters_of(kind: type[BaseException]) -> list[inspect.Parameter]:
    """What its `__init__` takes; nothing is known of those of C."""
    init: object = kind.__init__
    return list(inspect.signature(init).parameters.values())[1:] if isinstance(init, FunctionType) else []


def keywords_of(kind: type[BaseException]) -> dict[str, object]:
    """A value for each of the class's own attributes, as its `__init__` names them."""
    return {
        parameter.name: SAMPLES[parameter.annotation]
        for parameter in parameters_of(kind)
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def sample_of(kind: type[BaseException]) -> BaseException:
    """An error of the class with a message, and a value in each attribute."""
    positional: list[object] = [
        SAMPLES[parameter.annotation]
        for parameter in parameters_of(kind)
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if not isinstance(kind.__init__, FunctionType):
        positional = ["the message"]
    return kind(*positional, **keywords_of(kind))
