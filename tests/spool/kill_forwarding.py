"""`python -m tests.spool.kill_forwarding`: a service with a queue is killed again and again, its brokers bounced.

The service of `examples/outage` forwards its queue to three real brokers, which are stopped or killed one after the
other, and started again. It is killed with SIGKILL at random points, counted in records on disk, and started again.
librdkafka reads the log at the end, and the audit of `examples/outage` compares it with the service's journals. The
exit code is 0 only if nothing is wrong.

1. At least once: nothing is lost, and each copy has the id of its original. Exactly once: there is no copy.
2. The points of the kills, the brokers and the lives' settings come from the seed; what a kill hits does not.
3. Each life has its own policy and its own kind of call, so kills hit groups of one record and of hundreds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from examples.lake.crew import Crew, CrewError
from examples.outage.__main__ import numbers_of
from examples.outage.audit import audit, read_log
from examples.outage.journal import Journals
from examples.outage.service import MODES, TOPIC
from examples.outage.story import create_topic
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install
from tests.kafka_tools import KafkaTools

ROOT: Final = Path(__file__).parents[2]
SERVICE: Final = "service"
POLL_INTERVAL: Final = 0.005
STEP_TIMEOUT: Final = 300.0
SEGMENT_BYTES: Final = 256 * 1024
"""Small, so that kills hit segments that end and go."""

KINDS: Final = (1, 20, 500)
POLICIES: Final = ("always", "interval", "os")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        records: Records of all lives.
        kills: How often the service is killed.
        rate: Records a second while it lives.
        seed: Of all random choices.
        mode: What the service promises, and how.
        transaction_version: The feature level of the cluster; None for Kafka's own choice.
    """

    records: int
    kills: int
    rate: float = 20_000.0
    seed: int = 1
    mode: str = "at-least-once"
    transaction_version: int | None = None

    @property
    def is_exactly_once(self) -> bool:
        """Whether nothing may come twice."""
        return self.mode == "exactly-once"

    @property
    def points(self) -> list[int]:
        """After how many records on disk each kill comes."""
        return sorted(random.Random(f"points {self.seed}").sample(range(1, self.records), self.kills))


class Bouncer(threading.Thread):
    """Bounces one broker after the other, each when all are in sync again, until it is closed.

    Attributes:
        bounces: How often it has.
    """

    def __init__(self, cluster: KafkaCluster, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(name="bouncer", daemon=True)
        self.bounces = 0
        self._cluster = cluster
        self._random = random.Random(f"bounces {seed}")
        self._say = say
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(self._random.uniform(0.5, 3.0)):
                node, is_hard = self._random.choice(list(self._cluster.nodes)), self._random.random() < 0.5
                self._cluster.bounce(node, hard=is_hard)
                self._cluster.wait_until_in_sync(TOPIC)
                self.bounces += 1
                self._say(f"broker {node} was {'killed' if is_hard else 'stopped'}, and is back")
        except BaseException as error:
            self._error = error

    def close(self) -> None:
        """Stop after the bounce that goes on.

        Raises:
            BaseException: what ended it before.
        """
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error


@dataclass
class Run:
    """One run: the lives of the service, one after the other."""

    plan: Plan
    cluster: KafkaCluster
    crew: Crew
    folder: Path
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.journals = Journals(self.folder / "journals")
        self.journals.folder.mkdir()
        self._random = random.Random(f"lives {self.plan.seed}")
        self._chunk = 1
        self._settled = 0
        self._ended_lives = 0

    def live_and_die(self) -> None:
        """Kill the service at each point, and let its last life send the rest and end by itself."""
        self._start()
        for number, point in enumerate(self.plan.points, 1):
            self._until(f"{point:,} records on disk", lambda: self._on_disk() >= point)  # noqa: B023
            self.crew.kill(SERVICE)
            self._settled = self.journals.records()
            self.say(f"kill {number} of {self.plan.kills}, {self._settled:,} records on disk")
            self._start()
        self._until("the last life's end", lambda: not self.crew.is_running(SERVICE))

    def _on_disk(self) -> int:
        life = len(self.journals.lives())
        if life <= self._ended_lives:
            return self._settled  # the new one has no journal yet
        return self._settled + self.journals.calls_of(life) * self._chunk

    def _start(self) -> None:
        self._ended_lives = len(self.journals.lives())
        self._chunk = self._random.choice(KINDS)
        self.crew.start(
            SERVICE,
            [
                *(sys.executable, "-m", "examples.outage.service"),
                *(
                    "--bootstrap-servers",
                    self.cluster.bootstrap_servers,
                    "--directory",
                    str(self.folder / "spool"),
                ),
                *("--journals", str(self.journals.folder), "--records", str(self.plan.records)),
                *("--rate", str(self.plan.rate), "--chunk", str(self._chunk), "--mode", self.plan.mode),
                *("--sync", self._random.choice(POLICIES), "--segment-bytes", str(SEGMENT_BYTES)),
            ],
        )

    def _until(self, awaited: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT
        while not is_so():
            self.crew.check(SERVICE)
            if not self.crew.is_running(SERVICE):
                # All is sent, and forwarded: the points behind are met by a process that has nothing to do.
                return
            if time.monotonic() > deadline:
                raise CrewError(f"waited {STEP_TIMEOUT:.0f} s for {awaited}\n{self.crew.tail(SERVICE)}")
            time.sleep(POLL_INTERVAL)
        self.crew.check(SERVICE)


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it all; return the figures.

    Args:
        plan: What to do.
        folder: An empty folder.
        say: Shows a line.
    """
    tools = KafkaTools(find_or_install())
    version = plan.transaction_version
    features = {} if version is None else {"transaction.version": str(version)}
    began_at = time.monotonic()
    with ExitStack() as stack:
        crew = Crew(folder, ROOT, {**os.environ, "PYTHONPATH": str(ROOT)})
        stack.callback(crew.close)
        cluster = stack.enter_context(KafkaCluster(tools, folder / "kafka", brokers=3, features=features))
        create_topic(cluster)
        whole = Run(plan, cluster, crew, folder, say)
        bouncer = Bouncer(cluster, plan.seed, say)
        bouncer.start()
        try:
            whole.live_and_die()
        finally:
            bouncer.close()
        say("reading the log back")
        lives = whole.journals.lives()
        level = "read_committed" if plan.is_exactly_once else "read_uncommitted"
        log = read_log(cluster.bootstrap_servers, TOPIC, isolation_level=level)
        findings = audit({life: numbers_of(whole.journals, life) for life in lives}, log)
    wrong = findings.wrong(is_exactly_once=plan.is_exactly_once)
    if findings.returned != plan.records:
        wrong["unsent"] = plan.records - findings.returned
    return {
        **findings.as_json(),
        "seed": plan.seed,
        "kills": plan.kills,
        "lives": len(lives),
        "bounces": bouncer.bounces,
        "seconds": round(time.monotonic() - began_at, 1),
        "mode": plan.mode,
        "transaction_version": plan.transaction_version,
        "wrong": wrong,
    }


def _count(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.spool.kill_forwarding", description=__doc__)
    parser.add_argument("--records", type=_count, default=1_000_000, help="of all lives (1,000,000)")
    parser.add_argument("--kills", type=int, default=100, help="of the service (100)")
    parser.add_argument("--rate", type=float, default=20_000, help="records a second (20,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="what the service promises, and how")
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), help="of the cluster's feature")
    parser.add_argument("--json", action="store_true", help="print one JSON object to standard output")
    parser.add_argument("--keep", type=Path, help="keep logs, journals and the queue in this new folder")
    given = parser.parse_args(arguments)
    console = Console(stderr=True)
    plan = Plan(*(given.records, given.kills, given.rate, given.seed, given.mode, given.transaction_version))
    with tempfile.TemporaryDirectory(prefix="aioproduce-kills-") as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        told = run(plan, folder, lambda line: console.print(line, highlight=False))
    console.print({name: value for name, value in told.items() if name != "examples"})
    for example in told["examples"]:
        console.print(f"  {example}", markup=False)
    if given.json:
        print(json.dumps(told))
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
