"""A producer for threads."""

from __future__ import annotations

from typing import assert_type

from aioproduce import BlockingDeliveries, BlockingDelivery, BlockingProducer, RecordMetadata
from aioproduce.errors import DeliveryError


def main() -> None:
    with BlockingProducer("localhost:9092", linger_ms=5, restart_after_fork=True) as producer:
        delivery = producer.send("orders", b"42", key=b"customer-7")
        assert_type(delivery, BlockingDelivery)
        assert_type(delivery.result(timeout=10), RecordMetadata)
        delivery.add_done_callback(lambda settled: print(settled.topic))
        assert_type(producer.send_and_wait("orders", b"42"), RecordMetadata)
        deliveries = producer.send_many("orders", [b"1", None])
        assert_type(deliveries, BlockingDeliveries)
        assert_type(deliveries.outcomes(), list[RecordMetadata | DeliveryError])
        producer.flush(timeout=10)


if __name__ == "__main__":
    main()
