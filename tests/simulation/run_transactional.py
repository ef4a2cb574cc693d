"""Runs a case of transactions and judges it; as `run`, which has what both share.

Each writer has a transactional id and runs its transactions one after the other, as a careful service does: it
follows what errors say is to be done next. Rivals with the same ids come and go. Then everything is healed, each
writer has to commit one more by the producer that it has, and the logs are read.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aioproduce import Producer
from aioproduce.errors import ProducerError, TransactionError
from aioproduce.records import TopicPartition
from aioproduce.testing.fake_cluster.transaction_states import Transaction as CoordinatedTransaction
from aioproduce.testing.simulation import Simulation, SimulationDeadlockError
from aioproduce.wire import error_codes as codes
from tests.simulation.case import TOPIC
from tests.simulation.case_transactional import PARTITIONS, SOURCE, TOO_LARGE, Plan
from tests.simulation.run import Outcome
from tests.simulation.sides import config_of
from tests.simulation.transaction_ledger import COMMITTED, TransactionEntry, TransactionLedger
from tests.simulation.watching import note_exception, watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce.producer.transactions import Transaction
    from tests.simulation.case_transactional import TransactionalCase

_STEPS = 400_000
_RECOVERY = 90.0
"""Seconds after which everything goes again: metadata, coordinators, and what was left to be ended."""


_PATIENCE = 1000
"""How many errors are followed, one after the other."""


class _Left(Exception):
    """What leaves a body."""


def run_transactional(case: TransactionalCase, *, trace: int | None = 0) -> Outcome:
    """Run it, and never raise: what goes wrong is a violation."""
    began = time.process_time()
    simulation = Simulation(case.seed, brokers=3, topics=PARTITIONS, trace=trace, **case.cluster_settings())
    ledger = TransactionLedger(simulation, case)
    troubles: list[str] = []
    simulation.clock.limit = _STEPS
    try:
        with watching(troubles), ledger.watching():
            simulation.run(_guarded(Run(simulation, ledger, case), troubles))
    except SimulationDeadlockError as error:
        ledger.accuse("L", str(error))
    except Exception as error:
        ledger.accuse("L", f"the run ended with {error!r}")
    for trouble in troubles:
        ledger.accuse("L", trouble)
    ledger.check()
    return Outcome(
        case=case,  # type: ignore[arg-type]
        violations=tuple(ledger.violations),
        trace_hash=simulation.trace.hash,
        offered=len(ledger.entries),
        acknowledged=ledger.acknowledged,
        failures=ledger.failures,
        requests=simulation.cluster.model.requests.count(),
        virtual_seconds=simulation.clock.now,
        cpu=time.process_time() - began,
        trace=tuple(simulation.trace.lines),
    )


async def _guarded(run: Run, troubles: list[str]) -> None:
    asyncio.get_running_loop().set_exception_handler(partial(note_exception, troubles))
    before = asyncio.all_tasks()
    await run.main()
    if left := asyncio.all_tasks() - before:
        troubles.append(f"tasks are left: {left}")


class Run:
    """One run of one case."""

    def __init__(self, simulation: Simulation, ledger: TransactionLedger, case: TransactionalCase) -> None:
        self.simulation = simulation
        self.ledger = ledger
        self.case = case

    async def main(self) -> None:
        simulation, case = self.simulation, self.case
        coordinator = simulation.cluster.model.transactions
        for number in range(case.writers if case.first_epoch >= 0 else 0):
            name = f"writer-{number}"
            known = CoordinatedTransaction(name, simulation.cluster.state.new_producer_id()[0], 60.0, 0.0)
            known.epoch = case.first_epoch
            coordinator.transactions[name] = known
        simulation.plan(case.faults)
        writers = [Writer(self, number) for number in range(case.writers)]
        tasks = [
            asyncio.create_task(writer.follow_plans(), name=f"writer {writer.number}") for writer in writers
        ]
        tasks += [asyncio.create_task(Writer(self, plan.writer).intrude(plan)) for plan in self.rivals]
        await asyncio.gather(*tasks)
        await self.sleep_until(max([case.seconds, *(fault.at + fault.seconds for fault in case.faults)]))
        simulation.heal()
        simulation.trace.add("healed")
        await asyncio.gather(*(writer.recover() for writer in writers))
        for writer in writers:
            await writer.close()
        # The rest is the coordinator's: what nobody ended is over its time, and its markers are written.
        await asyncio.sleep(case.transaction_timeout + 30.0)
        if simulation.network.connections:
            self.ledger.accuse("M", f"connections are left: {list(simulation.network.connections)}")

    @property
    def rivals(self) -> list[Plan]:
        return [plan for plan in self.case.bursts if plan.is_rival]

    async def sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(at - self.simulation.clock.now, 0))


class Writer:
    """One transactional id, and the producer that has it now."""

    def __init__(self, run: Run, number: int) -> None:
        self.number = number
        self._run = run
        self._ledger = run.ledger
        self._case = run.case
        self._producer: Producer | None = None
        self._latest: tuple[Transaction, TransactionEntry] | None = None
        self._is_closing = False
        self._is_disputed = any(plan.writer == number for plan in run.rivals)

    # -- life ---

    async def follow_plans(self) -> None:
        for plan in self._case.bursts:
            if plan.writer == self.number and not plan.is_rival:
                await self._run.sleep_until(plan.at)
                await self.transact(plan)

    async def intrude(self, plan: Plan) -> None:
        await self._run.sleep_until(plan.at)
        await self.transact(plan)
        await self.close()

    async def recover(self) -> None:
        healed_at = self._run.simulation.clock.now
        while True:
            plan = Plan(0.0, self.number, 3, 0.0, 1, "commit", False, 0.0)
            entry = await self.transact(plan)
            if entry is not None and entry.told is COMMITTED:
                return
            if self._run.simulation.clock.now > healed_at + _RECOVERY + 2 * self._case.max_block:
                self._ledger.accuse("S", f"healed, and writer {self.number} commits nothing")
                return
            await asyncio.sleep(1.0)

    async def _start(self) -> bool:
        config = config_of(
            self._run.simulation,
            {
                **self._case.settings,
                "transactional_id": f"writer-{self.number}",
                "max_request_size": 1_048_576,
            },
        )
        producer = Producer(config)
        error = await self._call("start()", self._case.max_block + 5, producer.start())
        self._producer = None if error is not None else producer
        self._is_closing = False
        return error is None

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        self._is_closing = True
        if producer is not None:
            bound = self._case.delivery_timeout + self._case.max_block
            await self._call("close()", bound, producer.close())
            if producer._life.sender.pool.outstanding:
                self._ledger.accuse("M", f"{producer._life.sender.pool.outstanding} bytes did not come back")

    async def _call(self, what: str, bound: float, call: Awaitable[Any]) -> ProducerError | None:
        """Await a call; it has its bound, and what it raises is an error of ours."""
        began = self._run.simulation.clock.now
        try:
            await call
        except ProducerError as error:
            self._run.simulation.trace.add(f"writer {self.number}: {what}: {type(error).__name__}: {error}")
            return error
        finally:
            self._ledger.check_time(f"writer {self.number}: {what}", began, bound)
        return None

    # -- one transaction ---

    async def transact(self, plan: Plan) -> TransactionEntry | None:
        if self._producer is None and not await self._start():
            return None
        assert self._producer is not None
        txn, entry = self._producer.transaction(), self._ledger.begin(self.number)
        if plan.ending in ("context", "raise", "cancelled body"):
            await self._in_context(plan, txn, entry)
        else:
            error = await self._call("begin()", 2 * self._case.max_block, txn.begin())
            if error is not None:
                await self._settle(error, self._producer.init_transactions)
                return entry
            self._latest = (txn, entry)
            await self._with_calls(plan, txn, entry)
        self._ledger.tell(entry, txn.outcome)
        return entry

    async def _with_calls(self, plan: Plan, txn: Transaction, entry: TransactionEntry) -> None:
        error = await self._body(plan, txn, entry)
        if plan.ending == "closed":
            await self.close()
        elif error is not None or plan.ending == "abort":
            await self._abort(txn)
        elif plan.ending in ("commit", "too long", "too large"):
            await self._commit(txn, entry)
        else:
            await self._interrupted_commit(plan, txn, entry)

    async def _body(self, plan: Plan, txn: Transaction, entry: TransactionEntry) -> ProducerError | None:
        for number in range(plan.records):
            size = TOO_LARGE if plan.ending == "too large" and number == 0 else 20
            record = self._ledger.offer_in(entry, size)
            try:
                delivery = await txn.send(
                    TOPIC, record.value, partition=number % PARTITIONS[TOPIC], timestamp=record.timestamp
                )
            except ProducerError as error:
                self._ledger.refuse(record, error)
                return error
            except asyncio.CancelledError as error:
                self._ledger.refuse(record, error)
                raise
            self._ledger.accept(record)
            delivery._add_delivery_callback(partial(self._ledger.settle, record))
            if number < plan.groups:
                group, partition = f"group-{self.number}-{number}", number % PARTITIONS[SOURCE]
                offset = self._ledger.offset_in(entry, group, partition)
                sent = txn.send_offsets({TopicPartition(SOURCE, partition): offset}, group)
                refusal = await self._call("send_offsets()", self._case.max_block, sent)
                if refusal is not None:
                    return refusal
                self._ledger.offset_taken(entry, offset)
            await asyncio.sleep(plan.pace)
        return None

    async def _commit(self, txn: Transaction, entry: TransactionEntry) -> None:
        entry.asked_commit = True
        error = await self._call("commit()", self._case.max_block, txn.commit())
        if error is None:
            self._ledger.tell(entry, COMMITTED)
        else:
            await self._settle(error, txn.commit)

    async def _abort(self, txn: Transaction) -> None:
        await self._settle(await self._call("abort()", self._case.max_block, txn.abort()), txn.abort)

    async def _interrupted_commit(self, plan: Plan, txn: Transaction, entry: TransactionEntry) -> None:
        entry.asked_commit = True
        task = asyncio.create_task(txn.commit())
        await asyncio.sleep(plan.after)
        if plan.ending == "closed while it commits":
            await self.close()
        else:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if plan.ending == "cancelled commit":
                await self._commit(txn, entry)
        except ProducerError as error:
            await self._settle(error, txn.commit)
        else:
            self._ledger.tell(entry, COMMITTED)

    async def _in_context(self, plan: Plan, txn: Transaction, entry: TransactionEntry) -> None:
        async def inside() -> None:
            async with txn:
                self._latest = (txn, entry)
                error = await self._body(plan, txn, entry)
                if error is not None:
                    raise error
                if plan.ending == "raise":
                    raise _Left
                entry.asked_commit = True

        task = asyncio.create_task(inside())
        if plan.ending == "cancelled body":
            await asyncio.sleep(plan.after)
            task.cancel()
        try:
            await task
        except (asyncio.CancelledError, _Left):
            await self._leave(txn)
        except ProducerError as error:
            assert self._producer is not None
            begun = self._latest is not None and self._latest[0] is txn
            if isinstance(error, TransactionError):
                await self._settle(error, txn.commit if begun else self._producer.init_transactions)
            else:
                await self._leave(txn)
        else:
            self._ledger.tell(entry, COMMITTED)

    async def _leave(self, txn: Transaction) -> None:
        """A body was left: mostly its abort is done, but it may be under way, or the commit that was cancelled."""
        if self._latest is not None and self._latest[0] is txn and txn.outcome is None:
            await self._settle(await self._call("abort()", self._case.max_block, txn.abort()), txn.abort)

    # -- what errors say ---

    async def _settle(self, error: ProducerError | None, again: Callable[[], Awaitable[Any]]) -> None:
        """Do what the error says is to be done next, until nothing is left to be done."""
        for _ in range(_PATIENCE):
            if error is None:
                break
            if not isinstance(error, TransactionError):
                if not self._is_closing:
                    self._ledger.accuse("L", f"writer {self.number}: {error!r}")
                return
            self._hear(error)
            producer = self._producer
            if producer is None or error.recover == "begin":
                return
            if error.recover == "new producer":
                if not (self._is_disputed or self._has_lost_its_id(error)):
                    self._ledger.accuse("R", f"writer {self.number} has no rival: {error!r}")
                await self.close()
                return
            if error.recover == "call again" and self._latest is not None:
                again = self._awaited(str(error)) or again
            elif error.recover == "init":
                again = producer.init_transactions
                await asyncio.sleep(0.1)
            elif error.recover == "abort":
                assert self._latest is not None
                again = self._latest[0].abort
            error = await self._call(getattr(again, "__name__", "call"), self._case.max_block, again())
        else:
            self._ledger.accuse("L", f"writer {self.number}: no end of errors that say what to do: {error!r}")
            await self.close()
        if self._latest is not None:
            txn, entry = self._latest
            self._ledger.tell(entry, txn.outcome)

    def _awaited(self, text: str) -> Callable[[], Awaitable[Any]] | None:
        """The call of the latest transaction that goes on, by what the error says."""
        assert self._latest is not None
        txn = self._latest[0]
        if "call commit() again" in text or "came for commit" in text:
            return txn.commit
        return txn.abort if "call abort() again" in text or "came for abort" in text else None

    def _has_lost_its_id(self, error: TransactionError) -> bool:
        """Where epochs are used up another producer id comes with epoch 0, and Kafka tells of it once.

        It comes when a coordinator ends a transaction by itself, or as the answer to InitProducerId. To the second
        repetition of that, after two answers that were lost, Kafka says PRODUCER_FENCED.
        """
        if self._case.first_epoch <= 0:
            return False
        if error.code == codes.PRODUCER_FENCED:
            assert self._producer is not None
            known = self._run.simulation.cluster.model.transactions.transactions[f"writer-{self.number}"]
            return known.producer_id != self._producer._transactions.manager.producer.producer_id  # type: ignore[union-attr]
        return error.code in (codes.INVALID_PRODUCER_ID_MAPPING, codes.UNKNOWN_SERVER_ERROR)

    def _hear(self, error: TransactionError) -> None:
        if self._latest is not None and error.outcome is not None:
            self._ledger.tell(self._latest[1], error.outcome)
