"""`BlockingProducer`: the producer for threads and scripts without a loop ([docs/reference/api/blocking.md]).

    from aioproduce import BlockingProducer

    with BlockingProducer("localhost:9092") as producer:
        delivery = producer.send("orders", b"42")  # accepted
        metadata = delivery.result()               # acknowledged

A thread of its own runs one `Producer`; records reach it in batches (`aioproduce._native.hand_over`).
"""

from __future__ import annotations

from aioproduce.blocking.deliveries import BlockingDeliveries as BlockingDeliveries
from aioproduce.blocking.producer import BlockingProducer as BlockingProducer

__all__ = ["BlockingDeliveries", "BlockingProducer"]
