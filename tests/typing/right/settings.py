"""Settings: keywords, a function of one's own that passes them on, mappings, files, the environment."""

from __future__ import annotations

import ssl
from typing import Any, Unpack

from aioproduce import BlockingProducer, Producer, ProducerConfig, ProducerSettings, TransactionalPool
from aioproduce.config import Secret
from aioproduce.errors import DeliveryError
from aioproduce.integrations.logging import KafkaLogHandler


class ByRegion:
    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: Any) -> int:
        return 0 if key is not None and key.startswith(b"eu-") else len(topic) + len(value or b"")


async def credentials() -> tuple[str, Secret]:
    return "alice", Secret("hidden")


def failed(error: DeliveryError) -> None:
    print(error.possibly_written)


def made(**settings: Unpack[ProducerSettings]) -> Producer[Any, Any]:
    return Producer(["a:9092", "b:9092"], **settings)


TUNED: ProducerSettings = {"linger_ms": 20, "batch_size": 65_536, "acks": 1, "enable_idempotence": False}

ALL = [
    made(linger_ms=5, max_block_ms=1000),
    made(**TUNED),
    Producer("localhost:9092", **TUNED),
    Producer(
        "localhost:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_credentials_provider=credentials,
        ssl_context=ssl.create_default_context(),
        partitioner_class=ByRegion(),
        on_delivery_error=failed,
    ),
    Producer("localhost:9092", sasl_username="alice", sasl_password="hidden", partitioner_class="murmur2"),
    Producer({"bootstrap.servers": "localhost:9092", "linger.ms": "5"}),
    Producer(ProducerConfig.from_keywords(bootstrap_servers="localhost:9092", linger_ms=5)),
    Producer(ProducerConfig.from_environment()),
    Producer.from_properties("producer.properties", client_id="orders"),
]
blocking = BlockingProducer("localhost:9092", linger_ms=5, exit_timeout=1.0)
pool = TransactionalPool("localhost:9092", transactional_id_prefix="orders", size=4, linger_ms=5)
handler = KafkaLogHandler("logs", "localhost:9092", linger_ms=100, compression_type="lz4")
