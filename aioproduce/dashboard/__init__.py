"""Live charts of one or more producers: a feed of samples, a web page, and what serves it.

Used by services (mounted into their own ASGI application, or beside them by `serve`), and by the commands
`aioproduce dashboard` and `aioproduce top`. Nothing in the producer imports it.

| module | what is there |
|---|---|
| `feed` | samples of `producer.metrics()` in a bounded history: plain data |
| `reading` | one snapshot and the one before it into a sample |
| `app` | the ASGI application: page, files, events, JSON |
| `server` | `serve`: that application on a port, in the running event loop (extra `dashboard`) |
| `static` | the page; `vendor` has uPlot 1.6.32 of npm, unchanged, with its licence |

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
