"""What can be seen from outside of a producer: its connections and requests, and what the brokers answered.

For `liveness`, which explains waits by it. Everything here is seen in the simulated network, at the client's
end of each connection, or in the simulated brokers. The producer is asked nothing, and none of its code is used.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from aioproduce.testing.fake_cluster.faults import AnswerFault
from aioproduce.testing.fake_cluster.partition import NO_LEADER
from aioproduce.testing.simulation.clock import VirtualClock
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.testing.simulation.endpoint import Endpoint
from aioproduce.testing.simulation.network import Attempt, Network
from aioproduce.wire.api import ApiKey
from tests.simulation.case import TOPIC
from tests.simulation.spans import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.testing.fake_cluster.exchange import Body, Exchange
    from aioproduce.testing.simulation import Simulation
    from tests.simulation.spans import Span

_SIZE: Final = 4
_REQUEST_HEAD: Final = 12
"""A frame's length, the API's key and version, and the correlation id."""
_ANSWER_HEAD: Final = 8
"""A frame's length, and the correlation id."""
_BROKEN: Final = frozenset({AnswerFault.GARBAGE, AnswerFault.WRONG_CORRELATION_ID})
"""Answers that arrive whole, and that no client can read."""


@dataclass(slots=True)
class Answer:
    """What a broker answered.

    Attributes:
        at: When the broker made it.
        topic_code: The error code of the topic, in an answer to Metadata that has the topic.
        leaders: By partition, the leader that an answer to Metadata names.
        brokers: The hosts that an answer to Metadata names.
        refused: The partitions for which an answer to Produce has an error code.
        is_error: Whether the whole of it is an error.
        throttle: Seconds for which the client has to be silent.
        is_true: Whether the broker knew the cluster as it was.
        is_readable: Whether a client can read it.
    """

    at: float
    api: int
    topic_code: int | None = None
    leaders: dict[int, int] = field(default_factory=dict)
    brokers: frozenset[str] = frozenset()
    refused: frozenset[int] = frozenset()
    is_error: bool = False
    throttle: float = 0.0
    is_true: bool = True
    is_readable: bool = True


@dataclass(slots=True)
class Request:
    """One request, from when it is written until its answer has come whole or its connection is gone."""

    host: str
    api: int
    sent_at: float
    ended_at: float = inf
    answer: Answer | None = None


@dataclass(slots=True)
class Opening:
    """One attempt to connect."""

    host: str
    began_at: float
    ended_at: float = inf


class Observations:
    """All that was seen in one run.

    Args:
        simulation: Of what.
        acks: The producer's: with 0 it expects no answers to Produce, and they are left out.

    Attributes:
        requests: In the order in which they were sent.
        answers: When they came: requests that were answered, in that order.
        openings: Attempts to connect.
        failures: When and where connections ended, or attempts failed.
        blocked: Spans in which the client's own loop was blocked.
        leaders: By partition: (since when, the leader's host or `None`).
    """

    def __init__(self, simulation: Simulation, *, acks: object = "all") -> None:
        self.simulation = simulation
        self._acks = acks
        self.requests: list[Request] = []
        self.answers: list[Request] = []
        self.openings: list[Opening] = []
        self.failures: list[tuple[float, str]] = []
        self.blocked: list[Span] = []
        self.leaders: dict[int, list[tuple[float, str | None]]] = {}
        self._wires: dict[int, _Wire] = {}
        self._made: dict[tuple[int, int], Answer] = {}
        self._openings: dict[Attempt, Opening] = {}

    @property
    def now(self) -> float:
        return self.simulation.clock.now

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See what happens while the body runs."""
        state = self.simulation.cluster.state
        described = state.described

        def described_seen() -> None:
            self._note_leaders()
            described()

        self._note_leaders()
        state.described = described_seen
        with ExitStack() as patches:
            self._watch_brokers(patches)
            self._watch_network(patches)
            try:
                yield
            finally:
                state.described = described
                self._postpone()

    def _postpone(self) -> None:
        """What happens while the client's loop is blocked, it hears of in the end."""
        blocked = merged(self.blocked)

        def heard_at(at: float) -> float:
            index = bisect_right(blocked, (at, inf)) - 1
            return max(at, blocked[index][1]) if index >= 0 else at

        for request in self.requests:
            request.ended_at = heard_at(request.ended_at)
        for opening in self.openings:
            opening.ended_at = heard_at(opening.ended_at)
        self.failures = [(heard_at(at), host) for at, host in self.failures]

    # -- the brokers ---

    def _note_leaders(self) -> None:
        for partition in self.simulation.cluster.state.partitions():
            if partition.topic == TOPIC:
                host = None if partition.leader_id == NO_LEADER else host_of(partition.leader_id)
                history = self.leaders.setdefault(partition.partition, [])
                if not history or history[-1][1] != host:
                    history.append((self.now, host))

    def _watch_brokers(self, patches: ExitStack) -> None:
        model = self.simulation.cluster.model
        answer = model._answer

        def answer_seen(exchange: Exchange, body: Body, now: float) -> None:
            self._note_answer(exchange, body)
            answer(exchange, body, now)

        patches.enter_context(patch.object(model, "_answer", answer_seen))
        patches.enter_context(patch.object(model._apis._produce, "_answer", answer_seen))

    def _note_answer(self, exchange: Exchange, body: Body) -> None:
        made = Answer(self.now, exchange.api_key, throttle=exchange.throttle)
        if exchange.answer_fault is not None and exchange.answer_fault.kind in _BROKEN:
            made.is_readable = False
        elif exchange.api_key == ApiKey.METADATA:
            self._read_metadata(made, exchange, body)
        elif exchange.api_key == ApiKey.PRODUCE:
            made.refused = frozenset(
                partition["index"]
                for topic in body["responses"]
                for partition in topic["partition_responses"]
                if partition["error_code"]
            )
        else:
            made.is_error = bool(body.get("error_code"))
        # The network and the model both count the connections that were accepted.
        self._made[exchange.connection_id, exchange.correlation_id] = made

    def _read_metadata(self, made: Answer, exchange: Exchange, body: Body) -> None:
        model = self.simulation.cluster.model
        made.is_true = not model.faults.has_frozen_metadata(exchange.broker_id) and not model.metadata_delay
        made.is_error = bool(body["error_code"]) or not body["brokers"]
        made.brokers = frozenset(broker["host"] for broker in body["brokers"])
        for topic in body["topics"]:
            if topic["name"] == TOPIC:
                made.topic_code = int(topic["error_code"])
                made.leaders = {each["partition_index"]: each["leader_id"] for each in topic["partitions"]}

    # -- the network, at the client's end ---

    def _watch_network(self, patches: ExitStack) -> None:
        for owner, name, make in (
            (Network, "connect", self._connect_seen),
            (Attempt, "cancel", self._cancel_seen),
            (Endpoint, "write", self._write_seen),
            (Endpoint, "_take", self._take_seen),
            (Endpoint, "_tell_lost", self._lost_seen),
            (VirtualClock, "let_pass", self._block_seen),
        ):
            patches.enter_context(patch.object(owner, name, make(getattr(owner, name))))

    def _connect_seen(self, connect: Callable[..., Attempt]) -> Callable[..., Attempt]:
        def connect_seen(network: Network, address: Any, on_connected: Any, on_failed: Any) -> Attempt:
            opening = Opening(address[0], self.now)

            def connected(endpoint: Endpoint) -> None:
                opening.ended_at = self.now
                self._wires[endpoint.number] = _Wire(address[0])
                on_connected(endpoint)

            def failed(error: OSError) -> None:
                self._note_failure(opening)
                on_failed(error)

            attempt = connect(network, address, connected, failed)
            self.openings.append(opening)
            self._openings[attempt] = opening
            return attempt

        return connect_seen

    def _cancel_seen(self, cancel: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
        def cancel_seen(attempt: Attempt) -> None:
            if not attempt.is_over:
                self._note_failure(self._openings[attempt])
            cancel(attempt)

        return cancel_seen

    def _note_failure(self, opening: Opening) -> None:
        opening.ended_at = self.now
        self.failures.append((self.now, opening.host))

    def _write_seen(self, write: Callable[..., None]) -> Callable[..., None]:
        def write_seen(endpoint: Endpoint, buffers: Any) -> None:
            wire = self._wires.get(endpoint.number) if endpoint.is_client else None
            if wire is not None and not endpoint.is_closing:
                for buffer in buffers:
                    for head in wire.requests.feed(memoryview(buffer).cast("B")):
                        request = Request(wire.host, int.from_bytes(head[4:6]), self.now)
                        if self._acks == 0 and request.api == ApiKey.PRODUCE:
                            continue
                        wire.unanswered[int.from_bytes(head[8:])] = request
                        self.requests.append(request)
            write(endpoint, buffers)

        return write_seen

    def _take_seen(self, take: Callable[..., None]) -> Callable[..., None]:
        def take_seen(endpoint: Endpoint, item: Any) -> None:
            wire = self._wires.get(endpoint.number) if endpoint.is_client else None
            if wire is not None and not endpoint.is_gone and item.data:
                for head in wire.answers.feed(memoryview(item.data)):
                    self._note_arrival(endpoint.number, wire, int.from_bytes(head[4:]))
            take(endpoint, item)

        return take_seen

    def _note_arrival(self, number: int, wire: _Wire, correlation_id: int) -> None:
        answer = self._made.pop((number, correlation_id), None)
        is_readable = answer is None or answer.is_readable
        # What cannot be read, or comes before its turn, is no answer: a client gives such a connection up.
        if is_readable and next(iter(wire.unanswered), None) == correlation_id:
            request = wire.unanswered.pop(correlation_id)
            request.ended_at = self.now
            request.answer = answer
            self.answers.append(request)

    def _lost_seen(self, tell: Callable[..., None]) -> Callable[..., None]:
        def lost_seen(endpoint: Endpoint, error: Exception | None) -> None:
            wire = self._wires.pop(endpoint.number, None) if endpoint.is_client else None
            if wire is not None:
                for request in wire.unanswered.values():
                    request.ended_at = self.now
                self.failures.append((self.now, wire.host))
            tell(endpoint, error)

        return lost_seen

    def _block_seen(self, let_pass: Callable[..., None]) -> Callable[..., None]:
        def block_seen(clock: VirtualClock, seconds: float) -> None:
            began_at = clock.now
            let_pass(clock, seconds)
            self.blocked.append((began_at, clock.now))

        return block_seen


class _Wire:
    """One connection of the client's."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.requests = _Frames(_REQUEST_HEAD)
        self.answers = _Frames(_ANSWER_HEAD)
        self.unanswered: dict[int, Request] = {}


class _Frames:
    """Where frames end in a stream of bytes."""

    def __init__(self, head_size: int) -> None:
        self._head_size = head_size
        self._head = b""
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[bytes]:
        """The heads of the frames that are whole with these bytes."""
        at = 0
        while at < len(data):
            missing = self._head_size - len(self._head)
            if missing:
                self._head += data[at : at + missing]
                at += missing
                if len(self._head) == self._head_size:
                    size = int.from_bytes(self._head[:_SIZE], signed=True)
                    # A length that is none: nothing on this connection can be read any more.
                    self._left = _SIZE + size - self._head_size if size >= 0 else -1
            if len(self._head) < self._head_size or self._left < 0:
                return
            passed = min(self._left, len(data) - at)
            at += passed
            self._left -= passed
            if not self._left:
                head, self._head = self._head, b""
                yield head
