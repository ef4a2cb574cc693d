"""The values of the records of `aioproduce perf`: random letters, lines of a file, or numbers.

Called by the run, for some dozens at a time. All are made or drawn from a generator with a fixed seed, so that two
runs with the same options send the same bytes.

Invariants:

1. The run must not measure the making of payloads: letters are made before it, and used in turn. The pool is larger
   than the window of any codec within a batch, so they compress like fresh ones.
2. The payloads of a file are its bytes between delimiters, unchanged, whatever their encoding.
"""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED: Final = 0
_LETTERS: Final = bytes(range(ord("A"), ord("Z") + 1))
# 234 is nine times 26: larger bytes are left out, so that all letters are equally likely.
_EVEN: Final = 9 * len(_LETTERS)
_POOL_BYTES: Final = 4 * 1024 * 1024
# `randbytes` raises OverflowError above 2**28 bytes. Whole words, so that the letters stay the same.
_DRAWN_BYTES: Final = 64 * 1024 * 1024
_POOL_RECORDS: Final = 65_536


class Payloads(Protocol):
    """A source of values."""

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """Return the values of `count` records from number `first` on; called in ascending order."""
        ...

    @property
    def largest(self) -> int:
        """Bytes of the largest value."""
        ...

    @property
    def size(self) -> int:
        """Bytes of each value if all have one size, else -1."""
        ...


@final
class RandomLetters:
    """Values of one size, of the letters A to Z, as Kafka's tool makes them.

    Args:
        size: Bytes of each.
        batch_size: The producer's `batch.size`: the pool is at least twice as large. A record larger than that is
            alone in the pool, and in each batch.
    """

    __slots__ = ("_pool", "largest", "size")

    largest: int
    size: int

    def __init__(self, size: int, batch_size: int) -> None:
        self.largest = self.size = size
        count = min(-(-max(_POOL_BYTES, 2 * batch_size) // size), _POOL_RECORDS)
        letters = memoryview(_random_letters(size * count))
        self._pool = [bytes(letters[place : place + size]) for place in range(0, size * count, size)]

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """As `Payloads` says."""
        pool = self._pool
        place = first % len(pool)
        taken = pool[place : place + count]
        while len(taken) < count:
            taken += pool[: count - len(taken)]
        return taken


def _random_letters(count: int) -> bytearray:
    generator = random.Random(_SEED)
    table = bytes(_LETTERS[byte % len(_LETTERS)] for byte in range(256))
    left_out = bytes(range(_EVEN, 256))
    letters = bytearray()
    while len(letters) < count:
        missing = count - len(letters)
        drawn = min(missing + missing // 8 + 64, _DRAWN_BYTES)
        letters += generator.randbytes(drawn).translate(table, left_out)
    return letters


@final
class DrawnPayloads:
    """Values of a file, one drawn at random for each record.

    Args:
        values: The values to draw from.
    """

    __slots__ = ("_generator", "_values", "largest", "size")

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values
        self._generator = random.Random(_SEED)
        self.largest: int = max(map(len, values))
        self.size: int = -1

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """As `Payloads` says."""
        del first
        return self._generator.choices(self._values, k=count)


@final
class Numbers:
    """The records' numbers, from 0, in decimal.

    Args:
        count: The number of records.
    """

    __slots__ = ("largest", "size")

    def __init__(self, count: int) -> None:
        self.largest: int = len(str(count - 1))
        self.size: int = -1

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """As `Payloads` says."""
        return [b"%d" % number for number in range(first, first + count)]


def read_payloads(file: str, delimiter: str) -> list[bytes]:
    r"""Return the payloads of a file.

    The delimiter is a regular expression, as for Kafka's tool; `\n` is a line end. There is no payload before a
    delimiter at the very start, nor after one at the very end.

    Raises:
        ConfigError: if the file cannot be read or holds no payload, or the delimiter is no regular expression.
    """
    try:
        pattern = re.compile(delimiter.encode())
    except re.error as error:
        raise ConfigError(f"--payload-delimiter {delimiter!r} is no regular expression: {error}") from error
    if pattern.match(b"") is not None:
        raise ConfigError(
            f"--payload-delimiter {delimiter!r} matches the empty string: give one or more characters"
        )
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read --payload-file {file}: {error.strerror or error}") from error
    ends = [(0, 0)] if content else []
    ends += [match.span() for match in pattern.finditer(content)]
    if content and (not ends or ends[-1][1] < len(content)):
        ends.append((len(content), len(content)))
    payloads = [content[before[1] : after[0]] for before, after in itertools.pairwise(ends)]
    if payloads and ends[1][0] == 0:
        del payloads[0]
    if not payloads:
        raise ConfigError(
            f"--payload-file {file} holds no payload: put one or more into it, separated by the delimiter (by "
            "default a line's end)"
        )
    return payloads
