"""Cancelling a call of a transactional producer at every point where it waits, and judging what is left behind.

For `test_cancellation_transactions`, whose tables say which calls, in which world, cancelled how, and what their
user does afterwards. A run is made as in `cancelling`, whose `Progress` counts suspensions and turns.

What became of transactions is judged by `transaction_ledger` (N, V, I, D, G, E, F, A, X: a reader sees all of one
or nothing, what was told is not the opposite of it, no last stable offset is pinned). In addition, each time:

L  the call ends at once, or by its bound if it has something to end; other waiting calls get what they wait
   for; no task, no connection, no waiter, no warning, no error in a log is left; each transaction has an outcome
M  all memory is back, and nobody stands in a line
R  nothing says that this producer is of no use any more, as it has no rival
S  the same producer commits the next transaction; a closed one's successor does
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from aioproduce import Producer
from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    DeliveryError,
    ProducerStateError,
    TransactionError,
    TransactionOutcome,
    TransactionStateError,
)
from aioproduce.records import TopicPartition
from aioproduce.testing.simulation import Simulation
from tests.simulation.cancelling import HOST, Moment, Outcome, Progress
from tests.simulation.case import TOPIC
from tests.simulation.case_transactional import PARTITIONS, SOURCE, TransactionalCase
from tests.simulation.ledger import TICK
from tests.simulation.transaction_ledger import COMMITTED, UNKNOWN, TransactionEntry, TransactionLedger
from tests.simulation.watching import note_exception, watching

if TYPE_CHECKING:
    from aioproduce.core.transactions.transaction_manager import TransactionManager
    from aioproduce.producer.transactions import Transaction
    from tests.simulation.cancelling import Way
    from tests.simulation.ledger import Entry

SETTINGS: dict[str, Any] = {
    "client_id": "cancelled",
    "acks": "all",
    "linger_ms": 0,
    "batch_size": 400,
    "buffer_memory": 20_000,
    "max_block_ms": 30_000,
    "delivery_timeout_ms": 60_000,
    "request_timeout_ms": 3_000,
    "transaction_timeout_ms": 60_000,
}
NAME = "orders-0"
SIZE = 250
"""One such record fills a batch."""

_STEPS = 200_000
_RECOVERY = 40.0
_PATIENCE = 100


class _MayBeThere(DeliveryError):
    """Stands for what a cancelled call never told of its record."""

    def __init__(self) -> None:
        super().__init__(
            "cancelled",
            topic_partition=TopicPartition(TOPIC, 0),
            possibly_written=True,
            attempts=0,
            retriable=False,
        )


class Scene:
    """A cluster, a transactional producer, and everything that was told.

    Attributes:
        latest: The transaction that was begun last, and its entry.
        extra: What the arrangement leaves to the call.
        undecided: Records whose fate a cancelled call has not told; the first ones may have been taken.
    """

    def __init__(
        self, version: int, settings: dict[str, Any], transactions: dict[str, float], *, has_topic: bool
    ) -> None:
        self.case = TransactionalCase(7, SETTINGS | settings, (), (), version, -1, transactions)
        topics = PARTITIONS if has_topic else {SOURCE: PARTITIONS[SOURCE]}
        self.simulation = Simulation(
            7, brokers=1, topics=topics, auto_create_topics=False, **self.case.cluster_settings()
        )
        self.simulation.clock.limit = _STEPS
        self.ledger = TransactionLedger(self.simulation, self.case)
        self.producer = self.new_producer()
        self.latest: tuple[Transaction, TransactionEntry] | None = None
        self.begun: list[tuple[Transaction, TransactionEntry]] = []
        self.extra: Any = None
        self.undecided: list[Entry] = []
        self.neighbours: list[asyncio.Task[Any]] = []
        self.troubles: list[str] = []
        self.pools: list[Any] = []
        self.group: Any = None

    @property
    def now(self) -> float:
        return self.simulation.clock.now

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.case.settings)

    @property
    def manager(self) -> TransactionManager:
        manager = self.producer._life.sender.transactions
        assert manager is not None
        return manager

    def new_producer(self) -> Producer:
        return Producer(self.simulation.bootstrap_servers, transactional_id=NAME, **self.case.settings)

    def accuse(self, letter: str, what: str) -> None:
        self.ledger.accuse(letter, what)

    def plan(self, seconds: float, action: Callable[..., object], *arguments: object) -> None:
        self.simulation.clock.call_later(seconds, action, *arguments)

    def create_topic(self) -> None:
        if TOPIC not in self.simulation.cluster.state.topics:
            self.simulation.cluster.state.create_topic(TOPIC, PARTITIONS[TOPIC])

    def heal(self) -> None:
        self.create_topic()
        self.simulation.heal()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Somebody else, who shall not suffer."""
        self.neighbours.append(asyncio.get_running_loop().create_task(coroutine, name=name))

    async def until(self, condition: Callable[[], object], seconds: float) -> bool:
        deadline = self.now + seconds
        while not condition():
            if self.now > deadline:
                return False
            await asyncio.sleep(0.001)
        return True

    # what users do

    async def begin(self) -> Transaction:
        txn = self.producer.transaction()
        await txn.begin()
        self.entered(txn)
        return txn

    def entered(self, txn: Transaction) -> TransactionEntry:
        """It is begun."""
        entry = self.ledger.begin(0)
        self.latest = (txn, entry)
        self.begun.append(self.latest)
        return entry

    @property
    def txn(self) -> Transaction:
        assert self.latest is not None
        return self.latest[0]

    @property
    def entry(self) -> TransactionEntry:
        assert self.latest is not None
        return self.latest[1]

    async def send(self, txn: Transaction | None = None, entry: TransactionEntry | None = None) -> None:
        """One record in the latest transaction, or this one."""
        txn, entry = txn or self.txn, entry or self.entry
        record = self.ledger.offer_in(entry, SIZE)
        try:
            delivery = await txn.send(
                TOPIC, record.value, partition=len(entry.records) % 3, timestamp=record.timestamp
            )
        except BaseException as error:
            self.ledger.refuse(record, error)
            raise
        self.ledger.accept(record)
        delivery._add_delivery_callback(partial(self.ledger.settle, record))

    async def send_many(self) -> None:
        records = [self.ledger.offer_in(self.entry, SIZE) for _ in range(3)]
        self.undecided = records
        timestamp = self.simulation.wall_ms()
        for record in records:
            record.timestamp = timestamp
        await self.txn.send_many(
            TOPIC, [record.value for record in records], partition=0, timestamp=timestamp
        )

    async def send_and_wait(self) -> None:
        record = self.ledger.offer_in(self.entry, SIZE)
        self.undecided = [record]
        await self.txn.send_and_wait(TOPIC, record.value, partition=0, timestamp=record.timestamp)

    async def send_offsets(
        self, txn: Transaction | None = None, entry: TransactionEntry | None = None
    ) -> None:
        txn, entry = txn or self.txn, entry or self.entry
        offset = self.ledger.offset_in(entry, "group", 0)
        await txn.send_offsets({TopicPartition(SOURCE, 0): offset}, "group")
        self.ledger.offset_taken(entry, offset)

    async def group_send(self, group: Any) -> None:
        """A record by a group commit: an entry of its own, even in a shared transaction."""
        entry = self.ledger.begin(0)
        entry.asked_commit = True
        record = self.ledger.offer_in(entry, SIZE)
        try:
            metadata = await group.send(TOPIC, record.value, partition=0, timestamp=record.timestamp)
        except TransactionError as error:
            self.ledger.refuse(record, _MayBeThere())
            self.ledger.tell(entry, error.outcome)
            raise
        except BaseException:
            self.ledger.refuse(record, _MayBeThere())
            raise
        self.ledger.accept(record)
        self.ledger.settle(record, metadata, None)
        self.ledger.tell(entry, COMMITTED)

    async def commit(self) -> None:
        self.entry.asked_commit = True
        await self.txn.commit()
        self.ledger.tell(self.entry, COMMITTED)

    async def whole(self, producer: Any = None, *, fails: bool = False) -> None:
        """A transaction as a context: three records, offsets, and its end."""
        async with (producer or self.producer).transaction() as txn:
            entry = self.entered(txn)
            await self.send(txn, entry)
            await self.send(txn, entry)
            await self.send_offsets(txn, entry)
            await self.send(txn, entry)
            if fails:
                raise LeftError
            entry.asked_commit = True

    # running

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run in virtual time; whatever nobody catches becomes a trouble."""

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(partial(note_exception, self.troubles))
            await main

        with watching(self.troubles), self.ledger.watching():
            self.simulation.run(guarded())


class LeftError(Exception):
    """What leaves a body."""


# -- a call, a world, what comes afterwards ---


class Call(NamedTuple):
    """Something that a user awaits.

    Attributes:
        name: For the test's name.
        make: Makes what is awaited.
        arrange: What comes before it.
        beside: What another task awaits meanwhile; begun as the call suspends for the first time.
        has_end: Whether it ends a transaction even though cancelled, within its bound.
        starts: Whether it starts the producer.
        closes: Whether the producer may be closed afterwards.
        settings: Of the producer.
        versions: Of transactions, in which there is such a thing.
        is_shared: Whether records of several tasks are in one transaction.
    """

    name: str
    make: Callable[[Scene], Awaitable[Any]]
    arrange: Callable[[Scene], Awaitable[None]] | None = None
    beside: Callable[[Scene], Coroutine[Any, Any, Any]] | None = None
    has_end: bool = False
    starts: bool = False
    closes: bool = False
    settings: dict[str, Any] = {}  # noqa: RUF012  # nobody writes to it
    versions: tuple[int, ...] = (1, 2)
    is_shared: bool = False


class World(NamedTuple):
    """What goes wrong, or slowly, while the call goes on."""

    name: str
    begin: Callable[[Scene], object] = lambda _: None
    transactions: dict[str, float] = {}  # noqa: RUF012  # nobody writes to it
    settings: dict[str, Any] = {}  # noqa: RUF012
    has_topic: bool = True


@final
@dataclass
class Run:
    """What is learned from one run."""

    outcome: Outcome
    progress: Progress
    violations: list[str]


def run_call(
    call: Call, world: World, version: int, way: Way, then: str, moment: Moment | None = None
) -> Run:
    """Run a call in a world, cancel it at a moment (or let it end), go on as a user does, and judge."""
    scene = Scene(version, world.settings | call.settings, world.transactions, has_topic=world.has_topic)
    progress = Progress(scene, moment)  # type: ignore[arg-type]
    runs: list[Run] = []

    async def main() -> None:
        before = asyncio.all_tasks()
        if not call.starts:
            await scene.producer.start()
        if call.arrange is not None:
            await call.arrange(scene)
        world.begin(scene)
        if call.beside is not None:
            progress.on_first = lambda: scene.spawn(call.beside(scene), "beside")  # type: ignore[misc]
        progress.began_at = scene.now

        async def called() -> Any:
            return await call.make(scene)

        with progress.counting_turns():
            outcome = await _outcome(scene, progress, way(progress, called))
        runs.append(Run(outcome, progress, scene.ledger.violations))
        _judge_end(scene, call, progress, outcome, moment)
        await _go_on(scene, call, then)
        await _judge_rest(scene, before)

    scene.run(main())
    for trouble in scene.troubles:
        scene.accuse("L", trouble)
    _decide(scene)
    scene.ledger.check()
    if call.is_shared:  # records of several entries are in one on purpose
        runs[0].violations[:] = [each for each in runs[0].violations if not each.startswith("I:")]
    return runs[0]


async def _outcome(scene: Scene, progress: Progress, cancelling: Coroutine[Any, Any, Any]) -> Outcome:
    try:
        outcome = Outcome("finished", await cancelling)
    except (asyncio.CancelledError, TimeoutError) as error:
        outcome = Outcome("cancelled", error=error)
    except Exception as error:
        outcome = Outcome("failed", error=error)
    progress.is_over = True
    outcome.at = scene.now
    return outcome


def _judge_end(scene: Scene, call: Call, progress: Progress, outcome: Outcome, moment: Moment | None) -> None:
    if outcome.kind == "failed":
        scene.accuse("L", f"it ended with {outcome.error!r}")
    if progress.fired_at is not None:
        bound = (scene.case.max_block if call.has_end and not progress.repeats else 0) + TICK
        if outcome.at > progress.fired_at + bound:
            scene.accuse(
                "L", f"cancelled, and it {outcome.kind} {outcome.at - progress.fired_at:.3f} s later"
            )
    if moment is None and outcome.kind == "cancelled":
        scene.accuse("L", "nobody cancelled it")


# -- what its user does afterwards ---


async def _go_on(scene: Scene, call: Call, then: str) -> None:
    """Ask for the end that the user wants now, commit another one, and close."""
    if scene.producer._life.state.name == "RUNNING":
        if then == "close":
            await _bounded(scene, scene.producer.close())
        elif scene.latest is not None and then in ("commit", "abort"):
            await _end(scene, then)
    _tell(scene)
    await _judge_neighbours(scene, call, then)
    if scene.group is not None:
        await _bounded(scene, scene.group.__aexit__(None, None, None))
    scene.heal()
    if scene.producer._life.state.name not in ("RUNNING", "NEW"):
        if then != "close" and not call.closes:
            scene.accuse("S", f"the producer is {scene.producer._life.state.name}")
        scene.producer = scene.new_producer()
    if scene.producer._life.state.name == "NEW":
        await _bounded(scene, scene.producer.start())
    await _commit_another(scene)
    _judge_producer(scene)
    await _bounded(scene, scene.producer.close())
    _tell(scene)
    _judge_outcomes(scene, is_closed=call.closes or then == "close")


def _judge_producer(scene: Scene) -> None:
    """Nobody waits, and all memory has come back."""
    manager, pool = scene.manager, scene.producer._life.sender.pool
    operation = manager._operation.operation
    if operation is not None and operation._waiting:
        scene.accuse("L", f"somebody still waits for {operation.kind}")
    if pool.available != pool.total or pool.waiting:
        scene.accuse("M", f"{pool.total - pool.available} bytes did not come back, {pool.waiting} wait")


def _judge_outcomes(scene: Scene, *, is_closed: bool) -> None:
    """Each transaction has an outcome; an unknown one where it was closed."""
    for txn, entry in scene.begun:
        if txn._is_prepared:
            continue  # left to the holder of its PreparedTransaction
        if txn.outcome is None or (txn.outcome is UNKNOWN and not is_closed):
            scene.accuse("L", f"the outcome of {entry} is {txn.outcome}")


def _tell(scene: Scene) -> None:
    for txn, entry in scene.begun:
        scene.ledger.tell(entry, txn.outcome)


async def _bounded(scene: Scene, call: Awaitable[Any]) -> None:
    async with asyncio.timeout(scene.case.max_block + scene.case.delivery_timeout):
        await call


async def _end(scene: Scene, then: str) -> None:
    """Ask for an end, and follow what errors say; an abort never takes the place of a commit that goes on."""
    txn, entry = scene.txn, scene.entry
    goes_on = scene.manager.state is TransactionState.COMMITTING and scene.manager.transaction is txn._core
    if then == "commit":
        entry.asked_commit = True
    formerly = txn.outcome
    ask: Callable[[], Awaitable[Any]] = txn.commit if then == "commit" else txn.abort
    for _ in range(_PATIENCE):
        try:
            await _bounded(scene, ask())
        except TransactionError as error:
            if then == "abort" and goes_on and "the outcome of a commit is awaited" not in str(error):
                scene.accuse("V", f"a commit goes on, and abort() says {error}")
            goes_on = False
            _hear(scene, entry, txn, error)
            if error.recover == "begin":
                return
            if error.recover == "new producer":
                scene.accuse("R", f"{error!r}")
                return
            ask = _next_call(scene, txn, error) or ask
        else:
            if goes_on and then == "abort":
                scene.accuse("V", "a commit goes on, and abort() raised nothing")
            if formerly is not None and txn.outcome is not formerly:
                scene.accuse("V", f"told {formerly}, and then {txn.outcome}")
            return
    scene.accuse("L", f"no end of errors that say what to do after {then}")


def _next_call(
    scene: Scene, txn: Transaction, error: TransactionError
) -> Callable[[], Awaitable[Any]] | None:
    """What an error says is to be called; `None`: the same again."""
    if error.recover == "init":
        return scene.producer.init_transactions
    if error.recover == "abort" or "abort() again" in str(error):
        return txn.abort
    return txn.commit if "commit() again" in str(error) else None


def _hear(scene: Scene, entry: TransactionEntry, txn: Transaction, error: TransactionError) -> None:
    if error.outcome is not None:
        scene.ledger.tell(entry, error.outcome)
        if txn.outcome is not error.outcome:
            scene.accuse("V", f"told {error.outcome} by {error!r}, and {txn.outcome} by outcome")


async def _commit_another(scene: Scene) -> None:
    """Begin at once: what goes on is waited for, what is open is refused, and then aborted."""
    deadline = scene.now + _RECOVERY
    while True:
        try:
            async with scene.producer.transaction() as txn:
                entry = scene.entered(txn)
                await scene.send(txn, entry)
                await scene.send_offsets(txn, entry)
                entry.asked_commit = True
        except TransactionError as error:
            if scene.now > deadline or error.recover == "new producer":
                scene.accuse("S", f"healed, and nothing is committed: {error!r}")
                return
            if isinstance(error, TransactionStateError) and error.recover == "abort":
                await _bounded(scene, scene.producer.abort_transaction())
            elif error.recover == "init":
                await _bounded(scene, scene.producer.init_transactions())
            else:
                await asyncio.sleep(0.1)
        else:
            if txn.outcome is not TransactionOutcome.COMMITTED:
                scene.accuse("V", f"committed, and its outcome is {txn.outcome}")
            return


# -- what is left ---


async def _judge_neighbours(scene: Scene, call: Call, then: str) -> None:
    if scene.neighbours:
        await asyncio.wait(scene.neighbours, timeout=_RECOVERY + scene.case.delivery_timeout)
    for task in scene.neighbours:
        if not task.done():
            scene.accuse("L", f"{task.get_name()} still waits")
            task.cancel()
        elif task.cancelled():
            scene.accuse("L", f"{task.get_name()} was cancelled")
        elif (error := task.exception()) is not None:
            is_of_the_end = isinstance(error, TransactionError | ProducerStateError)
            if not is_of_the_end or not (call.closes or then in ("close", "abort", "commit")):
                scene.accuse("L", f"{task.get_name()} got {error!r}")


async def _judge_rest(scene: Scene, before: set[asyncio.Task[Any]]) -> None:
    if not await scene.until(lambda: asyncio.all_tasks() == before, 10.0):
        scene.accuse("L", f"tasks are left: {asyncio.all_tasks() - before}")
    if not await scene.until(lambda: not scene.simulation.network.connections, 10.0):
        scene.accuse("L", f"connections are left: {list(scene.simulation.network.connections)}")
    # The rest is the coordinator's: what nobody could end is over its time, and its markers are written.
    await asyncio.sleep(scene.case.transaction_timeout + 5.0)


def _decide(scene: Scene) -> None:
    """What a cancelled call of several records has taken: the first ones, and these are in the log."""
    written = {
        record.value
        for state in scene.simulation.cluster.state.partitions()
        for batch in state.log.batches
        if not batch.header.is_control
        for record in batch.records()
    }
    taken = [record.value in written for record in scene.undecided]
    if taken != sorted(taken, reverse=True):
        scene.accuse("A", f"not the first ones: {taken}")
    for record, is_taken in zip(scene.undecided, taken, strict=True):
        if is_taken:
            record.accepted_at = record.answered_at = record.settled_at = record.offered_at
            record.outcomes.append((None, None))  # type: ignore[arg-type]
        else:
            record.refusal, record.answered_at = asyncio.CancelledError(), record.offered_at


# -- worlds ---


def _slow(scene: Scene) -> None:
    scene.simulation.network.set_latency(HOST, 0.2, 0.2)


def _hole(scene: Scene) -> None:
    scene.simulation.network.hold(HOST)
    scene.plan(2.0, scene.simulation.network.release, HOST)


def _cut(scene: Scene) -> None:
    """Whatever is on its way is lost, and may have been done."""
    _slow(scene)
    scene.plan(0.3, scene.simulation.network.reset, HOST)


def _down(scene: Scene) -> None:
    scene.simulation.cluster.stop_broker(0)
    scene.plan(3.0, scene.simulation.cluster.start_broker, 0)


def _late_topic(scene: Scene) -> None:
    scene.plan(0.35, scene.create_topic)


SLOW = World("slow network", _slow)
WORLDS = [
    SLOW,
    World("at ease"),
    World("slow markers", transactions={"marker_delay": 0.5}),
    World("black hole", _hole),
    World("connections are cut", _cut),
    World("broker down", _down),
]
LATE_TOPIC = World("late topic", _late_topic, has_topic=False)
FULL_BUFFER = World("full buffer", _hole, settings={"buffer_memory": 1_200})
