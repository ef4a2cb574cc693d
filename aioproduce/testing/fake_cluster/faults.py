"""Scripted misbehaviour: what the brokers do wrong, how often, and to whom.

Users call the methods of `Faults` (as `cluster.faults`); `model` and the handlers ask it on every request.

Invariants:
1. A fault applies to the next `times` requests that match it, in the order in which they are processed; the
   one scripted first goes first. `times=None` is until `cancel()` or `clear()`.
2. At most one error code (`fail_*`), one fault of the connection or of the answer, and one throttle apply to a
   request; which is decided before it is processed.
3. Without a fault the cluster behaves as Kafka does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import SASL_AUTHENTICATION_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable


class AnswerFault(Enum):
    """What goes wrong with a request's connection or answer."""

    DROP = auto()
    """Processed, never answered; the connection lives and later requests are answered."""
    DELAY = auto()
    """Processed at once, answered later; answers of a connection stay in order."""
    RESET_BEFORE = auto()
    """The connection is reset and the request never processed."""
    LATE = auto()
    """The connection is reset, and the request arrives all the same, later."""
    RESET_AFTER = auto()
    """The request is processed, then the connection is reset instead of an answer."""
    CUT = auto()
    """The first bytes of the answer, then the connection is closed."""
    GARBAGE = auto()
    """A whole frame with the right correlation id and a body that is none."""
    HOSTILE_LENGTH = auto()
    """Four bytes that announce an impossible frame, and nothing after them."""
    WRONG_CORRELATION_ID = auto()
    """The right answer under another correlation id."""


@final
@dataclass(slots=True)
class Fault:
    """One scripted fault, to look at and to cancel.

    Attributes:
        api: Only requests of this API; `None` any.
        broker: Only requests to this broker; `None` any.
        topic: Only answers for this topic; `None` any.
        partition: Only answers for this partition; `None` any.
        remaining: How often it still applies; `None` without end.
        hits: How often it has applied.
    """

    api: int | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    remaining: int | None = 1
    hits: int = 0
    code: int = 0
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    is_after_append: bool = False
    kind: AnswerFault | None = None
    seconds: float = 0.0
    payload: bytes = b""
    length: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether it will never apply again."""
        return self.remaining == 0

    def cancel(self) -> None:
        """Never apply it again."""
        self.remaining = 0

    def matches(self, api: int, broker: int) -> bool:
        """Whether it is meant for such a request."""
        return self.api in (None, api) and self.broker in (None, broker)

    def matches_partition(self, topic: str | None, partition: int) -> bool:
        """Whether it is meant for this partition of the request."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def take(self) -> None:
        """Count one use."""
        self.hits += 1
        if self.remaining is not None:
            self.remaining -= 1


# 2 GiB - 1: what a client must not believe.
_HOSTILE_LENGTH: Final = 2**31 - 1
_GARBAGE: Final = b"\xff\xff\xff\xffnot a message of Kafka's"


@final
@dataclass(slots=True, eq=False, repr=False)
class Faults:
    """The faults of one cluster.

    Args:
        changed: Called after each change (a stalled broker that resumes has work to do).
        reset: Called with a broker, or `None` for all, whose connections are to be reset.
        end_sessions: Called with a broker, or `None` for all, whose clients are to log in again.

    Example:
        >>> cluster.faults.fail_produce(6, times=3, topic="t")       # NOT_LEADER_OR_FOLLOWER, three times
        >>> cluster.faults.reset_connections_on(ApiKey.PRODUCE)       # appended, then RST: the answer is lost
        >>> cluster.faults.stall(0)                                   # like SIGSTOP, until resume(0)
    """

    _changed: Callable[[], None]
    _reset: Callable[[int | None], None]
    _end_sessions: Callable[[int | None], None]
    _codes: list[Fault] = field(default_factory=list)
    _answers: list[Fault] = field(default_factory=list)
    _throttles: list[Fault] = field(default_factory=list)
    _handshakes: list[Fault] = field(default_factory=list)
    _stalled: set[int] = field(default_factory=set)
    _paused: set[int] = field(default_factory=set)
    _frozen: set[int] = field(default_factory=set)

    # Error codes

    def fail_produce(
        self,
        code: int,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        after_append: bool = False,
        message: str | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> Fault:
        """Answer Produce with `code` for each partition that matches (one use per partition).

        Args:
            code: Any number, those included that Kafka does not know.
            times: How many partition answers; `None` without end.
            topic: Only this topic.
            partition: Only this partition.
            broker: Only on this broker.
            after_append: The batch is checked and appended all the same, and the error answered if that
                went well (NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT). Otherwise it is not looked at.
            message: The answer's error message (Produce v8 and later).
            record_errors: (index in the batch, message) of the records to blame (Produce v8 and later).
        """
        return self._add(
            self._codes,
            Fault(
                api=ApiKey.PRODUCE,
                broker=broker,
                topic=topic,
                partition=partition,
                remaining=times,
                code=code,
                message=message,
                record_errors=record_errors,
                is_after_append=after_append,
            ),
        )

    def fail_metadata(
        self, code: int, *, times: int | None = 1, topic: str | None = None, broker: int | None = None
    ) -> Fault:
        """Answer Metadata with `code` for each topic that matches (one use per topic)."""
        return self._add(
            self._codes,
            Fault(api=ApiKey.METADATA, broker=broker, topic=topic, remaining=times, code=code),
        )

    def fail(self, api: int, code: int, *, times: int | None = 1, broker: int | None = None) -> Fault:
        """Answer with a code for the whole: ApiVersions, Metadata v13, FindCoordinator, InitProducerId, telemetry.

        Of transactions: AddOffsetsToTxn, EndTxn, ListTransactions; and AddPartitionsToTxn and TxnOffsetCommit,
        which say it of each of their partitions. Nothing of the request is done.

        Raises:
            ValueError: The API's answer has no such code.
        """
        if api not in _TOP_LEVEL:
            raise ValueError(f"{ApiKey(api).name} has no top-level error code to script")
        return self._add(
            self._codes, Fault(api=api, broker=broker, partition=_TOP_LEVEL_ONLY, remaining=times, code=code)
        )

    # Answers and connections

    def drop_answers(
        self, *, times: int | None = 1, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Process requests and never answer them; the connection lives."""
        return self._answer(AnswerFault.DROP, times, api, broker)

    def delay_answers(
        self, seconds: float, *, times: int | None = None, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Process requests at once and answer them `seconds` later, in order."""
        return self._answer(AnswerFault.DELAY, times, api, broker, seconds=seconds)

    def reset_connections_on(
        self,
        api: int = ApiKey.PRODUCE,
        *,
        times: int | None = 1,
        broker: int | None = None,
        after_processing: bool = True,
    ) -> Fault:
        """Reset the connection of a matching request, with its effect (the answer is lost) or before it."""
        kind = AnswerFault.RESET_AFTER if after_processing else AnswerFault.RESET_BEFORE
        return self._answer(kind, times, api, broker)

    def delay_requests(
        self, seconds: float, *, times: int | None = 1, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Reset the connection of a request, and process the request `seconds` later.

        So a proxy, or a kernel's buffer, keeps what a client has given up, and has sent again by then on another
        connection. Its answer goes nowhere. Not with TLS or logins, where nothing can come without its connection.
        """
        return self._answer(AnswerFault.LATE, times, api, broker, seconds=seconds)

    def cut_answers(
        self, *, times: int | None = 1, api: int | None = None, broker: int | None = None, length: int = 6
    ) -> Fault:
        """Send `length` bytes of the answer, its four size bytes included, and close the connection."""
        return self._answer(AnswerFault.CUT, times, api, broker, length=length)

    def garble_answers(
        self,
        *,
        times: int | None = 1,
        api: int | None = None,
        broker: int | None = None,
        body: bytes = _GARBAGE,
    ) -> Fault:
        """Answer with `body` after the right correlation id."""
        return self._answer(AnswerFault.GARBAGE, times, api, broker, payload=body)

    def announce_hostile_length(
        self,
        length: int = _HOSTILE_LENGTH,
        *,
        times: int | None = 1,
        api: int | None = None,
        broker: int | None = None,
    ) -> Fault:
        """Announce an answer of `length` bytes (also negative) and send nothing of it."""
        return self._answer(AnswerFault.HOSTILE_LENGTH, times, api, broker, length=length)

    def change_correlation_ids(
        self, *, times: int | None = 1, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Answer under the correlation id of another request."""
        return self._answer(AnswerFault.WRONG_CORRELATION_ID, times, api, broker)

    def throttle(
        self,
        seconds: float,
        *,
        times: int | None = 1,
        api: int | None = ApiKey.PRODUCE,
        broker: int | None = None,
    ) -> Fault:
        """Answer at once with `throttle_time_ms`, and read nothing from that connection meanwhile (KIP-219)."""
        return self._add(self._throttles, Fault(api=api, broker=broker, remaining=times, seconds=seconds))

    def reset_connections(self, broker: int | None = None) -> None:
        """Reset every connection now, or those of one broker."""
        self._reset(broker)

    def stall(self, broker: int) -> None:
        """Like SIGSTOP: sockets stay open and accept, nothing is read and nothing answered until `resume`."""
        self._stalled.add(broker)
        self._changed()

    def resume(self, broker: int) -> None:
        """End a stall: what arrived meanwhile is processed now."""
        self._stalled.discard(broker)
        self._changed()

    # Security

    def refuse_login(
        self, message: str | None = None, *, times: int | None = 1, broker: int | None = None
    ) -> Fault:
        """Answer SaslAuthenticate with SASL_AUTHENTICATION_FAILED, whatever the client shows.

        An answer that is late is `delay_answers(2.0, api=ApiKey.SASL_AUTHENTICATE)`, and one that never comes is
        `drop_answers(api=ApiKey.SASL_AUTHENTICATE)`.

        Args:
            message: What the broker says; by default what Kafka says of wrong credentials.
            times: How many; `None` without end.
            broker: Only on this broker.
        """
        fault = Fault(
            api=ApiKey.SASL_AUTHENTICATE,
            broker=broker,
            remaining=times,
            code=SASL_AUTHENTICATION_FAILED,
            message=message,
        )
        return self._add(self._codes, fault)

    def end_sessions(self, broker: int | None = None) -> None:
        """End the session of every client that has logged in, or of those of one broker.

        The next request of such a connection, unless it is SaslHandshake, closes it without an answer.
        """
        self._end_sessions(broker)

    def cut_handshakes(self, length: int = 60, *, times: int | None = 1, broker: int | None = None) -> Fault:
        """Send `length` bytes of TLS on a new connection, and close it."""
        return self._add(self._handshakes, Fault(broker=broker, remaining=times, length=length))

    # Replicas and what brokers know

    def pause_replication(self, broker: int) -> None:
        """This broker fetches nothing from the leaders it follows, until `resume_replication`.

        It serves clients all the same, and stays in the ISR until `lag_timeout` is over. Without replication
        (`ReplicationConfig`) there is nothing to pause, and this has no effect.
        """
        self._paused.add(broker)
        self._changed()

    def resume_replication(self, broker: int) -> None:
        """End what `pause_replication` began: it catches up."""
        self._paused.discard(broker)
        self._changed()

    def freeze_metadata(self, broker: int) -> None:
        """This broker goes on telling what it knows now: brokers, leaders, epochs; until `unfreeze_metadata`.

        What it leads, and what it refuses, follows the truth all the same.
        """
        self._frozen.add(broker)
        self._changed()

    def unfreeze_metadata(self, broker: int) -> None:
        """End what `freeze_metadata` began: it knows what all know."""
        self._frozen.discard(broker)
        self._changed()

    def clear(self) -> None:
        """Forget every fault, end every stall, pause and freeze; connections that are broken stay so."""
        for fault in (*self._codes, *self._answers, *self._throttles, *self._handshakes):
            fault.cancel()
        self._codes.clear()
        self._answers.clear()
        self._throttles.clear()
        self._handshakes.clear()
        self._stalled.clear()
        self._paused.clear()
        self._frozen.clear()
        self._changed()

    # Asked by the model

    def is_stalled(self, broker: int) -> bool:
        """Whether the broker is stopped by `stall`."""
        return broker in self._stalled

    def is_replication_paused(self, broker: int) -> bool:
        """Whether the broker fetches nothing from leaders."""
        return broker in self._paused

    def has_frozen_metadata(self, broker: int) -> bool:
        """Whether the broker's knowledge stands still."""
        return broker in self._frozen

    def take_code(self, api: int, broker: int, topic: str | None, partition: int = 0) -> Fault | None:
        """Use up the error code that is scripted for one partition or topic of a request."""
        if not self._codes:
            return None
        return _take(
            self._codes,
            lambda fault: fault.matches(api, broker) and fault.matches_partition(topic, partition),
        )

    def take_top_level_code(self, api: int, broker: int) -> int:
        """Use up the error code that is scripted for a whole answer; 0 if there is none."""
        fault = _take(
            self._codes,
            lambda fault: fault.matches(api, broker) and fault.partition == _TOP_LEVEL_ONLY,
        )
        return 0 if fault is None else fault.code

    def take_refused_login(self, broker: int) -> Fault | None:
        """Use up the refusal of a login."""
        return _take(self._codes, lambda fault: fault.matches(ApiKey.SASL_AUTHENTICATE, broker))

    def take_cut_handshake(self, broker: int) -> Fault | None:
        """Use up what is to be cut of a new connection's handshake."""
        return _take(self._handshakes, lambda fault: fault.broker in (None, broker))

    def take_answer_fault(self, api: int, broker: int) -> Fault | None:
        """Use up what goes wrong with the connection or answer of a request."""
        if not self._answers:
            return None
        return _take(self._answers, lambda fault: fault.matches(api, broker))

    def take_throttle(self, api: int, broker: int) -> float:
        """Use up a throttle; 0 if there is none."""
        if not self._throttles:
            return 0.0
        fault = _take(self._throttles, lambda fault: fault.matches(api, broker))
        return 0.0 if fault is None else fault.seconds

    def _answer(
        self, kind: AnswerFault, times: int | None, api: int | None, broker: int | None, **how: Any
    ) -> Fault:
        return self._add(self._answers, Fault(api=api, broker=broker, remaining=times, kind=kind, **how))

    @staticmethod
    def _add(faults: list[Fault], fault: Fault) -> Fault:
        if fault.remaining is not None and fault.remaining < 1:
            raise ValueError("times is at least 1, or None for no end")
        faults.append(fault)
        return fault


# A partition that no request names: keeps `fail()` apart from `fail_metadata()`.
_TOP_LEVEL_ONLY: Final = -2
_TOP_LEVEL: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.FIND_COORDINATOR,
        ApiKey.METADATA,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.LIST_TRANSACTIONS,
    }
)


def _take(faults: list[Fault], is_wanted: Callable[[Fault], bool]) -> Fault | None:
    for index, fault in enumerate(faults):
        if not fault.is_spent and is_wanted(fault):
            fault.take()
            if fault.remaining == 0:
                del faults[index]
            return fault
    return None
