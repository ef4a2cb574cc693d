"""Gauges that are computed on request: the amount and the age of the work in progress.

Called by the ProducerLife, which registers these functions by the names of `metrics.GAUGES`.

Invariants:

1. Nothing here costs anything per record. The oldest item is the first in its collection: the first pending batch
   of all partitions, the first waiting `send()`.
2. One function reads all pending batches: the count of records that wait for a silent broker. It runs only while
   there is such a broker, and buffer.memory bounds the batches (2,048 by default).
"""

from __future__ import annotations

from collections import Counter
from math import nan
from typing import TYPE_CHECKING

from aioproduce.errors import TransactionOutcome
from aioproduce.metrics import GAUGES
from aioproduce.records import SilentBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.core.sender import Sender
    from aioproduce.producer.admission import Admission

    Gauges = dict[str, Callable[[float], float]]


def gauges_before_the_start(config: ProducerConfig) -> Gauges:
    """Return the gauges of a producer that was not started."""
    return dict.fromkeys(GAUGES, lambda _: 0.0) | {
        "metadata-age": lambda _: nan,
        "buffer-total-bytes": lambda _: config.buffer_memory,
        "buffer-available-bytes": lambda _: config.buffer_memory,
    }


def gauges_of(sender: Sender, admission: Admission) -> Gauges:
    """Return the gauges of a producer that was started."""
    pool = sender.pool
    return {
        "requests-in-flight": lambda _: sender.connections.in_flight,
        "metadata-age": lambda now: sender.metadata.age(now),
        "waiting-threads": lambda _: pool.waiting,
        "waiting-tasks": lambda _: pool.waiting,
        "oldest-record-age": lambda now: oldest_record_age(sender, now) * 1000,
        "oldest-send-wait": lambda now: admission.oldest_wait(now) * 1000,
        "silent-brokers": lambda now: len(sender.connections.silent(now)),
        "buffer-available-bytes": lambda _: pool.available,
        "connection-count": lambda _: sender.connections.open_count,
        **_transaction_gauges(sender),
    }


def _transaction_gauges(sender: Sender) -> Gauges:
    manager = sender.transactions
    if manager is None:
        return {}
    pause, outcomes = manager.pause, manager.outcomes
    return {
        "txn-pause": lambda _: pause.seconds * 1000,
        "txn-first-produce-wait": lambda _: pause.first_produce_wait * 1000,
        "txn-open-time": lambda now: (
            0.0 if manager.transaction is None else manager.transaction.open_for(now) * 1000
        ),
        "txn-committed-total": lambda _: outcomes[TransactionOutcome.COMMITTED],
        "txn-aborted-total": lambda _: outcomes[TransactionOutcome.ABORTED],
        "txn-unknown-total": lambda _: outcomes[TransactionOutcome.UNKNOWN],
    }


def oldest_record_age(sender: Sender, now: float) -> float:
    """Return the seconds since the oldest record without an outcome was accepted; 0 if there is none."""
    oldest = sender.accumulator.oldest_incomplete
    return 0.0 if oldest is None else max(now - oldest.created_at, 0.0)


def silent_brokers(sender: Sender, now: float) -> list[SilentBroker]:
    """Return the brokers that stopped answering, and the records that wait for each."""
    silent = sender.connections.silent(now)
    if not silent:
        return []
    waiting: Counter[int] = Counter()
    for batch in sender.accumulator.incomplete:
        if not batch.result.is_done:
            waiting[sender.metadata.leader_of(batch.topic, batch.partition)] += batch.record_count
    return [
        SilentBroker(
            node_id=address.node_id,
            host=address.host,
            port=address.port,
            seconds=seconds,
            requests=sender.connections.in_flight_to(address.node_id),
            records=waiting[address.node_id],
        )
        for address, seconds in silent
    ]
