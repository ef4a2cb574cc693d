"""Errors on their way between processes: `concurrent.futures`, `multiprocessing`, and as Celery moves them."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from aioproduce.errors import DeliveryTimeoutError, PartialSendError, ProducerError
from aioproduce.portable_error import LeftBehind
from aioproduce.records import TopicPartition
from tests.package import error_worker
from tests.unit.error_samples import keywords_of, public_errors, sample_of

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as executor:
        yield executor


def assert_whole(error: BaseException, kind: type[ProducerError]) -> None:
    assert type(error) is kind
    assert str(error) == str(sample_of(kind))
    for name, value in keywords_of(kind).items():
        assert getattr(error, name) == value


def test_every_error_is_raised_out_of_a_process_pool(executor: ProcessPoolExecutor) -> None:
    kinds = public_errors()
    raised = [executor.submit(error_worker.raises, sample_of(kind), ValueError("why")) for kind in kinds]
    for kind, future in zip(kinds, raised, strict=True):
        error = future.exception()
        assert error is not None
        assert_whole(error, kind)
        # The pool puts the text of the whole traceback in the place of the cause.
        assert "ValueError: why" in str(error.__cause__)


def test_every_error_is_returned_by_a_process_pool_with_its_cause(executor: ProcessPoolExecutor) -> None:
    errors = [sample_of(kind) for kind in public_errors()]
    for error in errors:
        error.__cause__ = ConnectionRefusedError(111, "refused")
    for error, returned in zip(errors, executor.map(error_worker.returns, errors), strict=True):
        assert_whole(returned, type(error))  # type: ignore[arg-type]
        assert isinstance(returned.__cause__, ConnectionRefusedError)


def test_an_error_with_a_delivery_does_not_break_a_pool(executor: ProcessPoolExecutor) -> None:
    error = executor.submit(error_worker.makes_partial_send).exception()
    assert isinstance(error, PartialSendError)
    assert error.index == 1
    assert [type(each) for each in error.deliveries] == [LeftBehind]
    assert repr(error.deliveries[0]).startswith("<Future pending")


def test_every_error_is_raised_out_of_a_multiprocessing_pool() -> None:
    kinds = public_errors()
    with SPAWN.Pool(1) as pool:
        raised = [pool.apply_async(error_worker.raises, (sample_of(kind), None)) for kind in kinds]
        for kind, result in zip(kinds, raised, strict=True):
            with pytest.raises(kind) as caught:
                result.get(timeout=300)
            assert_whole(caught.value, kind)


# Celery's way (celery/backends/base.py: `prepare_exception` and `exception_to_python`; tried with Celery 5.7.0).
# The JSON serializer keeps the module and the name of the class, and `args`. An argument that JSON does not know
# becomes its `repr`. The pickle serializer keeps the error itself if it survives a trip through pickle
# (celery/utils/serialization.py: `get_pickleable_exception`).


def celery_json(error: BaseException) -> str:
    def serializable(argument: object) -> object:
        try:
            json.dumps(argument)
        except TypeError:
            return repr(argument)
        return argument

    kind = type(error)
    return json.dumps(
        {
            "exc_type": kind.__qualname__,
            "exc_message": [serializable(argument) for argument in error.args],
            "exc_module": kind.__module__,
        }
    )


def from_celery_json(text: str) -> Any:
    told = json.loads(text)
    kind = getattr(sys.modules[told["exc_module"]], told["exc_type"])
    return kind(*told["exc_message"])


@pytest.mark.parametrize("kind", public_errors(), ids=lambda kind: kind.__name__)
def test_type_and_message_survive_celerys_json_results(kind: type[ProducerError]) -> None:
    error = sample_of(kind)
    again = from_celery_json(celery_json(error))
    assert type(again) is kind
    assert str(error) in str(again)


def test_what_celerys_json_results_leave_out_is_not_guessed() -> None:
    error = DeliveryTimeoutError(
        "late",
        topic_partition=TopicPartition("orders", 3),
        possibly_written=False,
        attempts=2,
        retriable=True,
    )
    again = from_celery_json(celery_json(error))
    assert again.possibly_written  # unless it is known that it is not
    assert (again.topic_partition, again.attempts, again.retriable, again.code) == (None, None, None, None)


@pytest.mark.parametrize("kind", public_errors(), ids=lambda kind: kind.__name__)
def test_errors_are_themselves_in_celerys_pickled_results(kind: type[ProducerError]) -> None:
    # It is pickled and unpickled to see whether it comes back, and then once more on its way.
    assert_whole(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(sample_of(kind))))), kind)
