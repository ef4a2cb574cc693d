"""OpenTelemetry: metrics as observable instruments, and a span with its context for each record sent.

Used by services with OpenTelemetry's SDK or agent; needs the extra `opentelemetry`, which installs only the API.
Without an SDK, none of this has an effect.
"""

from __future__ import annotations

from aioproduce.errors import MissingExtraError

with MissingExtraError.unless_installed(
    "aioproduce.reporters.opentelemetry", extra="opentelemetry", name="opentelemetry"
):
    from aioproduce.reporters._otel_metrics import ProducerMeter
    from aioproduce.reporters._otel_tracing import TracingInterceptor

__all__ = ["ProducerMeter", "TracingInterceptor"]
