"""The chain of interceptors around a producer (KIP-42): they see each record before and after, and cannot break it.

Called by the Producer. An interceptor is any object with

- `on_send(record) -> record`, or `on_acknowledgement(metadata, error)`, or both, as in Kafka;
- or `intercept(record) -> (record, on_outcome)`, where it must know whose outcome is told, as one that measures or
  traces must: `on_outcome(metadata, error)` is called for this record. Kafka tells records apart by their headers
  (KIP-512).

One that has `intercept_transaction(transactional_id) -> (body, on_ended)` is also asked at the begin of each
transaction: `body` is a context manager that stands around the body of `async with producer.transaction()`, and
`on_ended(outcome, error)` is called once, however the transaction was begun; the outcome is `None` where it is not
known when the producer ends.

What one raises is logged; the record goes on as it was.

One that has `begin_audit` (`aioproduce.audit.Auditor`) is none of these: the producer itself does its work, in C.

Invariants:

1. Each record that an interceptor saw has one outcome: acknowledged, failed, or never queued. Refused and cancelled
   sends are told as the last, with partition -1 unless it was chosen.
2. A batch made with `create_batch()` is seen by no `on_send` or `intercept`: its records are written already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, final

from aioproduce.errors import ConfigError
from aioproduce.records import ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.core.batching.record_audit import RecordAuditor
    from aioproduce.core.transactions.transaction import OnEnded
    from aioproduce.errors import TransactionOutcome

_log = logging.getLogger("aioproduce")

OnOutcome: TypeAlias = Callable[[RecordMetadata, BaseException | None], object]


@final
class Interceptors:
    """Calls each interceptor in order."""

    __slots__ = ("_has_intercept", "_interceptors", "_on_acknowledgement")

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = tuple(interceptors)
        self._has_intercept = any(hasattr(each, "intercept") for each in interceptors)
        self._on_acknowledgement: list[OnOutcome] = [
            each.on_acknowledgement for each in interceptors if hasattr(each, "on_acknowledgement")
        ]

    def intercept(self, record: ProducerRecord) -> tuple[ProducerRecord, OnOutcome]:
        """What each made of the record that the one before it gave, and whom to tell what became of it."""
        told: list[OnOutcome] = []
        for each in self._interceptors:
            if hasattr(each, "intercept"):
                record = _intercept(each.intercept, record, told)
                continue
            if hasattr(each, "on_send"):
                record = _on_send(each.on_send, record)
            if hasattr(each, "on_acknowledgement"):
                told.append(each.on_acknowledgement)
        return record, partial(_tell, told) if self._has_intercept else self.on_acknowledgement

    def transaction_began(self, transactional_id: str) -> WatchedTransaction:
        """A transaction is open, begun by the calling task."""
        bodies, told = [], []
        for each in self._interceptors:
            if hasattr(each, "intercept_transaction"):
                try:
                    body, on_ended = each.intercept_transaction(transactional_id)
                except Exception:
                    _log.exception("an interceptor's intercept_transaction failed")
                    continue
                bodies.append(body)
                told.append(on_ended)
        return WatchedTransaction(bodies, told)

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Tell each what became of a record that none of them saw before."""
        _tell(self._on_acknowledgement, metadata, error)


@final
class WatchedTransaction:
    """One transaction, as the interceptors see it.

    Args:
        bodies: What stands around its body.
        told: Whom to tell of its end.
    """

    __slots__ = ("_bodies", "_entered", "_told")

    def __init__(self, bodies: Sequence[AbstractContextManager[object]], told: Sequence[OnEnded]) -> None:
        self._bodies = bodies
        self._told = told
        self._entered = ExitStack()

    def enter(self) -> None:
        """The body begins, in the task that calls."""
        for body in self._bodies:
            try:
                self._entered.enter_context(body)
            except Exception:
                _log.exception("an interceptor failed at the begin of a transaction's body")

    def leave(self) -> None:
        """The body has ended."""
        try:
            self._entered.close()
        except Exception:
            _log.exception("an interceptor failed at the end of a transaction's body")

    def ended(self, outcome: TransactionOutcome | None, error: BaseException | None) -> None:
        """It has its outcome."""
        for tell in self._told:
            try:
                tell(outcome, error)
            except Exception:
                _log.exception("an interceptor failed at the end of a transaction")


def make_interceptors(given: Sequence[Any]) -> Interceptors | None:
    """Those that are to be called, or None where there are none.

    Raises:
        ConfigError: as `auditor_of()`.
    """
    auditor = auditor_of(given)
    called = [each for each in given if each is not auditor]
    return Interceptors(called) if called else None


def auditor_of(given: Sequence[Any]) -> RecordAuditor | None:
    """The one that numbers records, if there is one.

    Raises:
        ConfigError: there are several: a record has one number.
    """
    auditors = [each for each in given if hasattr(each, "begin_audit")]
    if len(auditors) > 1:
        raise ConfigError(
            f"interceptors holds {len(auditors)} Auditors, and a record can carry one stamp: give one",
            key="interceptors",
        )
    return auditors[0] if auditors else None


def tell_refused(record: ProducerRecord, on_outcome: OnOutcome, error: BaseException) -> None:
    """Tell of a record that was never queued."""
    partition = record.partition if isinstance(record.partition, int) else -1
    topic = record.topic if isinstance(record.topic, str) else str(record.topic)
    on_outcome(RecordMetadata(topic, partition, -1, -1, -1, -1), error)


def _on_send(on_send: Callable[[ProducerRecord], Any], record: ProducerRecord) -> ProducerRecord:
    try:
        changed = on_send(record)
    except Exception:
        _log.exception("an interceptor's on_send failed; the record goes on without it")
        return record
    if isinstance(changed, ProducerRecord):
        return changed
    _log.error(
        "an interceptor's on_send gave %s, not a ProducerRecord; the record goes on without it",
        type(changed).__name__,
    )
    return record


def _intercept(
    intercept: Callable[[ProducerRecord], Any], record: ProducerRecord, told: list[OnOutcome]
) -> ProducerRecord:
    try:
        given = intercept(record)
    except Exception:
        _log.exception("an interceptor's intercept failed; the record goes on without it")
        return record
    match given:
        case (ProducerRecord() as changed, on_outcome) if callable(on_outcome):
            told.append(on_outcome)
            return changed
    _log.error(
        "an interceptor's intercept gave %s, not a ProducerRecord and whom to tell its outcome; the record goes on "
        "without it",
        type(given).__name__,
    )
    return record


def _tell(told: Sequence[OnOutcome], metadata: RecordMetadata, error: BaseException | None) -> None:
    for tell in told:
        try:
            tell(metadata, error)
        except Exception:
            _log.exception("an interceptor's on_acknowledgement failed")
