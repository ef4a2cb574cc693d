"""Orders over HTTP into Kafka, with FastAPI.

    python examples/fastapi_service.py                       # or: uvicorn examples.fastapi_service:app
    curl -i localhost:8000/orders --json '{"customer": "7", "article": "apple", "pieces": 2}'
    curl -i localhost:8000/health/ready

A 201 means that the order is in the log. The service also starts without a broker: /health/ready then reports it,
and requests get 503 with Retry-After until a broker answers. Settings come from the environment:
KAFKA_BOOTSTRAP_SERVERS (localhost:9092; `aioproduce dev` starts a cluster in memory there), KAFKA_TOPIC (orders),
KAFKA_VISITS_TOPIC (visits), PORT (8000), REQUEST_TIMEOUT (5 s), DRAIN_TIMEOUT (10 s).
"""

from __future__ import annotations

import logging
import os

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from aioproduce import Producer
from aioproduce.integrations.fastapi import DeadlineDep, ProducerService, ServiceDep, install, lifespan

TOPIC = os.environ.get("KAFKA_TOPIC", "orders")
VISITS_TOPIC = os.environ.get("KAFKA_VISITS_TOPIC", "visits")
REQUEST_TIMEOUT = float(os.environ.get("REQUEST_TIMEOUT", "5"))
DRAIN_TIMEOUT = float(os.environ.get("DRAIN_TIMEOUT", "10"))


class Order(BaseModel):
    customer: str
    article: str
    pieces: int


class Place(BaseModel):
    partition: int
    offset: int


def make_producer() -> Producer:
    return Producer(os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"), linger_ms=2)


service = ProducerService(
    make_producer,
    topics=[TOPIC, VISITS_TOPIC],
    drain_timeout=DRAIN_TIMEOUT,
    request_timeout=REQUEST_TIMEOUT,
)
app = FastAPI(lifespan=lifespan(service))
install(app, service)


@app.post("/orders", status_code=201)
async def place_order(order: Order, service: ServiceDep, deadline: DeadlineDep) -> Place:
    """Answer 201 when the order is acknowledged. Otherwise the error handlers answer 503 or 504."""
    metadata = await service.send(
        TOPIC, order.model_dump_json().encode(), order.customer.encode(), deadline=deadline
    )
    return Place(partition=metadata.partition, offset=metadata.offset)


@app.post("/visits")
async def count_visit(page: str, service: ServiceDep) -> Response:
    """Answer 202 before the record is accepted: it promises nothing. A failure is logged and counted."""
    service.background(VISITS_TOPIC, page.encode())
    return Response(status_code=202)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    # uvicorn has no limit by default: a client that stays connected would delay the drain for ever.
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=15)
