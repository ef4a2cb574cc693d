"""Asking coordinators, one step at a time: finding them, asking again, and sorting what they answer.

Owned by the transaction manager, which decides what is asked and what an answer means for the transaction.

Invariants:

1. One request is on its way at most.
2. What failed is asked again after a back-off; the manager hears of what may have been done all the same.
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
    """Hears what became of steps."""

    def step_sent(self, step: Step, now: float) -> None:
        """The request went out."""

    def partitions_added(self, results: Mapping[TopicPartition, int], now: float) -> None:
        """An AddPartitionsToTxn was answered: the code of each partition."""

    def step_done(self, step: Step, response: Any, now: float) -> None:
        """It is as asked for."""

    def step_in_doubt(self, step: Step, now: float) -> None:
        """It failed, and may have been done all the same; it is asked again."""

    def step_refused(self, step: Step, action: Action, code: int, what: str, now: float) -> None:
        """It is not asked again."""

    def step_unsupported(self, error: UnsupportedVersionError, now: float) -> None:
        """The broker does not know such a request."""


@final
class StepRequests:
    """Asks them.

    Args:
        connections: Ways to the coordinators.
        metadata: Knows brokers that may be asked where they are.
        retry: Backs off.
        random: Jitter.
        max_block: Seconds for which offsets of a partition that is not there are asked for.
        bounded_log: Counts what repeats.

    Attributes:
        listener: Hears of the answers: the transaction manager, which sets it.
        awaits_connection: Whether the latest step could not be sent for want of a connection.
        retry_at: When the next may be asked; in the past: at once.
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
        """Whether nothing is on its way, and the back-off is over."""
        return self._asked is None and now >= self.retry_at

    def renew(self) -> None:
        """Something else is asked for from now on: its back-offs begin anew."""
        self._failures = 0
        self.retry_at = -inf

    def transaction_ended(self) -> None:
        """Likewise, and the next transaction may be of other groups."""
        self.renew()
        self._coordinators.forget_groups()

    def ask(self, step: Step, now: float) -> None:
        """Send this step, or what has to come before it."""
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
        assert connection.api_versions is not None  # it takes a request now
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
        """A step was answered."""
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
        """Offsets of a partition that is not there are asked for as long as their call waits.

        They are given up where the next answer might come after that: the call would end without the cause.
        """
        if not isinstance(step, TxnOffsetCommitStep) or code != codes.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        wait = self.retry_at - now
        return self.retry_at + wait >= step.offsets.asked_at + self._max_block

    def lost(self, step: Step, loss: Lost, now: float) -> None:
        """The connection that carried a step is gone."""
        self._asked = None
        self.listener.step_in_doubt(step, now)
        if not isinstance(step, FindCoordinatorStep):
            self._coordinators.lost(step.coordinator)
        name = step.api.name
        self._bounded_log.warning(("txn lost", name), now, "%s is asked again: %s", name, loss.reason)
        self._back_off(self._retry, now)


@final
class _Asked:
    """A step on its way: hears of its end."""

    __slots__ = ("_requests", "_step")

    def __init__(self, requests: StepRequests, step: Step) -> None:
        self._requests = requests
        self._step = step

    def answered(self, response: Any, now: float) -> bool:
        self._requests.answered(self._step, response, now)
        return False

    def lost(self, loss: Lost, now: float) -> None:
        self._requests.lost(self._step, loss, now)
