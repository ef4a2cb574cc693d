"""Cancelling a call at every point where it waits, and judging what is left behind.

For `test_cancellation`, whose tables say which calls, under which conditions and cancelled how; and the scene, the
watch and the judgement for `test_cancellation_ends`.

A call is run once to its end, which tells how often its task suspends and how many turns the loop takes meanwhile.
Then it is run again from the same seed for each of these moments, and cancelled there. Around it others wait for
the same things: one in front of it in the line for memory, others behind it.

What must hold each time (the letters are those of `ledger`):

L  the call ends at once, with the cancellation or with its result; other waiting calls get what they wait for;
   every accepted record is settled by its time-out; the producer works afterwards, or is closed; no task, no
   connection, no warning, no error in a log is left
A  what `send()` gave a delivery for is in the log, once; what it was cancelled for is not
D  nothing is in the log twice
O  the records of each writer are in order, and those who waited in line are served in line
X  what failed for certain is not in the log
M  all memory is back, and nobody waits for any
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final
from unittest.mock import patch

from aioproduce import Producer
from aioproduce.errors import DeliveryError, ProducerStateError
from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.testing.simulation import Simulation, VirtualClock
from tests.simulation.ledger import TICK
from tests.simulation.watching import note_exception, watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from aioproduce.records import RecordMetadata

TOPIC = "orders"
LATE = "late"
"""A topic that is created while somebody waits for it."""

HOST = "broker-0"
VALUE_SIZE = 250
"""One such record fills a batch."""

SETTINGS: dict[str, Any] = {
    "client_id": "cancelled",
    "linger_ms": 0,
    "batch_size": 400,
    "buffer_memory": 20_000,
    "max_block_ms": 60_000,
    "delivery_timeout_ms": 60_000,
    "request_timeout_ms": 3_000,
}

_STEPS = 200_000
_RECOVERY = 40.0
"""Seconds after which a healed network has taken up everything: a SYN that is lost comes again after 16."""


# -- the world, and who is in it ---


@final
@dataclass
class Fate:
    """One record, or the records of one call."""

    writer: str
    accepted_at: float | None = None
    told: list[tuple[float, RecordMetadata, BaseException | None]] = field(default_factory=list)


class Scene:
    """A producer in a simulation, others who use it, and everything that they do.

    Args:
        settings: Of the producer, in addition to `SETTINGS`.
        config: Of the topics.
    """

    def __init__(self, settings: dict[str, Any] | None = None, config: TopicConfig | None = None) -> None:
        self.simulation = Simulation(
            7, brokers=1, topics={TOPIC: 1}, auto_create_topics=False, default_config=config
        )
        self.simulation.clock.limit = _STEPS
        self.producer = Producer(self.simulation.bootstrap_servers, **(SETTINGS | (settings or {})))
        self.topic = TOPIC
        self.fates: list[Fate] = []
        self.neighbours: list[asyncio.Task[Any]] = []
        self.troubles: list[str] = []
        self.violations: list[str] = []
        self.prepared: Any = None
        self.was_begun = False
        self._counts: dict[str, int] = {}

    @property
    def now(self) -> float:
        return self.simulation.clock.now

    @property
    def delivery_timeout(self) -> float:
        return float(self.producer.config.delivery_timeout)

    def accuse(self, letter: str, what: str) -> None:
        self.violations.append(f"{letter}: {what}")

    # what is sent

    def value(self, writer: str, size: int = VALUE_SIZE) -> bytes:
        """The next record of a writer."""
        count = self._counts[writer] = self._counts.get(writer, -1) + 1
        return b"%b:%d:" % (writer.encode(), count) + b"." * size

    def told(self, fate: Fate) -> Callable[[RecordMetadata, BaseException | None], None]:
        return lambda metadata, error: fate.told.append((self.now, metadata, error))

    async def send(self, writer: str, topic: str | None = None, size: int = VALUE_SIZE) -> Any:
        """Send one record, and note its fate."""
        fate = Fate(writer)
        delivery = await self.producer.send(
            topic or self.topic, self.value(writer, size), partition=0, on_delivery=self.told(fate)
        )
        fate.accepted_at = self.now
        self.fates.append(fate)
        return delivery

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Somebody else, who shall not suffer."""
        self.neighbours.append(asyncio.get_running_loop().create_task(coroutine, name=name))

    # what becomes of the world

    def create_late(self) -> None:
        if LATE not in self.simulation.cluster.state.topics:
            self.simulation.cluster.state.create_topic(LATE, 1)

    def heal(self) -> None:
        self.create_late()
        self.simulation.heal()

    def plan(self, seconds: float, action: Callable[..., object], *arguments: object) -> None:
        self.simulation.clock.call_later(seconds, action, *arguments)

    def log(self) -> list[tuple[str, int, int, bytes]]:
        """Topic, partition, offset and value of all records."""
        return [
            (state.topic, state.partition, record.offset, record.value or b"")
            for state in self.simulation.cluster.state.partitions()
            for batch in state.log.batches
            for record in batch.records()
        ]

    async def until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether a condition comes true in time."""
        deadline = self.now + seconds
        while not condition():
            if self.now > deadline:
                return False
            await asyncio.sleep(0.001)
        return True

    # running

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run in virtual time; whatever nobody catches becomes a trouble."""
        with watching(self.troubles):
            self.simulation.run(self._guarded(main))

    async def _guarded(self, main: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().set_exception_handler(partial(note_exception, self.troubles))
        await main

    def judge(self) -> list[str]:
        """Hold the log against what was told; everything that does not hold."""
        self.violations += [f"L: {trouble}" for trouble in self.troubles]
        self._judge_order()
        log = self.log()
        for fate in self.fates:
            if fate.accepted_at is not None and not fate.told:
                self.accuse("L", f"a record of {fate.writer} was accepted, and never settled")
            for at, metadata, error in fate.told:
                accepted_at = fate.accepted_at
                if accepted_at is not None and at > accepted_at + self.delivery_timeout + TICK:
                    self.accuse("L", f"a record of {fate.writer} was settled after {at - accepted_at:.3f} s")
                if error is None:
                    self._judge_acknowledged(fate, metadata, log)
        self._judge_failed(log)
        return self.violations

    def _judge_acknowledged(
        self, fate: Fate, metadata: RecordMetadata, log: list[tuple[str, int, int, bytes]]
    ) -> None:
        at = (metadata.topic, metadata.partition, metadata.offset)
        found = [value for *place, value in log if tuple(place) == at]
        if not found or not found[0].startswith(fate.writer.encode() + b":"):
            self.accuse("A", f"a record of {fate.writer} was acknowledged at {at}, where {found} is")

    def _judge_failed(self, log: list[tuple[str, int, int, bytes]]) -> None:
        for writer in {fate.writer for fate in self.fates}:
            told = [error for fate in self.fates if fate.writer == writer for _, _, error in fate.told]
            acknowledged = told.count(None)
            maybe = sum(isinstance(error, DeliveryError) and error.possibly_written for error in told)
            written = sum(value.startswith(writer.encode() + b":") for *_, value in log)
            if not acknowledged <= written <= acknowledged + maybe:
                self.accuse(
                    "X",
                    f"{written} records of {writer} are in the log; {acknowledged} are acknowledged, and "
                    f"{maybe} more may be there",
                )

    def _judge_order(self) -> None:
        last: dict[tuple[str, bytes], int] = {}
        for topic, _, offset, value in self.log():
            writer, count, _ = value.split(b":", 2)
            before = last.get((topic, writer), -1)
            if int(count) <= before:
                self.accuse(
                    "O" if int(count) < before else "D", f"{value[:20]!r} at {offset}, behind {before}"
                )
            last[topic, writer] = int(count)

    def judge_memory(self) -> None:
        """Nothing is out, and nobody waits."""
        if not self.producer._life.was_started:
            return
        sender = self.producer._life.sender
        if sender.pool.available != sender.pool.total:
            self.accuse("M", f"{sender.pool.total - sender.pool.available} bytes did not come back")
        if sender.pool.waiting or sender.metadata_requests._waiters:
            self.accuse("M", "somebody still stands in a line")


# -- the moments of a call ---


class Moment(NamedTuple):
    """When to cancel: as the call suspends for the nth time, or in front of the loop's nth turn since it began."""

    unit: str
    number: int


@final
class Progress:
    """How far a call has come, and what to do at one moment of it.

    Attributes:
        suspensions: When it suspended, in seconds since it began.
        turns: Turns of the loop while it went on.
        fire: Cancels it, once set.
        repeats: Whether it is cancelled at every suspension from there on.
        fired_at: When it was cancelled.
        on_first: Called when it suspends for the first time.
    """

    def __init__(self, scene: Scene, moment: Moment | None = None) -> None:
        self._scene = scene
        self._moment = moment
        self.suspensions: list[float] = []
        self.turns = 0
        self.fire: Callable[[], object] | None = None
        self.repeats = False
        self.fired_at: float | None = None
        self.began_at = 0.0
        self.is_over = False
        self.on_first: Callable[[], object] = bool

    def suspended(self) -> None:
        self.suspensions.append(self._scene.now - self.began_at)
        if len(self.suspensions) == 1:
            self.on_first()
        self._reached(Moment("suspension", len(self.suspensions)))

    @contextmanager
    def counting_turns(self) -> Iterator[None]:
        step = VirtualClock.step

        def counting_step(clock: VirtualClock, until: float) -> None:
            if self.fire is not None and not self.is_over:
                self.turns += 1
                if self._reached(Moment("turn", self.turns)):
                    until = clock.now  # the loop meant to sleep, and has something to do now
            step(clock, until)

        with patch.object(VirtualClock, "step", counting_step):
            yield

    def _reached(self, moment: Moment) -> bool:
        is_again = self.repeats and self.fired_at is not None and moment.unit == "suspension"
        if (moment == self._moment or is_again) and not self.is_over:
            assert self.fire is not None
            if self.fired_at is None:
                self.fired_at = self._scene.now
            self.fire()
            return True
        return False


@final
class Observed(Coroutine[Any, Any, Any]):
    """A coroutine whose suspensions are counted."""

    def __init__(self, inner: Coroutine[Any, Any, Any], progress: Progress) -> None:
        self._inner = inner
        self._progress = progress

    def send(self, value: Any) -> Any:
        waits_for = self._inner.send(value)
        self._progress.suspended()
        return waits_for

    def throw(self, kind: Any, error: Any = None, traceback: Any = None) -> Any:
        waits_for = self._inner.throw(kind)
        self._progress.suspended()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __next__(self) -> Any:
        return self.send(None)

    def __iter__(self) -> Observed:
        return self

    def __await__(self) -> Generator[Any, None, Any]:
        return self  # an iterator with send() and throw() is all that `await` asks


# -- a call, a condition, a way to cancel ---


class Call(NamedTuple):
    """Something that a user awaits.

    Attributes:
        name: For the test's name.
        make: Makes what is awaited; records of its own are those of the writer "call".
        records: How many of these there are.
        takes: What a cancelled one has accepted: "none" of its records, "some" (the first ones), or "any".
        prepare: What comes before it, and puts its result into `scene.prepared`.
        ends: What it leaves: an "open" producer; one that is "closed", unless it was cancelled before it began; or
            "open or gone", that is closed if it was cancelled and open if not.
        finishes: Whether it settles what was accepted even though cancelled (`async with`).
    """

    name: str
    make: Callable[[Scene], Awaitable[Any]]
    records: int = 0
    takes: str = "none"
    prepare: Callable[[Scene], Awaitable[Any]] | None = None
    ends: str = "open"
    finishes: bool = False
    is_first: bool = False


class Condition(NamedTuple):
    """What the world is like.

    Attributes:
        name: For the test's name.
        settings: Of the producer.
        begin: Makes it so, when the producer has started and before the call.
        config: Of the topics.
        is_in_line: Whether all who send stand in one line.
    """

    name: str
    begin: Callable[[Scene], Awaitable[None]]
    settings: dict[str, Any] = {}  # noqa: RUF012  # nobody writes to it
    config: TopicConfig | None = None
    is_in_line: bool = False


@final
@dataclass
class Outcome:
    """How a call ended."""

    kind: str
    value: Any = None
    error: BaseException | None = None
    at: float = 0.0


Way = Callable[[Progress, Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]


async def _outcome(scene: Scene, progress: Progress, cancelling: Coroutine[Any, Any, Any]) -> Outcome:
    try:
        outcome = Outcome("finished", await cancelling)
    except DeliveryError as error:  # before TimeoutError, which some of them are
        outcome = Outcome("finished", error=error)
    except (asyncio.CancelledError, TimeoutError) as error:
        outcome = Outcome("cancelled", error=error)
    except Exception as error:
        outcome = Outcome("failed", error=error)
    progress.is_over = True
    outcome.at = scene.now
    return outcome


# -- one run ---


@final
@dataclass
class Run:
    """What is learned from one run."""

    outcome: Outcome
    progress: Progress
    violations: list[str]


def run_call(call: Call, condition: Condition, way: Way, moment: Moment | None = None) -> Run:
    """Run a call under a condition, cancel it at a moment (or let it end), and judge what is left."""
    scene = Scene(condition.settings, condition.config)
    progress = Progress(scene, moment)
    runs: list[Run] = []

    async def main() -> None:
        before = asyncio.all_tasks()
        await _arrange(scene, call, condition)
        progress.on_first = partial(_spawn_behind, scene, call)
        progress.began_at = scene.now

        async def called() -> Any:
            # So that the loop's turn can be due to this very task (`turn due`).
            scene.producer._sending_task = asyncio.current_task()
            return await call.make(scene)

        with progress.counting_turns():
            outcome = await _outcome(scene, progress, way(progress, called))
        scene.was_begun = scene.producer._life.was_started
        _judge_end(scene, call, progress, outcome, moment)
        if call.ends != "open" and outcome.kind == "cancelled" and not call.finishes:
            await _judge_given_up(scene)
        for fate in scene.fates:
            if fate.writer == "call" and (outcome.kind == "finished" or fate.told):
                fate.accepted_at = scene.now
        scene.heal()
        await _aftermath(scene, call, outcome)
        if not await scene.until(lambda: asyncio.all_tasks() == before, 10.0):
            scene.accuse("L", f"tasks are left: {asyncio.all_tasks() - before}")
        if not await scene.until(lambda: not scene.simulation.network.connections, 10.0):
            scene.accuse("L", f"connections are left: {list(scene.simulation.network.connections)}")
        runs.append(Run(outcome, progress, scene.violations))

    scene.run(main())
    _judge_records(scene, call, condition, runs[0].outcome)
    scene.judge()
    return runs[0]


async def _arrange(scene: Scene, call: Call, condition: Condition) -> None:
    if not call.is_first:
        await scene.producer.start()
    await condition.begin(scene)
    if call.prepare is not None:
        scene.prepared = await call.prepare(scene)
    if not call.is_first:
        scene.spawn(scene.send("before"), "before")
        await asyncio.sleep(0)


def _spawn_behind(scene: Scene, call: Call) -> None:
    if not call.is_first:
        scene.spawn(scene.send("behind"), "behind")
        scene.spawn(scene.producer.partitions_for(scene.topic), "asking")
        scene.spawn(scene.producer.flush(), "flushing")


def _judge_end(scene: Scene, call: Call, progress: Progress, outcome: Outcome, moment: Moment | None) -> None:
    if outcome.kind == "failed":
        scene.accuse("L", f"it ended with {outcome.error!r}")
    if progress.fired_at is not None:
        bound = (scene.delivery_timeout if call.finishes and not progress.repeats else 0) + TICK
        if outcome.at > progress.fired_at + bound:
            took = outcome.at - progress.fired_at
            scene.accuse("L", f"cancelled, and it {outcome.kind} {took:.3f} s later")
    if call.ends == "open":
        sender = scene.producer._life.sender
        standing = sender.pool.waiting + sum(map(len, sender.metadata_requests._waiters.values()))
        waiting = sum(not task.done() and task.get_name() != "flushing" for task in scene.neighbours)
        if standing > waiting:
            scene.accuse("L", f"{standing} stand in the lines, and {waiting} wait")
    if moment is None and outcome.kind == "cancelled":
        scene.accuse("L", "nobody cancelled it")


async def _judge_given_up(scene: Scene) -> None:
    """A close that is cancelled, or a start, leaves nothing: also while nothing goes through."""
    if scene.producer._life.state.name in ("NEW", "RUNNING"):
        return  # before it began
    sender = f"aioproduce sender {SETTINGS['client_id']}"

    def is_over() -> bool:
        return (
            all(fate.told for fate in scene.fates if fate.accepted_at is not None)
            and not scene.simulation.network.connections
            and not any(task.get_name() == sender for task in asyncio.all_tasks())
        )

    if not await scene.until(is_over, 1.0):
        scene.accuse("L", "closed by cancellation, and something goes on")


async def _aftermath(scene: Scene, call: Call, outcome: Outcome) -> None:
    """The other callers are served; the producer works, or is closed; then it is closed."""
    await _judge_neighbours(scene, call)
    life = scene.producer._life
    if call.is_first and life.state.name == "NEW":
        await scene.producer.start()
    may_be_closed = call.ends == "closed" or (call.ends == "open or gone" and outcome.kind == "cancelled")
    try:
        async with asyncio.timeout(_RECOVERY):
            delivery = await scene.send("after")
            await scene.producer.flush()
            await delivery
        # At once: closing it would clear what somebody left in a line.
        scene.judge_memory()
    except ProducerStateError as error:
        if not may_be_closed:
            scene.accuse("L", f"the producer does not work any more: {error!r}")
    else:
        if call.ends == "closed" and outcome.kind == "finished":
            scene.accuse("L", "the producer still works")
        if call.ends == "open or gone" and outcome.kind == "cancelled" and scene.was_begun:
            scene.accuse("L", "the producer that was not to start works")
    async with asyncio.timeout(_RECOVERY):
        await scene.producer.close()
    await scene.until(lambda: scene.producer.outstanding_bytes == 0, 10.0)
    scene.judge_memory()


async def _judge_neighbours(scene: Scene, call: Call) -> None:
    if scene.neighbours:
        await asyncio.wait(scene.neighbours, timeout=_RECOVERY + scene.delivery_timeout)
    for task in scene.neighbours:
        if not task.done():
            scene.accuse("L", f"{task.get_name()} still waits")
            task.cancel()
        elif task.cancelled():
            scene.accuse("L", f"{task.get_name()} was cancelled")
        elif (error := task.exception()) is not None and not (
            call.ends != "open" and isinstance(error, ProducerStateError)
        ):
            scene.accuse("L", f"{task.get_name()} got {error!r}")


def _judge_records(scene: Scene, call: Call, condition: Condition, outcome: Outcome) -> None:
    """What the call has accepted, and in which order the others were served."""
    of_call = [value for *_, value in scene.log() if value.startswith(b"call:")]
    told = sum(len(fate.told) for fate in scene.fates if fate.writer == "call")
    if outcome.kind == "finished":
        if told != call.records:
            scene.accuse("A", f"{call.records} records were accepted, and {told} settled")
    elif call.takes == "none" and (of_call or told):
        scene.accuse("A", f"cancelled, and {of_call} in the log, {told} settled")
    elif [int(value.split(b":")[1]) for value in of_call] != [*range(len(of_call))]:
        scene.accuse("A", f"not the first ones: {of_call}")
    if condition.is_in_line and call.takes == "none":
        order = [value.split(b":")[0] for topic, *_, value in scene.log() if topic == scene.topic]
        line = [b"filler", b"before", b"call", b"behind", b"after"]
        if [line.index(writer) for writer in order] != sorted(line.index(writer) for writer in order):
            scene.accuse("O", f"not served in line: {order}")
