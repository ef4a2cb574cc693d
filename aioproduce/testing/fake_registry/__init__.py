"""A schema registry in memory, for tests of its clients: HTTP on a loopback port, without other libraries.

    with FakeSchemaRegistry() as registry:
        client = SchemaRegistryClient(registry.url)

It implements the REST interface of Confluent's Schema Registry (`subjects`), runs in a thread of its own, so that
any event loop, thread and client can use it, and can fail on demand (`server`).
"""

from __future__ import annotations

from aioproduce.testing.fake_registry.server import FakeSchemaRegistry, RegistryRequest

__all__ = ["FakeSchemaRegistry", "RegistryRequest"]
