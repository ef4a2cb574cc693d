"""The steps of the example: a service sends, the network is cut, the service and a broker are killed.

Called by `__main__`. What has returned to the service is the clock: each fault comes when the service has so many
records on disk, so a slow machine has the same faults.

1. A restarted service gets no help: it finds its queue and its journals on disk.
2. The service reaches the brokers only by way of the proxy, which is all that a cut network takes away.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from examples.lake.crew import Crew, CrewError
from examples.outage.events import BROKER, FAULTS, NETWORK, SERVICE, Event
from examples.outage.journal import Journals
from examples.outage.service import TOPIC
from tests.faults.proxy import FaultProxy
from tests.kafka_cluster import KafkaCluster

STEP_TIMEOUT: Final = 600.0
"""Seconds without a call that returns, after which a step counts as hung. No step comes near them."""

POLL_INTERVAL: Final = 0.02
PARTITIONS: Final = 6
VICTIM: Final = 2
"""The broker that is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, how fast, and which faults.

    Attributes:
        records: The records of all lives of the service together.
        rate: Records a second.
        sync: The service's policy.
        mode: `at-least-once`, `exactly-once`, or `direct`, which is at least once, too.
        faults: Those of `FAULTS` that come.
    """

    records: int
    rate: float
    sync: str = "always"
    mode: str = "at-least-once"
    faults: Collection[str] = FAULTS


@dataclass
class Story:
    """The steps, and the events so far.

    Args:
        plan: What to do.
        cluster: A cluster of three brokers, with proxies.
        crew: Starts the service.
        folder: An empty folder.
        say: Shows a line.
    """

    plan: Plan
    cluster: KafkaCluster
    crew: Crew
    folder: Path
    say: Callable[[str], None]
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journals = Journals(self.folder / "journals")
        self.journals.folder.mkdir()
        self._proxy = FaultProxy(
            {node.node_id: ("127.0.0.1", node.proxied_port) for node in self.cluster.nodes.values()},
            ports={node.node_id: node.proxy_port for node in self.cluster.nodes.values()},
        )

    async def run(self) -> None:
        """Send all records, with all faults in between, until the service has ended by itself.

        Raises:
            CrewError: if the service fails, or hangs.
        """
        async with self._proxy:
            self._start()
            self._tell("the service was started")
            if NETWORK in self.plan.faults:
                await self._cut_the_network()
            if BROKER in self.plan.faults:
                await self._kill_the_broker()
            elif SERVICE in self.plan.faults:
                await self._kill_the_service(0.72)
            await self._until("its end", lambda: not self.crew.is_running(SERVICE))
        self._tell("the service has ended: the cluster has all that it sent")

    async def _cut_the_network(self) -> None:
        is_alone = len(self.plan.faults) == 1
        await self._returned(0.12)
        self._proxy.hold()
        self._tell("the network was cut: nothing reaches a broker, and nothing comes back", NETWORK)
        if SERVICE in self.plan.faults:
            await self._kill_the_service(0.27)
        await self._returned(0.88 if is_alone else 0.45)
        self._proxy.heal()
        self._tell("the network is back", NETWORK)

    async def _kill_the_broker(self) -> None:
        await self._returned(0.6)
        await asyncio.to_thread(self.cluster.kill, VICTIM)
        self._tell(f"broker {VICTIM} of three was killed", BROKER)
        if SERVICE in self.plan.faults:
            await self._kill_the_service(0.72)
        await self._returned(0.82)
        await asyncio.to_thread(self.cluster.start, VICTIM)
        self._tell(f"broker {VICTIM} is back", BROKER)

    async def _kill_the_service(self, share: float) -> None:
        await self._returned(share)
        self.crew.kill(SERVICE)
        self._start()
        self._tell("the service was killed with SIGKILL, and started again", SERVICE)

    def _start(self) -> None:
        ports = ",".join(f"127.0.0.1:{node.proxy_port}" for node in self.cluster.nodes.values())
        self.crew.start(
            SERVICE,
            [
                *(sys.executable, "-m", "examples.outage.service", "--bootstrap-servers", ports),
                *("--directory", str(self.folder / "spool"), "--journals", str(self.journals.folder)),
                *("--records", str(self.plan.records), "--rate", str(self.plan.rate)),
                *("--sync", self.plan.sync, "--mode", self.plan.mode),
            ],
        )

    def _tell(self, text: str, fault: str = "") -> None:
        self.events.append(Event(time.time(), text, fault))
        after = self.events[-1].at - self.events[0].at
        self.say(f"{after:6.1f} s  {self.journals.calls():>9,} on disk  {text}")

    async def _returned(self, share: float) -> None:
        enough = int(share * self.plan.records)
        await self._until(f"{enough:,} records on disk", lambda: self.journals.calls() >= enough)

    async def _until(self, awaited: str, is_so: Callable[[], bool]) -> None:
        seen, since = -1, time.monotonic()
        while not is_so():
            self.crew.check(SERVICE)
            if not self.crew.is_running(SERVICE):
                raise CrewError(f"the service ended before {awaited}:\n{self.crew.tail(SERVICE)}")
            if (calls := self.journals.calls()) != seen:
                seen, since = calls, time.monotonic()
            elif time.monotonic() > since + STEP_TIMEOUT:
                raise CrewError(f"waited {STEP_TIMEOUT:.0f} s for {awaited}\n{self.crew.tail(SERVICE)}")
            await asyncio.sleep(POLL_INTERVAL)
        self.crew.check(SERVICE)


def create_topic(cluster: KafkaCluster) -> None:
    """Create the topic; the brokers note when they append a record, which the backlog is computed from."""
    cluster.create_topic(
        TOPIC,
        partitions=PARTITIONS,
        configs={"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"},
    )
