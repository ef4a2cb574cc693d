"""A script that logs to Kafka and ends, as a process of its own: run by `test_logging`.

python -m tests.integrations.log_process BOOTSTRAP_SERVERS CASE
"""

from __future__ import annotations

import logging
import logging.config
import os
import sys

log = logging.getLogger("shop")


def configure(servers: str, **options: object) -> None:
    handler = {
        "class": "aioproduce.integrations.logging.KafkaLogHandler",
        "topic": "logs",
        "bootstrap_servers": servers,
        "formatter": "json",
        # Longer than any test, unless the case is about them.
        "flush_timeout": 3600.0,
        "close_timeout": 3600.0,
        "linger_ms": 100,
        **options,
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "json": {
                    "()": "aioproduce.integrations.logging.JsonFormatter",
                    "fields": {"service": "shop"},
                }
            },
            "handlers": {"kafka": handler, "console": {"class": "logging.StreamHandler"}},
            "root": {"level": "INFO", "handlers": ["kafka", "console"]},
        }
    )


def main() -> None:
    servers, case = sys.argv[1:]
    if case == "ends at once":
        configure(servers, compression_type="zstd")
        for number in range(1000):
            log.info("line %d", number)
    elif case == "no broker":
        configure(servers, flush_timeout=0.05, close_timeout=0.05)
        for number in range(3):
            log.info("line %d", number)
    elif case == "fork":
        configure(servers)
        log.info("parent before")
        child = os.fork()
        log.info("child" if child == 0 else "parent after")
        if child:
            os.waitpid(child, 0)
    elif case == "error":
        configure(servers)
        try:
            raise ValueError("no price")
        except ValueError:
            log.exception("cannot sell")
        raise SystemExit(3)


if __name__ == "__main__":
    main()
