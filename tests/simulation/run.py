"""Runs a case and judges it.

    run_case(make_case(seed)) -> Outcome

The writers send their bursts, the faults come and go; then everything is healed, a probe goes to each partition,
the producer is flushed and closed, and the ledger is held against the logs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioproduce.errors import ProducerError
from aioproduce.testing.simulation import Simulation, SimulationDeadlockError
from tests.simulation.case import KEYLESS, TOPIC, Case
from tests.simulation.ledger import Ledger
from tests.simulation.securing import client_security, fake_security, watched
from tests.simulation.sides import AsyncioSide, BareSide
from tests.simulation.watching import watching

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.case import Burst
    from tests.simulation.sides import Side


_STEPS = 300_000
"""Many times what a case takes."""

_RECOVERY = 60.0
"""Seconds after which everything goes again."""

_GOODBYE = 1.0
"""Seconds in which a producer with nothing to do is closed."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        violations: What did not hold; empty if all is well.
        trace: The lines that were asked for.
        trace_hash: The same for every run of the case.
        cpu: Seconds of processor time.
    """

    case: Case
    violations: tuple[str, ...]
    trace_hash: str
    offered: int
    acknowledged: int
    failures: dict[str, int]
    requests: int
    virtual_seconds: float
    cpu: float
    trace: tuple[str, ...] = field(default=(), repr=False)


def run_case(case: Case, *, trace: int | None = 0) -> Outcome:
    """Run it, and never raise: what goes wrong is a violation."""
    began = time.process_time()
    simulation = Simulation(
        case.seed,
        brokers=case.brokers,
        topics={TOPIC: case.partitions},
        trace=trace,
        security=fake_security(case),
        **case.cluster_settings(),
    )
    for link in simulation.network.links.values():
        link.buffer = case.buffer
    ledger = Ledger(simulation, case)
    security = client_security(simulation, case, ledger.accuse)
    side: Side = (BareSide if case.is_bare else AsyncioSide)(simulation, case.settings, security)
    troubles: list[str] = []
    simulation.clock.limit = _STEPS
    try:
        with watching(troubles), ledger.watching(), watched(ledger.accuse):
            side.run(Run(simulation, side, ledger, case).main())
    except SimulationDeadlockError as error:
        ledger.accuse("L", str(error))
    except Exception as error:
        ledger.accuse("L", f"the run ended with {error!r}")
    for trouble in (*side.troubles, *troubles):
        ledger.accuse("L", trouble)
    ledger.check()
    return Outcome(
        case=case,
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


class Run:
    """One run of one case."""

    def __init__(self, simulation: Simulation, side: Side, ledger: Ledger, case: Case) -> None:
        self.simulation = simulation
        self.side = side
        self.ledger = ledger
        self.case = case

    async def main(self) -> None:
        side, case = self.side, self.case
        await side.start()
        self.simulation.plan(case.faults)
        tasks = [
            side.spawn(
                self.write(writer, [burst for burst in case.bursts if burst.writer == writer]), f"w{writer}"
            )
            for writer in (KEYLESS, *range(case.partitions))
        ]
        tasks.append(side.spawn(self.flush_now_and_then(), "flush"))
        for task in tasks:
            await side.join(task)
        await side.sleep_until(max(fault.at + fault.seconds for fault in case.faults) if case.faults else 0)
        await side.sleep_until(case.seconds)
        self.simulation.heal()
        self.simulation.trace.add("healed")
        await self.recover()
        await self.close()

    async def write(self, writer: int, bursts: Iterable[Burst]) -> None:
        for burst in bursts:
            await self.side.sleep_until(burst.at)
            for number in range(burst.records):
                await self.send(writer, burst.size)
                if number % 8 == 7:
                    # The producer gives the loop a turn when a millisecond of real time has passed: not here.
                    await self.side.sleep_until(self.simulation.clock.now)

    async def send(self, writer: int, size: int) -> Any:
        entry = self.ledger.offer(writer, size)
        try:
            delivery = await self.side.send(
                TOPIC, entry.value, None if writer == KEYLESS else writer, entry.timestamp
            )
        except ProducerError as error:
            self.ledger.refuse(entry, error)
            return None
        self.ledger.accept(entry)
        delivery._add_delivery_callback(lambda metadata, error: self.ledger.settle(entry, metadata, error))
        return entry

    async def flush_now_and_then(self) -> None:
        for at in (self.case.seconds * share / 8 for share in range(1, 8)):
            await self.side.sleep_until(at)
            before = [entry for entry in self.ledger.entries.values() if entry.accepted_at is not None]
            began_at = self.simulation.clock.now
            await self.flush()
            if not all(entry.outcomes for entry in before):
                self.ledger.accuse("L", "flush() came back before everything was settled")
            self.ledger.check_time("flush()", began_at, self.case.delivery_timeout)

    async def flush(self) -> None:
        self.ledger.note_flush()
        await self.side.flush()

    async def recover(self) -> None:
        """The trouble is over: what is accepted now is acknowledged, as soon as the brokers can be reached again.

        That may take a while: a connection that is being set up knocks again after 1, 2, 4, 8, 16 seconds, and a
        record that joins a batch of before has that one's time.
        """
        healed_at = self.simulation.clock.now
        for writer in range(self.case.partitions):
            while True:
                entry = await self.send(writer, 10)
                await self.flush()
                if entry is not None and entry.outcomes and entry.outcomes[0][1] is None:
                    break
                if self.simulation.clock.now > healed_at + _RECOVERY:
                    self.ledger.accuse(
                        "L", f"healed, and nothing goes to partition {writer}: {self.ledger.failures}"
                    )
                    break
                await self.side.sleep_until(self.simulation.clock.now + 1)

    async def close(self) -> None:
        """What is left to do is little, and everything can be reached: nothing but its connections' end."""
        await self.flush()
        began_at = self.simulation.clock.now
        await self.side.close()
        self.ledger.check_time("close()", began_at, _GOODBYE)
        self.check_memory()

    def check_memory(self) -> None:
        pool = self.side.sender.pool
        if pool.available != pool.total or pool.outstanding:
            self.ledger.accuse("M", f"{pool.total - pool.available} bytes did not come back")
        if self.simulation.network.connections:
            self.ledger.accuse("M", f"connections are left: {list(self.simulation.network.connections)}")
