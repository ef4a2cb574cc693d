"""The metrics of a producer: Kafka's metrics with Kafka's names, and our own."""

from __future__ import annotations

from aioproduce._native.sensors import BatchMetrics, NodeMetrics, TopicMetrics
from aioproduce.metrics.catalog import GAUGES, is_own, snapshot
from aioproduce.metrics.metric import Histogram, Metric, MetricKind, MetricsSnapshot
from aioproduce.metrics.producer_metrics import ProducerMetrics

__all__ = [
    "GAUGES",
    "BatchMetrics",
    "Histogram",
    "Metric",
    "MetricKind",
    "MetricsSnapshot",
    "NodeMetrics",
    "ProducerMetrics",
    "TopicMetrics",
    "is_own",
    "snapshot",
]
