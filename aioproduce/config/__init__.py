"""The configuration: every key of Kafka's producer in one table, and the settings of a producer.

Used by `Producer`, the CLI and the docs. No package above this one uses `*_ms` or dotted keys.

| module | contents |
|---|---|
| `config_def` | `Key`, `ConfigDef`: a table of keys, which reads and checks mappings |
| `kinds` | the kinds of values that keys take |
| `table` | `KEYS`, the one table of Kafka's keys and of our own |
| `security_table`, `security_kinds` | its rows for TLS and SASL, and the kinds of their values |
| `secret` | `Secret`, a hidden text |
| `producer_config` | `ProducerConfig`, and the rules that relate keys |
| `properties` | Java's `.properties` files |
| `environment` | environment variables |
| `markdown` | a table as a page: `docs/reference/configuration.md` |
| `settings`, `settings_source` | the settings as types, for editors; and what prints that module |
| `user_objects` | what the objects and functions of a user's own have to offer |
"""

from __future__ import annotations

from aioproduce.config.config_def import Key
from aioproduce.config.environment import load_environment
from aioproduce.config.markdown import markdown_page
from aioproduce.config.producer_config import ProducerConfig, Serializer, configured, dotted_keys
from aioproduce.config.properties import load_properties
from aioproduce.config.secret import Secret
from aioproduce.config.table import KEYS, SECTIONS

__all__ = [
    "KEYS",
    "SECTIONS",
    "Key",
    "ProducerConfig",
    "Secret",
    "Serializer",
    "configured",
    "dotted_keys",
    "load_environment",
    "load_properties",
    "markdown_page",
]
