"""Cases and outcomes: the values that the runner, the worker process and the report share.

Built by the plans (`plans.py`), sent as JSON to a worker process (`worker.py`), which sends an `Outcome` back.

1. A `Case` has everything that a client's process needs; the environment passes nothing.
2. An `Outcome` counts acknowledged records only. `total` includes the warm-up: the broker must have that number.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self, final

TOPIC = "bench"
PARTITIONS = 6


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """A producer's settings, the same for every client as far as it has them; bytes and milliseconds."""

    value_size: int = 100
    batch_size: int = 65536
    linger_ms: int = 5
    acks: str = "all"
    compression: str = "none"
    buffer_memory: int = 32 * 2**20
    ca: str = ""
    """The file with the CA's certificate; empty: no TLS."""

    @property
    def is_idempotent(self) -> bool:
        """Whether the producer is idempotent: with acks=all, as Kafka requires."""
        return self.acks == "all"


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One measurement of one client.

    Attributes:
        measure: Its name in `worker.MEASURES`.
        client: Its name in `clients.CLIENTS`.
        mode: One of the client's modes.
        loop: "uvloop" or "asyncio"; empty for a client without an event loop.
        records: The number of records in the measured part.
        warmup: The number of records before it.
        options: More parameters of the measure, numbers only.
        topic: The topic of the records.
        label: The mode's name in the tables, if it is another one.
    """

    measure: str
    client: str
    mode: str = ""
    loop: str = ""
    records: int = 0
    warmup: int = 1000
    settings: Settings = field(default_factory=Settings)
    options: dict[str, float] = field(default_factory=dict)
    topic: str = TOPIC
    label: str = ""

    @property
    def name(self) -> str:
        """Its name in the tables."""
        way = self.label or self.mode
        loop = f" ({self.loop})" if self.loop else ""
        return f"{self.client}{loop}, {way}" if way else f"{self.client}{loop}"

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Undo `to_json`."""
        fields = json.loads(line)
        return cls(**{**fields, "settings": Settings(**fields["settings"])})


@final
@dataclass(slots=True)
class Outcome:
    """The result of a worker.

    Attributes:
        records: Acknowledged within the measured part.
        total: Acknowledged in the worker's life, warm-up included.
        seconds: Wall time of the measured part.
        cpu_seconds: User and system time of the client's process(es), all threads, in the measured part.
        rss_start: Resident bytes after the client was connected and one record was acknowledged.
        rss_peak: The largest number of resident bytes until the end of the measured part.
        figures: More figures of the measure.
    """

    records: int = 0
    total: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_start: int = 0
    rss_peak: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Undo `to_json`."""
        return cls(**json.loads(line))

    def rates(self, value_size: int) -> dict[str, Any]:
        """Return the figures of the tables."""
        rates: dict[str, float] = dict(self.figures)
        if self.records and self.seconds:
            rates["records_per_second"] = self.records / self.seconds
            rates["megabytes_per_second"] = self.records * value_size / self.seconds / 1e6
            rates["cpu_seconds_per_million"] = self.cpu_seconds / self.records * 1e6
            rates["cpu_percent"] = self.cpu_seconds / self.seconds * 100
            rates["seconds"] = self.seconds
            rates["records"] = self.records
        if self.rss_peak:
            rates["rss_peak_mib"] = self.rss_peak / 2**20
            rates["rss_over_start_mib"] = (self.rss_peak - self.rss_start) / 2**20
        return rates
