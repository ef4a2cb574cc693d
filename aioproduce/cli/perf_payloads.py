"""What the records of `aioproduce perf` hold: random letters, lines of a file, or numbers.

Called by the run, some dozens at a time. All are made or drawn from a generator with a fixed seed, so that two runs
with the same options send the same bytes.

Invariants:

1. Making a payload must not be what is measured: letters are made before the run and handed out in turn. The pool
   is larger than what any codec looks back on within a batch, so they compress like fresh ones.
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
# 234 is nine times 26: what is above is left out, so that each letter is as likely as any other.
_EVEN: Final = 9 * len(_LETTERS)
_POOL_BYTES: Final = 4 * 1024 * 1024
# More than 2**28 bytes at once are an OverflowError of `randbytes`; whole words, so that the letters stay the same.
_DRAWN_BYTES: Final = 64 * 1024 * 1024
_POOL_RECORDS: Final = 65_536


class Payloads(Protocol):
    """Where values come from."""

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """The values of records `first` to before `first + count`; asked for in ascending order."""
        ...

    @property
    def largest(self) -> int:
        """Bytes of the largest there is."""
        ...

    @property
    def size(self) -> int:
        """Bytes of each, if all are of one size; else -1."""
        ...


@final
class RandomLetters:
    """Values of one size, of the letters A to Z, as Kafka's tool makes them.

    Args:
        size: Bytes of each.
        batch_size: The producer's `batch.size`: the pool is at least twice as large. A record that is larger than
            the pool need be is alone in it, and in each batch.
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
        values: What to draw from.
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
        count: How many there will be.
    """

    __slots__ = ("largest", "size")

    def __init__(self, count: int) -> None:
        self.largest: int = len(str(count - 1))
        self.size: int = -1

    def take(self, first: int, count: int) -> Sequence[bytes]:
        """As `Payloads` says."""
        return [b"%d" % number for number in range(first, first + count)]


def read_payloads(file: str, delimiter: str) -> list[bytes]:
    r"""The payloads of a file; the delimiter is a regular expression, as for Kafka's tool, `\n` a line's end.

    What stands before a delimiter at the very start, and behind one at the very end, is no payload.

    Raises:
        ConfigError: it cannot be read, or holds no payload, or the delimiter is no regular expression.
    """
    try:
        pattern = re.compile(delimiter.encode())
    except re.error as error:
        raise ConfigError(f"--payload-delimiter {delimiter!r} is no regular expression: {error}") from error
    if pattern.match(b"") is not None:
        raise ConfigError(
            f"--payload-delimiter {delimiter!r} matches nothing at all: give one or more characters"
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
