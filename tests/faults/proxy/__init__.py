"""A TCP proxy that understands Kafka's framing and does to it what networks, middle boxes and broken brokers do.

For tests: in front of `FakeCluster`, of real Kafka or of librdkafka's mock, which only have to advertise the
proxy's ports. `FaultProxy` says how it is used; `WireFault` is one scripted fault, `Direction` one way of a link.
"""

from __future__ import annotations

from tests.faults.proxy.faults import Act, Direction, Shape, WireFault
from tests.faults.proxy.server import Arrival, FaultProxy

__all__ = ["Act", "Arrival", "Direction", "FaultProxy", "Shape", "WireFault"]
