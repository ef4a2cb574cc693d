"""Requests to coordinators, one step at a time: find them, retry, and sort their answers.

Owned by the transaction manager, which decides the next step and the meaning of an answer.

Invariants:

1. At most one request is in flight.
2. A failed request is sent again after a back-off; the manager learns if it may have been executed.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aioproduce.core.retry import ExponentialBackoff
from aioproduce.core.transactions.answers import DEFINITE, Action
from aioproduce.core.transactions.coordinators import Coordinators
from aioproduce.core.transactions.steps import AddPartitionsStep, FindCoordinatorStep, TxnOffsetCommitStep
from aioproduce.errors import UnsupportedVersionError
from aioproduce.wire import error_codes as codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.core.bounded_log import BoundedLog
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.transactions.steps import Step
    from aioproduce.records import TopicPartition

_CONCURRENT_BACKOFF: Final = 0.02
_CONCURRENT_BACKOFF_MAX: Final = 1.0


class StepListener(Protocol):
    """Receives the outcomes of steps."""

    def step_sent(self, step: Step, now: float) -> None:
        """Note that the request was sent."""

    def partitions_added(self, results: Mapping[TopicPartition, int], now: float) -> None:
        """Accept the answer of AddPartitionsToTxn: a code for each partition."""

    def step_done(self, step: Step, response: Any, now: float) -> None:
        """Accept that the step succeeded."""

    def step_in_doubt(self, step: Step, now: float) -> None:
        """Note that the step failed, may have been executed, and is sent again."""

    def step_refused(self, step: Step, action: Action, code: int, what: str, now: float) -> None:
        """Handle a refusal that is final for the step."""

    def step_unsupported(self, error: UnsupportedVersionError, now: float) -> None:
        """Handle a broker that does not support the request."""


@final
class StepRequests:
    """Sends the steps.

    Args:
        connections: The producer's connections.
        metadata: The brokers that can name a coordinator.
        retry: The back-off between attempts.
        random: Returns the jitter.
        max_block: Seconds for which offsets of a missing partition are retried.
        bounded_log: Limits repeated log lines.

    Attributes:
        listener: Receives the outcomes; the transaction manager sets itself.
        awaits_connection: Whether the latest step waits for a connection.
        retry_at: When the next step may be sent; in the past: at once.
    """

    listener: StepListener

    __slots__ = (
        "_asked",
        "_bounded_log",
        "_concurrent",
        "_connections",
        "_coordinators",
        "_failures",
        "_max_block",
        "_metadata",
        "_retry",
        "awaits_connection",
        "listener",
        "retry_at",
    )

    def __init__(
        self,
        connections: BrokerConnections,
        metadata: ClusterMetadata,
        retry: ExponentialBackoff,
        random: Callable[[], float],
        max_block: float,
        bounded_log: BoundedLog,
    ) -> None:
        self._connections = connections
        self._metadata = metadata
        self._coordinators = Coordinators(connections)
        self._retry = retry
        self._concurrent = ExponentialBackoff(_CONCURRENT_BACKOFF, _CONCURRENT_BACKOFF_MAX, random=random)
        self._max_block = max_block
        self._bounded_log = bounded_log
        self._asked: Step | None = None
        self._failures = 0
        self.retry_at: float = -inf
        self.awaits_connection: bool = False

    def may_ask(self, now: float) -> bool:
        """Return whether nothing is in flight, and the back-off is over."""
        return self._asked is None and now >= self.retry_at

    def renew(self) -> None:
        """Reset the back-off for a new purpose."""
        self._failures = 0
        self.retry_at = -inf

    def transaction_ended(self) -> None:
        """Reset the back-off, and forget groups: the next transaction may have others."""
        self.renew()
        self._coordinators.forget_groups()

    def ask(self, step: Step, now: float) -> None:
        """Send this step, or the step that must precede it."""
        if isinstance(step, FindCoordinatorStep):
            connection = self._connections.least_loaded(self._metadata.brokers, now)
        elif not self._coordinators.knows(step.coordinator):
            self.ask(FindCoordinatorStep(step.who, step.coordinator), now)
            return
        else:
            connection = self._coordinators.connection(step.coordinator, now)
            if connection is None and not self._coordinators.knows(step.coordinator):
                self._back_off(self._retry, now)
                return
        if connection is None:
            self.awaits_connection = True
            return
        assert connection.api_versions is not None  # it can send now
        try:
            if connection.api_versions.version(step.api) < step.min_version:
                self.listener.step_refused(
                    step, Action.ABORTABLE, codes.UNSUPPORTED_VERSION, step.coordinator.text, now
                )
                return
            connection.send(step.api, step.encode, _Asked(self, step), now, max_version=step.max_version)
        except UnsupportedVersionError as error:
            if step.is_optional:
                self.listener.step_done(step, None, now)
            else:
                self.listener.step_unsupported(error, now)
            return
        self._asked = step
        self.listener.step_sent(step, now)

    def _back_off(self, backoff: ExponentialBackoff, now: float) -> None:
        self.retry_at = now + backoff.backoff(self._failures)
        self._failures += 1

    def answered(self, step: Step, response: Any, now: float) -> None:
        """Accept the answer to a step."""
        self._asked = None
        action, code, what = step.judge(response)
        if isinstance(step, AddPartitionsStep):
            self.listener.partitions_added(response.partitions, now)
        if action is Action.DONE:
            self._failures = 0
            if isinstance(step, FindCoordinatorStep):
                self._coordinators.found(step.key, response.address)
            else:
                self.listener.step_done(step, response, now)
            return
        name = step.api.name
        self._bounded_log.warning(
            ("txn", name, code), now, "%s: %s: %s", name, codes.name_of(code), codes.message_of(code)
        )
        if action is Action.RETRY_SOON:
            self._back_off(self._concurrent, now)
        elif action in (Action.RETRY, Action.FIND):
            self._asked_again(step, action, code, what, now)
        else:
            self.listener.step_refused(step, action, code, what, now)

    def _asked_again(self, step: Step, action: Action, code: int, what: str, now: float) -> None:
        if code not in DEFINITE:
            self.listener.step_in_doubt(step, now)
        if action is Action.FIND:
            self._coordinators.lost(step.coordinator)
        self._back_off(self._retry, now)
        if self._is_hopeless(step, code, now):
            self.listener.step_refused(step, Action.ABORTABLE, code, what, now)

    def _is_hopeless(self, step: Step, code: int, now: float) -> bool:
        """Return whether to give up offsets of a missing partition, which are retried while their call waits.

        They are given up if the next answer might arrive after that: the call would end without the cause.
        """
        if not isinstance(step, TxnOffsetCommitStep) or code != codes.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        wait = self.retry_at - now
        return self.retry_at + wait >= step.offsets.asked_at + self._max_block

    def lost(self, step: Step, loss: Lost, now: float) -> None:
        """Accept that the connection of a step was lost."""
        self._asked = None
        self.listener.step_in_doubt(step, now)
        if not isinstance(step, FindCoordinatorStep):
            self._coordinators.lost(step.coordinator)
        name = step.api.name
        self._bounded_log.warning(("txn lost", name), now, "%s is sent again: %s", name, loss.reason)
        self._back_off(self._retry, now)


@final
class _Asked:
    """The asker of a step in flight."""

    __slots__ = ("_requests", "_step")

    def __init__(self, requests: StepRequests, step: Step) -> None:
        self._requests = requests
        self._step = step

    def answered(self, response: Any, now: float) -> bool:
        self._requests.answered(self._step, response, now)
        return False

    def lost(self, loss: Lost, now: float) -> None:
        self._requests.lost(self._step, loss, now)
