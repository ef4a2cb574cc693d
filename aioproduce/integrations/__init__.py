"""A producer in a web service, and in `logging`: what the frameworks need around it.

Used by applications; nothing in aioproduce imports it.

| module | what is there |
|---|---|
| `service` | `ProducerService`: a producer over the life of a service, whatever the framework: start, readiness, deadlines, drain |
| `background` | sends that nobody waits for, counted and drained |
| `answers` | which HTTP answer an error is |
| `shutdown_signals` | to hear of SIGTERM without taking it from the server |
| `service_metrics` | what a service counts, for Prometheus (extra `prometheus`) |
| `starlette`, `fastapi`, `aiohttp` | the same for each framework (extras `fastapi`, `aiohttp`) |
| `logging` | `KafkaLogHandler`: log records as records |

What each answer means to the client and to whoever is on call: `docs/how-to/services.md`.
"""  # noqa: E501

from __future__ import annotations
