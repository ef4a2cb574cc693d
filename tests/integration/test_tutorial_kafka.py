"""The eighth step of docs/tutorial/index.md: its service on a real broker, read back with another client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from tests.docs.tutorial import Reader

if TYPE_CHECKING:
    from tests.integration.conftest import MakeTopic
    from tests.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("starts a server as a process; tests/integration sends to the same brokers"),
]


def test_the_service_on_a_real_broker(kafka1: KafkaCluster, make_topic: MakeTopic, tmp_path: Path) -> None:
    make_topic("orders", partitions=3)
    with Reader(tmp_path, kafka1.bootstrap_servers) as reader:
        reader.save("orders.py")
        service = reader.start(reader.block("uvicorn orders:app", 1))  # checks the broker first
        service.wait_for("Uvicorn running")
        answer = reader.run(reader.block("two apples", 1))
        assert answer.startswith("HTTP/1.1 201 Created")
        service.end()
        assert "ended: every accepted record has its outcome" in service.said()

    consumer = Consumer(
        {
            "bootstrap.servers": kafka1.bootstrap_servers,
            "group.id": "tutorial",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        assert json.loads(value) == {"customer": "7", "text": "two apples"}
    finally:
        consumer.close()
