"""The oracle of the fault tests: one producer under a fault, and the judgement of what became of its records.

Used by every test that sends through a fault on sockets, with any kind of broker. The letters are those of the
table of scenarios:

L  every record gets one outcome, `flush()` ends, and the same producer sends again: `Trial`, at its end. That each
   has it by its own deadline is for the simulation to show: here the machine's clock runs.
M  all memory comes back: `Traffic.settle()`.
A  what was acknowledged is in the log, at the reported offset: `Trial.judge()`, as all below.
D  nothing is in the log twice, where the promise is `ONCE`.
O  numbers rise in each partition: always with `ONCE`; of the first copies, with `IN_ORDER`.
X  what failed with a definite error is absent; with an ambiguous one it is there once at most, with `ONCE`.
And no task or callback of the loop ended with an error that nobody took.
"""

from __future__ import annotations

import asyncio
import gc
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self

from aioproduce.errors import DeliveryError
from tests.drivers.producing import until
from tests.integration.traffic import Traffic, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from aioproduce import Producer
    from tests.integration.traffic import LogRecord

# Beyond `delivery.timeout.ms`, for the pauses of a busy machine: a bound for a hang, not a budget.
SLACK = 60.0


class Promise(Enum):
    """What a producer promises of the records that it accepts."""

    ONCE = auto()
    """In the log once, in order: with idempotence."""
    IN_ORDER = auto()
    """At least once, the first copies in order: without idempotence, one request in flight."""
    AT_LEAST_ONCE = auto()
    """At least once: without idempotence, several requests in flight."""


class Trial(Traffic):
    """Numbered records without pause while its block lasts; at its end the producer must be as good as new.

    Args:
        producer: A running producer.
        topic: The topic, which nobody else writes to under the same name.
        promise: What its settings promise.
        keys: How many different keys.
        name: The first word of every value; without blanks.
        is_sending: Whether records are sent by themselves; otherwise only those that `send()` is told to.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        promise: Promise,
        *,
        keys: int = 20,
        name: str = "record",
        is_sending: bool = True,
    ) -> None:
        super().__init__(producer, topic, keys=keys, name=name)
        self._promise = promise
        self._is_sending = is_sending
        self._untaken: list[dict[str, Any]] = []
        self._settled_below = 0

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._untaken.append(context))
        return await super().__aenter__() if self._is_sending else self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(self.producer.config.delivery_timeout + SLACK):
                if self._is_sending:
                    await super().__aexit__(kind, error, traceback)
                elif kind is None:
                    await self.settle()
                if kind is None:
                    await self._is_as_good_as_new()
        finally:
            gc.collect(1)  # a task's error that nobody takes is told when the task goes
            asyncio.get_running_loop().set_exception_handler(None)

    async def caught_up(self) -> None:
        """Wait until every record that was sent up to now has its outcome."""
        sent = self.sent

        def is_settled() -> bool:
            while self._settled_below < sent and (
                self._settled_below in self.acked or self._settled_below in self.failed
            ):
                self._settled_below += 1
            return self._settled_below >= sent

        await until(is_settled)

    async def failures(self, count: int) -> None:
        """Wait until so many records in all have failed."""
        await until(lambda: len(self.failed) >= count)

    def judge(
        self, records: Iterable[LogRecord], *, may_fail: bool = False, promise: Promise | None = None
    ) -> Verdict:
        """Hold the outcomes against the log; every breach of the promise is an assertion.

        Args:
            records: The whole log of this traffic, each partition's in order.
            may_fail: Records may have failed; otherwise every one must be acknowledged.
            promise: Instead of the producer's own, where a fault leaves more or less to it.

        Returns:
            What was found before the promise was applied, e.g. how many duplicates there are.
        """
        promise = promise or self._promise
        log = list(records)
        found = super().judge(log)
        breaches = Verdict(
            lost=found.lost,
            misplaced=found.misplaced,
            unplaced=found.unplaced,
            undead=found.undead,
            foreign=found.foreign,
            duplicated=found.duplicated if promise is Promise.ONCE else [],
            disordered=self._disordered(found, log, promise),
        )
        assert breaches == Verdict(), self._told(breaches)
        if not may_fail:
            assert self.errors() == []
        assert all(isinstance(error, DeliveryError) for error in self.failed.values()), self.errors()
        assert self._untaken == []
        return found

    def _disordered(self, found: Verdict, log: Sequence[LogRecord], promise: Promise) -> list[int]:
        if promise is Promise.ONCE:
            return found.disordered
        if promise is Promise.AT_LEAST_ONCE:
            return []
        # Copies do not count: those that a black hole kept come behind anything. Nor do records that were given
        # up: nothing holds back those behind them.
        seen: set[int] = set()
        latest: dict[int, int] = {}
        late: list[int] = []
        for record in log:
            number = self._number(record.value)
            if number in self.acked and number not in seen:
                seen.add(number)
                if number < latest.get(record.partition, -1):
                    late.append(number)
                latest[record.partition] = max(number, latest.get(record.partition, -1))
        return late

    async def _is_as_good_as_new(self) -> None:
        before, failed = self.sent, len(self.failed)
        await self.send(50)
        await self.settle()
        assert len(self.failed) == failed, self.errors()
        assert all(number in self.acked for number in range(before, self.sent))

    def _told(self, breaches: Verdict) -> str:
        return (
            f"{breaches}\nof {self.sent} records, {len(self.acked)} acknowledged, {len(self.failed)} failed: "
            f"{self.errors()[:5]}"
        )
