"""A codec for tests: gzip members that hold the records as they are, so that sizes stay what they were.

How long it takes is what the test says: the core goes by `cost()`, and nothing here takes time.
"""

from __future__ import annotations

import zlib

LONG = 1.0
"""Seconds: far more than a hand-over. Two batches of that are all that other threads are given."""
SHORT = 1e-6


class StoredCodec:
    """Gzip of level 0.

    Args:
        cost: Seconds that each batch takes.
        cost_of_byte: Seconds on top for each byte.
    """

    id = 1
    name = "gzip"

    def __init__(self, cost: float = LONG, cost_of_byte: float = 0.0) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self._cost = cost
        self._cost_of_byte = cost_of_byte

    def compress(self, data: bytes | bytearray | memoryview, /) -> bytes:
        self.calls += 1
        if self.error is not None:
            raise self.error
        stream = zlib.compressobj(0, wbits=31)
        return stream.compress(data) + stream.flush()

    def cost(self, size: int, /) -> float:
        return self._cost + size * self._cost_of_byte
