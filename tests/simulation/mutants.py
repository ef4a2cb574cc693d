"""Bugs on purpose: each changes one thing in the producer that a simulation must notice.

A mutant is a context manager that patches the producer while cases run. `python -m tests.simulation
--mutants` tells in how many seeds which letter of the oracle (`ledger`) objected. An oracle that accepts too much
shows only with a bug in front of it: after a change of the oracle, compare that table with the one before.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioproduce.core.batching.buffer_pool import BufferPool
from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, BatchState, ProducerBatch
from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.batching.topic_queues import PartitionQueue
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
from aioproduce.core.exchanges.produce_completion import ProduceCompletion
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.core.sender import Sender
from tests.simulation.mutants_quiet import QUIET, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def _patched(owner: type, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    with patch.object(owner, name, make(getattr(owner, name))):
        yield


def _idempotence_off() -> AbstractContextManager[None]:
    """Batches carry no producer id: a repetition is a new batch to the broker."""

    def make(seal: Any) -> Any:
        def begin_attempt(batch: ProducerBatch, *options: Any) -> None:
            producer, sequence = batch.producer, batch.base_sequence
            batch.producer, batch.base_sequence = NO_PRODUCER_ID, -1
            seal(batch, *options)
            batch.producer, batch.base_sequence = producer, sequence

        return begin_attempt

    return _patched(ProducerBatch, "begin_attempt", make)


def _sequence_not_advanced() -> AbstractContextManager[None]:
    """Every batch of a partition has the sequence of the first."""

    def make(assign: Any) -> Any:
        def assign_sequence(manager: Sequences, batch: ProducerBatch) -> None:
            is_new = not batch.has_sequence
            assign(manager, batch)
            if is_new:
                manager._partition(batch.topic_partition).next = batch.base_sequence

        return assign_sequence

    return _patched(Sequences, "assign_sequence", make)


def _rare_sequence_skip() -> AbstractContextManager[None]:
    """One batch in 97 is not counted: the next one has its sequence."""
    count = 0

    def make(assign: Any) -> Any:
        def assign_sequence(manager: Sequences, batch: ProducerBatch) -> None:
            nonlocal count
            is_new = not batch.has_sequence
            assign(manager, batch)
            count += is_new
            if is_new and count % 97 == 0:
                manager._partition(batch.topic_partition).next = batch.base_sequence

        return assign_sequence

    return _patched(Sequences, "assign_sequence", make)


def _new_sequence_on_retry() -> AbstractContextManager[None]:
    """A batch gets a sequence each time that it is sent."""

    def make(requeue: Any) -> Any:
        def again(batch: ProducerBatch, retry_at: float) -> None:
            requeue(batch, retry_at)
            batch.base_sequence = -1

        return again

    return _patched(ProducerBatch, "requeue", make)


def _no_retry() -> AbstractContextManager[None]:
    """The first error is the last."""
    return _patched(ProduceCompletion, "_may_retry", lambda _: lambda *_: False)


def _no_back_off() -> AbstractContextManager[None]:
    """What failed is tried again at once."""
    return _patched(ExponentialBackoff, "backoff", lambda _: lambda *_: 0.0)


def _retried_at_once() -> AbstractContextManager[None]:
    """A batch is sent again without a pause, while all else backs off."""
    return _patched(ProducerBatch, "requeue", lambda requeue: lambda batch, _: requeue(batch, 0.0))


def _retry_goes_last() -> AbstractContextManager[None]:
    """A batch that is retried goes behind those that came after it."""

    def make(_: Any) -> Any:
        def put_back(queue: PartitionQueue, batch: ProducerBatch, _is_before: Any) -> None:
            queue.close_open()
            queue.batches.append(batch)

        return put_back

    return _patched(PartitionQueue, "put_back", make)


def _no_muting() -> AbstractContextManager[None]:
    """With one request in flight, the next batch goes before the one that is retried."""
    return _patched(RecordAccumulator, "mute", lambda _: lambda *_: None)


def _ambiguity_forgotten() -> AbstractContextManager[None]:
    """After a definite error nobody remembers the answer that was lost before."""

    def make(requeue: Any) -> Any:
        def again(batch: ProducerBatch, retry_at: float) -> None:
            requeue(batch, retry_at)
            batch.possibly_written = False

        return again

    return _patched(ProducerBatch, "requeue", make)


def _buffer_released_on_time_out() -> AbstractContextManager[None]:
    """The memory of a batch goes back when its records fail, though it may be on the wire (KAFKA-19012)."""

    def make(_: Any) -> Any:
        def fail(batch: ProducerBatch, error: BaseException, record_errors: Any = None) -> None:
            batch._move("given up")
            batch.is_open = False
            batch.result.fail(error, batch.record_count, record_errors)
            batch._lease.release()

        return fail

    def make_release(_: Any) -> Any:
        return lambda batch: batch._move("bytes free")

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _patched(ProducerBatch, "fail", make),
            _patched(ProducerBatch, "release_abandoned", make_release),
        ):
            yield

    return both()


def _lease_leaked() -> AbstractContextManager[None]:
    """The memory of a batch that failed in flight never comes back."""
    return _patched(ProducerBatch, "release_abandoned", lambda _: lambda batch: batch._move("bytes free"))


def _waiter_not_woken() -> AbstractContextManager[None]:
    """Memory that comes free is given to nobody who waits."""

    def make(_: Any) -> Any:
        def take_back(pool: BufferPool, buffer: bytearray, size: int) -> None:
            pool._unallocated += size

        return take_back

    return _patched(BufferPool, "_take_back", make)


def _no_time_out() -> AbstractContextManager[None]:
    """`delivery.timeout.ms` is not kept."""
    return _patched(RecordAccumulator, "expired", lambda _: lambda *_: [])


def _loss_not_told() -> AbstractContextManager[None]:
    """What was in flight on a connection that is lost is never heard of again."""
    return _patched(ProduceCompletion, "unanswered", lambda _: lambda *_, **__: None)


def _no_refresh() -> AbstractContextManager[None]:
    """Metadata is asked for when it is old, and for no other reason; hints are not heeded either."""

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _patched(ClusterMetadata, "request_update", lambda _: lambda *_: None),
            _patched(ClusterMetadata, "update_leaders", lambda _: lambda *_: []),
        ):
            yield

    return both()


def _wrong_offset() -> AbstractContextManager[None]:
    """A batch that was retried is told the offset of the record behind it."""

    def make(succeed: Any) -> Any:
        def wrongly(batch: ProducerBatch, base_offset: int, *others: int) -> None:
            succeed(batch, base_offset + (batch.attempts > 1), *others)

        return wrongly

    return _patched(ProducerBatch, "succeed", make)


def _acknowledged_when_sent() -> AbstractContextManager[None]:
    """A lost answer is taken for an acknowledgement."""

    def make(_: Any) -> Any:
        def lost(completion: ProduceCompletion, batch: ProducerBatch, *_: Any) -> None:
            if batch.state is BatchState.ABANDONED:
                batch.release_abandoned()
                return
            if completion._sequences is not None:
                completion._sequences.batch_succeeded(batch)
            batch.succeed(-1, -1)
            completion._after_settling(batch)

        return lost

    return _patched(ProduceCompletion, "_lost", make)


def _epoch_bumped_in_doubt() -> AbstractContextManager[None]:
    """A partition whose batch is given up starts a new epoch at once, though what is in flight may be written."""

    def make(failed: Any) -> Any:
        def batch_failed(manager: Sequences, batch: ProducerBatch) -> None:
            failed(manager, batch)
            manager._unresolved.pop(batch.topic_partition, None)
            manager._partition(batch.topic_partition).unresolved_until = None
            manager._request_rewrite(batch.topic_partition)

        return batch_failed

    return _patched(Sequences, "batch_failed", make)


def _never_a_new_epoch() -> AbstractContextManager[None]:
    """A gap that the broker reports is never closed: the partition is stuck."""
    return _patched(Sequences, "_request_rewrite", lambda _: lambda *_: None)


def _two_of_a_partition() -> AbstractContextManager[None]:
    """A request may carry two batches of a partition. (It could, until the simulation found it.)"""

    def make(drain: Any) -> Any:
        def twice(accumulator: RecordAccumulator, node: int, now: float) -> list[ProducerBatch]:
            drained: list[ProducerBatch] = drain(accumulator, node, now)
            return drained + drain(accumulator, node, now) if len(drained) > 1 else drained

        return twice

    return _patched(RecordAccumulator, "drain", make)


def _halved_in_doubt() -> AbstractContextManager[None]:
    """A batch that may be written is halved when it is found too large. (It was, until the simulation found it.)"""
    return _patched(ProduceCompletion, "_may_split", lambda _: lambda _, batch: batch.record_count > 1)


def _flush_too_early() -> AbstractContextManager[None]:
    """flush() looks at what is in the queues, and not at what is in flight."""
    return _patched(Sender, "_check_flushes", _flush_all)


def _flush_all(_: Any) -> Any:
    def check(sender: Sender) -> None:
        while sender._flushes:
            sender._flushes.popleft()[1]()

    return check


def _answer_time_not_kept() -> AbstractContextManager[None]:
    """`request.timeout.ms` is not kept: a broker that does not answer is waited for."""

    def make(send: Any) -> Any:
        def patiently(
            connection: BrokerConnection,
            api: Any,
            encode: Any,
            asker: Any,
            now: float,
            timeout: float | None = None,
            *rest: Any,
            **options: Any,
        ) -> Any:
            return send(connection, api, encode, asker, now, 1e9, *rest, **options)

        return patiently

    return _patched(BrokerConnection, "send", make)


MUTANTS: dict[str, Mutant] = {
    "idempotence off": _idempotence_off,
    "sequence not advanced": _sequence_not_advanced,
    "rare sequence skip": _rare_sequence_skip,
    "new sequence on retry": _new_sequence_on_retry,
    "epoch bumped in doubt": _epoch_bumped_in_doubt,
    "never a new epoch": _never_a_new_epoch,
    "no retry": _no_retry,
    "no back-off": _no_back_off,
    "retried at once": _retried_at_once,
    "retry goes last": _retry_goes_last,
    "no muting": _no_muting,
    "ambiguity forgotten": _ambiguity_forgotten,
    "buffer released on time-out": _buffer_released_on_time_out,
    "lease leaked": _lease_leaked,
    "waiter not woken": _waiter_not_woken,
    "delivery.timeout.ms not kept": _no_time_out,
    "request.timeout.ms not kept": _answer_time_not_kept,
    "loss not told": _loss_not_told,
    "no refresh": _no_refresh,
    "wrong offset": _wrong_offset,
    "lost answer acknowledged": _acknowledged_when_sent,
    "two batches of a partition": _two_of_a_partition,
    "halved in doubt": _halved_in_doubt,
    "flush too early": _flush_too_early,
    **{name: mutant for name, (mutant, _) in QUIET.items()},
}
"""By name."""

WHERE: dict[str, dict[str, Any]] = {
    "epoch bumped in doubt": {"mode": "idempotent", "weather": "storm"},
    "no muting": {"mode": "plain", "in_flight": 1, "weather": "storm"},
}
"""Where a bug can show at all, if that is a small part of all cases: what `make_case` shall not draw."""

WITNESSES: dict[str, Witness] = {
    "buffer released on time-out": Witness(
        "simulation/test_scenarios_peers.py::test_no_buffer_is_used_again_while_a_request_is_on_the_wire",
        {"mode": "idempotent", "side": "core"},
    ),
    **{name: witness for name, (_, witness) in QUIET.items()},
}
"""The test that notices a bug for which chance needs thousands of seeds."""
