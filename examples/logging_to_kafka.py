"""Log records as records in Kafka, from anywhere in a program: threads, tasks, before any loop runs.

    python examples/logging_to_kafka.py                    # with a cluster in memory
    python examples/logging_to_kafka.py localhost:9092     # with yours; sends to the topic "logs"

Two ways: a handler with brokers of its own, as `logging.config` makes it; and one that ships by the
application's producer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.config
import sys

from aioproduce import Producer
from aioproduce.integrations.logging import KafkaLogHandler
from aioproduce.testing import FakeCluster

log = logging.getLogger("shop")


def configure(servers: str) -> None:
    """As from a file: what is not the handler's own (`linger_ms`, `compression_type`) is its producer's."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,  # or those of aioproduce would say nothing any more
            "formatters": {
                "json": {
                    "()": "aioproduce.integrations.logging.JsonFormatter",
                    "fields": {"service": "shop", "version": "1.2"},
                }
            },
            "handlers": {
                "kafka": {
                    "class": "aioproduce.integrations.logging.KafkaLogHandler",
                    "topic": "logs",
                    "bootstrap_servers": servers,
                    "formatter": "json",
                    "capacity": 10_000,
                    "linger_ms": 100,
                    "compression_type": "zstd",
                },
                # Where the handler itself tells of drops and failures: they are not shipped.
                "console": {"class": "logging.StreamHandler", "level": "WARNING"},
            },
            "root": {"level": "INFO", "handlers": ["kafka", "console"]},
        }
    )


def sell(item: str) -> None:
    """Work of a thread. `extra` becomes fields."""
    log.info("sold one %s", item, extra={"item": item, "price": 12.5})


async def work() -> None:
    # 1. With brokers of its own: logging holds up neither the loop nor a thread.
    log.info("the shop opens")
    await asyncio.gather(*(asyncio.to_thread(sell, item) for item in ("apple", "pear", "plum")))
    try:
        raise ValueError("no price")
    except ValueError:
        log.exception("cannot sell")

    # `logging.shutdown()` does this at the end of a program; here the log is read below. In a thread, as it waits.
    (handler,) = [each for each in logging.getLogger().handlers if isinstance(each, KafkaLogHandler)]
    await asyncio.to_thread(handler.flush)
    print(handler.counts())


async def work_with_one_producer(servers: str) -> None:
    # 2. By the application's producer: no thread. What is logged before waits in the handler's queue.
    audit = logging.getLogger("audit")
    handler = KafkaLogHandler("logs")
    audit.addHandler(handler)
    audit.propagate = False  # or the handler of the root would ship them, too
    audit.warning("before there is a producer")
    async with Producer(servers) as producer, handler.shipping(producer):
        audit.warning("while there is one")
    print(handler.counts())


async def main() -> None:
    if len(sys.argv) > 1:
        configure(sys.argv[1])
        await work()
        await work_with_one_producer(sys.argv[1])
        return
    async with FakeCluster(brokers=1, topics={"logs": 1}) as cluster:
        configure(cluster.bootstrap_servers)
        await work()
        await work_with_one_producer(cluster.bootstrap_servers)
        for record in cluster.records("logs"):
            document = json.loads(record.value or b"")
            print(document["level"], document["logger"], document["message"], document.get("price", ""))


if __name__ == "__main__":
    asyncio.run(main())
