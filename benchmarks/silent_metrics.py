"""Sensors that keep nothing: the cost of recording metrics is the difference to a producer with these.

Used by `recording.py`, which measures time, and by `tests/budget/program.py`, which counts instructions.

1. Clocks are read and sensors are called as always; only a sensor's work on its arguments is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aioproduce._native.sensors import BatchMetrics, NodeMetrics
from aioproduce.metrics import ProducerMetrics


class _SilentBatches(BatchMetrics):
    """The calls of `BatchMetrics` for each batch, which keep nothing."""

    def batch_sent(
        self, topic_name: str, count: int, whole: int, largest: int, size: int, queued: float, now: float
    ) -> None:
        """Nothing."""

    def request_sent(self, count: int, now: float) -> None:
        """Nothing."""

    def batch_retried(self, topic_name: str, count: int, now: float) -> None:
        """Nothing."""

    def batch_ended(
        self, created_at: float, closed_at: float, sent_at: float, failed_at: float, now: float
    ) -> None:
        """Nothing."""

    def batch_failed(self, topic_name: str, count: int, now: float) -> None:
        """Nothing."""


class _SilentNode(NodeMetrics):
    """The calls of `NodeMetrics` for each request, which keep nothing."""

    def sent(self, size: int, now: float) -> None:
        """Nothing."""

    def received(self, size: int, responses: int, now: float) -> None:
        """Nothing."""

    def answered(self, latency: float, now: float) -> None:
        """Nothing."""


class SilentMetrics(ProducerMetrics):  # type: ignore[misc]  # final for everyone else
    """Sensors of batches, requests and turns that keep nothing."""

    def __init__(self, windows: Any) -> None:
        super().__init__(windows)
        self.batches: Any = _SilentBatches(windows)
        self._node: Any = _SilentNode(windows)

    def node(self, node_id: int) -> NodeMetrics:
        """One for all."""
        return self._node  # type: ignore[no-any-return]

    def throttled(self, seconds: float, now: float) -> None:
        """Nothing."""

    def stepped(self, waited: float, worked: float, now: float) -> None:
        """Nothing."""

    def lagged(self, seconds: float, now: float) -> None:
        """Nothing."""


@contextmanager
def silent() -> Iterator[None]:
    """Give these sensors to each producer that is made during the context."""
    with mock.patch("aioproduce.producer.life.ProducerMetrics", SilentMetrics):
        yield
