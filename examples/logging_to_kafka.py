"""Log records to Kafka from anywhere in a program: from threads, from tasks, before an event loop runs.

    python examples/logging_to_kafka.py                    # with a cluster in memory
    python examples/logging_to_kafka.py localhost:9092     # with yours; sends to the topic "logs"

It shows two handlers: one connects to the brokers itself, as `logging.config` makes it; the other sends through the
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
    """Configure logging as from a file. The handler passes `linger_ms` and `compression_type` to its producer."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,  # True would silence the loggers of aioproduce
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
                # The handler reports drops and failures here: it does not send its own log records to Kafka.
                "console": {"class": "logging.StreamHandler", "level": "WARNING"},
            },
            "root": {"level": "INFO", "handlers": ["kafka", "console"]},
        }
    )


def sell(item: str) -> None:
    """Log a sale from a thread. `extra` becomes fields of the document."""
    log.info("sold one %s", item, extra={"item": item, "price": 12.5})


async def work() -> None:
    # 1. A handler that connects itself: a log call blocks neither the loop nor a thread.
    log.info("the shop opens")
    await asyncio.gather(*(asyncio.to_thread(sell, item) for item in ("apple", "pear", "plum")))
    try:
        raise ValueError("no price")
    except ValueError:
        log.exception("cannot sell")

    # `logging.shutdown()` flushes at the end of a program; this example reads the log earlier. flush() blocks, so
    # it runs in a thread.
    (handler,) = [each for each in logging.getLogger().handlers if isinstance(each, KafkaLogHandler)]
    await asyncio.to_thread(handler.flush)
    print(handler.counts())


async def work_with_one_producer(servers: str) -> None:
    # 2. Through the application's producer: no thread. Earlier log records wait in the handler's queue.
    audit = logging.getLogger("audit")
    handler = KafkaLogHandler("logs")
    audit.addHandler(handler)
    audit.propagate = False  # else the root's handler would send them, too
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
