"""A source of metrics whose numbers the test records itself, and whose time is the test's."""

from __future__ import annotations

from aioproduce._native.stats import Windows
from aioproduce.config import ProducerConfig
from aioproduce.metrics import GAUGES, MetricsSnapshot, ProducerMetrics, snapshot
from aioproduce.producer.transaction_status import TransactionStatus
from aioproduce.records import SilentBroker


class ScriptedSource:
    """Looks like a producer to a feed.

    Attributes:
        sensors: To record into.
        now: What the sensors take for the time.
        gauges: Their values by name; 0 where there is none.
        status: Of its transactions; `None` for a producer that has none.
        silent: The brokers that stopped answering.
    """

    def __init__(self, client_id: str = "scripted") -> None:
        self.config = ProducerConfig.from_keywords(
            bootstrap_servers="localhost:9092", client_id=client_id, linger_ms=5, delivery_timeout_ms=90_000
        )
        self.sensors = ProducerMetrics(Windows(2, 30.0))
        self.gauges: dict[str, float] = {}
        self.now = 0.0
        self.status: TransactionStatus | None = None
        self.silent: list[SilentBroker] = []
        for name in GAUGES:
            self.sensors.gauges[name] = lambda _, name=name: self.gauges.get(name, 0.0)  # type: ignore[misc]

    def transaction_status(self) -> TransactionStatus | None:
        return self.status

    def silent_brokers(self) -> list[SilentBroker]:
        return self.silent

    def metrics(self) -> MetricsSnapshot:
        return snapshot(
            self.sensors, self.config.client_id, {"version": "1"}, self.now, round(self.now * 1e3)
        )
