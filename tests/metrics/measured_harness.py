"""A `SenderHarness` that keeps its own books of what went over the wire, to hold the metrics against.

What is counted here is counted on the brokers' side: the bytes that reached them and those that they wrote, batches
as another decoder reads them, and instants of the harness's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from aioproduce.metrics import GAUGES, MetricsSnapshot, snapshot
from aioproduce.testing.fake_cluster.encoding import encode_response
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.sender_wire import Request, SentBatch

BATCH_HEADER = 61
"""Bytes of a record batch before its records: the message format, version 2."""


@dataclass(frozen=True)
class Transfer:
    """Bytes of one request or one answer, the four that tell its length included."""

    node_id: int
    size: int


class MeasuredHarness(SenderHarness):
    """A harness with books: `requests_seen` and `answers_written`."""

    def __init__(self, **settings: Any) -> None:
        self.requests_seen: list[Transfer] = []
        self.answers_written: list[Transfer] = []
        super().__init__(**settings)
        self.metrics.gauges = dict.fromkeys(GAUGES, lambda _: nan)

    def _receive(self, connection_id: int, data: bytes) -> None:
        self.requests_seen.append(Transfer(self.connections[connection_id], len(data)))
        super()._receive(connection_id, data)

    def reply(self, request: Request, body: Mapping[str, Any], *, run: bool = True) -> None:
        frame = encode_response(request.api, request.version, request.correlation_id, body)
        self.answers_written.append(Transfer(self.connections[request.connection_id], 4 + len(frame)))
        super().reply(request, body, run=run)

    def read(self) -> MetricsSnapshot:
        """The metrics now."""
        info: dict[str, str | float] = {"version": "0", "commit-id": "0", "start-time-ms": 0.0}
        return snapshot(self.metrics, "harness", info, self.now, int(self.now * 1000))

    @property
    def attempts(self) -> list[Request]:
        """Every Produce request that reached a broker."""
        return [request for request in self.history if request.api == PRODUCE]

    @property
    def batches(self) -> list[SentBatch]:
        """Every batch that reached a broker, each attempt counted."""
        return [batch for request in self.attempts for batch in request.batches.values()]


def record_sizes(batch: bytes) -> list[int]:
    """The bytes of each record of an uncompressed batch, its own length field included."""
    sizes, place = [], BATCH_HEADER
    while place < len(batch):
        length, end = _varint(batch, place)
        sizes.append(end - place + length)
        place = end + length
    assert place == len(batch)
    return sizes


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
