"""Orders in, invoices out, with FastStream: it consumes orders, and publishes through aioproduce's Producer.

    faststream run examples.faststream_app:app               # or: python examples/faststream_app.py

The handler reads an order from the topic "orders" (examples/fastapi_service.py writes such orders) and writes an
invoice to "invoices", under the customer's key. The middleware sends each value that a handler returns or that
`broker.publish()` receives. FastStream makes no producer of its own (`consumer_only=True`).
KAFKA_BOOTSTRAP_SERVERS names the cluster (localhost:9092; `aioproduce dev` starts one in memory there).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaResponse
from pydantic import BaseModel

from aioproduce import Producer
from aioproduce.integrations.faststream import PublishThrough

PRICE = 3
SERVERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092").split(",")


class Order(BaseModel):
    customer: str
    article: str
    pieces: int


class Invoice(BaseModel):
    customer: str
    total: int


producer = Producer(SERVERS, linger_ms=5)
through = PublishThrough(producer)
broker = KafkaBroker(SERVERS, consumer_only=True, middlewares=[through])


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    # It encloses the broker's life: handlers end before the producer closes, and the close sends their records.
    async with producer:
        yield


app = FastStream(broker, lifespan=lifespan)


@broker.subscriber("orders", group_id="invoices", auto_offset_reset="earliest")
@broker.publisher("invoices")
async def on_order(order: Order) -> KafkaResponse:
    invoice = Invoice(customer=order.customer, total=order.pieces * PRICE)
    return KafkaResponse(invoice, key=order.customer.encode())


if __name__ == "__main__":
    asyncio.run(app.run())
