"""Faults of brokers from a seed, and how each is done.

Used by the chaos run and the soak run.

1. A schedule depends on its seed alone: kinds, partitions, pauses and lengths. Which node is hit depends on who
   leads the partition at that moment, which is the cluster's.
2. Kinds come in shuffled rounds of all of them, so none is rare however short the run.
3. Only one node is hurt at a time: with three nodes, replication 3 and min.insync.replicas 2 the topic goes on, and
   so does the controllers' quorum. A fault is over when every replica is in sync again.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kafka_cluster import KafkaCluster

# Before each fault, so that the producers also meet a whole cluster.
PAUSE = (1.0, 6.0)
# Until a stopped node is started: both sides of the 6 s after which the controller fences a silent one.
DOWN = (0.0, 8.0)
# Both sides of the request time-out (``senders.REQUEST_TIMEOUT_MS``) and of the fencing.
STALL = (5.0, 30.0)


class Kind(Enum):
    """What happens to a node."""

    CLEAN_BOUNCE = "clean bounce"
    HARD_BOUNCE = "hard bounce"
    STALL = "stall"


BOUNCES = (Kind.CLEAN_BOUNCE, Kind.HARD_BOUNCE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: What is done: SIGTERM and a start, SIGKILL and a start, or SIGSTOP and SIGCONT.
        partition: The node that leads this partition is hurt.
        pause: Seconds before it.
        length: Seconds that the node is down or stalled.
    """

    kind: Kind
    partition: int
    pause: float
    length: float


def endless(seed: int, partitions: int, kinds: Sequence[Kind] = tuple(Kind)) -> Iterator[Fault]:
    """Faults without end."""
    chance = random.Random(seed)
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            yield Fault(
                kind=kind,
                partition=chance.randrange(partitions),
                pause=chance.uniform(*PAUSE),
                length=chance.uniform(*(STALL if kind is Kind.STALL else DOWN)),
            )


def one_of_each(seed: int, partitions: int, *, pause: float, down: float, stall: float) -> Iterator[Fault]:
    """Each kind once, of given lengths: for a run that is to be short."""
    chance = random.Random(seed)
    for kind in chance.sample(tuple(Kind), len(Kind)):
        yield Fault(kind, chance.randrange(partitions), pause, stall if kind is Kind.STALL else down)


def carry_out(cluster: KafkaCluster, topic: str, fault: Fault) -> int:
    """Do it, and wait until the cluster is whole again.

    Returns:
        The node that was hurt.
    """
    cluster.wait_until_led(topic, partitions=len(cluster.partitions(topic)))
    node = cluster.leader_of(topic, fault.partition)
    if fault.kind is Kind.STALL:
        cluster.stall(node)
        time.sleep(fault.length)
        cluster.resume(node)
    else:
        if fault.kind is Kind.HARD_BOUNCE:
            cluster.kill(node)
        else:
            cluster.terminate(node)
        time.sleep(fault.length)
        cluster.start(node)
    cluster.wait_until_ready()
    cluster.wait_until_in_sync(topic)
    return node
