"""Exporters for a producer's metrics: Prometheus, OpenTelemetry, JSON lines, the log.

Import the modules one by one, so that none of them needs the libraries of another:
`aioproduce.reporters.prometheus`, `.opentelemetry`, `.json_lines`, `.logging`. See `docs/how-to/metrics-export.md`.

Invariants of all of them:

1. They use only `producer.metrics()`. A failure here does not affect the producer.
2. A producer may be closed or fail while it is reported on.
"""
