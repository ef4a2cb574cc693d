"""A producer in a web service and in `logging`, with what the frameworks need.

Used by applications; nothing in aioproduce imports it.

| module | contents |
|---|---|
| `service` | `ProducerService`: a producer for the lifetime of a service: start, readiness, deadlines, drain |
| `background` | sends without waiting, counted and drained |
| `answers` | the HTTP answer for each error |
| `shutdown_signals` | handles SIGTERM without replacing the server's handler |
| `service_metrics` | a service's counts for Prometheus (extra `prometheus`) |
| `starlette`, `fastapi`, `aiohttp` | the integration of each framework (extras `fastapi`, `aiohttp`) |
| `logging` | `KafkaLogHandler`: sends log records to Kafka |

`docs/how-to/services.md` explains what each answer means for the client and for operators.
"""

from __future__ import annotations
