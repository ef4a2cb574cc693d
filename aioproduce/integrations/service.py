"""A producer over the life of a web service: start, readiness, deadlines, drain, report.

`starlette`, `fastapi` and `aiohttp` put it into their applications; any other framework may
`async with service:`.

Invariants:

1. Starting waits for no broker, and fails for the want of none: readiness tells.
2. From the signal that asks for the end on, the service is not ready; it goes on sending until it is stopped,
   since requests are still being answered.
3. Every end tells how many accepted records were not acknowledged: `stop()`, the `drain_timeout` after the
   signal where the server has not got there, and the interpreter's exit where it never did. Only SIGKILL says
   nothing.
4. A send whose request had no more time is never answered as if it had failed, nor as if it had succeeded.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import signal
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, final

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import (
    DeliveryError,
    InvalidDeadlineError,
    MaxBlockTimeoutError,
    NotStartedError,
    OutcomeUnknownError,
    ProducerStateError,
)
from aioproduce.integrations import shutdown_signals
from aioproduce.integrations.answers import Answer, answer_for
from aioproduce.integrations.background import BackgroundSends
from aioproduce.integrations.cluster_probe import ClusterProbe
from aioproduce.integrations.service_values import Deadline, Health, ServiceCounts, ServiceState
from aioproduce.producer.life import ProducerState
from aioproduce.producer.producer import Producer
from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from datetime import datetime

    from aioproduce.records import Headers, RecordMetadata

_log = logging.getLogger("aioproduce.service")

_running: weakref.WeakSet[ProducerService] = weakref.WeakSet()


@final
class ProducerService:
    """A producer, and what a service needs around it.

    Args:
        make_producer: Makes the producer at the start, `lambda: Producer("localhost:9092")`; called again if
            the service is started again. Or a producer, for a service that is started once.
        drain_timeout: Seconds that the end may take until what is not acknowledged is given up. An application
            cannot read how long its server or its orchestrator waits: give less than those.
        request_timeout: Seconds that `send()` may take where neither the call nor the client says otherwise,
            and the most that a client can ask for.
        timeout_header: The header in which clients tell how many seconds a request may take.
        topics: Topics to ask the cluster for at the start, and to be ready only with: the first request then
            does not wait for them.
        background_limit: Records that may be under way by `background()`.
        retry_after: Seconds that clients are asked to wait before they repeat a request.
        unknown_status: The status of an answer to a request whose record's outcome is unknown: 504, or 202 for
            "accepted", which then is no promise that the record will be in the log.
        unready_on_silent_broker: Whether readiness falls while a broker has stopped answering. By default it does
            not: the records of other brokers go on, and all processes would be out of service at once.
        watch_signals: Whether readiness falls at SIGTERM and SIGINT already, and not only when the server ends
            the application.

    Attributes:
        state: Where it is.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> service = ProducerService(lambda: Producer("localhost:9092"), drain_timeout=10)
        >>> async def main():
        ...     async with service:
        ...         await service.send("orders", b"42")
    """

    def __init__(
        self,
        make_producer: Producer[Any, Any] | Callable[[], Producer[Any, Any]],
        *,
        drain_timeout: float = 10.0,
        request_timeout: float = 10.0,
        timeout_header: str = "X-Request-Timeout",
        topics: Sequence[str] = (),
        background_limit: int = 10_000,
        retry_after: float = 1.0,
        unknown_status: int = 504,
        unready_on_silent_broker: bool = False,
        watch_signals: bool = True,
    ) -> None:
        for name, number in (
            ("drain_timeout", drain_timeout),
            ("request_timeout", request_timeout),
            ("retry_after", retry_after),
        ):
            if not 0 <= number < math.inf:
                raise ValueError(f"{name} must be a number of seconds, 0 or more, not {number}")
        if unknown_status not in (202, 504):
            raise ValueError(f"unknown_status must be 504 or 202, not {unknown_status}")
        if background_limit < 0:
            raise ValueError(f"background_limit must be 0 or more, not {background_limit}")
        self._make_producer = make_producer
        self._drain_timeout = drain_timeout
        self._request_timeout = request_timeout
        self.timeout_header = timeout_header
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._background_limit = background_limit
        self._retry_after = retry_after
        self._unknown_status = unknown_status
        self._unready_on_silent_broker = unready_on_silent_broker
        self._watches_signals = watch_signals
        self.state: ServiceState = ServiceState.NEW
        self._producer: Producer[Any, Any] | None = None
        self._background: BackgroundSends | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Lock()
        self._probe: ClusterProbe | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._signal = 0
        self._pid = 0
        self._bounded_log = BoundedLog(_log)
        self._undelivered = 0
        self._unknown_outcomes = 0
        self._refused_answers = 0
        self._past_acknowledged = 0
        self._past_failed = 0

    # -- life ---

    async def start(self) -> None:
        """Make and start the producer on the running event loop. Waits for no broker.

        Raises:
            ProducerStateError: the service runs already, or was given a producer that was started before.
            ConfigError: as the Producer's constructor.
        """
        if self.state in (ServiceState.RUNNING, ServiceState.DRAINING):
            raise ProducerStateError("this service runs already: one start() for each stop()")
        producer = self._make_producer if isinstance(self._make_producer, Producer) else self._make_producer()
        await producer.start()
        if self._background is not None:
            self._past_acknowledged += self._background.acknowledged
            self._past_failed += self._background.failed
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Lock()
        self._background = BackgroundSends(producer, self._background_limit)
        self._signal = 0
        self._pid = os.getpid()
        self._probe = ClusterProbe(producer, self._topics)
        self.state = ServiceState.RUNNING
        _running.add(self)
        if self._watches_signals and not shutdown_signals.watch(self._signalled):
            _log.debug(
                "no server of this thread handles SIGTERM: readiness falls when the application is ended"
            )

    async def stop(self, timeout: float | None = None) -> None:
        """Send what is under way, in the background too, then close the producer; tell what was lost.

        Args:
            timeout: Seconds, instead of `drain_timeout`.
        """
        if self._producer is None or self._background is None:
            return
        async with self._stopping:  # who comes second waits for the first
            if self.state is not ServiceState.STOPPED:
                seconds = self._drain_timeout if timeout is None else timeout
                await self._stop(self._producer, self._background, seconds)

    async def _stop(self, producer: Producer[Any, Any], background: BackgroundSends, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._begin_drain()
        shutdown_signals.unwatch(self._signalled)
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if self._probe is not None:
            self._probe.cancel()
        until = loop.time() + seconds
        try:
            await background.drain(seconds)
            await producer.close(max(until - loop.time(), 0.0))
        except BaseException:
            # Cancelled: there is no more time than for giving up.
            await producer.close(0)
            raise
        finally:
            self.state = ServiceState.STOPPED
            _running.discard(self)
            self._report_end(producer, background, seconds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also where it was cancelled: with all else, by a server that skips the end, the sender is dead and there
        # is nothing to wait for; alone, by Ctrl-C in a script, what was accepted is sent. A second one gives up.
        await self.stop()

    def begin_drain(self) -> None:
        """Be ready no more, as at the signal: for servers whose signals cannot be heard of (`watch_signals`).

        What is under way goes on, and so does what is still sent.
        """
        if self.state is ServiceState.RUNNING:
            self._begin_drain()
            self._tell_draining()

    def _begin_drain(self) -> None:
        if self.state is ServiceState.RUNNING:
            self.state = ServiceState.DRAINING

    def _signalled(self, number: int) -> None:
        # Within a signal handler: what logs or schedules comes in the loop's next turn.
        if self.state is not ServiceState.RUNNING or os.getpid() != self._pid or self._loop is None:
            return
        self._signal = number
        self._begin_drain()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell_draining)

    def _tell_draining(self) -> None:
        if self.state is not ServiceState.DRAINING or self._overdue is not None or self._loop is None:
            return
        _log.info(
            "%s: not ready from now on; %d record(s) are not acknowledged yet",
            signal.Signals(self._signal).name if self._signal else "told to drain",
            self.outstanding_records,
        )
        self._overdue = self._loop.call_later(self._drain_timeout, self._tell_overdue)

    def _tell_overdue(self) -> None:
        _log.warning(
            "%g s after it was told to end the server has not ended the application: it waits for a request or a "
            "connection (uvicorn: --timeout-graceful-shutdown). %d accepted record(s) are not acknowledged, and %d "
            "of the background are under way: if it is killed now, they may be lost",
            self._drain_timeout,
            self.outstanding_records,
            self.counts().background_pending,
        )

    def _report_end(self, producer: Producer[Any, Any], background: BackgroundSends, seconds: float) -> None:
        # Where the sender was cancelled in this very turn, what it had is not given up yet.
        accepted = producer.abandoned_records + producer.outstanding_records
        lost = accepted + background.never_accepted
        self._undelivered += lost
        if lost:
            _log.error(
                "%d record(s) were not acknowledged when the service ended, %g s after it began to "
                "(drain_timeout): %d were accepted, and may be in the log; %d waited in the background to be. "
                "Look at the brokers, or raise drain_timeout and what the server and its orchestrator give",
                lost,
                seconds,
                accepted,
                background.never_accepted,
            )
        else:
            _log.info("ended: every record that was accepted has its outcome")

    # -- whether it is well ---

    def readiness(self) -> Health:
        """Whether a record can be accepted now: what a load balancer wants to know. Costs a few microseconds.

        Not before a broker has answered (and `topics` are known), not from the signal on, and not while the
        buffer has no room. A broker that goes away or stops answering later does not count, unless the service was
        made with `unready_on_silent_broker`: records are accepted as long as there is room for them. How old the
        oldest record and the oldest waiting `send()` are, and which brokers are silent, is told in any case.
        """
        producer = self._producer
        if producer is None or self.state in (ServiceState.NEW, ServiceState.STOPPED):
            return Health(False, ("the producer does not run",))
        reasons = []
        if self.state is ServiceState.DRAINING:
            reasons.append("the service is ending")
        if producer.state is not ProducerState.RUNNING:
            reasons.append("the producer does not run")
        if self._probe is not None:
            reasons += self._probe.missing()
        if producer.waiting_sends or producer.outstanding_bytes > self._full_at(producer):
            reasons.append("the buffer has no room")
        silent = tuple(broker.node_id for broker in producer.silent_brokers())
        if silent and self._unready_on_silent_broker:
            reasons.append(f"no answer from broker {', '.join(map(str, silent))}")
        return Health(
            not reasons, tuple(reasons), producer.oldest_record_age, producer.oldest_send_wait, silent
        )

    @staticmethod
    def _full_at(producer: Producer[Any, Any]) -> int:
        """Above so many bytes no new batch can be begun without waiting."""
        return producer.config.buffer_memory - min(producer.config.batch_size, producer.config.buffer_memory)

    def liveness(self) -> Health:
        """Whether the sender is at work: where it is not, only a new process helps.

        A cluster that cannot be reached is no reason to restart.
        """
        producer = self._producer
        if producer is not None and producer.state is ProducerState.DIED:
            return Health(False, ("the sender died",))
        return Health(True, ())

    def counts(self) -> ServiceCounts:
        """What it did and has under way, for metrics. May be asked for in any thread."""
        background = self._background
        acknowledged, failed, pending = self._past_acknowledged, self._past_failed, 0
        if background is not None:
            acknowledged += background.acknowledged
            failed += background.failed
            pending = background.pending
        return ServiceCounts(
            undelivered=self._undelivered,
            unknown_outcomes=self._unknown_outcomes,
            background_pending=pending,
            background_acknowledged=acknowledged,
            background_failed=failed,
            refused_answers=self._refused_answers,
        )

    @property
    def outstanding_records(self) -> int:
        """Records that were accepted and have no outcome yet. To be asked on the event loop."""
        return 0 if self._producer is None else self._producer.outstanding_records

    # -- sending ---

    @property
    def producer(self) -> Producer[Any, Any]:
        """The running producer.

        Raises:
            NotStartedError: the service was not started.
        """
        if self._producer is None:
            raise NotStartedError(
                "the producer service is not started: give its lifespan to the application, or use `async with`"
            )
        return self._producer

    def deadline(self, told: str | None = None) -> Deadline:
        """Until when a request may take, from now.

        Args:
            told: The value of the client's `timeout_header`, in seconds; `None` where it has none.

        Raises:
            InvalidDeadlineError: the value is no number of seconds above 0.
        """
        seconds = self._request_timeout
        if told is not None:
            try:
                asked = float(told)
            except ValueError:
                asked = math.nan
            if not asked > 0:
                raise InvalidDeadlineError(
                    f"{self.timeout_header} must be a number of seconds above 0, not {told[:100]!r}",
                    header=self.timeout_header,
                )
            seconds = min(seconds, asked)
        return Deadline(seconds)

    async def send(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        deadline: Deadline | None = None,
    ) -> RecordMetadata:
        """Send a record within the time of a request, and wait for its acknowledgement.

        Args:
            topic: The topic; further arguments as for `Producer.send()`.
            value: Its value.
            key: Its key.
            partition: Its partition.
            timestamp: Its timestamp.
            headers: Its headers.
            deadline: Until when; `request_timeout` from now by default.

        Returns:
            Where the record is: it is in the log.

        Raises:
            MaxBlockTimeoutError: it was not accepted in time; nothing was queued.
            OutcomeUnknownError: it was accepted and not acknowledged in time. It goes on; what becomes of it is
                counted and logged if it fails.
            DeliveryError: it failed.
            ProducerError: whatever else `Producer.send()` raises.
        """
        deadline = self.deadline() if deadline is None else deadline
        remaining = deadline.remaining()
        if remaining <= 0:
            raise MaxBlockTimeoutError(
                "the request had no more time when it came to send: nothing was queued", waited=0.0
            )
        delivery = await self.producer.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers, timeout=remaining
        )
        try:
            async with asyncio.timeout_at(deadline.at):
                return await delivery
        except DeliveryError:
            raise  # `DeliveryTimeoutError` is a TimeoutError, too, and is an outcome
        except TimeoutError:
            if delivery.done() and not delivery.cancelled():
                return delivery.result()
        self._unknown_outcomes += 1
        waited = asyncio.get_running_loop().time() - deadline.began_at
        raise OutcomeUnknownError(
            f"the record for {topic!r} was accepted, and not acknowledged within the {waited:.3f} s of the request"
            ": it may be in the log, or come to be there within delivery.timeout.ms",
            topic=topic,
            waited=waited,
            delivery=delivery,
        )

    def background(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Send a record without anybody waiting for it. Failures are logged and counted; `stop()` drains.

        It returns before the record is accepted: for what may be lost with the process.

        Raises:
            BackgroundFullError: `background_limit` records are under way.
            ProducerStateError: the service is not started, or ends.
        """
        producer = self.producer
        assert self._background is not None, producer
        self._background.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers)

    def answer(self, error: BaseException) -> Answer | None:
        """The HTTP answer to an error of a send, counted.

        What clients are not told is logged, at a bounded rate.

        Returns:
            `None` for an error that is for the framework to answer, as a bug.
        """
        answer = answer_for(error, retry_after=self._retry_after, unknown_status=self._unknown_status)
        if answer is not None:
            if answer.status == 503:
                self._refused_answers += 1
            if answer.status >= 500:
                now = self._loop.time() if self._loop is not None else 0.0
                self._bounded_log.warning(type(error).__name__, now, "answered %d: %s", answer.status, error)
        return answer


def _report_at_exit() -> None:
    """The interpreter ends and services still run: their server skipped the application's end."""
    for service in list(_running):
        counts = service.counts()
        producer = service.producer
        if service._pid != os.getpid():
            continue  # a child after fork(): these records are its parent's
        lost = service.outstanding_records + producer.abandoned_records
        if lost or counts.background_pending:
            _log.error(
                "the process ends, and its server skipped the application's end: %d accepted record(s) are not "
                "acknowledged, and %d of the background are under way",
                lost,
                counts.background_pending,
            )


atexit.register(_report_at_exit)
