"""A channel and a mechanism that do what a test tells them, and a connection that has them.

For the tests of connections that are encrypted or log in. The bytes of the broker come from kio
(`connection_peer`); nothing here reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from aioproduce._native.stats import Windows
from aioproduce.core.cluster.authentication import Authentication
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.connection_states import ConnectionSettings, ConnectionState
from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.offloads import Offloads
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Buffer, Close, Connect, Effect, Send
from aioproduce.errors import TlsError
from aioproduce.metrics import NodeMetrics, ProducerMetrics
from aioproduce.security.mechanism import Answer, Credential, RefreshWindow, Sasl
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import BrokerAddress
from tests.askers import named
from tests.unit.connection_peer import (
    INIT_PRODUCER_ID,
    MODERN,
    api_versions_response,
    framed,
    init_producer_id_response,
    request_header,
    sasl_authenticate_response,
    sasl_handshake_response,
)

ADDRESS = BrokerAddress(node_id=7, host="broker", port=9092)
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
WITH_SASL = {**MODERN, SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
EPOCH = 1_700_000_000.0
"""The wall clock when `now` is 0."""


class ScriptedChannel:
    """Hides nothing: `{` and `}` stand around what is encrypted. `HELLO` from the peer ends the handshake.

    Attributes:
        own: What it says by itself next, in addition to what it is given.
        fails: In which call it fails: `"start"`, `"receive"`, `"send"`.
    """

    def __init__(self, *, fails: str = "") -> None:
        self.own = b""
        self.fails = fails
        self.is_established = False
        self.is_ended = False

    def start(self) -> None:
        self._check("start")
        self.own = b"HELLO"

    def receive(self, data: Buffer) -> bytes:
        self._check("receive")
        data = bytes(data)
        if data.startswith(b"HELLO"):
            self.is_established = True
            self.own += b"DONE"
            data = data.removeprefix(b"HELLO")
        if data.endswith(b"BYE"):
            self.is_ended = True
            data = data.removesuffix(b"BYE")
        return data

    def send(self, buffers: Sequence[Buffer]) -> None:
        assert self.is_established, "plaintext before the handshake is done"
        self._check("send")
        self.own += b"{" + b"".join(buffers) + b"}"

    def outgoing(self) -> bytes:
        own, self.own = self.own, b""
        return own

    def describe(self) -> str:
        return "scripted"

    def _check(self, call: str) -> None:
        if self.fails == call:
            self.own += b"ALERT"
            raise TlsError(f"scripted failure of {call}", reason=call, setting="ssl.truststore.location")


class ScriptedMechanism:
    """Says what the script has: the first for `start()`, the others for each `step()`; an exception is raised."""

    def __init__(self, script: list[Any]) -> None:
        self._script = deque(script)
        self.challenges: list[bytes] = []

    def start(self) -> Answer:
        return self._next()

    def step(self, challenge: bytes) -> Answer:
        self.challenges.append(bytes(challenge))
        return self._next()

    def _next(self) -> Answer:
        answer = self._script.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]


class Source:
    """Where credentials come from: a static one is there at once, another by the end of an offload."""

    def __init__(self, *, is_static: bool) -> None:
        self.is_static = is_static
        self.is_async = False
        self.fetches = 0

    def fetch(self) -> Credential:
        self.fetches += 1
        return Credential(value="secret")


class QuietLog:
    """Keeps what would be logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, cause: object, now: float, message: str, *args: object) -> None:
        self.lines.append(message % args)


def make_login(
    source: Source,
    offloads: Offloads,
    wall: Callable[[], float],
    *,
    refresh: RefreshWindow | None = None,
    log: Any = None,
) -> Login:
    """A login whose chance is always the middle."""
    sasl = Sasl(
        mechanism="PLAIN",
        converse=cast(Any, None),  # nobody converses here
        source=source,
        refresh=refresh or RefreshWindow(),
    )
    return Login(sasl, offloads, wall, lambda: 0.5, cast(Any, log or QuietLog()))


class SecuredPeer:
    """A connection under test, with a channel, a login or both, and what surrounds it.

    Args:
        channel: Its channel; `None`: plaintext.
        script: What its mechanism says; `None`: no login.
        is_static: Whether its credential is there at once.
        chance: What `random` gives.
    """

    def __init__(
        self,
        *,
        channel: ScriptedChannel | None = None,
        script: list[Any] | None = None,
        is_static: bool = True,
        chance: float = 0.5,
        request_timeout: float = 30.0,
    ) -> None:
        self.now = 0.0
        self.effects: deque[Effect] = deque()
        self.deadlines: Deadlines = Deadlines()
        self.metrics = ProducerMetrics(Windows())
        self.offloads = Offloads()
        self.source = Source(is_static=is_static)
        self.script = script
        self.mechanisms: list[ScriptedMechanism] = []
        self.channel = channel
        self.connection = BrokerConnection(
            1,
            ADDRESS,
            ConnectionSettings(
                client_id="tests",
                max_in_flight=5,
                request_timeout=request_timeout,
                connections_max_idle=540.0,
            ),
            self.effects,
            self.deadlines,
            NodeMetrics(Windows()),
            None if channel is None else self._open,
        )
        if script is not None:
            sasl = Sasl(mechanism="PLAIN", converse=self._converse, source=self.source)
            self.login = Login(sasl, self.offloads, lambda: EPOCH + self.now, lambda: chance, QuietLog())  # type: ignore[arg-type]
            self.connection.authentication = Authentication(
                self.connection, sasl, "tests", self.login, self.offloads, lambda: chance, self.metrics
            )

    def _open(self, host: str) -> ScriptedChannel:
        assert self.channel is not None
        assert host == "broker"
        if self.channel.fails == "open":
            raise TlsError("no such file", reason="open", setting="ssl.truststore.location")
        return self.channel

    def _converse(self, host: str, credential: Credential) -> ScriptedMechanism:
        assert (host, credential.value) == ("broker", "secret")
        assert self.script is not None
        self.mechanisms.append(ScriptedMechanism(self.script))
        return self.mechanisms[-1]

    @property
    def authentication(self) -> Authentication:
        assert self.connection.authentication is not None
        return self.connection.authentication

    @property
    def state(self) -> ConnectionState:
        return self.connection.state

    # what it says

    def drain(self) -> list[Effect]:
        effects: list[Effect] = [effect for effect in self.effects if not isinstance(effect, Connect)]
        self.effects.clear()
        return effects

    def said(self) -> list[bytes]:
        """The bytes of its Sends; `b"CLOSE"` for a Close."""
        return [
            b"".join(effect.buffers) if isinstance(effect, Send) else b"CLOSE"
            for effect in self.drain()
            if isinstance(effect, Send | Close)
        ]

    def asked(self) -> list[tuple[int, int]]:
        """Its requests, each with its correlation id, which are written at once."""
        asked = []
        while self.effects:
            for effect in self.drain():
                assert isinstance(effect, Send), effect
                frame = b"".join(effect.buffers).removeprefix(b"DONE").strip(b"{}")
                header = request_header([frame])
                asked.append((header.api, header.correlation_id))
            self.written()
        return asked

    # what happens

    def written(self) -> None:
        self.connection.writable(self.now)

    def take_turn(self) -> None:
        if self.connection.set_up is not None:
            self.connection.set_up.take_turn(self.now)

    def receive(self, data: bytes) -> list[Any]:
        """Bytes come, and its turn if it waits for one."""
        completed = self.connection.receive_data(data, self.now)
        self.take_turn()
        return [done.request.asker for done in completed]

    def connected(self) -> SecuredPeer:
        self.connection.connect(self.now, 10.0)
        self.take_turn()
        self.connection.connection_made(self.now)
        self.take_turn()
        return self

    def negotiated(self, offered: dict[int, tuple[int, int]] | None = None) -> SecuredPeer:
        """Its versions are known; its handshake is done where it has one."""
        self.connected()
        if self.channel is not None:
            assert self.said() == [b"HELLO"]
            self.written()
            self.receive(b"HELLO")
        assert self.asked() == [(18, 0)]
        self.receive(api_versions_response(0, offered=WITH_SASL if offered is None else offered))
        return self

    def ready(self, lifetime: float = 0.0) -> SecuredPeer:
        """It has logged in with two messages of ours."""
        self.negotiated()
        if self.script is not None:
            self.log_in(1, lifetime)
        assert self.state is ConnectionState.READY
        return self

    def log_in(self, first: int, lifetime: float = 0.0) -> None:
        """The conversation, from SaslHandshake with this correlation id on."""
        assert self.asked() == [(SASL_HANDSHAKE, first)]
        self.receive(sasl_handshake_response(first))
        number = first
        while (asked := self.asked()) == [(SASL_AUTHENTICATE, number + 1)]:
            number += 1
            self.receive(sasl_authenticate_response(number, b"go on", lifetime=lifetime))
        assert asked == []

    def send(self, name: str, *, expects_response: bool = True, is_written: bool = True) -> None:
        self.connection.send(
            ApiKey.INIT_PRODUCER_ID, encode, named(name), self.now, expects_response=expects_response
        )
        if is_written:
            self.written()

    def answer(self, correlation_id: int) -> list[Any]:
        return self.receive(init_producer_id_response(correlation_id))

    def tick(self, now: float) -> None:
        self.now = now
        if self.deadlines.pop_due(now):
            self.connection.handle_timer(now)

    def computed(self, outcome: object) -> None:
        """The one piece of work that is under way ends so."""
        effect = self.offloads.effects.popleft()
        self.offloads.ended(effect.ticket, outcome, self.now)


def encode(version: int, correlation_id: int) -> list[Buffer]:
    """A request of which only the header matters."""
    header = INIT_PRODUCER_ID.to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + b"\xff\xff"
    return [framed(header)]
