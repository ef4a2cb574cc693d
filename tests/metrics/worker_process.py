"""A worker of a service: a producer of its own, its metrics in the shared directory. Started by tests.

`python -m tests.metrics.worker_process DIRECTORY RECORDS [fork]` sends so many records, says `ready NUMBER CHILD`,
and ends at the end of its standard input. With `fork` it has forked a child that outlives it, whose pid CHILD is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aioproduce import Producer
from aioproduce.reporters.worker_files import WorkerFile
from aioproduce.testing import FakeCluster


async def main(directory: str, records: int, forks: bool) -> None:
    async with FakeCluster() as cluster, Producer(cluster.bootstrap_servers, client_id="web") as producer:
        for number in range(records):
            await producer.send("orders", b"%d" % number)
        await producer.flush()
        async with WorkerFile(producer, directory=directory, period=0.05) as file:
            child = os.fork() if forks else 0
            if forks and child == 0:
                signal.pause()
            print("ready", file.number, child, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), "fork" in sys.argv))
