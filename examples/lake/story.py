"""The steps of the example: start everything, kill most of it, and wait until all records are in the lake.

Called by `__main__`. Each step waits for a state of Kafka or of the checkpoint, never for a time, so a slow machine
has the same steps.

1. Every fault hits a process at work: the sources are slower than the machine on purpose.
2. A restarted process gets no help: it finds only its journal, checkpoint or log on disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from aioproduce.audit.mark import DEFAULT_AUDIT_TOPIC
from examples import folders
from examples.lake import jobs, sources
from examples.lake.crew import POLL_INTERVAL, Crew, CrewError
from examples.lake.report import Event
from examples.lake.watch import Watch, is_within_a_batch
from tests.kafka_cluster import KafkaCluster
from tests.processes import command_of, connected_to, kill

STEP_TIMEOUT: Final = 600.0
"""Seconds after which a step counts as hung. No step comes near them."""

SIGN: Final = ".examples-lake"
"""A file in the example's folder. Only a folder with it may be emptied."""

PARTITIONS: Final = 4
VICTIM: Final = 2
"""The broker that is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of records, and the duration of the sending.

    Attributes:
        records: Records of each of the three sources.
        seconds: Duration of the sending, without the rest of the story.
    """

    records: int
    seconds: float

    @property
    def rate(self) -> int:
        """Records a second from each source."""
        return max(2, int(self.records / self.seconds))


@dataclass
class Story:
    """The steps with their faults, and the events so far.

    Args:
        plan: The amount of records.
        cluster: A cluster of three brokers.
        folder: An empty folder for input, logs, checkpoint and lake.
        console: The console that shows each event.
        jars: The jars of Spark's Kafka connector.
    """

    plan: Plan
    cluster: KafkaCluster
    folder: Path
    console: Console
    jars: tuple[Path, ...]
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources = ("orders", "clicks", "logs")
        self.topics = {**dict.fromkeys(self.sources, PARTITIONS), DEFAULT_AUDIT_TOPIC: 1}
        self.lake = self.folder / "lake"
        self.checkpoint = self.folder / "checkpoint"
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._bars: dict[str, TaskID] = {}

    def send_and_land(self, crew: Crew, watch: Watch) -> None:
        """Send all records and land them, with all the kills in between.

        Raises:
            CrewError: if a process ends with an unexpected code, or a step hangs.
        """
        self._begin(crew)
        with self._shown(crew, watch) as until:
            self._kill_the_service(crew, watch, until)
            self._kill_a_python_worker(crew, watch, until)
            self._kill_the_driver(crew, watch, until)
            self._kill_a_broker(watch, until)
            for source in self.sources:
                until(f"{source} to end", partial(self._has_ended, crew, source))
            self._tell(watch, "all sent", "every source has ended with all records acknowledged")
            # A sample under way may have begun before the last record.
            seen = len(watch.samples) + 2
            until("the landing to catch up", lambda: len(watch.samples) >= seen and watch.last.lag == 0)
            crew.interrupt("land")
            until("the landing to end", lambda: not crew.is_running("land"))
        self._tell(watch, "landed", "the landing has caught up, and got SIGINT")

    def _begin(self, crew: Crew) -> None:
        for topic, partitions in self.topics.items():
            self.cluster.create_topic(topic, partitions=partitions, configs={"min.insync.replicas": "2"})
        self._file = sources.write_orders(self.folder / "orders.jsonl", self.plan.records)
        self._logs = sources.write_logs(self.folder / "access-logs", self.plan.records)
        crew.start("land", self._land())
        self._start_orders(crew)
        crew.start("clicks", self._source("clicks", "--count", str(self.plan.records)))
        crew.start(
            "logs",
            self._source(
                "logs", str(self._logs), "--write-id", "logs-1", "--metrics", str(self.folder / "sink.jsonl")
            ),
        )

    def _land(self) -> list[str]:
        return jobs.land(self.cluster.bootstrap_servers, self.sources, self.lake, self.checkpoint, self.jars)

    def _start_orders(self, crew: Crew) -> None:
        journal = self.folder / "orders.journal"
        crew.start("orders", self._source("orders", str(self._file), "--journal", str(journal)))

    def _source(self, name: str, *words: str) -> list[str]:
        servers = self.cluster.bootstrap_servers
        rate = str(self.plan.rate)
        return [
            *(sys.executable, "-m", f"examples.lake.{name}", *words),
            *("--topic", name, "--bootstrap-servers", servers, "--rate", rate),
        ]

    # Faults

    def _kill_the_service(self, crew: Crew, watch: Watch, until: Until) -> None:
        until("a quarter of the orders", lambda: self._share(watch, "orders") > 0.25)
        crew.kill("orders")
        self._tell(watch, "service", "the service `orders` was killed, and started again")
        self._start_orders(crew)

    def _kill_a_python_worker(self, crew: Crew, watch: Watch, until: Until) -> None:
        until("a sixth of the logs", lambda: self._share(watch, "logs") > 1 / 6)
        ports = [node.port for node in self.cluster.nodes.values()]
        workers = [pid for pid in crew.family("logs") if b"pyspark.daemon" in command_of(pid)]
        writing = connected_to(workers, ports)
        if not writing or not kill(writing[0]):
            raise CrewError("the Spark job that reads the logs has no Python worker to kill")
        self._tell(
            watch, "worker", "a Python worker of the Spark job `logs` was killed; Spark repeats its task"
        )

    def _kill_the_driver(self, crew: Crew, watch: Watch, until: Until) -> None:
        def is_time() -> bool:
            is_over = not any(map(crew.is_running, self.sources)) and watch.last.lag == 0
            return is_within_a_batch(self.checkpoint) or is_over

        until("the landing to be within a batch", is_time)
        crew.kill("land")
        self._tell(
            watch, "driver", "the Spark driver of the landing was killed within a batch, and started again"
        )
        crew.start("land", self._land())

    def _kill_a_broker(self, watch: Watch, until: Until) -> None:
        def total() -> int:
            return sum(watch.last.produced.values())

        before = total()
        self.cluster.kill(VICTIM)
        self._tell(watch, "broker", f"broker {VICTIM} of three was killed")
        enough = min(before + self.plan.records // 5, 3 * self.plan.records)
        until("records beyond the broker's death", lambda: total() >= enough)
        self.cluster.start(VICTIM)
        self._tell(watch, "back", f"broker {VICTIM} was started again")

    # Waits and display

    def _share(self, watch: Watch, topic: str) -> float:
        return watch.last.produced[topic] / self.plan.records

    @staticmethod
    def _has_ended(crew: Crew, source: str) -> bool:
        return not crew.is_running(source)

    def _tell(self, watch: Watch, name: str, text: str) -> None:
        event = Event(watch.now, name, text)
        self.events.append(event)
        self.console.print(f"[bold]{event.at:6.1f} s[/]  {text}")

    @contextmanager
    def _shown(self, crew: Crew, watch: Watch) -> Iterator[Until]:
        """Show progress bars; yield a function that waits for a condition and updates them."""
        self._bars = {
            name: self._progress.add_task(name, total=3 * self.plan.records)
            for name in ("in Kafka", "in the lake")
        }

        def until(awaited: str, is_so: Callable[[], bool]) -> None:
            deadline = time.monotonic() + STEP_TIMEOUT
            while not is_so():
                if time.monotonic() > deadline:
                    raise CrewError(f"waited {STEP_TIMEOUT:.0f} s for {awaited}\n{crew.tail('land')}")
                for name in self.sources:
                    crew.check(name)
                crew.check("land", jobs.LAND_ENDS)
                self._move(watch)
                time.sleep(POLL_INTERVAL)
            self._move(watch)

        with self._progress:
            yield until

    def _move(self, watch: Watch) -> None:
        last = watch.last
        for name, counts in (("in Kafka", last.produced), ("in the lake", last.landed)):
            count = sum(number for topic, number in counts.items() if topic != DEFAULT_AUDIT_TOPIC)
            total = max(
                3 * self.plan.records, sum(last.produced.values()) - last.produced[DEFAULT_AUDIT_TOPIC]
            )
            self._progress.update(self._bars[name], completed=count, total=total)


Until = Callable[[str, Callable[[], bool]], None]


def room_for(folder: Path) -> Path:
    """Empty the example's folder, or make it, and return it.

    Raises:
        FolderError: if it has files that are not of this example.
    """
    return folders.room_for(folder, SIGN)
