"""A schema registry in memory, for the tests of what talks to one: HTTP on a loopback port, no library needed.

    with FakeSchemaRegistry() as registry:
        client = SchemaRegistryClient(registry.url)

It follows the REST interface of Confluent's Schema Registry (`subjects`), runs in a thread of its own, so that
any event loop, any thread and any client may use it, and can be told to fail (`server`).
"""

from __future__ import annotations

from aioproduce.testing.fake_registry.server import FakeSchemaRegistry, RegistryRequest

__all__ = ["FakeSchemaRegistry", "RegistryRequest"]
