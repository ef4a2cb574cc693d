"""Errors are copied and pickled whole, whatever they carry; no secret gets into a pickle."""

from __future__ import annotations

import asyncio
import copy
import importlib
import pickle
import pkgutil
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import aioproduce
from aioproduce.compat.confluent_errors import ConfluentConfigError
from aioproduce.config.secret import Secret
from aioproduce.errors import (
    BrokerConnectionError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidTopicError,
    MissingExtraError,
    NoBrokerAvailableError,
    OutcomeUnknownError,
    PartialSendError,
    PartitionerError,
    ProducerError,
    SchemaRegistryError,
    SenderDiedError,
    SerializationError,
)
from aioproduce.portable_error import LeftBehind, PortableError, RemoteCause, copy_of
from aioproduce.records import TopicPartition
from tests.unit.error_samples import all_classes, keywords_of, known_classes, public_errors, sample_of

CLASSES = all_classes()
WAYS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
]


def names(kind: type) -> str:
    return kind.__name__


def pickled(error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(error))


def made_again(error: BaseException) -> Any:
    kind: Any = type(error)
    return kind(*error.args)


def served() -> DeliveryTimeoutError:
    return DeliveryTimeoutError(
        "late",
        topic_partition=TopicPartition("orders", 3),
        possibly_written=False,
        attempts=2,
        retriable=True,
    )


# -- every class --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES, ids=names)
def test_type_message_attributes_notes_and_cause_stay(kind: type[BaseException]) -> None:
    error = sample_of(kind)
    text = str(error)
    error.add_note("while the shop was open")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")

    for way in WAYS:
        again = way(error)

        assert type(again) is kind
        assert again is not error
        assert str(again) == str(error) == text != ""
        assert repr(again) == repr(error)
        for name, value in keywords_of(kind).items():
            assert getattr(again, name) == getattr(error, name) == value
        assert vars(again) == vars(error)
        assert again.__notes__ == error.__notes__
        assert again.__notes__[-1] == "while the shop was open"
        assert again.__traceback__ is None
        if issubclass(kind, PortableError):  # Python's own loses the cause
            assert isinstance(again.__cause__, ConnectionRefusedError)
            assert again.__cause__.errno == 111
            assert str(again.__cause__) == "[Errno 111] Connection refused"


@pytest.mark.parametrize("kind", CLASSES, ids=names)
def test_what_is_copied_or_pickled_again_is_the_same(kind: type[BaseException]) -> None:
    once = pickled(sample_of(kind))
    twice = copy.deepcopy(copy.copy(pickled(once)))
    assert (type(twice), str(twice), vars(twice)) == (type(once), str(once), vars(once))


@pytest.mark.extended(
    "imports all modules in 2 s; the modules whose source names an error class stay in the gate"
)
def test_no_class_of_errors_is_overlooked() -> None:
    missing: list[str] = []
    for module in pkgutil.walk_packages(aioproduce.__path__, "aioproduce."):
        if module.name.rpartition(".")[2] != "__main__":
            try:
                importlib.import_module(module.name)
            except MissingExtraError as error:
                missing.append(error.extra)
    assert set(missing) <= {"gssapi"}  # which `make test` does not install
    assert known_classes() == set(CLASSES)


# -- made again from `args` alone, as Celery's JSON results do it -------------------------------------------


@pytest.mark.parametrize("kind", public_errors(), ids=names)
def test_an_error_is_made_again_of_its_args(kind: type[ProducerError]) -> None:
    error = sample_of(kind)
    again = made_again(error)
    assert type(again) is kind
    assert str(again) == str(error)
    for name in keywords_of(kind):
        getattr(again, name)  # there is one


def test_without_its_attributes_a_record_may_have_been_written() -> None:
    again = made_again(served())
    assert again.possibly_written is True
    assert again.retriable is None
    assert again.topic_partition is None


def test_a_class_of_a_users_own_keeps_its_required_arguments() -> None:
    class OrderError(ProducerError):
        def __init__(self, message: str, *, order: int) -> None:
            super().__init__(message)
            self.order = order

    with pytest.raises(TypeError, match="order"):
        OrderError("lost")  # type: ignore[call-arg]
    assert copy.copy(OrderError("lost", order=7)).order == 7


def test_a_message_that_is_made_up_of_parts_is_not_made_up_twice() -> None:
    missing = MissingExtraError("the dashboard", extra="dashboard", name="uvicorn")
    refused = SchemaRegistryError(
        "refused", status=401, error_code=None, subject=None, remedy="log in", retriable=False
    )
    assert str(pickled(missing)) == str(made_again(missing)) == str(missing)
    assert str(pickled(refused)) == str(made_again(refused)) == "refused: log in"


# -- what cannot be pickled ---------------------------------------------------------------------------------


def future() -> asyncio.Future[Any]:
    loop = asyncio.new_event_loop()
    loop.close()
    return loop.create_future()


def test_deliveries_stay_behind_in_a_pickle() -> None:
    deliveries = [future(), future()]
    error = PartialSendError("half-way", deliveries=deliveries, index=2)

    again = pickled(error)

    assert again.index == 2
    assert list(map(repr, again.deliveries)) == list(map(repr, deliveries))
    assert all(type(delivery) is LeftBehind for delivery in again.deliveries)
    with pytest.raises(RuntimeError, match="stayed in the process that raised the error"):
        again.deliveries[0].__await__()
    assert pickled(again).deliveries == again.deliveries


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_copies_share_deliveries(way: Callable[[Any], Any]) -> None:
    deliveries, delivery = [future(), future()], future()
    partial = way(PartialSendError("half-way", deliveries=deliveries, index=2))
    unknown = way(OutcomeUnknownError("not yet", topic="orders", waited=1.0, delivery=delivery))
    assert [id(each) for each in partial.deliveries] == [id(each) for each in deliveries]
    assert unknown.delivery is delivery


def test_a_delivery_stays_behind_in_a_pickle() -> None:
    delivery = future()
    again = pickled(OutcomeUnknownError("not yet", topic="orders", waited=1.0, delivery=delivery))
    assert (again.topic, again.waited, repr(again.delivery)) == ("orders", 1.0, repr(delivery))


class NeverComesBack:
    """Is pickled, and fails to be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)

    def __repr__(self) -> str:
        return "<what never comes back>"


class Hostile:
    """Fails at whatever it is asked for."""

    def __repr__(self) -> str:
        raise KeyError("no text")

    def __reduce__(self) -> tuple[Any, ...]:
        raise KeyError("no pickle")

    def __deepcopy__(self, memo: object) -> Hostile:
        raise KeyError("no copy")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (threading.Lock, "unlocked _thread.lock"),
        (NeverComesBack, "<what never comes back>"),
        (Hostile, "<Hostile, whose text raised KeyError>"),
        (lambda: lambda: None, "<function"),
    ],
)
def test_any_value_can_be_carried(value: Callable[[], object], text: str) -> None:
    topic = value()
    error = PartitionerError("no partition", topic="orders", answer=[topic, 1])

    answer: Any = pickled(error).answer

    assert text in repr(answer[0])
    assert answer[1] == 1
    assert text in repr(pickled(InvalidTopicError("not a name", topic=topic)).topic)
    assert copy.copy(error).answer is error.answer
    copy.deepcopy(error)


def test_a_deep_copy_shares_nothing_that_changes() -> None:
    error = NoBrokerAvailableError("none", causes={"a:1": "refused"})
    copied = copy.deepcopy(error)
    error.causes["b:2"] = "refused"
    assert copied.causes == {"a:1": "refused"}
    both = [error, error]
    first, second = copy.deepcopy(both)
    assert first is second


# -- causes -------------------------------------------------------------------------------------------------


class HttpError(Exception):
    """Another library's: it holds the request, and is not made again of its `args`."""

    def __init__(self, message: str, *, request: object) -> None:
        super().__init__(message)
        self.request = request


def test_another_librarys_cause_is_told_and_not_carried() -> None:
    error = SerializationError("not serialized", field="value", topic="orders")
    error.__cause__ = HttpError("401 Unauthorized", request={"Authorization": "Basic bGV0bWVpbg=="})
    error.__cause__.__cause__ = served()

    written = pickle.dumps(error)
    again = pickle.loads(written)

    assert b"Authorization" not in written
    assert type(again.__cause__) is RemoteCause
    assert str(again.__cause__) == f"{__name__}.HttpError: 401 Unauthorized"
    assert type(again.__cause__.__cause__) is DeliveryTimeoutError
    assert copy.copy(error).__cause__ is copy.deepcopy(error).__cause__ is error.__cause__


@pytest.mark.parametrize(
    "cause",
    [
        KeyError(Secret("letmein")),
        ExceptionGroup("both", [ValueError(Secret("letmein"))]),
        Hostile,
    ],
    ids=["a key", "a group", "an attribute"],
)
def test_a_built_in_cause_with_objects_is_told_and_not_carried(cause: Any) -> None:
    if cause is Hostile:
        cause = ValueError("strange")
        cause.value = Hostile()
    error = SenderDiedError("died")
    error.__cause__ = cause
    again = pickled(error)
    assert type(again.__cause__) is RemoteCause
    assert str(again.__cause__).startswith(f"{type(cause).__name__}: ")


def test_causes_in_a_circle_end() -> None:
    error, first, second = (
        SenderDiedError("died"),
        HttpError("first", request=None),
        HttpError("second", request=None),
    )
    error.__cause__, first.__cause__, second.__cause__ = first, second, first
    again = pickled(error)
    assert str(again.__cause__.__cause__).endswith("second")
    assert again.__cause__.__cause__.__cause__ is None

    error.__cause__ = error
    again = pickled(error)
    assert again.__cause__ is again


def test_a_hidden_context_stays_hidden() -> None:
    error = ProducerError("shown")
    error.__context__ = KeyError("not shown")
    error.__suppress_context__ = True
    for again in (copy.copy(error), copy.deepcopy(error), pickled(error)):
        assert again.__suppress_context__
        assert "not shown" not in "".join(traceback.format_exception(again))
    error.__suppress_context__ = False
    assert not pickled(error).__suppress_context__


# -- secrets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_secret_gets_into_a_pickle(protocol: int) -> None:
    secret = Secret("letmein")
    error = InvalidTopicError("not a name", topic=secret)
    error.settings = {"sasl.password": secret, "all": [secret]}  # type: ignore[attr-defined]
    error.args = ("not a name", secret)
    error.__cause__ = ValueError(secret)
    error.__context__ = ValueError("letmein")

    written = pickle.dumps(error, protocol)

    assert b"letmein" not in written
    assert repr(pickle.loads(written).topic) == "Secret(<hidden>)"


# -- copies of any exception, as a failed delivery raises one each time -------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "orders.csv"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ImportError("no such module", name="orders", path="/orders.py"),
        ExceptionGroup("both", [ValueError("one"), KeyError("two")]),
        StopIteration(7),
        SystemExit(3),
        asyncio.CancelledError("stop"),
        HttpError("401", request=7),
        BrokerConnectionError("refused", host="kafka", port=9092),
        BufferExhaustedError("full", waited=1.0, needed=10, available=2),
        ConfluentConfigError("unknown", key="linger.ms"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_of_any_exception_is_like_it(error: BaseException) -> None:
    try:
        raise error from ValueError("cause")
    except BaseException as raised:
        copied = copy_of(raised)

    assert type(copied) is type(error)
    assert "".join(traceback.format_exception_only(copied)) == "".join(traceback.format_exception_only(error))
    assert (copied.args, vars(copied)) == (error.args, vars(error))
    assert copied.__cause__ is error.__cause__ is not None
    assert copied.__traceback__ is None
    for name in ("errno", "filename", "start", "name", "path", "exceptions", "value", "code"):
        assert getattr(copied, name, None) == getattr(error, name, None)


def test_a_note_on_a_copy_is_not_on_the_others() -> None:
    error = served()
    error.add_note("of all")
    first, second = copy_of(error), copy_of(error)
    first.add_note("of the first")
    assert "of the first" not in [*error.__notes__, *second.__notes__, *served().__notes__]
    assert "of all" in second.__notes__
