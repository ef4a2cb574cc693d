"""The configuration: every key of Kafka's producer in one table, and what a producer is configured with.

Called by `Producer`, the CLI and the docs. Nothing above this package knows `*_ms` or dotted keys.

| module | what is there |
|---|---|
| `keys` | the kinds of values, `Key` |
| `table` | `KEYS`, the one table |
| `producer_config` | `ProducerConfig`, and the rules between keys |
| `properties` | Java's `.properties` files |
| `markdown` | the table as the page `docs/configuration.md` |
"""

from __future__ import annotations

from aioproduce.config.keys import Key
from aioproduce.config.markdown import markdown_page
from aioproduce.config.producer_config import ProducerConfig, Serializer, dotted_keys
from aioproduce.config.properties import load_properties
from aioproduce.config.table import KEYS, SECTIONS

__all__ = [
    "KEYS",
    "SECTIONS",
    "Key",
    "ProducerConfig",
    "Serializer",
    "dotted_keys",
    "load_properties",
    "markdown_page",
]
