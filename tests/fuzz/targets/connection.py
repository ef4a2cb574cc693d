"""`BrokerConnection`: any bytes, in any state, between any other facts.

1. No fact raises. The state moves along its table only, and `Close` is emitted once at most.
2. Each request ends once: by its answer, by having been written where no answer comes, or by the loss.
3. Answers come in the order of the requests.
4. Once it is closing nothing is answered, and nothing sent.
5. The deadline that is queued is never later than the connection's own.

The input is a list of steps: a byte says which, those after it are its arguments. A driver's promises are kept:
`connection_made` comes once, `writable` after a `Send`, `lost` once and last.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from aioproduce._native.stats import Windows
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.connection_states import ConnectionSettings, ConnectionState, LossCause
from aioproduce.core.cluster.in_flight_request import Completed
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Close, Effect, Send
from aioproduce.errors import UnsupportedVersionError
from aioproduce.metrics import NodeMetrics
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey
from aioproduce.wire.messages import BrokerAddress
from tests.askers import name, named, names
from tests.fuzz import peer
from tests.fuzz.target import Source, Target

APIS = tuple(CLIENT_VERSIONS)
SETTINGS = ConnectionSettings(
    client_id="fuzz", max_in_flight=5, request_timeout=1.0, connections_max_idle=3.0, max_response_size=4096
)
MADE, RAW, ANSWER, VERSIONS, SEND, WRITABLE, TIME, CLOSE = range(8)
OFFERED = struct.pack(">hi", 0, 2) + struct.pack(">hhh", 0, 3, 13) + struct.pack(">hhh", 3, 1, 13)
"""ApiVersions v0: Produce and Metadata, the least that a broker must speak."""
VERSIONS_ANSWER = (
    b"\0\0\x04" + struct.pack(">hhhb", 0, 3, 13, 0) + struct.pack(">hhhb", 3, 1, 13, 0)
    + struct.pack(">hhhb", 22, 0, 5, 0) + struct.pack(">ib", 0, 0)
)  # fmt: skip
"""ApiVersions v4: these two and InitProducerId."""


class Transport:
    """One connection, what a driver knows of it, and what was asked on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.effects: deque[Effect] = deque()
        self.deadlines: Deadlines = Deadlines()
        address = BrokerAddress(1, "broker", 9092)
        self.connection = BrokerConnection(
            1, address, SETTINGS, self.effects, self.deadlines, NodeMetrics(Windows())
        )
        self.connection.connect(self.now, 1.0)
        self.is_made = False
        self.is_unwritten = False
        self.closes = 0
        self.sent = 0
        self.pending: list[int] = []
        self.is_closing = False

    def take_effects(self) -> None:
        while self.effects:
            effect = self.effects.popleft()
            if isinstance(effect, Close):
                self.closes += 1
                self.is_closing = True
            elif isinstance(effect, Send):
                assert not self.is_closing
                assert not self.is_unwritten, "two of them at once"
                self.is_unwritten = True

    def answered(self, completed: list[Completed]) -> None:
        for done in completed:
            assert name(done.request) == self.pending.pop(0), "out of order"

    def step(self, source: Source) -> None:
        connection = self.connection
        match source.below(8):
            case 0 if not self.is_made:
                self.is_made = True
                connection.connection_made(self.now)
            case 1:
                self.receive(source.take(source.byte()))
            case 2:
                self.answer(source.take(source.byte()))
            case 3:
                self.answer_versions(source.byte())
            case 4:
                self.send(APIS[source.below(len(APIS))], source.byte())
            case 5 if self.is_unwritten:
                self.is_unwritten = False
                for request in connection.writable(self.now):
                    self.pending.remove(name(request))
            case 6:
                self.now += source.byte() / 50
                connection.handle_timer(self.now)
            case 7 if source.byte() == 7:
                connection.close("asked to", LossCause.REQUESTED)

    def receive(self, data: bytes) -> None:
        was_open = self.connection.is_open
        completed = self.connection.receive_data(data, self.now)
        assert was_open or not completed
        self.answered(completed)

    def answer(self, body: bytes) -> None:
        """A frame that fits the oldest request, whatever is in it."""
        oldest = self.connection.in_flight[0] if self.connection.in_flight else None
        number = 0 if oldest is None else oldest.correlation_id
        tags = oldest is not None and peer.has_response_tags(oldest.api, oldest.version)
        self.receive(peer.framed(struct.pack(">i", number) + (b"\0" if tags else b"") + body))

    def answer_versions(self, kind: int) -> None:
        match kind % 4:
            case 0:
                self.answer(VERSIONS_ANSWER)
            case 1:
                self.answer(OFFERED)
            case 2:
                self.answer(struct.pack(">hi", 35, 0))
            case 3:  # refused, and this is spoken
                self.answer(struct.pack(">hihhh", 35, 1, 18, 0, kind // 4))

    def send(self, api: ApiKey, how: int) -> None:
        connection = self.connection
        if not connection.can_send(self.now):
            return
        expects_response = how % 4 != 0 or api is not ApiKey.PRODUCE
        timeout = 0.2 * (1 + how % 7)
        try:
            connection.send(
                api,
                lambda version, number: [b"request"],
                named(self.sent),
                self.now,
                timeout=timeout,
                expects_response=expects_response,
                max_version=12 if api is ApiKey.PRODUCE and how % 2 else None,
            )
        except UnsupportedVersionError:
            return
        self.pending.append(self.sent)
        self.sent += 1

    def check(self) -> None:
        connection = self.connection
        self.take_effects()
        assert self.closes == (connection.state is ConnectionState.CLOSING)
        assert connection.is_ready <= (connection.api_versions is not None)
        deadline = connection.next_deadline()
        queued = self.deadlines.at(1)
        assert deadline is None or (queued is not None and queued <= deadline)
        if connection.state is not ConnectionState.NEGOTIATING:
            own = 0 if connection.state is ConnectionState.READY else 1
            assert len(self.pending) <= connection.pending_count <= len(self.pending) + own

    def lose(self) -> None:
        lost = names(self.connection.lost(None))
        assert lost == self.pending
        assert self.connection.state is ConnectionState.CLOSED
        assert self.connection.pending_count == 0
        assert self.connection.next_deadline() is None
        assert len(self.deadlines) == 0


def run(data: bytes) -> None:
    source = Source(data)
    transport = Transport()
    transport.check()
    while source:
        transport.step(source)
        transport.check()
    transport.lose()
    transport.receive(b"late")


def seeds() -> Iterator[bytes]:
    ready = bytes([MADE, WRITABLE, VERSIONS, 0])
    yield ready
    yield bytes([MADE, WRITABLE, VERSIONS, 3 + 4 * 2, WRITABLE, VERSIONS, 1])
    yield bytes([MADE, VERSIONS, 2, WRITABLE, VERSIONS, 1])
    for place, api in enumerate(APIS):
        version = CLIENT_VERSIONS[api][1]
        for body in peer.response_bodies(api, version):
            asked = bytes([SEND, place, 2, WRITABLE])
            answer = bytes([ANSWER, min(len(body), 255)]) + body[:255]
            yield ready + 2 * asked + 2 * answer + bytes([TIME, 200, CLOSE, 7])
            yield ready + asked + bytes([CLOSE, 7]) + answer
    yield ready + bytes([SEND, 0, 4, TIME, 10, WRITABLE, SEND, 0, 0, TIME, 255])
    yield ready + bytes([RAW, 20]) + bytes(20)


TARGETS = {"connection": Target(run, seeds)}
