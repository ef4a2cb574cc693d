"""The process that a soak run watches: one producer, a fixed rate, every way of sending; it measures itself.

Started by ``soak`` as ``python -m tests.chaos.soak_producer``; prints a line of JSON for each sample, the last one
after the producer is closed.

1. Its pace is that of the clock: what an outage held up is made up for afterwards, as far as memory lets it.
2. Turn by turn records go out by ``send`` with a callback and by ``send_many`` with a task that waits, and one in
   each turn by ``send_and_wait``, so that none of these leaks unseen.
3. It holds nothing per record but what the producer holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioproduce import Producer
from aioproduce.errors import ProducerError
from tests.chaos.senders import SETTINGS

TURNS_PER_SECOND = 100
VALUE_SIZE = 100
PAGE_KIB = resource.getpagesize() // 1024


@dataclass(slots=True)
class Load:
    """The sending, and its counts."""

    producer: Producer
    topic: str
    rate: int
    sent: int = 0
    acked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, seconds: float) -> None:
        """Send for so long, then wait for the outcomes."""
        began_at = time.monotonic()
        size = max(2, self.rate // TURNS_PER_SECOND)
        turn = 0
        while (elapsed := time.monotonic() - began_at) < seconds:
            ahead = self.sent / self.rate - elapsed
            if ahead > 0:
                await asyncio.sleep(ahead)
                continue
            turn += 1
            values = [(b"%d " % (self.sent + index)).ljust(VALUE_SIZE, b"x") for index in range(size)]
            self._start(self._send_and_wait(values.pop()))
            if turn % 2:
                await self._send_each(values)
            else:
                await self._send_many(values)
            self.sent += size
        await self.producer.flush()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _send_each(self, values: list[bytes]) -> None:
        send, settled = self.producer.send, self._settled
        for value in values:
            await send(self.topic, value, on_delivery=settled)

    async def _send_many(self, values: list[bytes]) -> None:
        deliveries = await self.producer.send_many(self.topic, values)

        async def wait() -> None:
            failed = await deliveries.failed()
            self.acked += len(deliveries) - len(failed)
            self.failed.update(type(error).__name__ for error in failed.values())

        self._start(wait())

    async def _send_and_wait(self, value: bytes) -> None:
        try:
            await self.producer.send_and_wait(self.topic, value)
        except ProducerError as error:
            self.failed[type(error).__name__] += 1
        else:
            self.acked += 1

    def _settled(self, _metadata: object, error: BaseException | None) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failed[type(error).__name__] += 1

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        task.result()  # what is raised here reaches the loop's exception handler, which counts it


class Watch:
    """Measures this process."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began_at = time.monotonic()
        self.unhandled: list[str] = []

    def on_unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def sample_each(self, seconds: float) -> None:
        """Print a sample now and then."""
        while True:
            self.sample()
            await asyncio.sleep(seconds)

    def sample(self, *, is_last: bool = False) -> None:
        """Print one."""
        handles = [_target(entry) for entry in Path("/proc/self/fd").iterdir()]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(
            json.dumps(
                {
                    "at": round(time.monotonic() - self._began_at, 2),
                    "rss_kib": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB,
                    "tasks": len(asyncio.all_tasks()),
                    "handles": len(handles),
                    "sockets": sum(handle.startswith("socket:") for handle in handles),
                    "outstanding": self._load.producer.outstanding_bytes,
                    "sent": self._load.sent,
                    "acked": self._load.acked,
                    "failed": dict(self._load.failed),
                    "cpu": round(usage.ru_utime + usage.ru_stime, 2),
                    "unhandled": self.unhandled,
                    "is_last": is_last,
                }
            ),
            flush=True,
        )


def _target(handle: Path) -> str:
    try:
        return os.readlink(handle)
    except FileNotFoundError:  # the one that listed the folder
        return ""


async def soak(options: argparse.Namespace) -> None:
    """Run the load and the watch."""
    producer = Producer({"bootstrap.servers": options.bootstrap_server, **SETTINGS})
    load = Load(producer, options.topic, options.rate)
    watch = Watch(load)
    asyncio.get_running_loop().set_exception_handler(watch.on_unhandled)
    async with producer:
        watching = asyncio.create_task(watch.sample_each(options.sample_every))
        try:
            await load.run(options.seconds)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    watch.sample(is_last=True)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak_producer", description=__doc__)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sample-every", type=float, default=5.0)
    asyncio.run(soak(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
