"""A SenderHarness whose brokers offer client telemetry (KIP-714), and payloads that say how many came before.

Questions and pushes are the test's to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioproduce.core.exchanges.telemetry import Payload, TelemetryState
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import GET_TELEMETRY_SUBSCRIPTIONS as GET
from tests.unit.sender_wire import PUSH_TELEMETRY as PUSH

if TYPE_CHECKING:
    from aioproduce.core.exchanges.telemetry import Subscription
    from tests.unit.sender_wire import Request

CLIENT = UUID("b69cc35a-7a54-4790-aa69-cc2bd4ee4538")
INTERVAL = 20.0
DEFAULT_INTERVAL = 300.0  # ClientTelemetryReporter.DEFAULT_PUSH_INTERVAL_MS
ZSTD, LZ4 = 4, 3
LASTING: dict[str, Any] = {
    "connections_max_idle_ms": -1,
    "metadata_max_idle_ms": 10**9,
    "metadata_max_age_ms": 10**9,
}


class Source:
    """Payloads that say how many came before."""

    def __init__(self, problem: str | None = None, size: int = 0) -> None:
        self.problem = problem
        self.size = size
        self.error: Exception | None = None
        self.made: list[Subscription] = []
        self.delivered = 0
        self.resets = 0

    def unavailable(self) -> str | None:
        return self.problem

    def make(self, subscription: Subscription) -> Payload:
        if self.error is not None:
            raise self.error
        self.made.append(subscription)
        codec = subscription.compression_types[0] if subscription.compression_types else 0
        return Payload(codec, (b"metrics %d" % len(self.made)).ljust(self.size))

    def pushed(self) -> None:
        self.delivered += 1

    def reset(self) -> None:
        self.resets += 1


class Telemetry:
    """A harness whose brokers offer telemetry."""

    def __init__(self, source: Source | None = None, **settings: Any) -> None:
        self.source = Source() if source is None else source
        self.h = SenderHarness(telemetry=self.source, **LASTING, **settings)

    @property
    def state(self) -> TelemetryState:
        assert self.h.sender.telemetry is not None
        return self.h.sender.telemetry.state

    def question(self) -> Request:
        (request,) = self.h.waiting(GET)
        return request

    def push(self) -> Request:
        (request,) = self.h.waiting(PUSH)
        return request

    def answer_question(self, code: int = 0, **fields: Any) -> None:
        self.h.reply(
            self.question(),
            {
                "error_code": code,
                "client_instance_id": CLIENT,
                "subscription_id": 7,
                "accepted_compression_types": (ZSTD, LZ4),
                "push_interval": INTERVAL,
                "telemetry_max_bytes": 1000,
                "delta_temporality": True,
                "requested_metrics": ("org.apache.kafka.",),
                **fields,
            },
        )

    def answer_push(self, code: int = 0) -> None:
        self.h.reply(self.push(), {"error_code": code})

    def subscribed(self) -> Telemetry:
        self.answer_question()
        return self

    def pushing(self) -> Telemetry:
        self.subscribed().h.advance(INTERVAL)
        assert self.push()
        return self

    def on_one_connection(self) -> Telemetry:
        """Let the connection to the bootstrap server go, and be asked for on the broker's own."""
        self.answer_question(requested_metrics=())
        self.h.send_acknowledged()
        connections = self.h.sender.connections
        for connection in connections.ready():
            if connection.node_id < 0:
                connections.close(connection.connection_id, "a test", self.h.now)
        self.h.run()
        assert len(connections.ready()) == 1
        self.h.advance(INTERVAL)
        return self

    def asks_after(self, seconds: float) -> bool:
        """Whether the next question comes after so many seconds, and not before."""
        asked = self.h.count(GET)
        if seconds:
            self.h.advance(seconds - 0.001)
            assert self.h.count(GET) == asked
            self.h.advance(0.001)
            asked += 1
        return self.h.count(GET) == asked and len(self.h.waiting(GET)) == 1

    def is_silent(self) -> bool:
        """Whether nothing more is asked or pushed in a day, and records go on."""
        before = self.h.count(GET), self.h.count(PUSH)
        self.h.advance(86_400)
        self.h.send_acknowledged()
        return (self.h.count(GET), self.h.count(PUSH)) == before


def unsubscribed() -> dict[str, Any]:
    return {
        "client_instance_id": CLIENT,
        "subscription_id": 0,
        "accepted_compression_types": (),
        "push_interval": INTERVAL,
        "telemetry_max_bytes": 0,
        "delta_temporality": False,
        "requested_metrics": (),
    }
