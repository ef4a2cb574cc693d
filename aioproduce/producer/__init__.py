"""The Producer and the calls of users, from the check of a record to the handle of its delivery.

| module | contents |
|---|---|
| `producer`, `bulk_calls` | `Producer`, which users import; its calls for many records at once |
| `life` | start, close, death, and where a call is allowed |
| `input` | checks of users' input |
| `admission` | waits for metadata and for room |
| `bulk`, `batches`, `arrow` | many records at once; ready-made batches; Arrow data as columns |
| `deliveries`, `delivery_reports` | the bulk calls' handle; callbacks |
| `interceptors`, `telemetry_payload` | interceptors of records; metrics pushed to the cluster |

Modules are loaded on first use, because most of them are used without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce.producer.producer import Producer as Producer

__all__ = ["Producer"]


def __getattr__(name: str) -> Any:
    if name != "Producer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("aioproduce.producer.producer").Producer
