"""A FakeCluster in a separate process, so that only the client is measured.

The process reads commands from standard input, and answers each with a line: `stall` (sockets stay open, but the
brokers read and answer nothing), `resume`, `count TOPIC` (the number of records in the topic's logs), `audit TOPIC`
(see `BrokerProcess.audit`) and `settings USER MECHANISM` (the settings that a client needs).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any


class BrokerProcess:
    """The running brokers.

    Attributes:
        bootstrap_servers: Their addresses.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.bootstrap_servers = self._readline()

    def stall(self) -> None:
        """Stop all reading and answering, with sockets left open."""
        self._tell("stall")

    def resume(self) -> None:
        """End `stall()`."""
        self._tell("resume")

    def count(self, topic: str) -> int:
        """Return the number of records in a topic."""
        return int(self._ask(f"count {topic}"))

    def audit(self, topic: str) -> dict[str, int]:
        """Check a topic whose records' values are numbers in the order of sending.

        Returns:
            `records`, `distinct` (numbers), and `disordered`: records after one in the same partition whose number
            is not less.
        """
        audited: dict[str, int] = json.loads(self._ask(f"audit {topic}"))
        return audited

    def settings(self, user: str, mechanism: str) -> dict[str, str]:
        """Return Kafka's keys for a client of a secured cluster, with the addresses."""
        settings: dict[str, str] = json.loads(self._ask(f"settings {user} {mechanism}"))
        return {"bootstrap.servers": self.bootstrap_servers, **settings}

    @property
    def pid(self) -> int:
        """The id of the process."""
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
def broker_process(
    *, topic: str, partitions: int, brokers: int = 1, security: Mapping[str, Any] | None = None
) -> Iterator[BrokerProcess]:
    """Start brokers with one topic; they end with the block.

    Args:
        topic: The topic's name.
        partitions: The number of its partitions.
        brokers: The number of brokers.
        security: Arguments of `FakeSecurity`; `None` for brokers without a login.
    """
    command = [sys.executable, "-m", "benchmarks.broker", topic, str(partitions), str(brokers)]
    command.append(json.dumps(security))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield BrokerProcess(process)
    finally:
        process.kill()
        process.communicate()


def _audit(logs: Mapping[int, list[int]]) -> dict[str, int]:
    numbers = [number for log in logs.values() for number in log]
    disordered = sum(later <= earlier for log in logs.values() for earlier, later in pairwise(log))
    return {"records": len(numbers), "distinct": len(set(numbers)), "disordered": disordered}


async def _serve(topic: str, partitions: int, brokers: int, security: Mapping[str, Any] | None) -> None:
    from aioproduce.testing import FakeCluster

    loop = asyncio.get_running_loop()
    async with FakeCluster(brokers=brokers, topics={topic: partitions}, security=security) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            word, *rest = line.split()
            answer = word
            if word == "count":
                answer = str(len(cluster.records(*rest)))
            elif word == "audit":
                logs: dict[int, list[int]] = {}
                for record in cluster.records(*rest):
                    logs.setdefault(record.partition, []).append(int(record.value or b"-1"))
                answer = json.dumps(_audit(logs))
            elif word == "settings":
                user, mechanism = rest
                answer = json.dumps(cluster.client_settings(user=user, mechanism=mechanism))
            else:
                for broker in cluster.ports:
                    (cluster.faults.stall if word == "stall" else cluster.faults.resume)(broker)
            print(answer, flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
