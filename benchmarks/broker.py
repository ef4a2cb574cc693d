"""A FakeCluster in a process of its own, so that a client is measured alone.

With `stalled`, the process takes a line on its standard input as the word to stall: sockets stay open, nothing is
read and nothing answered from then on.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class BrokerProcess:
    """The running brokers.

    Attributes:
        bootstrap_servers: Their addresses.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.bootstrap_servers = self._readline()

    def stall(self) -> None:
        """Let them read and answer nothing any more, with their sockets open."""
        self._tell("stall")

    def resume(self) -> None:
        """End `stall()`."""
        self._tell("resume")

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        if self._readline() != word:
            raise RuntimeError("the broker process ended")

    def _readline(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def broker_process(*, topic: str, partitions: int, brokers: int = 1) -> Iterator[BrokerProcess]:
    """Start brokers with one topic; they end with the block."""
    command = [sys.executable, "-m", "benchmarks.broker", topic, str(partitions), str(brokers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield BrokerProcess(process)
    finally:
        process.kill()
        process.communicate()


async def _serve(topic: str, partitions: int, brokers: int) -> None:
    from aioproduce.testing import FakeCluster

    loop = asyncio.get_running_loop()
    async with FakeCluster(brokers=brokers, topics={topic: partitions}) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            for broker in cluster.ports:
                (cluster.faults.stall if word == "stall" else cluster.faults.resume)(broker)
            print(word, flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
