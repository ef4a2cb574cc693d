"""The life of a producer from its start to its close or its sender's death; the checks of where it may be called.

Owned by the Producer, which calls `check_callable()` first. It holds the objects that live from start to close: the
driver, the core, and the admission between them.

Invariants:

1. The fast path of `send()` is open from `start()` to the first step of the end, and in no other state.
2. Each end (close, a cancelled close, the sender's death) settles every delivery, runs its callbacks and drops
   every socket, in bounded time.
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
    from aioproduce.drivers.in_process import Dial
    from aioproduce.security.security import Security

_log = logging.getLogger("aioproduce")

# An aborted socket ends in the loop's next turn, and a compressing thread with its batch. After this time they are
# left behind.
_ABORT_BOUND: Final = 5.0

# Producers that were started and not closed, to find forgotten ones; it keeps none alive. All threads share it, so
# each step is one call of a dict method.
_open: Final[dict[int, ref[ProducerLife]]] = {}


def open_producers() -> list[ProducerLife]:
    """Return the producers of this process that were started and not closed, dead ones included."""
    lives = (each() for each in list(_open.values()))
    return [life for life in lives if life is not None and life.is_of_this_process]


def _tell_at_exit() -> None:
    for life in open_producers():
        life.tell_at_exit()


atexit.register(_tell_at_exit)


@final
class ProducerLife:
    """The state and the parts of a producer between `start()` and `close()`.

    Attributes:
        config: The producer's configuration.
        state: The producer's state.
        reports: Callbacks and unobserved failures.
        abandoned_records: Number of accepted records that were dropped because a close ran out of time or the
            sender died.
        given_up: The records that the latest close dropped, by topic.
        is_closed_at_exit: Whether its owner closes it at the exit, after this module's hook, as `logging` does.
        driver: The event loop's side; it exists after the start, as do `sender` and `admission`.
        appenders: The fast path for records that need no decision, by topic.
        dial: Makes connections within this process instead of connections to brokers; set before the start.
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
        "dial",
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
        self.dial: Dial | None = None
        self._death: BaseException | None = None
        self.given_up: LostRecords = LostRecords.of(())
        self.is_closed_at_exit: bool = False
        self.metrics: ProducerMetrics = ProducerMetrics(
            Windows(config.metrics_num_samples, config.metrics_sample_window)
        )
        self.metrics.gauges |= gauges_before_the_start(config)
        self._started_at_ms = 0
        self.reports: DeliveryReports = DeliveryReports(config.on_delivery_error)
        # A producer of marks is silent: the producer that it serves reports its own end.
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
        driver = make_driver(self.config, self.metrics, self._unobserved_failure, self.dial)
        self.driver = driver
        self._started_at_ms = _wall_ms(driver)
        # Seeded from the interpreter's generator: seeding that repeats the choices.
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
        """Count `count` records as refused if the error is ours or their sender was cancelled.

        KafkaProducer counts both: its own exceptions, and the interrupt of a thread that waits in `send()`.
        """
        if isinstance(error, ProducerError) or not isinstance(error, Exception | GeneratorExit):
            self.refused(count)

    @contextmanager
    def counting_refusals(self, count: int = 1) -> Iterator[None]:
        """Count `count` records as refused if the body of the context raises."""
        try:
            yield
        except BaseException as error:
            self.count_refusal(error, count)
            raise

    def read_metrics(self) -> MetricsSnapshot:
        """Return the metrics; see `Producer.metrics()`."""
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
        """Whether the producer is closed or dead. A closing one still finishes its work."""
        return self.state is ProducerState.CLOSED or self.state is ProducerState.DIED

    @property
    def was_started(self) -> bool:
        """Whether there is a core, dead or alive: a producer can be closed without a start."""
        return self._pid != 0

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was started in this process, and not in a parent that forked."""
        return self._pid == os.getpid()

    def _security(self) -> Security | None:
        """Return the encryption and the login of connections; `None` for plaintext without a login."""
        if self.config.security_protocol == "PLAINTEXT":
            return None
        from aioproduce.security.making import make_security

        with naming_origins(self.config.origins):
            return make_security(self.config)

    def _telemetry(self) -> TelemetryPayload | None:
        """Return the source of the metrics that are pushed to the cluster; None if the push is disabled."""
        if not self.config.enable_metrics_push:
            return None
        rack = self.config.client_rack
        return TelemetryPayload(self.read_metrics, self._started_at_ms, {"client_rack": rack} if rack else {})

    def _audit(self) -> tuple[MarkSource, Callable[[], int]] | None:
        """Return the source of this start's marks and its clock, if an Auditor numbers records."""
        auditor = auditor_of(self.config.interceptors)
        return None if auditor is None else (auditor.begin_audit(self.config.client_id), self.wall_ms)

    def _start_marks(self, source: MarkSource, wall_ms: Callable[[], int]) -> None:
        """Send the marks of a transactional producer by a separate life, so that an abort does not drop them.

        A fenced producer can so still report its records' outcomes. It costs a connection or two.
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
        """Close the producer; see `Producer.close()`."""
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
            # On trio the death has cancelled the body's scope.
            with self.driver.shielded():
                await marks.close(_ABORT_BOUND)
            return
        # Every record has its outcome now, so the last mark can report it.
        await marks.close(None if ends_at is None else max(0.0, ends_at - self.driver.now()))

    def give_up(self) -> None:
        """Fail the records that are not settled; wait for nothing."""
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
            # Its loop ended, e.g. with asyncio.run(): nothing is left to close, and no loop to close it on.
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
            # With 0 not even ready batches may be sent: they would be reported failed and be in the log.
            if timeout == 0 or not await driver.join(inf if timeout is None else now + timeout):
                self.give_up()
                if not await driver.join(driver.now() + _ABORT_BOUND):
                    await self._leave_behind()
        except BaseException as error:
            # Also after a cancellation, the close must leave nothing behind.
            self.give_up()
            self._losses.close_cancelled(self.given_up)
            # A coroutine that is closed (GeneratorExit) must not wait.
            if not isinstance(error, GeneratorExit) and not await driver.end_aborted(
                driver.now() + _ABORT_BOUND
            ):
                await self._leave_behind()
            raise
        finally:
            if self.state is ProducerState.CLOSING:
                self._move("closed")

    def body(self) -> AbstractContextManager[object]:
        """Return the context manager around the body of `async with producer:`."""
        return self.driver.body()

    def check_alive(self) -> None:
        """Raise the error that the sender died of, if it died: for an `async with` that ends without an error."""
        if self.state is not ProducerState.DIED:
            return
        if isinstance(self._death, KeyboardInterrupt | SystemExit):
            raise self._death
        # Never the sender's CancelledError: it would silently end this task, which nobody has cancelled.
        self.check_running()

    async def _leave_behind(self) -> None:
        """End the sender although a compression or a socket has not ended."""
        _log.warning(
            "the close was forced: a compressing thread (the interpreter's exit waits for it) or a socket did not "
            "end within %g s and is left behind",
            _ABORT_BOUND,
        )
        await self.driver.kill()
        self.run_callbacks()

    @property
    def outstanding_records(self) -> int:
        """Number of accepted records without an outcome."""
        return self._outstanding().count if self.was_started else 0

    def _outstanding(self) -> LostRecords:
        return LostRecords.of(self.sender.accumulator.incomplete)

    @property
    def unobserved_failures(self) -> int:
        """Number of failed records that nobody awaited and that had no delivery callback."""
        self.look_for_end()
        if self.was_started and self.driver.has_ended:
            self._count_lost()  # the loop has ended: no next turn will do it
        return self.reports.unobserved_failures

    def look_for_end(self) -> None:
        """Check whether the event loop was closed under the open producer, which nothing else reports."""
        if not self.is_over and self.is_of_this_process:
            self.driver.look_for_end()

    def tell_at_exit(self) -> None:
        """Log the records that are lost because the process ends while this producer is open."""
        self.look_for_end()
        if not self.is_over and not self.is_closed_at_exit:
            self._losses.process_ends(self._outstanding())

    def _why_dead(self) -> str:
        return str(self._death) if self.driver.ended_with_loop else f"the sender task died ({self._death!r})"

    def _count_lost(self) -> None:
        """Count, once, the records that failed with the loop and that nobody has read so far."""
        if self.driver.ended_with_loop:
            for batch in self.sender.accumulator.incomplete:
                count = batch.result.take_unobserved()
                if count and batch.result.error is not None:
                    self._unobserved_failure(batch.topic, batch.partition, batch.result.error, count)

    def _sender_died(self, error: BaseException) -> None:
        if not self.is_of_this_process:
            return  # a copy made by fork(): the records belong to the parent
        lost = self._outstanding()
        self.abandoned_records += lost.count
        if self.state is ProducerState.CLOSED:
            # The sender was cancelled after close() had settled everything: the callbacks are still due.
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
            return  # callbacks run only on the loop, and it has ended
        self.run_callbacks()
        if ended_with_loop:
            # By then each task that awaited a record has its error, or was cancelled with all others.
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
        """Return the default timestamp of records, in milliseconds since the epoch (before `start()`, too)."""
        return _wall_ms(self.driver if self.was_started else None)

    def check_callable(self) -> None:
        """Refuse a call in the wrong state, or from another process or loop."""
        self.check_running()
        self.check_place()

    def check_place(self) -> None:
        """Refuse a call from another process or another loop than those of `start()`."""
        if not self.is_of_this_process:
            raise ForkedProcessError(
                f"this producer was started in process {self._pid} and fork() copied it into {os.getpid()}: its "
                "sockets belong to the parent. Make and start a new one in the child"
            )
        if self.driver.running_loop() is not self.driver.loop:
            if self.driver.has_ended:
                raise WrongEventLoopError(
                    "the event loop that this producer was started on has ended: records that were not "
                    "acknowledged by then may be lost. Close a producer before its loop ends (`async with "
                    "producer:` inside asyncio.run()), and make a new one for this loop: Producer(producer.config)"
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
    """Open no path: only marks are sent by that life."""


def _is_open(life: ProducerLife, is_open: bool) -> None:
    key = id(life)
    if is_open:
        _open[key] = ref(life, lambda _: _open.pop(key, None))
    else:
        _open.pop(key, None)


def _wall_ms(driver: Driver | None) -> int:
    clock = None if driver is None else driver.wall_ms
    return time.time_ns() // 1_000_000 if clock is None else clock()
