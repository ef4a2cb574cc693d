"""Deterministic simulation: a service, its producer and a Kafka cluster in virtual time, replayed from a seed.

| module | what lives there |
|---|---|
| `simulation` | `Simulation`, what users see |
| `clock` | virtual time, and what is planned |
| `network` | connections between hosts, and what goes wrong with them |
| `cluster` | the broker model of `fake_cluster` on that network |
| `event_loop` | an asyncio loop on both |
| `trace` | what happened, and a hash that tells two runs apart |
"""

from __future__ import annotations

from aioproduce.testing.simulation.clock import VirtualClock
from aioproduce.testing.simulation.cluster import SimulatedCluster
from aioproduce.testing.simulation.event_loop import SimulationDeadlockError, SimulationLoop
from aioproduce.testing.simulation.network import Endpoint, Link, Network
from aioproduce.testing.simulation.simulation import Simulation
from aioproduce.testing.simulation.trace import Trace

__all__ = [
    "Endpoint",
    "Link",
    "Network",
    "SimulatedCluster",
    "Simulation",
    "SimulationDeadlockError",
    "SimulationLoop",
    "Trace",
    "VirtualClock",
]
