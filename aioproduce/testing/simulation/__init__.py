"""Deterministic simulation: a service, its producer and a Kafka cluster in virtual time, replayed from a seed.

| module | contents |
|---|---|
| `simulation` | `Simulation`, the class that users see |
| `clock` | virtual time, and planned events |
| `network` | connections between hosts, and their faults |
| `endpoint` | one connection: its two sides, and the bytes in transit |
| `cluster` | the broker model of `fake_cluster` on that network |
| `stand_in_tls` | its substitute for TLS |
| `schedule` | faults: every kind, and schedules of them |
| `event_loop` | an asyncio loop on both |
| `trace` | the log of a run, and a hash to compare runs |
"""

from __future__ import annotations

from aioproduce.testing.simulation.clock import SimulationLivelockError, VirtualClock
from aioproduce.testing.simulation.cluster import SimulatedCluster
from aioproduce.testing.simulation.endpoint import Endpoint, Link
from aioproduce.testing.simulation.event_loop import SimulationDeadlockError, SimulationLoop
from aioproduce.testing.simulation.network import Network
from aioproduce.testing.simulation.schedule import (
    KINDS,
    SECURITY_KINDS,
    TRANSACTION_KINDS,
    ScheduledFault,
    random_faults,
)
from aioproduce.testing.simulation.simulation import Simulation
from aioproduce.testing.simulation.trace import Trace

__all__ = [
    "KINDS",
    "SECURITY_KINDS",
    "TRANSACTION_KINDS",
    "Endpoint",
    "Link",
    "Network",
    "ScheduledFault",
    "SimulatedCluster",
    "Simulation",
    "SimulationDeadlockError",
    "SimulationLivelockError",
    "SimulationLoop",
    "Trace",
    "VirtualClock",
    "random_faults",
]
