"""Orders in, invoices out, with FastStream: it consumes, and publishes through aioproduce's Producer.

    faststream run examples.faststream_app:app               # or: python examples/faststream_app.py

For each order that comes in at the topic "orders" (from examples/fastapi_service.py, say) an invoice goes out at
"invoices", under the customer's key. What the handler returns, and what `broker.publish()` is given, goes through
the middleware, which sends it with the producer; FastStream makes none of its own (`consumer_only=True`).
KAFKA_BOOTSTRAP_SERVERS says where the cluster is (localhost:9092; `aioproduce dev` starts one in memory there).
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
    # Around the broker's own life: handlers end before the producer is closed, and that sends what they published.
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
