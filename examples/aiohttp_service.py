"""Orders over HTTP into Kafka, with aiohttp.

    python examples/aiohttp_service.py
    curl -i localhost:8000/orders -d '{"customer": "7", "article": "apple", "pieces": 2}'
    curl -i localhost:8000/health/ready

A 201 means that the order is in the log. The service listens on this machine only. It also starts without a
broker: /health/ready then reports it, and requests get 503 with Retry-After until a broker answers. Settings come
from the environment: KAFKA_BOOTSTRAP_SERVERS (localhost:9092; `aioproduce dev` starts a cluster in memory there),
KAFKA_TOPIC (orders), KAFKA_VISITS_TOPIC (visits), PORT (8000), REQUEST_TIMEOUT (5 s), DRAIN_TIMEOUT (10 s).
"""

from __future__ import annotations

import json
import logging
import os

from aiohttp import web

from aioproduce import Producer
from aioproduce.integrations.aiohttp import SERVICE, ProducerService, deadline_of, setup

TOPIC = os.environ.get("KAFKA_TOPIC", "orders")
VISITS_TOPIC = os.environ.get("KAFKA_VISITS_TOPIC", "visits")
REQUEST_TIMEOUT = float(os.environ.get("REQUEST_TIMEOUT", "5"))
DRAIN_TIMEOUT = float(os.environ.get("DRAIN_TIMEOUT", "10"))

routes = web.RouteTableDef()


@routes.post("/orders")
async def place_order(request: web.Request) -> web.Response:
    """Answer 201 when the order is acknowledged. Otherwise the middleware answers 503 or 504."""
    deadline = deadline_of(request)
    try:
        order = json.loads(await request.read())
        customer, _, _ = str(order["customer"]), str(order["article"]), int(order["pieces"])
    except (ValueError, KeyError, TypeError):
        raise web.HTTPBadRequest(text="an order is JSON with `customer`, `article` and `pieces`") from None
    metadata = await request.app[SERVICE].send(
        TOPIC, json.dumps(order).encode(), customer.encode(), deadline=deadline
    )
    return web.json_response({"partition": metadata.partition, "offset": metadata.offset}, status=201)


@routes.post("/visits")
async def count_visit(request: web.Request) -> web.Response:
    """Answer 202 before the record is accepted: it promises nothing. A failure is logged and counted."""
    request.app[SERVICE].background(VISITS_TOPIC, request.query["page"].encode())
    return web.Response(status=202)


def make_producer() -> Producer:
    return Producer(os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"), linger_ms=2)


def make_app() -> web.Application:
    app = web.Application()
    setup(
        app,
        ProducerService(
            make_producer,
            topics=[TOPIC, VISITS_TOPIC],
            drain_timeout=DRAIN_TIMEOUT,
            request_timeout=REQUEST_TIMEOUT,
        ),
    )
    app.add_routes(routes)
    return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), shutdown_timeout=15)
