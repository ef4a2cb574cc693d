"""What real brokers have counted of a client's produce requests, and the processor time that they took.

Called by `targets.py`. The counts are the brokers' own metrics. `BrokerCounts.java`, one process for the life of
the cluster, reads them by JMX.

1. Kafka marks a topic's `TotalProduceRequestsPerSec` once for each partition of a request. A request has one batch
   of a partition, so this metric counts batches.
2. Only clients send produce requests: replicas fetch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self, final

from benchmarks.process import cpu_seconds_of
from tests.kafka_install import KafkaInstall


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """Totals since the brokers' start, or the difference of two of them.

    Attributes:
        requests: Produce requests, of all topics.
        request_bytes: The size of these requests.
        batches: Batches of the topic.
        records: Records of the topic.
        record_bytes: The size of the topic's batches.
        fetches: Fetch requests of the replicas, of all topics.
        cpu_seconds: The brokers' processor time.
    """

    requests: float
    request_bytes: float
    batches: float
    records: float
    record_bytes: float
    fetches: float
    cpu_seconds: float

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def figures(self) -> dict[str, float]:
        """Return the sizes of batches and requests, and what a million records cost; empty without records."""
        if not self.records:
            return {}
        return {
            "records_per_batch": self.records / self.batches,
            "batches_per_request": self.batches / self.requests,
            "requests_per_million": self.requests / self.records * 1e6,
            "kb_per_request": self.request_bytes / self.requests / 1000,
            "fetches_per_million": self.fetches / self.records * 1e6,
            "broker_cpu_seconds_per_million": self.cpu_seconds / self.records * 1e6,
        }


class BrokerCounts:
    """Reads the counts of some brokers; a context manager, for the end of its process.

    Args:
        install: Kafka's installation, for its Java.
        pids: The brokers' processes.
    """

    def __init__(self, install: KafkaInstall, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        source = Path(__file__).with_name("BrokerCounts.java")
        self._process = subprocess.Popen(
            [install.java, "-Xmx64m", "--add-modules", "jdk.attach", str(source), *map(str, pids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read(self, topic: str) -> Counts:
        """Return the counts so far.

        Raises:
            RuntimeError: if the program has ended; its errors are on stderr.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{topic}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"BrokerCounts.java ended with {self._process.wait()}")
        requests, request_bytes, batches, records, record_bytes, fetches = map(float, line.split())
        cpu_seconds = sum(map(cpu_seconds_of, self._pids))
        return Counts(requests, request_bytes, batches, records, record_bytes, fetches, cpu_seconds)
