"""A FakeCluster in a process of its own, so that a client is measured alone.

The process takes words on its standard input: `stall` (sockets stay open, nothing is read and nothing answered from
then on), `resume`, and `count TOPIC`, which it answers with the number of records that the topic's logs hold.
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

    def count(self, topic: str) -> int:
        """How many records a topic holds."""
        return int(self._ask(f"count {topic}"))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def _tell(self, word: str) -> None:
        if self._ask(word) != word:
            raise RuntimeError("the broker process ended")

    def _ask(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._readline()

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
            if word.startswith("count "):
                print(len(cluster.records(word.removeprefix("count "))), flush=True)
                continue
            for broker in cluster.ports:
                (cluster.faults.stall if word == "stall" else cluster.faults.resume)(broker)
            print(word, flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
