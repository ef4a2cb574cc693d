"""The run of `aioproduce perf`: send a number of records, at a limited rate if wanted, and measure each.

Called by `perf_command`, which has checked everything that it can without a cluster. One task sends record after
record, as Kafka's tool does. It does not wait for an acknowledgement before the next record.

Invariants:

1. A latency is from the call of `send()` to the acknowledgement, the wait for room included. The clock is read once
   for a group of records, and again wherever a `send()` suspends: between two readings nothing else runs.
2. No busy waiting: a limited run sleeps until its next group is due, at most 500 times a second.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.stopwatch import Stopwatch
from aioproduce.cli.exit_codes import ExitCode, exit_code_of
from aioproduce.cli.perf_lines import KafkaStats, Measured, warmup_line
from aioproduce.cli.perf_timeline import Timeline
from aioproduce.cli.run import Run, meanwhile
from aioproduce.errors import MaxBlockTimeoutError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioproduce import DeliveryFuture
    from aioproduce.cli.perf_payloads import Payloads
    from aioproduce.config import ProducerConfig

# Records between two readings of the clock: about 50 microseconds.
_GROUP: Final = 128
_GROUPS_PER_SECOND: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PerfJob:
    """The records to send, and how to report the run.

    Attributes:
        topic: The topic.
        records: The number of records.
        payloads: Their values.
        config: The producer's configuration.
        rate: The limit of records per second; `None` for no limit.
        warmup: The number of first records that the steady state's figures leave out.
        interval: Seconds between two lines.
        timeout: Seconds to wait for cluster and topic at the start, and for acknowledgements after a signal.
    """

    topic: str
    records: int
    payloads: Payloads
    config: ProducerConfig
    rate: float | None
    warmup: int
    interval: float
    timeout: float


@final
@dataclass(slots=True, eq=False, repr=False)
class _Turns:
    """A coroutine that reports when it suspends and when it resumes."""

    _coroutine: Coroutine[Any, Any, None]
    _suspended: Callable[[], None]
    _resumed: Callable[[], None]

    def __await__(self) -> Generator[Any, Any, None]:
        step: Callable[..., Any] = self._coroutine.send
        given: Any = None
        while True:
            try:
                waits_for = step(given)
            except StopIteration:
                return
            self._suspended()
            try:
                given = yield waits_for
                step = self._coroutine.send
            except BaseException as error:  # also a cancellation must reach the coroutine
                given = error
                step = self._coroutine.throw
            self._resumed()


@final
@dataclass(slots=True, eq=False, repr=False)
class _Sends:
    """The records sent since the last reading of the clock, which the stopwatch has not recorded yet.

    Args:
        stopwatch: The stopwatch.
        clock: The clock.
        value_size: Bytes of each record's value; -1 if they differ.

    Attributes:
        deliveries: The deliveries of these records; the sender appends them.
        is_steady: Whether they come after the warm-up.
    """

    _stopwatch: Stopwatch
    _clock: Callable[[], float]
    _value_size: int = -1
    _began_at: float = 0.0
    # The time of the send() call of the first record, if that call suspended.
    _called_at: float | None = None
    _is_open: bool = False
    deliveries: list[DeliveryFuture] = field(default_factory=list)
    is_steady: bool = False

    def open(self) -> None:
        """Begin a group of `send()` calls."""
        self._is_open = True
        self._called_at = None
        self._began_at = self._clock()

    def close(self) -> None:
        """End the group."""
        self._take()
        self._is_open = False

    def suspended(self) -> None:
        """Record the group so far: if it is open, a `send()` has suspended."""
        if self._is_open:
            is_same_call = self._called_at is not None and not self.deliveries
            now = self._take()
            if not is_same_call:
                self._called_at = now

    def resumed(self) -> None:
        """Read the clock again: the `send()` resumes."""
        if self._is_open:
            self._began_at = self._clock()

    def _take(self) -> float:
        now = self._clock()
        if self.deliveries:
            began_at = self._began_at
            if self._called_at is not None:
                self._stopwatch.record(self.deliveries[:1], self._called_at, began_at, self.is_steady)
                del self.deliveries[0]
                self._called_at = None
            self._stopwatch.record(self.deliveries, began_at, now, self.is_steady, self._value_size)
            self.deliveries.clear()
        return now


@final
class PerfRun(Run):
    """One run.

    Args:
        job: The job.
        tell: Called with each line of the result.
        announce: Called with a line for the user after a signal.
        clock: Returns the time in seconds.

    Attributes:
        stopwatch: The counts.
        problem: The error that ended the run early, if it was not a record's failure.
        stats: Figures of all records; `None` before the first is sent.
        steady_stats: Figures of the records after the warm-up; `None` before the first of them is sent.
        timeline: The run over time; `None` before the first record is sent.
        total: After the run: the figures of all records.
        steady: After the run: those after the warm-up, if there was one and it ended.
    """

    def __init__(
        self,
        job: PerfJob,
        tell: Callable[[str], None],
        announce: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(job.config, job.topic, job.timeout, announce)
        self._job = job
        self._tell = tell
        self._clock = clock
        self.stats: KafkaStats | None = None
        self.steady_stats: KafkaStats | None = None
        self.timeline: Timeline | None = None
        self.stopwatch: Stopwatch = Stopwatch(clock, self._settled)
        self.problem: ProducerError | None = None
        self.total: Measured | None = None
        self.steady: Measured | None = None

    async def run(self) -> None:
        """Send everything, and set the attributes to the result."""
        async with meanwhile(self._tick()):
            await super().run()

    def _outstanding(self) -> int:
        return self.stopwatch.outstanding

    def _failure(self) -> ExitCode | None:
        if self.stopwatch.failed:
            return ExitCode.NOT_ACKNOWLEDGED
        return None if self.problem is None else exit_code_of(self.problem)

    # -- the work ---

    async def _work(self) -> None:
        try:
            await self._check_destination()
        except ProducerError as error:
            self.problem = error
            return
        self._begin()
        sends = _Sends(self.stopwatch, self._clock, self._job.payloads.size)
        try:
            await _Turns(self._send_all(sends), sends.suspended, sends.resumed)
            await self._producer.flush()
        except ProducerError as error:
            self.problem = error

    def _begin(self) -> None:
        job = self._job
        if job.warmup:
            self._tell(warmup_line(job.warmup))
        now = self._clock()
        self.stats = KafkaStats(now, job.interval, self.stopwatch.sinks, self._tell)
        self.timeline = Timeline(now, self.stopwatch.sinks, self._producer.metrics)

    async def _send_all(self, sends: _Sends) -> None:
        job = self._job
        started_at = self._clock()
        size = _GROUP if job.rate is None else max(1, min(_GROUP, int(job.rate / _GROUPS_PER_SECOND)))
        first = 0
        while first < job.records:
            if job.warmup and first == job.warmup:
                self._end_warmup()
                sends.is_steady = True
            ends = job.records if first >= job.warmup else job.warmup
            values = job.payloads.take(first, min(size, ends - first))
            await self._send(values, sends)
            first += len(values)
            if job.rate is not None:
                left = started_at + first / job.rate - self._clock()
                if left > 0 and first < job.records:
                    await asyncio.sleep(left)

    async def _send(self, values: Any, sends: _Sends) -> None:
        """The hot loop: one pass per record."""
        send, topic, deliveries = self._producer.send, self._job.topic, sends.deliveries
        rest = iter(values)
        while True:
            sends.open()
            try:
                for value in rest:
                    # No bound method `deliveries.append`: CPython has a specialised instruction for this call.
                    deliveries.append(await send(topic, value))
                return
            except MaxBlockTimeoutError as error:
                # As in Kafka's tool: this record failed, and the next one may succeed.
                self.stopwatch.refused(error)
            finally:
                sends.close()

    def _end_warmup(self) -> None:
        assert self.stats is not None
        self.stats.is_silent = True
        self.steady_stats = KafkaStats(
            self._clock(), self._job.interval, self.stopwatch.steady_sinks, self._tell, is_steady=True
        )

    # -- meanwhile ---

    def _settled(self, now: float) -> None:
        for stats in (self.stats, self.steady_stats):
            if stats is not None:
                stats.settled(now)

    async def _tick(self) -> None:
        while True:
            timeline = self.timeline
            await asyncio.sleep(0.05 if timeline is None else timeline.interval)
            if timeline is not None:
                timeline.end_slot(self._clock(), self.stopwatch.failed)

    # -- the end ---

    def _end(self) -> None:
        now = self._clock()
        if self.timeline is not None:
            self.timeline.end_slot(now, self.stopwatch.failed)
        if self.stats is not None:
            self.total = self.stats.end(now)
            self._tell(self.stats.total_line(self.total))
        if self.steady_stats is not None:
            self.steady = self.steady_stats.end(now)
            self._tell(self.steady_stats.total_line(self.steady))
