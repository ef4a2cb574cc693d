"""Ways out for a producer's metrics: Prometheus, OpenTelemetry, JSON lines, the log.

Each module is imported by itself, by those who want it, so that none of them needs the libraries of another:
`aioproduce.reporters.prometheus`, `.opentelemetry`, `.json_lines`, `.logging`.
`docs/how-to/metrics-export.md` shows them.

Invariants of all of them:

1. They read `producer.metrics()` and nothing else of the producer; nothing that goes wrong here reaches it.
2. A producer may be closed, or die, while it is reported on.
"""
