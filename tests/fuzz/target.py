"""What a fuzz target is, and where each one is found.

Used by the engine (which instruments `aioproduce` before a target's module is imported), by the replay of the
corpus and by `distil`.

1. `run` is a plain function of the bytes: the same bytes give the same outcome, with atheris or without it,
   whatever ran before in the process.
2. Whatever `run` raises is a finding.
"""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Final, TypeAlias, final

Mutate: TypeAlias = Callable[[bytes, int, Random, Callable[[bytes, int], bytes]], bytes]
"""`(data, largest size, chance, the engine's own mutation)` -> other data."""

CORPUS: Final = Path(__file__).parent / "corpus"

_MODULES: Final = {
    "frames": "frames",
    "produce_response": "responses",
    "metadata_response": "responses",
    "api_versions_response": "responses",
    "init_producer_id_response": "responses",
    "plain_produce": "plain_produce",
    "requests": "requests",
    "connection": "connection",
    "sender": "sender",
    "fake_cluster": "fake_cluster",
    "record_batch": "record_batch",
    "codecs": "codecs",
    "properties": "properties",
    "columns": "columns",
    "tls_channel": "tls_channel",
    "jaas": "jaas",
    "sasl_plain_oauthbearer": "sasl",
    "sasl_scram": "sasl",
    "sasl_gssapi": "sasl_gssapi",
}
"""Name of the target -> the module below `tests.fuzz.targets` that makes it."""

NAMES: Final = tuple(_MODULES)


@final
@dataclass(frozen=True, slots=True)
class Target:
    """One function that takes any bytes.

    Attributes:
        run: Tries them; raises where the target's invariant is broken.
        seeds: Initial inputs in addition to the corpus: mostly valid bytes of correct peers.
        max_size: Longer inputs find nothing more.
        mutate: A mutation that knows the input's structure, in turn with the engine's own.
        uninstrumented: Modules whose functions are yet to be instrumented: not found by the import hook.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    max_size: int = 512
    mutate: Mutate | None = None
    uninstrumented: Callable[[], Iterable[ModuleType]] = tuple


def load(name: str) -> Target:
    """The target of that name; its module is imported now."""
    module = importlib.import_module(f"tests.fuzz.targets.{_MODULES[name]}")
    target = module.TARGETS[name]
    assert isinstance(target, Target)
    return target


def corpus_of(name: str) -> list[Path]:
    """The files of a target's corpus, in a fixed order."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())


@final
class Source:
    """Takes an input apart, piece by piece; past its end there are zeros.

    Args:
        data: The input.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, stop: int) -> int:
        """A number from 0 to `stop` - 1, at most 256 of them."""
        return self.byte() % stop

    def take(self, size: int) -> bytes:
        """The next bytes, fewer where there are no more."""
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))


@final
class MemoryBound:
    """Fails where the block took more Python memory at its peak than its input accounts for.

    Args:
        size: Bytes of the input.
        factor: Bytes of memory for each; Python's smallest objects take some tens of bytes.
        constant: Bytes that need no input.
    """

    __slots__ = ("_limit", "_size")

    def __init__(self, size: int, *, factor: int, constant: int = 16 * 1024) -> None:
        self._size = size
        self._limit = constant + factor * size

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, kind: object, *_: object) -> None:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()  # left on, all that comes after takes twice the time
        if kind is None:
            assert taken <= self._limit, f"{taken} bytes of memory for {self._size} bytes of input"
