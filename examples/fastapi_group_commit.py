"""Orders over HTTP into Kafka by group commit: requests share transactions, in a FastAPI service.

    python examples/fastapi_group_commit.py
    curl -i localhost:8000/orders --json '{"customer": "7", "article": "apple", "pieces": 2}'

Requests within 50 ms share a transaction. That serves thousands a second; one transaction for each request serves
some hundred. A 201 means that the order is committed. Settings come from the environment: KAFKA_BOOTSTRAP_SERVERS
(localhost:9092), TRANSACTIONAL_ID (shop-1; each process needs its own), PORT (8000).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from aioproduce import Producer
from aioproduce.errors import ProducerError, TransactionError, TransactionOutcome


class Order(BaseModel):
    customer: str
    article: str
    pieces: int


class Place(BaseModel):
    partition: int
    offset: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    transactional_id = os.environ.get("TRANSACTIONAL_ID", "shop-1")
    async with (
        Producer(servers, transactional_id=transactional_id, linger_ms=2) as producer,
        producer.group_commit(interval=0.05) as group,
    ):
        app.state.group = group
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(order: Order, request: Request) -> Place:
    """Answer 201 if it is committed, 409 if it is not and may be sent again, 503 if the outcome is unknown."""
    try:
        metadata = await request.app.state.group.send(
            "orders", order.model_dump_json().encode(), order.customer.encode()
        )
    except TransactionError as error:
        is_aborted = error.outcome is TransactionOutcome.ABORTED
        raise HTTPException(409 if is_aborted else 503, str(error)) from error
    except ProducerError as error:
        raise HTTPException(503, str(error)) from error
    return Place(partition=metadata.partition, offset=metadata.offset)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
