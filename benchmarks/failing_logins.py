"""Cost and leaks of failing attempts: `python -m benchmarks.failing_logins`, a wrong password and a wrong CA.

A producer with a record to send tries a FakeCluster in another process, which refuses it each time.

1. A thousand attempts without tracing, and a thousand with `tracemalloc`, with pauses of 1 to 30 s cut to a
   millisecond: CPU per attempt, and the growth of memory, descriptors, tasks and threads.
2. Then some seconds with the real pauses: the share of a processor.
3. The first hundred attempts of each thousand are not counted: caches fill.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final
from unittest import mock

from rich.console import Console
from rich.table import Table

from aioproduce import Producer
from aioproduce.core.cluster import node
from benchmarks.broker import broker_process
from benchmarks.cases import TOPIC
from benchmarks.certificate import certificate
from benchmarks.process import cpu_seconds, resident

WARM_UP: Final = 100
USER: Final = "alice"
FAILURES: Final = {
    "PLAIN, wrong password": "PLAIN",
    "SCRAM-SHA-512, wrong password": "SCRAM-SHA-512",
    "wrong CA": "",
}
# Per attempt: what the allocator and the hash tables of a process wobble by over a thousand.
MOST_BYTES: Final = 20.0
MOST_CPU_PERCENT: Final = 1.0


def wrong(settings: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """Return settings that the brokers refuse."""
    made = dict(settings)
    if mechanism:
        made["sasl.jaas.config"] = made["sasl.jaas.config"].replace(f"{USER}-secret", "another")
    else:
        del made["ssl.truststore.certificates"]
        made["ssl.truststore.location"] = str(certificate().ca)
    return made


async def _attempts(producer: Producer, count: float) -> None:
    while producer.metrics().value("connection-creation-total") < count:  # noqa: ASYNC110 (nothing tells it)
        await asyncio.sleep(0.005)


async def _things() -> dict[str, int]:
    """Return the least numbers of things during some attempts: those between two attempts."""
    samples = []
    for _ in range(50):
        samples.append((len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), threading.active_count()))
        await asyncio.sleep(0.002)
    gc.collect()
    names = ("descriptors", "tasks", "threads")
    least = dict(zip(names, (min(each) for each in zip(*samples, strict=True)), strict=True))
    return {**least, "traced": tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0}


async def hurried(settings: Mapping[str, Any], attempts: int) -> dict[str, float]:
    """Measure a number of attempts, nearly without pauses."""
    names = ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms")
    quick = {**dict.fromkeys(names, "1"), "max.block.ms": "3600000"}
    with ExitStack() as stack:
        for name in ("_SECURITY_BACKOFF", "_SECURITY_BACKOFF_MAX"):
            stack.enter_context(mock.patch.object(node, name, 0.001))
        producer = Producer({**settings, **quick})
        await producer.start()
        sending = asyncio.ensure_future(producer.send_and_wait(TOPIC, b"value"))
        await _attempts(producer, WARM_UP)
        before, start, cpu = await _things(), resident(), cpu_seconds()
        first = producer.metrics().value("connection-creation-total")
        await _attempts(producer, first + attempts)
        burnt, made = cpu_seconds() - cpu, producer.metrics().value("connection-creation-total") - first
        resident_growth = resident() - start
        after = await _things()
        assert not sending.done()
        await _abandon(producer, sending)
    return {
        "attempts": made,
        "cpu_ms_each": burnt / made * 1e3,
        "resident_growth": resident_growth / made,
        **{name: after[name] - before[name] for name in before},
        "traced": (after["traced"] - before["traced"]) / made,
    }


async def _abandon(producer: Producer, sending: asyncio.Future[Any]) -> None:
    sending.cancel()
    await asyncio.wait([sending])
    await producer.close(0)


async def unhurried(settings: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Measure with the real pauses, without the start."""
    producer = Producer({**settings, "max.block.ms": "3600000"})
    await producer.start()
    sending = asyncio.ensure_future(producer.send_and_wait(TOPIC, b"value"))
    await _attempts(producer, 1)
    began, cpu = time.perf_counter(), cpu_seconds()
    await asyncio.sleep(seconds)
    share = (cpu_seconds() - cpu) / (time.perf_counter() - began)
    made = producer.metrics().value("connection-creation-total")
    await _abandon(producer, sending)
    return {"cpu_percent": share * 100, "attempts": made}


def measure(mechanism: str, attempts: int, seconds: float) -> dict[str, float]:
    """Measure one kind of failure."""
    security = {
        "protocol": "SASL_SSL" if mechanism else "SSL",
        "users": {USER: f"{USER}-secret"},
        "failed_authentication_delay_ms": 0,
    }
    with broker_process(topic=TOPIC, partitions=1, security=security) as broker:
        settings = wrong(broker.settings(USER, mechanism or "PLAIN"), mechanism)
        plain = asyncio.run(hurried(settings, attempts))
        tracemalloc.start()
        try:
            traced = asyncio.run(hurried(settings, attempts))
        finally:
            tracemalloc.stop()
        share = asyncio.run(unhurried(settings, seconds))
    return {
        **{name: max(plain[name], traced[name]) for name in ("descriptors", "tasks", "threads")},
        "attempts": plain["attempts"],
        "cpu_ms_each": plain["cpu_ms_each"],
        "resident_growth": plain["resident_growth"],
        "traced": traced["traced"],
        "cpu_percent": share["cpu_percent"],
        "real_attempts": share["attempts"],
    }


def is_met(figures: Mapping[str, float]) -> bool:
    """Return whether nothing is left, and hardly any CPU time is used."""
    left = (figures["descriptors"], figures["tasks"], figures["threads"])
    return max(left) <= 0 and figures["traced"] <= MOST_BYTES and figures["cpu_percent"] < MOST_CPU_PERCENT


COLUMNS: Final = (
    ("attempts", "attempts", "{:,.0f}"),
    ("cpu_ms_each", "CPU ms each", "{:.2f}"),
    ("traced", "bytes left each, traced", "{:,.1f}"),
    ("resident_growth", "resident", "{:,.0f}"),
    ("descriptors", "descriptors left", "{:+.0f}"),
    ("tasks", "tasks", "{:+.0f}"),
    ("threads", "threads", "{:+.0f}"),
    ("cpu_percent", "CPU % at the real pauses", "{:.3f}"),
    ("real_attempts", "attempts then", "{:.0f}"),
)


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 if something is left, or too much CPU time is used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failing_logins", description=__doc__)
    parser.add_argument("--attempts", type=int, default=1000, help="attempts of each kind (1000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds with the real pauses (60)")
    parser.add_argument("--only", nargs="+", choices=FAILURES, default=list(FAILURES), metavar="KIND")
    parser.add_argument("--json", action="store_true", help="for a program")
    options = parser.parse_args(arguments)
    # The lines are written, and go nowhere.
    logging.getLogger("aioproduce").addHandler(logging.NullHandler())
    table = Table(title="Attempts that fail", title_justify="left")
    table.add_column("what is wrong", no_wrap=True)
    for _, heading, _ in COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("")
    found = {kind: measure(FAILURES[kind], options.attempts, options.seconds) for kind in options.only}
    for kind, figures in found.items():
        cells = [layout.format(figures[name]) for name, _, layout in COLUMNS]
        table.add_row(kind, *cells, "met" if is_met(figures) else "MISSED")
    if options.json:
        print(json.dumps(found))
    else:
        Console(width=160).print(table)
    return 0 if all(map(is_met, found.values())) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
