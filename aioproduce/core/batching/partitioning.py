"""How a producer chooses partitions: `partitioner.class` and the related settings.

Made by the Sender. The RecordAccumulator creates the queues of each topic with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aioproduce._native.key_hash import NO_HASH
from aioproduce._native.topic_appender import TopicAppender
from aioproduce.core.batching.candidates import BrokerLoads, Candidates
from aioproduce.core.batching.keyless_choice import LineChoice, StickyChoice
from aioproduce.partitioners import (
    NAMED,
    Keyless,
    RoundRobin,
    StickyPerBatch,
    UniformRandom,
    UniformSticky,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.keyless_choice import KeylessChoice
    from aioproduce.core.batching.topic_queues import PartitionQueue
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata


@final
class Partitioning:
    """The producer's key rule, and its rule for keyless records.

    Args:
        key_rule: How a key decides the partition (`_native.key_hash`).
        keyless: The rule for records whose key decides nothing.
        metadata: The partitions' leaders and their racks.
        batch_size: `batch.size`, in bytes.
        random: `random(n)` gives an integer from 0 to n - 1.
        is_adaptive: `partitioner.adaptive.partitioning.enable`: fewer records for partitions with longer queues.
        availability_timeout: `partitioner.availability.timeout.ms`, in seconds; 0 leaves no broker out.
        rack: The rack for keyless records, as long as a broker there leads a partition (KIP-1123); `None`: any.

    Attributes:
        key_rule: As above.
        loads: Which brokers are slow; the Sender reports it.
    """

    __slots__ = (
        "_batch_size",
        "_is_adaptive",
        "_keyless",
        "_metadata",
        "_rack",
        "_random",
        "key_rule",
        "loads",
    )

    def __init__(
        self,
        key_rule: int,
        keyless: Keyless,
        metadata: ClusterMetadata,
        *,
        batch_size: int,
        random: Callable[[int], int],
        is_adaptive: bool,
        availability_timeout: float = 0.0,
        rack: str | None = None,
    ) -> None:
        self.key_rule: int = key_rule
        self._keyless = keyless
        self._metadata = metadata
        self._batch_size = batch_size
        self._random = random
        self._is_adaptive = is_adaptive
        self._rack = rack
        self.loads: BrokerLoads = BrokerLoads(availability_timeout)

    def make_appender(self) -> TopicAppender:
        """Return a topic's compiled part of the rules."""
        return TopicAppender(self.key_rule)

    def make_choice(self, appender: TopicAppender, queues: Mapping[int, PartitionQueue]) -> KeylessChoice:
        """Return the keyless choice for the topic of these queues."""
        candidates = Candidates(self.loads, self._metadata, queues, self._rack)
        match self._keyless:
            case Keyless.ROUND_ROBIN:
                return LineChoice(appender, RoundRobin(self._random), candidates)
            case Keyless.RANDOM:
                return LineChoice(appender, UniformRandom(self._random), candidates)
            case Keyless.STICKY_PER_BATCH:
                return StickyChoice(appender, StickyPerBatch(self._random), candidates)
            case Keyless.UNIFORM_STICKY | Keyless.HASHED:
                # With HASHED, the key rule decides for all records, and this choice is never used.
                loads = candidates.loads if self._is_adaptive else None
                return StickyChoice(
                    appender, UniformSticky(max(self._batch_size, 1), self._random, loads), candidates
                )


def make_partitioning(
    config: ProducerConfig, metadata: ClusterMetadata, random: Callable[[int], int]
) -> Partitioning:
    """Return the partitioning of the settings. With a custom partitioner, each record comes with its partition."""
    name = config.partitioner if isinstance(config.partitioner, str) else "uniform_sticky"
    named = NAMED[name]
    return Partitioning(
        NO_HASH if config.partitioner_ignore_keys or name != config.partitioner else named.keys,
        named.keyless,
        metadata,
        batch_size=config.batch_size,
        random=random,
        is_adaptive=config.partitioner_adaptive_partitioning_enable,
        availability_timeout=config.partitioner_availability_timeout,
        rack=config.client_rack if config.partitioner_rack_aware else None,
    )
