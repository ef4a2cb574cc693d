"""Bugs on purpose that chance does not show, or seldom: each with a test that notices it.

They went through all tests once. For `mutants`, which has them among the others; `witness` runs their tests.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import trio

from aioproduce.core.batching.producer_batch import BatchState, ProducerBatch
from aioproduce.core.batching.record_accumulator import RecordAccumulator
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
from aioproduce.core.exchanges.delivery_errors import DeliveryErrors
from aioproduce.core.exchanges.produce_completion import ProduceCompletion
from aioproduce.core.sender import Sender
from aioproduce.producer.admission import Admission
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioproduce.records import TopicPartition
    from aioproduce.wire.messages import PartitionProduceResponse

    Mutant = Callable[[], AbstractContextManager[None]]


class Witness(NamedTuple):
    """A test that notices a bug: `folder/file.py::function` under `tests`, and what it is called with."""

    test: str
    arguments: dict[str, Any]


@contextmanager
def _topic_not_touched() -> Iterator[None]:
    """A topic that is in use is forgotten after `metadata.max.idle.ms`, and the next record waits for metadata."""
    with patch.object(ClusterMetadata, "touch", lambda *_: None):
        yield


@contextmanager
def _lingers_though_memory_is_short() -> Iterator[None]:
    """A send that waits for memory does not end the lingering of the batches that have it."""
    with patch.object(Sender, "memory_exhausted", lambda *_: None):
        yield


@contextmanager
def _topic_not_looked_at_after_a_wait() -> Iterator[None]:
    """A record goes to the partition that was there when its wait for memory began."""
    with patch.object(Admission, "_still_has", lambda *_: True):
        yield


@contextmanager
def _keyless_choice_not_told() -> Iterator[None]:
    """Keep the partition choice for keyless records when a leader becomes known without metadata (KIP-951)."""

    def leader_changed(accumulator: RecordAccumulator, topic_partition: TopicPartition, now: float) -> None:
        queue = accumulator._find(topic_partition)
        if queue is not None:
            queue.leader_id = accumulator._metadata.leader_of(*topic_partition)
            queue.leader_epoch = accumulator._metadata.leader_epoch_of(*topic_partition)
            accumulator.readiness.reconsider(queue, now)

    with patch.object(RecordAccumulator, "leader_changed", leader_changed):
        yield


@contextmanager
def _late_repetition_refused() -> Iterator[None]:
    """That the broker has had an expired batch before counts as if it had refused it."""
    complete = ProduceCompletion._complete

    def completed(
        completion: ProduceCompletion,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        *rest: Any,
        **more: Any,
    ) -> None:
        if batch.state is BatchState.ABANDONED and answer.error_code == codes.DUPLICATE_SEQUENCE_NUMBER:
            with patch.object(Sequences, "batch_succeeded", lambda *_: None):
                complete(completion, batch, answer, *rest, **more)
        else:
            complete(completion, batch, answer, *rest, **more)

    with patch.object(ProduceCompletion, "_complete", completed):
        yield


@contextmanager
def _first_record_error_only() -> Iterator[None]:
    """Of several records that the broker blames, only the first is told so."""
    errors_of = DeliveryErrors.record_errors

    def record_errors(
        maker: DeliveryErrors, batch: ProducerBatch, answer: PartitionProduceResponse
    ) -> dict[int, BaseException] | None:
        return errors_of(maker, batch, answer._replace(record_errors=answer.record_errors[:1]))

    with patch.object(DeliveryErrors, "record_errors", record_errors):
        yield


@contextmanager
def _one_code_for_all_record_errors() -> Iterator[None]:
    """Each of several records that the broker blames gets the answer's code, which may be another's."""
    errors_of = DeliveryErrors.record_errors

    def record_errors(
        maker: DeliveryErrors, batch: ProducerBatch, answer: PartitionProduceResponse
    ) -> dict[int, BaseException] | None:
        errors = errors_of(maker, batch, answer)
        for complaint in answer.record_errors:
            alone = errors_of(maker, batch, answer._replace(record_errors=(complaint,)))
            assert errors is not None
            assert alone is not None
            errors[complaint.batch_index] = alone[complaint.batch_index]
        return errors

    with patch.object(DeliveryErrors, "record_errors", record_errors):
        yield


@contextmanager
def _first_address_only() -> Iterator[None]:
    """Under trio, of a name's addresses only the first is tried (KIP-302)."""
    look_up = trio.socket.getaddrinfo

    async def first(*arguments: Any, **more: Any) -> Any:
        return (await look_up(*arguments, **more))[:1]

    with patch.object(trio.socket, "getaddrinfo", first):
        yield


_CORE = {"mode": "idempotent", "side": "core"}

QUIET: dict[str, tuple[Mutant, Witness]] = {
    "topic not touched": (
        _topic_not_touched,
        Witness(
            "simulation/test_scenarios_client.py::test_a_topic_in_constant_use_is_never_forgotten", _CORE
        ),
    ),
    "lingers though memory is short": (
        _lingers_though_memory_is_short,
        Witness(
            "simulation/test_scenarios_memory.py::test_what_lingers_goes_when_a_send_waits_for_memory", _CORE
        ),
    ),
    "topic not looked at after a wait": (
        _topic_not_looked_at_after_a_wait,
        Witness(
            "simulation/test_scenarios_memory.py::test_a_record_that_names_no_partition_finds_one",
            {"meanwhile": "forgotten", "call": "send"},
        ),
    ),
    "keyless choice not told": (
        _keyless_choice_not_told,
        Witness(
            "simulation/test_scenarios_partitions.py::test_keyless_records_follow_a_leader_that_an_answer_names",
            _CORE | {"rule": "uniform_sticky"},
        ),
    ),
    "late repetition refused": (
        _late_repetition_refused,
        Witness(
            "unit/test_sender_epochs.py::test_a_late_answer_tells_that_the_new_sequence_is_left_unused",
            {"code": codes.DUPLICATE_SEQUENCE_NUMBER},
        ),
    ),
    "first record error only": (
        _first_record_error_only,
        Witness("simulation/test_scenarios_sequences.py::test_a_batch_with_several_invalid_records", _CORE),
    ),
    "one code for all record errors": (
        _one_code_for_all_record_errors,
        Witness("simulation/test_scenarios_sequences.py::test_a_batch_with_several_invalid_records", _CORE),
    ),
    "first address only": (
        _first_address_only,
        Witness("drivers/test_trio_addresses.py::test_the_first_address_that_answers_is_taken", {"place": 1}),
    ),
}
"""By name."""
