"""Scripted faults: what the brokers do wrong, how often, and to whom.

Users call the methods of `Faults` (as `cluster.faults`); `model` and the handlers check it for every request.

Invariants:
1. A fault applies to the next `times` matching requests in the order of processing; the one scripted first
   applies first. `times=None` means until `cancel()` or `clear()`.
2. At most one error code (`fail_*`), one fault of the connection or of the answer, and one throttle apply to a
   request. They are selected before it is processed.
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
    """Processed, but never answered; the connection stays open and later requests are answered."""
    DELAY = auto()
    """Processed at once, answered later; answers of a connection stay in order."""
    RESET_BEFORE = auto()
    """The connection is reset, and the request is never processed."""
    LATE = auto()
    """The connection is reset, but the request arrives later."""
    RESET_AFTER = auto()
    """The request is processed, then the connection is reset instead of an answer."""
    CUT = auto()
    """The first bytes of the answer are sent, then the connection is closed."""
    GARBAGE = auto()
    """A complete frame with the right correlation id and an invalid body."""
    HOSTILE_LENGTH = auto()
    """Four bytes that announce an impossible frame, and nothing after them."""
    WRONG_CORRELATION_ID = auto()
    """The right answer with another correlation id."""


@final
@dataclass(slots=True)
class Fault:
    """One scripted fault, which can be inspected and cancelled.

    Attributes:
        api: Only requests of this API; `None`: any.
        broker: Only requests to this broker; `None`: any.
        topic: Only answers for this topic; `None`: any.
        partition: Only answers for this partition; `None`: any.
        remaining: How often it still applies; `None`: without end.
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
        """Cancel the fault, so that it never applies again."""
        self.remaining = 0

    def matches(self, api: int, broker: int) -> bool:
        """Return whether it applies to such a request."""
        return self.api in (None, api) and self.broker in (None, broker)

    def matches_partition(self, topic: str | None, partition: int) -> bool:
        """Return whether it applies to this partition of the request."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def take(self) -> None:
        """Count one application."""
        self.hits += 1
        if self.remaining is not None:
            self.remaining -= 1


# 2 GiB - 1, which a client must not believe.
_HOSTILE_LENGTH: Final = 2**31 - 1
_GARBAGE: Final = b"\xff\xff\xff\xffnot a message of Kafka's"


@final
@dataclass(slots=True, eq=False, repr=False)
class Faults:
    """The faults of one cluster.

    Args:
        changed: Called after each change (a stalled broker that resumes has work to do).
        reset: Called with a broker, or `None` for all, whose connections must be reset.
        end_sessions: Called with a broker, or `None` for all, whose clients must log in again.

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
        """Answer Produce with `code` for each matching partition (one application per partition).

        Args:
            code: Any number, including those that Kafka does not know.
            times: How many partition answers; `None` without end.
            topic: Only this topic.
            partition: Only this partition.
            broker: Only on this broker.
            after_append: Whether the batch is checked and appended before the error is returned, if that succeeded
                (NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT). Otherwise it is ignored.
            message: The answer's error message (Produce v8 and later).
            record_errors: (index in the batch, message) of the records at fault (Produce v8 and later).
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
        """Answer Metadata with `code` for each matching topic (one application per topic)."""
        return self._add(
            self._codes,
            Fault(api=ApiKey.METADATA, broker=broker, topic=topic, remaining=times, code=code),
        )

    def fail(self, api: int, code: int, *, times: int | None = 1, broker: int | None = None) -> Fault:
        """Answer with a top-level code: ApiVersions, Metadata v13, FindCoordinator, InitProducerId, telemetry.

        For transactions: AddOffsetsToTxn, EndTxn, ListTransactions; and AddPartitionsToTxn and TxnOffsetCommit,
        with the code for each of their partitions. The request has no effect.

        Raises:
            ValueError: If the API's answer has no such code.
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
        """Process requests and never answer them; the connection stays open."""
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
        """Reset the connection of a matching request, after processing it (the answer is lost) or before."""
        kind = AnswerFault.RESET_AFTER if after_processing else AnswerFault.RESET_BEFORE
        return self._answer(kind, times, api, broker)

    def delay_requests(
        self, seconds: float, *, times: int | None = 1, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Reset the connection of a request, and process the request `seconds` later.

        This simulates a proxy or a kernel's buffer that keeps a request which the client has given up and sent
        again on another connection. Its answer is dropped. Not possible with TLS or logins, which need a
        connection.
        """
        return self._answer(AnswerFault.LATE, times, api, broker, seconds=seconds)

    def cut_answers(
        self, *, times: int | None = 1, api: int | None = None, broker: int | None = None, length: int = 6
    ) -> Fault:
        """Send `length` bytes of the answer, including its four size bytes, and close the connection."""
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
        """Announce an answer of `length` bytes (possibly negative) and send nothing of it."""
        return self._answer(AnswerFault.HOSTILE_LENGTH, times, api, broker, length=length)

    def change_correlation_ids(
        self, *, times: int | None = 1, api: int | None = None, broker: int | None = None
    ) -> Fault:
        """Answer with the correlation id of another request."""
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
        """Stop a broker like SIGSTOP: sockets stay open and accept, nothing is read or answered until `resume`."""
        self._stalled.add(broker)
        self._changed()

    def resume(self, broker: int) -> None:
        """End a stall: requests that arrived meanwhile are processed now."""
        self._stalled.discard(broker)
        self._changed()

    # Security

    def refuse_login(
        self, message: str | None = None, *, times: int | None = 1, broker: int | None = None
    ) -> Fault:
        """Answer SaslAuthenticate with SASL_AUTHENTICATION_FAILED, whatever the client sends.

        For a late answer use `delay_answers(2.0, api=ApiKey.SASL_AUTHENTICATE)`, for a missing one
        `drop_answers(api=ApiKey.SASL_AUTHENTICATE)`.

        Args:
            message: The broker's message; by default Kafka's for wrong credentials.
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
        """End the session of every logged-in client, or of those of one broker.

        The next request of such a connection closes it without an answer, unless it is SaslHandshake.
        """
        self._end_sessions(broker)

    def cut_handshakes(self, length: int = 60, *, times: int | None = 1, broker: int | None = None) -> Fault:
        """Send `length` bytes of TLS on a new connection, and close it."""
        return self._add(self._handshakes, Fault(broker=broker, remaining=times, length=length))

    # Replicas and brokers' knowledge

    def pause_replication(self, broker: int) -> None:
        """Stop this broker from fetching from the leaders that it follows, until `resume_replication`.

        It still serves clients, and stays in the ISR until `lag_timeout` is over. Without replication
        (`ReplicationConfig`) this has no effect.
        """
        self._paused.add(broker)
        self._changed()

    def resume_replication(self, broker: int) -> None:
        """End `pause_replication`: the broker catches up."""
        self._paused.discard(broker)
        self._changed()

    def freeze_metadata(self, broker: int) -> None:
        """Freeze this broker's knowledge of brokers, leaders and epochs until `unfreeze_metadata`.

        Its leadership and its refusals still follow the actual state.
        """
        self._frozen.add(broker)
        self._changed()

    def unfreeze_metadata(self, broker: int) -> None:
        """End `freeze_metadata`: the broker knows the current state again."""
        self._frozen.discard(broker)
        self._changed()

    def clear(self) -> None:
        """Remove every fault, and end every stall, pause and freeze; broken connections stay broken."""
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

    # Used by the model

    def is_stalled(self, broker: int) -> bool:
        """Return whether the broker is stopped by `stall`."""
        return broker in self._stalled

    def is_replication_paused(self, broker: int) -> bool:
        """Return whether the broker fetches nothing from leaders."""
        return broker in self._paused

    def has_frozen_metadata(self, broker: int) -> bool:
        """Return whether the broker's knowledge is frozen."""
        return broker in self._frozen

    def take_code(self, api: int, broker: int, topic: str | None, partition: int = 0) -> Fault | None:
        """Use up the scripted error code for one partition or topic of a request."""
        if not self._codes:
            return None
        return _take(
            self._codes,
            lambda fault: fault.matches(api, broker) and fault.matches_partition(topic, partition),
        )

    def take_top_level_code(self, api: int, broker: int) -> int:
        """Use up the scripted error code for a whole answer; 0 if there is none."""
        fault = _take(
            self._codes,
            lambda fault: fault.matches(api, broker) and fault.partition == _TOP_LEVEL_ONLY,
        )
        return 0 if fault is None else fault.code

    def take_refused_login(self, broker: int) -> Fault | None:
        """Use up the scripted refusal of a login."""
        return _take(self._codes, lambda fault: fault.matches(ApiKey.SASL_AUTHENTICATE, broker))

    def take_cut_handshake(self, broker: int) -> Fault | None:
        """Use up the scripted cut of a new connection's handshake."""
        return _take(self._handshakes, lambda fault: fault.broker in (None, broker))

    def take_answer_fault(self, api: int, broker: int) -> Fault | None:
        """Use up the scripted fault of a request's connection or answer."""
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
            raise ValueError("times must be at least 1, or None for no end")
        faults.append(fault)
        return fault


# A partition that no request names; it distinguishes `fail()` from `fail_metadata()`.
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
