"""Samples twice a second how many records are in Kafka, and how many in the lake.

Used by `story`, drawn by `report`. It asks the brokers and reads Spark's own checkpoint, so it does not depend on a
source or a job, and a dead one cannot report a wrong figure.

1. If a broker does not answer, or the checkpoint is being written, the last value stays: figures only grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioproduce.spark.checkpoint import read_checkpoint
from tests.kafka_ask import LATEST, offset_of
from tests.kafka_cluster import KafkaCluster

INTERVAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts at an instant.

    Attributes:
        at: Seconds since the watch began.
        produced: Records in Kafka, by topic.
        landed: Records in batches that the landing has committed, by topic.
    """

    at: float
    produced: Mapping[str, int]
    landed: Mapping[str, int]

    @property
    def lag(self) -> int:
        """Records that are in Kafka and not in the lake."""
        return sum(self.produced.values()) - sum(self.landed.values())


class Watch(threading.Thread):
    """A thread that samples until it is closed.

    Args:
        cluster: The brokers.
        topics: The number of partitions by topic.
        checkpoint: The landing's checkpoint.
    """

    def __init__(self, cluster: KafkaCluster, topics: Mapping[str, int], checkpoint: Path) -> None:
        super().__init__(name="watch", daemon=True)
        self._cluster = cluster
        self._topics = tuple(topics)
        self._checkpoint = checkpoint
        self._ended = threading.Event()
        self._ends = {(topic, number): 0 for topic, count in topics.items() for number in range(count)}
        self._landed: dict[str, int] = {}
        self.began_at = time.monotonic()
        self.samples: list[Sample] = [Sample(0.0, dict.fromkeys(topics, 0), dict.fromkeys(topics, 0))]

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began_at

    @property
    def last(self) -> Sample:
        """The newest sample."""
        return self.samples[-1]

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.samples.append(self._look())

    def close(self) -> None:
        """Stop sampling; safe to repeat."""
        self._ended.set()
        if self.is_alive():
            self.join()

    def _look(self) -> Sample:
        for place in self._ends:
            self._ends[place] = max(self._ends[place], self._end_of(*place))
        produced = dict.fromkeys(self._topics, 0)
        for (topic, _), end in self._ends.items():
            produced[topic] += end
        self._landed = landed(self._checkpoint, self._topics) or self._landed
        return Sample(self.now, produced, {topic: self._landed.get(topic, 0) for topic in self._topics})

    def _end_of(self, topic: str, partition: int) -> int:
        """Return the partition's end according to its leader, 0 if it has none at present."""
        for node in self._cluster.nodes.values():
            if not node.is_running:
                continue
            try:
                end = offset_of(node.port, topic, partition, LATEST)
            except (OSError, ValueError):  # it is being killed, or has just started and has no metadata yet
                continue
            if end is not None:
                return end
        return 0


def is_within_a_batch(checkpoint: Path) -> bool:
    """Return whether a batch is unfinished: after a kill, its records will be written again."""
    found = read_checkpoint(str(checkpoint))
    return found is not None and found.has_unfinished


def landed(checkpoint: Path, topics: Sequence[str]) -> dict[str, int]:
    """Return the records of each topic up to the last committed batch; empty before the first commit."""
    found = read_checkpoint(str(checkpoint))
    if found is None or found.committed < 0:
        return {}
    ends = found.end_offsets(found.committed)
    return {topic: sum(ends.get(topic, {}).values()) for topic in topics}
