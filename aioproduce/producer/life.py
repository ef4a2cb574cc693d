"""The life of a producer: made, started, closed, or ended by the death of its sender; and where it may be called.

Owned by the Producer, which asks `check_callable()` before anything else. Holds what lives from start to close: the
driver, the core, and the admission between them.

Invariants:

1. The short way of `send()` is open from `start()` to the first step of the end, and in no other state.
2. Every way to the end (close, a cancelled close, the sender's death) settles every delivery, runs its
   callbacks and drops every socket, in bounded time.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, final
from weakref import ref

from aioproduce._native.record_batch import load_crc32c
from aioproduce._native.stats import Windows
from aioproduce.compression import codec_of
from aioproduce.config.origins import naming_origins
from aioproduce.core.sender import Sender
from aioproduce.errors import (
    ForkedProcessError,
    NotStartedError,
    ProducerClosedError,
    ProducerError,
    ProducerStateError,
    SenderDiedError,
    WrongEventLoopError,
)
from aioproduce.metrics import MetricsSnapshot, ProducerMetrics, snapshot
from aioproduce.producer.admission import Admission
from aioproduce.producer.delivery_reports import DeliveryReports
from aioproduce.producer.gauges import gauges_before_the_start, gauges_of
from aioproduce.producer.interceptors import auditor_of
from aioproduce.producer.lost_records import LossReports, LostRecords
from aioproduce.producer.producer_states import PRODUCER_STATES, ProducerEvent, ProducerState
from aioproduce.producer.telemetry_payload import TelemetryPayload
from aioproduce.version import VERSION
from aioproduce.wire.preload import preload

if TYPE_CHECKING:
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.config import ProducerConfig
    from aioproduce.core.batching.record_audit import MarkSource, RecordAudit
    from aioproduce.drivers.base import Driver
    from aioproduce.security.security import Security

_log = logging.getLogger("aioproduce")

# An aborted socket reports its end in the loop's next turn, a thread when its batch is compressed; what does not by
# then is left to itself.
_ABORT_BOUND: Final = 5.0

# Started and not closed, for who looks for what was forgotten; it keeps none alive. All threads share it: each step
# is one call of dict's.
_open: Final[dict[int, ref[ProducerLife]]] = {}


def open_producers() -> list[ProducerLife]:
    """The producers of this process that were started and not closed, dead ones included."""
    lives = (each() for each in list(_open.values()))
    return [life for life in lives if life is not None and life.is_of_this_process]


def _tell_at_exit() -> None:
    for life in open_producers():
        life.tell_at_exit()


atexit.register(_tell_at_exit)


@final
class ProducerLife:
    """What there is between `start()` and `close()`.

    Attributes:
        config: The producer's configuration.
        state: Where it is.
        reports: Callbacks and unobserved failures.
        abandoned_records: Records that were accepted and given up, by a close that had no more time or by the
            sender's death.
        given_up: Those of them that the latest close gave up, by topic.
        is_closed_at_exit: Whether its owner closes it at the exit, after this module's hook, as `logging` does.
        driver: The event loop's side, once started; `sender` and `admission` likewise.
        appenders: The way of records that need no decision, by topic.
    """

    __slots__ = (
        "__weakref__",
        "_death",
        "_losses",
        "_marks",
        "_marks_life",
        "_on_open",
        "_pid",
        "_started_at_ms",
        "abandoned_records",
        "admission",
        "appenders",
        "config",
        "driver",
        "given_up",
        "is_closed_at_exit",
        "metrics",
        "reports",
        "sender",
        "state",
    )

    driver: Driver
    sender: Sender
    admission: Admission

    def __init__(
        self,
        config: ProducerConfig,
        on_open: Callable[[bool], None],
        marks: tuple[MarkSource, Callable[[], int], RecordAudit] | None = None,
    ) -> None:
        self.config: ProducerConfig = config
        self._on_open = on_open
        self._marks = marks
        self._marks_life: ProducerLife | None = None
        self._pid = 0
        self._death: BaseException | None = None
        self.given_up: LostRecords = LostRecords.of(())
        self.is_closed_at_exit: bool = False
        self.metrics: ProducerMetrics = ProducerMetrics(
            Windows(config.metrics_num_samples, config.metrics_sample_window)
        )
        self.metrics.gauges |= gauges_before_the_start(config)
        self._started_at_ms = 0
        self.reports: DeliveryReports = DeliveryReports(config.on_delivery_error)
        # Marks are of a producer that tells of its own end.
        self._losses = LossReports(config.client_id, self.reports, is_silent=marks is not None)
        self.appenders: dict[str, TopicAppender] = {}
        self.abandoned_records: int = 0
        self.state: ProducerState = ProducerState.NEW

    def start(self) -> None:
        """Start the sender on the running event loop."""
        if self.state is not ProducerState.NEW:
            remedy = (
                "" if self.state is ProducerState.RUNNING else ". Make another one: Producer(producer.config)"
            )
            raise ProducerStateError(
                f"a producer is started once; this one is {self.state.name.lower()}{remedy}"
            )
        from aioproduce.drivers.choice import make_driver
        from aioproduce.installation import tell_if_interpreted

        tell_if_interpreted()
        security = self._security()
        # Once per process, about 80 ms: later they would stall the loop at the first request.
        preload(with_login=security is not None and security.sasl is not None)
        load_crc32c()
        codec = codec_of(self.config)
        driver = make_driver(self.config, self.metrics, self._unobserved_failure)
        self.driver = driver
        self._started_at_ms = _wall_ms(driver)
        # From the interpreter's own generator: whoever seeds that gets the same choices again.
        chance = random.Random(random.getrandbits(64))
        self.sender = Sender(
            self.config,
            codec=codec,
            runtime=driver.runtime,
            random=chance,
            metrics=self.metrics,
            now=driver.now(),
            telemetry=self._telemetry(),
            audit=(audit := self._audit()),
            marks=self._marks,
            security=security,
            wall=lambda: self.wall_ms() / 1000,
        )
        self.admission = Admission(self.config, driver, self.sender, self.check_running, self.metrics)
        self.metrics.gauges |= gauges_of(self.sender, self.admission)
        self.appenders = self.sender.accumulator.appenders
        self._pid = os.getpid()
        if audit is not None and self.sender.transactions is not None:
            self._start_marks(*audit)
        self._move("started")
        driver.start(self.sender, on_death=self._sender_died, on_settled=self.reports.run_callbacks)

    def _unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        self.metrics.unobserved_failures.record(count, self.driver.now())
        self.reports.unobserved_failure(topic, partition, error, count)

    def refused(self, count: int = 1) -> None:
        """Count records whose `send()` raised, as Kafka's KafkaProducer does in `record-error-total`."""
        self.metrics.refused(self.driver.now(), count)

    def count_refusal(self, error: BaseException, count: int = 1) -> None:
        """Count so many records as refused if it was by an error of ours, or because their sender was cancelled.

        KafkaProducer counts both: what it throws itself, and the interrupt of a thread that waits in `send()`.
        """
        if isinstance(error, ProducerError) or not isinstance(error, Exception | GeneratorExit):
            self.refused(count)

    @contextmanager
    def counting_refusals(self, count: int = 1) -> Iterator[None]:
        """Count so many records as refused if what is done here raises for them."""
        try:
            yield
        except BaseException as error:
            self.count_refusal(error, count)
            raise

    def read_metrics(self) -> MetricsSnapshot:
        """As `Producer.metrics()`."""
        now = self.driver.now() if self.was_started else 0.0
        return snapshot(
            self.metrics,
            self.config.client_id,
            {"version": VERSION, "commit-id": "unknown", "start-time-ms": float(self._started_at_ms)},
            now,
            self.wall_ms(),
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing goes on any more; while it closes, what was begun still ends."""
        return self.state is ProducerState.CLOSED or self.state is ProducerState.DIED

    @property
    def was_started(self) -> bool:
        """Whether there is a core, dead or alive: one can be closed without ever having been started."""
        return self._pid != 0

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was started here, and not in a parent that forked."""
        return self._pid == os.getpid()

    def _security(self) -> Security | None:
        """How connections are encrypted, and how they log in; `None` for plaintext without a login."""
        if self.config.security_protocol == "PLAINTEXT":
            return None
        from aioproduce.security.making import make_security

        with naming_origins(self.config.origins):
            return make_security(self.config)

    def _telemetry(self) -> TelemetryPayload | None:
        """What the cluster is pushed where it asks for metrics."""
        if not self.config.enable_metrics_push:
            return None
        rack = self.config.client_rack
        return TelemetryPayload(self.read_metrics, self._started_at_ms, {"client_rack": rack} if rack else {})

    def _audit(self) -> tuple[MarkSource, Callable[[], int]] | None:
        """Who makes this start's marks, where records are numbered."""
        auditor = auditor_of(self.config.interceptors)
        return None if auditor is None else (auditor.begin_audit(self.config.client_id), self.wall_ms)

    def _start_marks(self, source: MarkSource, wall_ms: Callable[[], int]) -> None:
        """Marks of a transactional producer go by a life of their own: an abort must not take them with it.

        So a producer that was fenced still says what became of its records. It costs a connection or two.
        """
        audit = self.sender.audit
        assert audit is not None
        config = replace(
            self.config,
            transactional_id=None,
            interceptors=(),
            client_id=f"{self.config.client_id}-marks",
            enable_metrics_push=False,
        )
        self._marks_life = ProducerLife(config, _opens_nothing, (source, wall_ms, audit))
        self._marks_life.start()

    async def close(self, timeout: float | None) -> None:
        """As `Producer.close()`."""
        marks = self._marks_life
        if marks is None:
            await self._end(timeout)
            return
        ends_at = None if timeout is None else self.driver.now() + timeout
        try:
            await self._end(timeout)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                marks.abandon()
            else:
                await marks.close(0)
            raise
        if self.state is ProducerState.DIED and self.driver.running_loop() is self.driver.loop:
            # Its death has cancelled the body's scope on trio.
            with self.driver.shielded():
                await marks.close(_ABORT_BOUND)
            return
        # Every record has its outcome now, so the last mark can tell it.
        await marks.close(None if ends_at is None else max(0.0, ends_at - self.driver.now()))

    def give_up(self) -> None:
        """Fail what is not settled, and wait for nothing."""
        self.given_up = self._outstanding()
        self.abandoned_records += self.given_up.count
        self.sender.abort(self.driver.now())
        self.driver.wake()

    def abandon(self) -> None:
        """Close without waiting for anything."""
        if self.state is ProducerState.RUNNING:
            self._move("closing")
            self.give_up()
            self._move("closed")

    async def _end(self, timeout: float | None) -> None:
        if self.state is ProducerState.NEW:
            self._move("closed")
            return
        if self.state is ProducerState.CLOSED:
            return
        driver = self.driver
        if self.state is ProducerState.DIED and self.is_of_this_process and driver.has_ended:
            # It died of the end of its loop, asyncio.run()'s say: there is nothing left to close, nor where.
            _is_open(self, False)
            return
        self.check_place()
        if self.state is ProducerState.DIED:
            await driver.kill()
            _is_open(self, False)
            return
        self._move("closing")
        now = driver.now()
        try:
            self.sender.begin_close(now)
            driver.wake()
            # With 0 not even what is ready may go: it would be reported failed and be in the log.
            if timeout == 0 or not await driver.join(inf if timeout is None else now + timeout):
                self.give_up()
                if not await driver.join(driver.now() + _ABORT_BOUND):
                    await self._leave_behind()
        except BaseException as error:
            # Cancelled while closing: nothing may be left behind all the same.
            self.give_up()
            self._losses.close_cancelled(self.given_up)
            # A coroutine that is thrown away (GeneratorExit) may not wait for anything.
            if not isinstance(error, GeneratorExit) and not await driver.end_aborted(
                driver.now() + _ABORT_BOUND
            ):
                await self._leave_behind()
            raise
        finally:
            if self.state is ProducerState.CLOSING:
                self._move("closed")

    def body(self) -> AbstractContextManager[object]:
        """What stands around the body of `async with producer:`."""
        return self.driver.body()

    def check_alive(self) -> None:
        """Raise what the sender died of, if it did: the end of an `async with` that nobody else told so."""
        if self.state is not ProducerState.DIED:
            return
        if isinstance(self._death, KeyboardInterrupt | SystemExit):
            raise self._death
        # Not a cancelled sender's: that would silently end the task that comes here, which nobody has cancelled.
        self.check_running()

    async def _leave_behind(self) -> None:
        """End the sender though something has not ended: a compression that takes long, or a socket."""
        _log.warning(
            "closed by force, and left to itself what did not end within %g s: a thread that compresses (the "
            "interpreter's exit waits for it), or a socket",
            _ABORT_BOUND,
        )
        await self.driver.kill()
        self.run_callbacks()

    @property
    def outstanding_records(self) -> int:
        """Records that were accepted and have no outcome yet."""
        return self._outstanding().count if self.was_started else 0

    def _outstanding(self) -> LostRecords:
        return LostRecords.of(self.sender.accumulator.incomplete)

    @property
    def unobserved_failures(self) -> int:
        """Records that failed and that nobody asked for or was told of."""
        self.look_for_end()
        if self.was_started and self.driver.has_ended:
            self._count_lost()  # the loop has no next turn, in which it would be done
        return self.reports.unobserved_failures

    def look_for_end(self) -> None:
        """Notice an event loop that was closed under the open producer, and that told nobody."""
        if not self.is_over and self.is_of_this_process:
            self.driver.look_for_end()

    def tell_at_exit(self) -> None:
        """Say what is lost with the process, which ends with this producer still open."""
        self.look_for_end()
        if not self.is_over and not self.is_closed_at_exit:
            self._losses.process_ends(self._outstanding())

    def _why_dead(self) -> str:
        return str(self._death) if self.driver.ended_with_loop else f"the sender task died ({self._death!r})"

    def _count_lost(self) -> None:
        """Count what failed with the loop and what nobody has asked for by now, once."""
        if self.driver.ended_with_loop:
            for batch in self.sender.accumulator.incomplete:
                count = batch.result.take_unobserved()
                if count and batch.result.error is not None:
                    self._unobserved_failure(batch.topic, batch.partition, batch.result.error, count)

    def _sender_died(self, error: BaseException) -> None:
        if not self.is_of_this_process:
            return  # a copy that fork() made: the records are the parent's
        lost = self._outstanding()
        self.abandoned_records += lost.count
        if self.state is ProducerState.CLOSED:
            # Cancelled together with the close() that had settled everything: the callbacks are still due.
            self.sender.die(error, self._why_dead(), self.driver.now())
            self.run_callbacks()
            return
        self._move("sender died")
        self._death = error
        ended_with_loop = self.driver.ended_with_loop
        if ended_with_loop:
            self._losses.loop_ended(self._why_dead(), lost)
        else:
            _log.critical("the sender task died: nothing more can be sent", exc_info=error)
        self.sender.die(error, self._why_dead(), self.driver.now())
        if self.driver.has_ended:
            return  # a callback may not run elsewhere than on the loop, where nothing runs any more
        self.run_callbacks()
        if ended_with_loop:
            # By then those who were awaiting a record have heard of it, or were cancelled with all else.
            self.driver.on_next_turn(self._count_lost)

    def run_callbacks(self) -> None:
        """Call the delivery callbacks that are due."""
        while self.sender.settled:
            self.reports.run_callbacks(self.sender.settled.popleft())

    def _move(self, event: ProducerEvent) -> None:
        state = self.state = PRODUCER_STATES.after(self.state, event)
        self._on_open(state is ProducerState.RUNNING)
        if state is ProducerState.RUNNING or state is ProducerState.CLOSED:
            _is_open(self, state is ProducerState.RUNNING)

    # -- where and when a call is allowed ---

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: the timestamp of a record that has none (before `start()`, too)."""
        return _wall_ms(self.driver if self.was_started else None)

    def check_callable(self) -> None:
        """Refuse a call that comes at the wrong time or from the wrong place."""
        self.check_running()
        self.check_place()

    def check_place(self) -> None:
        """Refuse another process and another loop than those of `start()`."""
        if not self.is_of_this_process:
            raise ForkedProcessError(
                f"this producer was started in process {self._pid} and fork() copied it into {os.getpid()}: its "
                "sockets belong to the parent. Make and start a new one in the child"
            )
        if self.driver.running_loop() is not self.driver.loop:
            if self.driver.has_ended:
                raise WrongEventLoopError(
                    "the event loop that this producer was started on has ended: what was not acknowledged by then "
                    "may be lost. Close a producer before its loop ends (`async with producer:` within what "
                    "asyncio.run() runs), and make another one for this loop: Producer(producer.config)"
                )
            raise WrongEventLoopError(
                "this producer runs on another event loop than the one that calls it: use one producer per loop, "
                "or reach its loop with asyncio.run_coroutine_threadsafe(), under trio with trio.from_thread.run()"
            )

    def check_running(self) -> None:
        """Refuse a call before the start, after close and after the sender's death."""
        if self.state is ProducerState.RUNNING:
            return
        if self.state is ProducerState.NEW:
            raise NotStartedError(
                "the producer is not started: use `async with producer:`, or await producer.start() first"
            )
        if self.state is ProducerState.DIED:
            remedy = "make a new producer"
            if self.driver.ended_with_loop:
                remedy += ", and close it before its loop ends, by `async with producer:`"
            raise SenderDiedError(f"{self._why_dead()}: {remedy}") from self._death
        raise ProducerClosedError("the producer is closed: make a new one to send again")


def _opens_nothing(is_open: bool) -> None:
    """Nothing but marks goes by that life."""


def _is_open(life: ProducerLife, is_open: bool) -> None:
    key = id(life)
    if is_open:
        _open[key] = ref(life, lambda _: _open.pop(key, None))
    else:
        _open.pop(key, None)


def _wall_ms(driver: Driver | None) -> int:
    clock = None if driver is None else driver.wall_ms
    return time.time_ns() // 1_000_000 if clock is None else clock()
