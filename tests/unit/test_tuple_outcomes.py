"""What the deliveries of a drop-in give out, in both builds."""

from __future__ import annotations

import gc
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import RecordMetadata, TopicPartition

from tests.native_builds import BUILDS, is_compiled, native_build


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """All modules of one build."""
    return native_build(request.param)


class Runtime:
    """What a batch's result asks of a driver, as far as nobody waits."""

    def __init__(self, outcomes: Any) -> None:
        self.outcomes = outcomes
        self.unobserved = 0

    def invalid_state_error(self, message: str) -> BaseException:
        return RuntimeError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        self.unobserved += count


def outcomes_of(native: SimpleNamespace, *, is_acknowledged: bool = True) -> Any:
    def translate(error: BaseException) -> BaseException:
        return LookupError(f"translated: {error}")

    return native.tuple_outcomes.TupleOutcomes(
        RecordMetadata, TopicPartition, translate, is_acknowledged=is_acknowledged
    )


def test_a_delivery_gives_out_the_other_librarys_tuple(native: SimpleNamespace) -> None:
    result = native.delivery.BatchResult("t", 3, Runtime(outcomes_of(native)))
    first = native.delivery.make_delivery(result, 0, 1000, -1, 5)
    second = native.delivery.make_delivery(result, 1, 1001, -1, 5)
    result.succeed(70, -1, 7)
    assert first.result() == RecordMetadata("t", 3, TopicPartition("t", 3), 70, 1000, 0, 7)
    assert second.result() == RecordMetadata("t", 3, TopicPartition("t", 3), 71, 1001, 0, 7)
    assert type(first.result()) is RecordMetadata
    assert type(first.result().topic_partition) is TopicPartition
    assert "offset=71" in repr(second)


def test_the_brokers_time_goes_before_the_records(native: SimpleNamespace) -> None:
    result = native.delivery.BatchResult("t", 0, Runtime(outcomes_of(native)))
    delivery = native.delivery.make_delivery(result, 2, 1000, -1, 5)
    result.succeed(-1, 5000)
    metadata = delivery.result()
    assert (metadata.offset, metadata.timestamp, metadata.timestamp_type) == (-1, 5000, 1)
    assert metadata.log_start_offset == -1


def test_records_of_several_partitions_in_turn(native: SimpleNamespace) -> None:
    outcomes = outcomes_of(native)
    for topic, partition in [("a", 0), ("a", 1), ("b", 1), ("b", 1), ("a", 0), ("A".lower(), 0)]:
        made = outcomes.metadata(topic, partition, 5, 6, -1, 0)
        assert made == RecordMetadata(topic, partition, TopicPartition(topic, partition), 5, 6, 0, 0)


def test_without_acknowledgement_it_is_none(native: SimpleNamespace) -> None:
    result = native.delivery.BatchResult("t", 0, Runtime(outcomes_of(native, is_acknowledged=False)))
    delivery = native.delivery.make_delivery(result, 0, 1000, -1, 5)
    result.succeed(-1)
    assert delivery.result() is None
    assert delivery.exception() is None
    assert "offset=None" in repr(delivery)


def test_an_error_is_translated_for_who_asks(native: SimpleNamespace) -> None:
    runtime = Runtime(outcomes_of(native))
    result = native.delivery.BatchResult("t", 0, runtime)
    asked, dropped = (native.delivery.make_delivery(result, index, 1000, -1, 5) for index in range(2))
    result.fail(ValueError("why"), 2)
    with pytest.raises(LookupError, match="translated: why"):
        asked.result()
    assert type(asked.exception()) is LookupError
    assert asked.exception() is not asked.exception()
    del asked, dropped, result
    gc.collect()
    assert runtime.unobserved == 1


def test_a_runtime_without_outcomes_gives_ours(native: SimpleNamespace) -> None:
    for runtime in (Runtime(None), object()):
        result = native.delivery.BatchResult("t", 0, runtime)
        delivery = native.delivery.make_delivery(result, 0, 1000, -1, 5)
        result.succeed(3)
        assert type(delivery.result()).__name__ == "RecordMetadata"
        assert not isinstance(delivery.result(), RecordMetadata)


@pytest.mark.parametrize(
    "kind",
    [TopicPartition, tuple, namedtuple("Other", "topic partition offset"), dict],
    ids=lambda k: k.__name__,
)
def test_a_tuple_of_another_shape_is_refused(native: SimpleNamespace, kind: type) -> None:
    # In C the fields are put in by their places.
    with pytest.raises(TypeError, match="is no named tuple of topic, partition"):
        native.tuple_outcomes.TupleOutcomes(kind, TopicPartition, lambda error: error, is_acknowledged=True)


def test_tuples_are_nothing_for_the_garbage_collector(native: SimpleNamespace) -> None:
    made = outcomes_of(native).metadata("t", 0, 2**40, 2**41, -1, 2**42)
    assert made == RecordMetadata("t", 0, TopicPartition("t", 0), 2**40, 2**41, 0, 2**42)
    # The interpreted build makes them as anybody does.
    assert gc.is_tracked(made) == (not is_compiled(native.tuple_outcomes))
