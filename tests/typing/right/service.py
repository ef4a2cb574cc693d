"""A service with FastAPI, its metrics and its logs."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry

from aioproduce import Producer
from aioproduce.audit import Auditor
from aioproduce.dashboard import Dashboard
from aioproduce.integrations.fastapi import (
    DeadlineDep,
    ProducerDep,
    ProducerService,
    ServiceDep,
    install,
    lifespan,
)
from aioproduce.integrations.logging import KafkaLogHandler
from aioproduce.metrics import MetricsSnapshot
from aioproduce.reporters.prometheus import ProducerCollector


def make_producer() -> Producer:
    return Producer("localhost:9092", linger_ms=2, interceptors=[Auditor()])


service = ProducerService(make_producer, topics=["orders"], drain_timeout=10, request_timeout=5)
app = FastAPI(lifespan=lifespan(service))
install(app, service)
logging.getLogger().addHandler(KafkaLogHandler("logs", "localhost:9092"))


@app.post("/orders", status_code=201)
async def place_order(text: str, service: ServiceDep, deadline: DeadlineDep) -> int:
    metadata = await service.send("orders", text.encode(), deadline=deadline)
    return metadata.offset


@app.post("/visits")
async def count_visit(page: str, service: ServiceDep, producer: ProducerDep) -> Response:
    service.background("visits", page.encode())
    await producer.send("visits", page.encode())
    return Response(status_code=202 if service.readiness().is_well else 503)


async def observed(producer: Producer) -> Dashboard:
    snapshot: MetricsSnapshot = producer.metrics()
    print(snapshot.value("record-send-total"), producer.transaction_status())
    CollectorRegistry().register(ProducerCollector(producer))
    return Dashboard(producer)
