"""A producer for the lifetime of a web service: start, readiness, deadlines, drain, report.

`starlette`, `fastapi` and `aiohttp` integrate it into their applications; any other framework can use
`async with service:`.

Invariants:

1. Starting does not wait for a broker and does not fail without one; readiness reports it.
2. From the shutdown signal on, the service is not ready. It continues to send until it is stopped, because requests
   are still being answered.
3. Every end reports how many accepted records were not acknowledged: `stop()`; `drain_timeout` after the signal, if
   the server has not stopped the service; and the interpreter's exit, if it never did. Only SIGKILL reports
   nothing.
4. A send whose request ran out of time is answered neither as a failure nor as a success.
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
from aioproduce.producer.producer import Producer
from aioproduce.producer.producer_states import ProducerState
from aioproduce.records import NOT_GIVEN

if TYPE_CHECKING:
    from datetime import datetime

    from aioproduce.integrations.spooled_service import SpooledSends
    from aioproduce.records import Headers, RecordMetadata
    from aioproduce.spool import SpooledProducer
    from aioproduce.spool.settings import SpoolLike

_log = logging.getLogger("aioproduce.service")

_running: weakref.WeakSet[ProducerService] = weakref.WeakSet()


@final
class ProducerService:
    """A producer with the functions that a service needs.

    Args:
        make_producer: Creates the producer at the start, `lambda: Producer("localhost:9092")`; called again if
            the service is started again. Or a producer, for a service that is started once.
        drain_timeout: Seconds that the end may take before unacknowledged records are dropped. An application
            cannot know how long its server or its orchestrator waits: set this to less.
        request_timeout: Seconds that `send()` may take by default, and the maximum that a client can ask for.
        timeout_header: The header with the client's timeout for a request, in seconds.
        topics: Topics to request from the cluster at the start, and to wait for before the service is ready. The
            first request then does not wait for them.
        background_limit: Maximum number of pending records of `background()`.
        retry_after: Seconds after which clients may repeat a request.
        unknown_status: The status of an answer if the record's outcome is unknown: 504, or 202 for "accepted",
            which does not promise that the record will be in the log.
        unready_on_silent_broker: Whether the service stops being ready while a broker does not answer. By default
            it does not: records for other brokers go on, and all processes would be out of service at once.
        watch_signals: Whether the service stops being ready at SIGTERM and SIGINT, and not only when the server
            ends the application.
        spool: A queue on disk, or the path of its directory. `send()` and `background()` then end when the record
            is on disk, the service is ready while the cluster is away, and `spooled` is its producer.

    Attributes:
        state: The service's state.

    Raises:
        ValueError: If a number is out of range.

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
        spool: SpoolLike | None = None,
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
        self._spool = spool
        self._sends: SpooledSends | None = None
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
        """Create and start the producer on the running event loop, without waiting for a broker.

        Raises:
            ProducerStateError: If the service is running, or was given a producer that was started before.
            ConfigError: If the Producer's constructor raises it.
        """
        if self.state in (ServiceState.RUNNING, ServiceState.DRAINING):
            raise ProducerStateError("this service is already running: call stop() before start()")
        producer = self._make_producer if isinstance(self._make_producer, Producer) else self._make_producer()
        if self._spool is not None:
            from aioproduce.integrations.spooled_service import SpooledSends

            self._sends = SpooledSends(self._spool, producer.config)
            await self._sends.producer.start()
        else:
            await producer.start()
        if self._background is not None:
            self._past_acknowledged += self._background.acknowledged
            self._past_failed += self._background.failed
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Lock()
        self._background = BackgroundSends(self._sends or producer, self._background_limit)
        self._signal = 0
        self._pid = os.getpid()
        self._probe = ClusterProbe(producer, self._topics) if self._sends is None else None
        self.state = ServiceState.RUNNING
        _running.add(self)
        if self._watches_signals and not shutdown_signals.watch(self._signalled):
            _log.debug(
                "no server of this thread handles SIGTERM: the service stays ready until the application ends"
            )

    async def stop(self, timeout: float | None = None) -> None:
        """Send pending records, including background ones, close the producer, and report lost records.

        Args:
            timeout: Seconds, instead of `drain_timeout`.
        """
        if self._producer is None or self._background is None:
            return
        async with self._stopping:  # a second call waits for the first
            if self.state is not ServiceState.STOPPED:
                seconds = self._drain_timeout if timeout is None else timeout
                await self._stop(self._producer, self._background, seconds)

    async def _stop(self, direct: Producer[Any, Any], background: BackgroundSends, seconds: float) -> None:
        producer = direct if self._sends is None else self._sends.producer
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
            # Cancelled: there is only time to drop the pending records.
            await producer.close(0)
            raise
        finally:
            self.state = ServiceState.STOPPED
            _running.discard(self)
            self._report_end(direct, background, seconds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also after a cancellation. If a server that skips the end has cancelled all tasks, the sender has ended
        # and there is nothing to wait for. If Ctrl-C in a script cancelled this one, accepted records are sent; a
        # second Ctrl-C drops them.
        await self.stop()

    def begin_drain(self) -> None:
        """Stop being ready, as at the signal, for servers whose signals cannot be watched (`watch_signals`).

        Pending and further sends continue.
        """
        if self.state is ServiceState.RUNNING:
            self._begin_drain()
            self._tell_draining()

    def _begin_drain(self) -> None:
        if self.state is ServiceState.RUNNING:
            self.state = ServiceState.DRAINING

    def _signalled(self, number: int) -> None:
        # Within a signal handler, so logging and scheduling happen in the next iteration of the loop.
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
            "%s: no longer ready; %d record(s) are not acknowledged yet",
            signal.Signals(self._signal).name if self._signal else "drain requested",
            self.outstanding_records,
        )
        self._overdue = self._loop.call_later(self._drain_timeout, self._tell_overdue)

    def _tell_overdue(self) -> None:
        _log.warning(
            "%g s after the shutdown signal, the server has not ended the application: it waits for a request or a "
            "connection (uvicorn: --timeout-graceful-shutdown). %d accepted record(s) are not acknowledged, and %d "
            "background record(s) are pending: if it is killed now, they may be lost",
            self._drain_timeout,
            self.outstanding_records,
            self.counts().background_pending,
        )

    def _report_end(self, producer: Producer[Any, Any], background: BackgroundSends, seconds: float) -> None:
        if self._sends is not None:
            self._undelivered += background.never_accepted
            self._sends.report_end(background.never_accepted)
            return
        # If the sender was cancelled in this iteration of the loop, its records are not dropped yet.
        accepted = producer.abandoned_records + producer.outstanding_records
        lost = accepted + background.never_accepted
        self._undelivered += lost
        if lost:
            _log.error(
                "%d record(s) were not acknowledged when the service ended, %g s after it began to end "
                "(drain_timeout): %d were accepted, and may be in the log; %d background records were not "
                "accepted. Check the brokers, or raise drain_timeout and the time that the server and its "
                "orchestrator allow",
                lost,
                seconds,
                accepted,
                background.never_accepted,
            )
        else:
            _log.info("ended: every accepted record has its outcome")

    # -- health ---

    def readiness(self) -> Health:
        """Return whether a record can be accepted now, for load balancers.

        It costs a few microseconds; some 50 with a queue on disk.


        The service is not ready before a broker has answered (and `topics` are known), after the signal, and while
        the buffer has no room. A broker that fails or stops answering later does not count, unless
        `unready_on_silent_broker` is set: records are accepted as long as there is room. The answer always has the
        ages of the oldest record and of the oldest waiting `send()`, and the silent brokers. With a queue on disk,
        only a full queue, a failed disk and the signal count.
        """
        producer = self._producer
        if producer is None or self.state in (ServiceState.NEW, ServiceState.STOPPED):
            return Health(False, ("the producer is not running",))
        reasons = []
        if self.state is ServiceState.DRAINING:
            reasons.append("the service is ending")
        if self._sends is not None:
            return self._sends.readiness(reasons)
        if producer.state is not ProducerState.RUNNING:
            reasons.append("the producer is not running")
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
        """Return the bytes above which no new batch can be started without waiting."""
        return producer.config.buffer_memory - min(producer.config.batch_size, producer.config.buffer_memory)

    def liveness(self) -> Health:
        """Return whether the sender is working; if not, only a new process helps.

        An unreachable cluster is not a reason for a restart.
        """
        producer = self._producer
        if self._sends is not None:
            return self._sends.liveness()
        if producer is not None and producer.state is ProducerState.DIED:
            return Health(False, ("the sender failed",))
        return Health(True, ())

    def counts(self) -> ServiceCounts:
        """Return the service's counts, for metrics. It may be called in any thread."""
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
        """Accepted records without an outcome, also those on disk. Read it on the event loop."""
        if self._sends is not None:
            return self._sends.waiting_records()
        return 0 if self._producer is None else self._producer.outstanding_records

    # -- sending ---

    @property
    def producer(self) -> Producer[Any, Any]:
        """The running producer.

        Raises:
            NotStartedError: If the service was not started.
            ProducerStateError: If the service has a queue on disk: `spooled` is its producer.
        """
        if self._spool is not None:
            raise ProducerStateError(
                "this service has a queue on disk: use service.spooled, or service.send()"
            )
        if self._producer is None:
            raise NotStartedError(
                "the producer service is not started: pass its lifespan to the application, or use `async with`"
            )
        return self._producer

    @property
    def has_spool(self) -> bool:
        """Whether the service has a queue on disk."""
        return self._spool is not None

    @property
    def spooled(self) -> SpooledProducer:
        """The running producer of a service with a queue on disk.

        Raises:
            NotStartedError: If the service was not started, or has no `spool`.
        """
        if self._sends is None:
            raise NotStartedError("the producer service is not started, or was made without spool=")
        return self._sends.producer

    def deadline(self, told: str | None = None) -> Deadline:
        """Return the deadline of a request that begins now.

        Args:
            told: The value of the client's `timeout_header`, in seconds; `None` if it is missing.

        Raises:
            InvalidDeadlineError: If the value is not a number of seconds above 0.
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
            deadline: The deadline; `request_timeout` from now by default.

        Returns:
            The metadata of the record, which is in the log; with a queue on disk, which is there: its partition and
            its offset are -1.

        Raises:
            MaxBlockTimeoutError: If it was not accepted in time; nothing was queued.
            OutcomeUnknownError: If it was accepted but not acknowledged in time. It is still being sent; its
                outcome is counted, and logged if it fails.
            DeliveryError: If it failed.
            ProducerError: If `Producer.send()` raises another error.
        """
        deadline = self.deadline() if deadline is None else deadline
        if self._sends is not None:
            return await self._sends.send_within(
                deadline, topic, value, key, partition=partition, timestamp=timestamp, headers=headers
            )
        remaining = deadline.remaining()
        if remaining <= 0:
            raise MaxBlockTimeoutError(
                "the request's time was over before the send: nothing was queued", waited=0.0
            )
        delivery = await self.producer.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers, timeout=remaining
        )
        try:
            async with asyncio.timeout_at(deadline.at):
                return await delivery
        except DeliveryError:
            raise  # `DeliveryTimeoutError` is also a TimeoutError, but an outcome
        except TimeoutError:
            if delivery.done() and not delivery.cancelled():
                return delivery.result()
        self._unknown_outcomes += 1
        waited = asyncio.get_running_loop().time() - deadline.began_at
        raise OutcomeUnknownError(
            f"the record for {topic!r} was accepted but not acknowledged within the {waited:.3f} s of the request"
            ": it may be in the log, or be written within delivery.timeout.ms",
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
        """Send a record without waiting for it. Failures are logged and counted; `stop()` drains.

        It returns before the record is accepted, so use it for records that may be lost with the process.

        Raises:
            BackgroundFullError: If `background_limit` records are pending.
            ProducerStateError: If the service is not started, or is ending.
        """
        if self._background is None:
            raise NotStartedError(
                "the producer service is not started: pass its lifespan to the application, or use `async with`"
            )
        self._background.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers)

    def answer(self, error: BaseException) -> Answer | None:
        """Return the HTTP answer to an error of a send, and count it.

        Details that clients are not told are logged, at a bounded rate.

        Returns:
            `None` for an error that the framework must answer, as a bug.
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
    """Report services that are still running at the interpreter's exit, because their server skipped their end."""
    for service in list(_running):
        counts = service.counts()
        producer = service._producer
        if service._pid != os.getpid() or producer is None:
            continue  # a forked child: these records are its parent's
        lost = producer.outstanding_records + producer.abandoned_records
        if lost or counts.background_pending:
            # The producer's own hook, which comes next, counts what is lost of each topic.
            _log.error(
                "the process is exiting, but its server skipped the application's end: %d background record(s) are "
                "pending",
                counts.background_pending,
            )


atexit.register(_report_at_exit)
