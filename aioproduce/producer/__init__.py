"""The Producer: what users call, from the check of a record to the handle of what was sent.

| module | what it is |
|---|---|
| `producer`, `bulk_calls` | `Producer`, what people import; the part of it that sends many records at once |
| `life` | start, close, death, and where a call is allowed |
| `input` | checking what users hand in |
| `admission` | waiting for metadata and for room |
| `bulk`, `batches`, `arrow` | many records at once; ready-made batches; Arrow data as columns |
| `deliveries`, `delivery_reports` | the bulk calls' handle; callbacks |
| `interceptors`, `telemetry_payload` | what users' code sees of a record; what is pushed to the cluster |

Nothing here is loaded before it is asked for: most of these modules are wanted without the others.
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
