"""OpenTelemetry: metrics by observable instruments, and a span with its context for each record sent.

Used by services that have OpenTelemetry's SDK, or are run by its agent; needs the extra `opentelemetry`, which is
its API alone: without an SDK all of this does nothing.
"""

from __future__ import annotations

from aioproduce.errors import MissingExtraError

with MissingExtraError.unless_installed(
    "aioproduce.reporters.opentelemetry", extra="opentelemetry", name="opentelemetry"
):
    from aioproduce.reporters._otel_metrics import ProducerMeter
    from aioproduce.reporters._otel_tracing import TracingInterceptor

__all__ = ["ProducerMeter", "TracingInterceptor"]
