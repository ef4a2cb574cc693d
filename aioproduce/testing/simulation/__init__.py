"""Deterministic simulation: a service, its producer and a Kafka cluster in virtual time, replayed from a seed.

| module | what lives there |
|---|---|
| `simulation` | `Simulation`, what users see |
| `clock` | virtual time, and what is planned |
| `network` | connections between hosts, and what goes wrong with them |
| `endpoint` | one connection: its two sides, and the way between them |
| `cluster` | the broker model of `fake_cluster` on that network |
| `stand_in_tls` | what it has instead of TLS |
| `schedule` | faults: every kind, and schedules of them |
| `event_loop` | an asyncio loop on both |
| `trace` | what happened, and a hash that tells two runs apart |
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
