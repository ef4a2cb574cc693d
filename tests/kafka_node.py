"""One node of the Kafka that tests start: its ports, its folders, its settings, and its process.

Used by ``KafkaCluster`` alone, which starts, asks and ends it.
"""

from __future__ import annotations

import contextlib
import random
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

# Below Linux's default 32768 and every other system's: see invariant 2. Above what services are assigned.
PORTS = range(20000, 32768)


@dataclass(slots=True)
class Node:
    """One process that is broker and controller, and what outlives it.

    Attributes:
        spare_data: A second log directory, whose loss the broker survives; the metadata is in the first.
        proxied_port: Where it listens for a proxy's connections.
        proxy_port: Where it tells the clients that come through the proxy to connect to.
        listeners: Further listeners by name, with the protocol and the port of each.
    """

    node_id: int
    port: int
    controller_port: int
    config: Path
    data: Path
    log: Path
    spare_data: Path | None = None
    proxied_port: int = 0
    proxy_port: int = 0
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    is_stalled: bool = False

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether its process exists, stalled or not."""
        return self.process is not None and self.process.poll() is None

    def log_tail(self, size: int = 6000) -> str:
        """The end of what it logged, over all its lives."""
        return self.log.read_bytes()[-size:].decode(errors="replace") if self.log.exists() else ""

    def settings(self, voters: str, replication: int) -> dict[str, str]:
        """What its properties file says, but for what a test wants otherwise."""
        factor = str(replication)
        proxied = f",PROXIED://127.0.0.1:{self.proxied_port}" if self.proxied_port else ""
        advertised = f",PROXIED://127.0.0.1:{self.proxy_port}" if self.proxy_port else ""
        further = "".join(f",{name}://127.0.0.1:{port}" for name, (_, port) in self.listeners.items())
        # By its name, which is in certificates and in the principals of Kerberos.
        named = "".join(f",{name}://localhost:{port}" for name, (_, port) in self.listeners.items())
        protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in self.listeners.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "listeners": f"CLIENTS://{self.address},CONTROLLER://127.0.0.1:{self.controller_port}{proxied}{further}",
            "advertised.listeners": f"CLIENTS://{self.address}{advertised}{named}",
            "listener.security.protocol.map": (
                f"CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT{protocols}"
            ),
            "inter.broker.listener.name": "CLIENTS",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data) if self.spare_data is None else f"{self.data},{self.spare_data}",
            "metadata.log.dir": str(self.data),
            "num.partitions": "1",
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            # Kafka looks every 10 s which transactions are over their time.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed node is noticed after this instead of 9 s; shorter fences busy nodes on two cores.
            "broker.session.timeout.ms": "6000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.enable": "false",
            # Tests write records with timestamps of long ago: looked at every five minutes, they would be deleted.
            "log.retention.ms": "-1",
        }


def free_ports(count: int) -> list[int]:
    """Pick ports that nobody listens on, all different; they are bound together so that none comes twice."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(PORTS, len(PORTS)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")
