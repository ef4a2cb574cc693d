"""Live charts of one or more producers: a feed of samples, a web page, and its server.

Services mount it into their own ASGI application, or run it on another port with `serve`. The commands
`aioproduce dashboard` and `aioproduce top` use it. Nothing in the producer imports it.

| module | contents |
|---|---|
| `feed` | samples of `producer.metrics()` in a bounded history: plain data |
| `reading` | from two consecutive snapshots to a sample |
| `app` | the ASGI application: page, files, events, JSON |
| `server` | `serve`: that application on a port, in the running event loop (extra `dashboard`) |
| `static` | the page; `vendor` has uPlot 1.6.32 from npm, unchanged, with its licence |

Example:
    >>> from aioproduce.dashboard import Dashboard
    >>> dashboard = Dashboard(producer)
    >>> app.mount("/producer", dashboard)  # FastAPI, Starlette
"""

from __future__ import annotations

from aioproduce.dashboard.app import Dashboard
from aioproduce.dashboard.feed import Feed, Sample
from aioproduce.dashboard.server import DashboardServer, serve

__all__ = [
    "Dashboard",
    "DashboardServer",
    "Feed",
    "Sample",
    "serve",
]
