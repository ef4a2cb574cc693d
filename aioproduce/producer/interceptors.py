"""The chain of interceptors around a producer (KIP-42): they see each record and its outcome, and cannot break it.

Called by the Producer. An interceptor is any object with

- `on_send(record) -> record`, or `on_acknowledgement(metadata, error)`, or both, as in Kafka;
- or `intercept(record) -> (record, on_outcome)`: the producer calls `on_outcome(metadata, error)` for exactly this
  record. An interceptor that measures or traces needs it. In Kafka it would identify records by their headers
  (KIP-512).

If an interceptor has `intercept_transaction(transactional_id) -> (body, on_ended)`, the producer calls it when a
transaction begins. `body` is a context manager around the body of `async with producer.transaction()`.
`on_ended(outcome, error)` is called once, whichever call began the transaction. The outcome is `None` if it is not
known when the producer ends.

An exception of an interceptor is logged; the record is sent as it was before.

An object with `begin_audit` (`aioproduce.audit.Auditor`) is not called here: the producer does its work in C.

Invariants:

1. Each record that an interceptor saw has one outcome: acknowledged, failed, or never queued. Refused and cancelled
   sends are reported as never queued, with partition -1 unless it was chosen.
2. No `on_send` or `intercept` sees a batch of `create_batch()`: its records are encoded already.
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
        """Pass the record through each interceptor; return the last record and the callback for its outcome."""
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
        """Call the interceptors when the calling task begins a transaction."""
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
        """Report the outcome of a record to each interceptor's `on_acknowledgement`."""
        _tell(self._on_acknowledgement, metadata, error)


@final
class WatchedTransaction:
    """One transaction, as the interceptors see it.

    Args:
        bodies: The context managers around its body.
        told: The callbacks for its end.
    """

    __slots__ = ("_bodies", "_entered", "_told")

    def __init__(self, bodies: Sequence[AbstractContextManager[object]], told: Sequence[OnEnded]) -> None:
        self._bodies = bodies
        self._told = told
        self._entered = ExitStack()

    def enter(self) -> None:
        """Enter the context managers when the body begins, in the calling task."""
        for body in self._bodies:
            try:
                self._entered.enter_context(body)
            except Exception:
                _log.exception("an interceptor failed at the begin of a transaction's body")

    def leave(self) -> None:
        """Leave the context managers when the body has ended."""
        try:
            self._entered.close()
        except Exception:
            _log.exception("an interceptor failed at the end of a transaction's body")

    def ended(self, outcome: TransactionOutcome | None, error: BaseException | None) -> None:
        """Report the transaction's outcome."""
        for tell in self._told:
            try:
                tell(outcome, error)
            except Exception:
                _log.exception("an interceptor failed at the end of a transaction")


def make_interceptors(given: Sequence[Any]) -> Interceptors | None:
    """Return the chain of interceptors, without an Auditor; None if there are none.

    Raises:
        ConfigError: as in `auditor_of()`.
    """
    auditor = auditor_of(given)
    called = [each for each in given if each is not auditor]
    return Interceptors(called) if called else None


def auditor_of(given: Sequence[Any]) -> RecordAuditor | None:
    """Return the Auditor, which numbers records; None if there is none.

    Raises:
        ConfigError: if there are several, because a record carries one number.
    """
    auditors = [each for each in given if hasattr(each, "begin_audit")]
    if len(auditors) > 1:
        raise ConfigError(
            f"interceptors holds {len(auditors)} Auditors, and a record can carry one stamp: give one",
            key="interceptors",
        )
    return auditors[0] if auditors else None


def tell_refused(record: ProducerRecord, on_outcome: OnOutcome, error: BaseException) -> None:
    """Report a record that was never queued."""
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
        "an interceptor's on_send returned %s, not a ProducerRecord; the record goes on without it",
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
        "an interceptor's intercept returned %s, not a ProducerRecord and a callback for its outcome; the record "
        "goes on without it",
        type(given).__name__,
    )
    return record


def _tell(told: Sequence[OnOutcome], metadata: RecordMetadata, error: BaseException | None) -> None:
    for tell in told:
        try:
            tell(metadata, error)
        except Exception:
            _log.exception("an interceptor's on_acknowledgement failed")
