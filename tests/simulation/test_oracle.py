"""The oracle itself: each thing that it forbids is told, whatever the producer does.

A run in which all is well is judged with one thing in it falsified: what the producer told, when it told it, or
what it left behind. `mutants` has bugs of the producer; here nothing depends on which bugs can be thought of.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from aioproduce.errors import DeliveryError
from aioproduce.records import TopicPartition
from aioproduce.testing.fake_cluster.connections import RequestLog
from aioproduce.testing.simulation import ScheduledFault, Simulation
from tests.simulation.case import TOPIC, Burst, Case, make_case
from tests.simulation.ledger import Entry, Ledger
from tests.simulation.run import Run, run_case
from tests.simulation.shrink import kinds_of
from tests.simulation.sides import AsyncioSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioproduce.records import RecordMetadata

    Told = tuple[RecordMetadata, BaseException | None]
    Lie = Callable[[], AbstractContextManager[None]]

ONE = 5
"""The record of writer 0 that is lied about."""


def case(mode: str) -> Case:
    """Some records in fair weather, of which five share a batch."""
    bursts = tuple(Burst(at, writer, 10, 10) for at in (1.0, 2.0) for writer in range(3))
    drawn = make_case(1, mode=mode, weather="fair", is_bare=False, in_flight=5)
    settings = drawn.settings | {"linger_ms": 5, "batch_size": 400, "delivery_timeout_ms": 30_000}
    return replace(drawn, bursts=bursts, faults=(), seconds=100.0, settings=settings, lag=None)


def told(change: Callable[[Entry, RecordMetadata, BaseException | None], Told | None]) -> Lie:
    """Something else is told of one record."""

    @contextmanager
    def lie() -> Iterator[None]:
        settle = Ledger.settle

        def falsely(
            ledger: Ledger, entry: Entry, metadata: RecordMetadata, error: BaseException | None
        ) -> None:
            outcome: Told | None = (metadata, error)
            if (entry.writer, entry.counter) == (0, ONE):
                outcome = change(entry, metadata, error)
            if outcome is not None:
                settle(ledger, entry, *outcome)

        with patch.object(Ledger, "settle", falsely):
            yield

    return lie


def failure(*, possibly_written: bool) -> DeliveryError:
    return DeliveryError(
        "failed",
        topic_partition=TopicPartition(TOPIC, 0),
        possibly_written=possibly_written,
        attempts=1,
        retriable=True,
    )


@contextmanager
def settled_twice() -> Iterator[None]:
    settle = Ledger.settle

    def twice(ledger: Ledger, entry: Entry, *outcome: Any) -> None:
        settle(ledger, entry, *outcome)
        if (entry.writer, entry.counter) == (0, ONE):
            settle(ledger, entry, *outcome)

    with patch.object(Ledger, "settle", twice):
        yield


def late(name: str, seconds: float, owner: type = AsyncioSide) -> Lie:
    """A call takes so long."""

    @contextmanager
    def lie() -> Iterator[None]:
        real = getattr(owner, name)

        async def slowly(side: Any, *arguments: Any) -> Any:
            await asyncio.sleep(seconds)
            return await real(side, *arguments)

        with patch.object(owner, name, slowly):
            yield

    return lie


def in_the_end(act: Callable[[Run], object]) -> Lie:
    """Something is left when the producer is closed."""

    @contextmanager
    def lie() -> Iterator[None]:
        close = Run.close

        async def close_badly(run: Run) -> None:
            act(run)
            await close(run)

        with patch.object(Run, "close", close_badly):
            yield

    return lie


def told_late(seconds: float) -> Lie:
    @contextmanager
    def lie() -> Iterator[None]:
        settle = Ledger.settle

        def lately(ledger: Ledger, entry: Entry, *outcome: Any) -> None:
            settle(ledger, entry, *outcome)
            entry.settled_at += seconds if (entry.writer, entry.counter) == (0, ONE) else 0.0

        with patch.object(Ledger, "settle", lately):
            yield

    return lie


@contextmanager
def storm_of_metadata() -> Iterator[None]:
    with patch.object(RequestLog, "times", lambda *_: [number / 100 for number in range(100)]):
        yield


def batches_of(run: Run) -> Any:
    return run.simulation.cluster.state.require_partition(TOPIC, 0).log.batches


def lose(run: Run) -> None:
    batches_of(run).pop()


def repeat(run: Run) -> None:
    batches_of(run).append(batches_of(run)[-1])


def swap(run: Run) -> None:
    batches = batches_of(run)
    batches[1], batches[2] = batches[2], batches[1]


def forget(run: Run) -> None:
    del run.ledger.entries[next(iter(run.ledger.entries))]


def break_a_batch(run: Run) -> None:
    run.simulation.cluster.state.require_partition(TOPIC, 0).log.corrupt += 1


def leave_a_task(_: Run) -> None:
    leave_a_task.kept = asyncio.ensure_future(asyncio.sleep(1e9))  # type: ignore[attr-defined]


def raise_in_a_callback(_: Run) -> None:
    asyncio.get_running_loop().call_soon(divmod, 1, 0)


LIES: dict[str, tuple[str, Lie]] = {
    "settled twice": ("L", settled_twice),
    "never settled": ("L", told(lambda *_: None)),
    "settled late": ("L", told_late(31.0)),
    "failed with any error": ("L", told(lambda _, metadata, __: (metadata, ValueError("what?")))),
    "send() late": ("L", late("send", 700.0)),
    "flush() late": ("L", late("flush", 40.0)),
    "close() late": ("L", late("close", 2.0)),
    "an error logged": ("L", in_the_end(lambda _: logging.getLogger("aioproduce").error("what?"))),
    "an error in a callback": ("L", in_the_end(raise_in_a_callback)),
    "a task left": ("L", in_the_end(leave_a_task)),
    "lost": ("A", in_the_end(lose)),
    "another offset": ("A", told(lambda _, metadata, __: (metadata._replace(offset=0), None))),
    "another partition": ("A", told(lambda _, metadata, __: (metadata._replace(partition=1), None))),
    "never sent": ("A", in_the_end(forget)),
    "twice": ("D", in_the_end(repeat)),
    "the other way round": ("O", in_the_end(swap)),
    "certainly absent": ("X", told(lambda _, metadata, __: (metadata, failure(possibly_written=False)))),
    "failed without need": ("S", told(lambda _, metadata, __: (metadata, failure(possibly_written=True)))),
    "another timestamp": ("T", told(lambda _, metadata, __: (metadata._replace(timestamp=7), None))),
    "a neighbour's timestamp": (
        "T",
        told(lambda entry, metadata, _: (metadata._replace(timestamp=entry.timestamp - 1), None)),
    ),
    "written with another timestamp": ("T", in_the_end(lambda run: shift_timestamp(run.ledger))),
    "metadata without pause": ("B", storm_of_metadata),
    "broken batches": ("C", in_the_end(break_a_batch)),
    "a stalled record": ("W", told_late(0.2)),
    "send() hesitates": ("W", late("send", 0.001)),
    "memory kept": ("M", in_the_end(lambda run: run.side.sender.pool.try_allocate(100))),
}
"""What is falsified: which letter must object, and how it is done."""


def shift_timestamp(ledger: Ledger) -> None:
    next(iter(ledger.entries.values())).timestamp += 1


@pytest.mark.parametrize("mode", ["idempotent", "plain"])
def test_a_run_in_which_nothing_is_wrong(mode: str) -> None:
    outcome = run_case(case(mode))
    assert not outcome.violations
    assert outcome.acknowledged == outcome.offered > 60


@pytest.mark.parametrize("name", LIES)
def test_what_the_oracle_forbids(name: str) -> None:
    letter, lie = LIES[name]
    with lie():
        outcome = run_case(case("idempotent"))
    assert letter in kinds_of(outcome), outcome.violations


def test_without_idempotence_an_offset_is_known() -> None:
    with told(lambda _, metadata, __: (metadata._replace(offset=-1), None))():
        assert not run_case(case("idempotent")).violations
        assert kinds_of(run_case(case("plain"))) == {"A"}


@pytest.mark.parametrize(
    ("due", "latest"),
    [(5.0, 5.05), (8.96, 14.05), (9.5, 14.05), (11.9, 14.05), (14.0, 14.05), (14.1, 14.15)],
)
def test_what_is_due_while_the_loop_is_blocked_happens_after_it(due: float, latest: float) -> None:
    """Seed 3467: a second fault of this kind began while the first lasted."""
    blocked = [
        ScheduledFault(at=at, kind="blocked", seconds=seconds, broker=0, topic=TOPIC)
        for at, seconds in ((10.0, 4.0), (9.0, 2.0))
    ]
    for passed, is_accused in ((latest - 0.01, False), (latest + 0.01, True)):
        simulation = Simulation()
        ledger = Ledger(simulation, replace(case("plain"), faults=tuple(blocked)))
        simulation.clock.let_pass(passed)

        ledger.check_time("flush()", 0.0, due)

        assert bool(ledger.violations) is is_accused
