"""A soak run: one producer process for a long time at a fixed rate, brokers bounced under it, itself measured.

Called by ``python -m tests.chaos --soak``.

1. Brokers are bounced cleanly and hard in turn, at a fixed interval, one at a time.
2. The topic keeps its last hundreds of megabytes only: at 50,000 records a second half an hour is 30 GB otherwise.
3. Nothing lost, nothing twice, by count: the end offsets of all partitions add up to what was acknowledged (and to
   no more than that with what failed ambiguously).
4. Whether memory is flat is said by the slope of a line through the last two thirds of the samples; tasks, sockets
   and handles have grown if there are always more of them in the last third than ever in the first.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.chaos.run import PARTITIONS
from tests.chaos.schedule import BOUNCES, carry_out, endless
from tests.chaos.senders import DELIVERY_TIMEOUT_MS, REPOSITORY, under_this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.kafka_cluster import KafkaCluster

TOPIC_CONFIGS = {
    "min.insync.replicas": "2",
    "retention.bytes": str(64 << 20),
    "segment.bytes": str(16 << 20),
    "file.delete.delay.ms": "1000",
}
BROKER_PROPERTIES = {"log.retention.check.interval.ms": "10000"}

# Growth over the last two thirds of a run, in parts of its memory, up to which it counts as flat; a run shorter
# than this many minutes says nothing about that, nor about tasks, sockets and handles.
FLAT = 0.05
FLAT_MINUTES = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """What to do.

    Attributes:
        minutes: For how long.
        rate: Records a second.
        bounce_every: Seconds from one bounce to the next.
        sample_every: Seconds between samples.
        seed: Of the bounces.
    """

    minutes: float
    rate: int
    bounce_every: float
    sample_every: float
    seed: int


@dataclass(slots=True)
class SoakReport:
    """What came of it; samples as ``soak_producer`` prints them, the last one after the producer was closed."""

    samples: list[dict[str, Any]] = field(default_factory=list)
    bounces: dict[str, int] = field(default_factory=dict)
    in_log: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def running(self) -> list[dict[str, Any]]:
        """The samples of the producer at work."""
        return [sample for sample in self.samples if not sample["is_last"]]

    @property
    def slope(self) -> float:
        """KiB of resident memory a minute, over the last two thirds."""
        late = self._late()
        return slope([sample["at"] / 60 for sample in late], [sample["rss_kib"] for sample in late])

    @property
    def growth(self) -> float:
        """What that slope comes to over the last two thirds, in parts of the memory at their beginning."""
        late = self._late()
        if len(late) < 2:
            return 0.0
        minutes: float = (late[-1]["at"] - late[0]["at"]) / 60
        before: float = late[0]["rss_kib"]
        return self.slope * minutes / before

    def _late(self) -> list[dict[str, Any]]:
        running = self.running
        return running[len(running) // 3 :]

    def wrong(self) -> list[str]:
        """What must not be, in words."""
        if not self.samples or not self.samples[-1]["is_last"]:
            return [*self.complaints, "the producer's process did not come to its end"]
        last, first = self.samples[-1], self.samples[0]
        failed = sum(last["failed"].values())
        found = list(self.complaints)
        if last["acked"] + failed != last["sent"]:
            found.append(f"{last['sent'] - last['acked'] - failed} records without an outcome")
        if not last["acked"] <= self.in_log <= last["acked"] + failed:
            found.append(f"{self.in_log} records in the log, {last['acked']} acknowledged, {failed} failed")
        if failed:
            found.append(f"failed: {last['failed']}")
        if (last["outstanding"], last["tasks"]) != (0, 1):
            found.append(f"after close {last['outstanding']} bytes and {last['tasks']} tasks are left")
        found += [
            f"after close {last[kind]} {kind} are open, {first[kind]} at the start"
            for kind in ("sockets", "handles")
            if last[kind] > first[kind]
        ]
        found += last["unhandled"]
        if last["at"] >= FLAT_MINUTES * 60:
            if self.growth > FLAT:
                found.append(f"memory grew by {self.growth:.1%} over the last two thirds")
            found += self._grown()
        return found

    def _grown(self) -> list[str]:
        """What there is more of in the last third of the run, at its least, than there ever was in the first."""
        running = self.running
        third = max(len(running) // 3, 1)
        return [
            f"{kind} grew from {most} at most to {least} at least"
            for kind in ("tasks", "sockets", "handles")
            if (least := min(sample[kind] for sample in running[-third:]))
            > (most := max(sample[kind] for sample in running[:third]))
        ]

    def as_json(self) -> dict[str, Any]:
        """Every figure and sample."""
        last = self.samples[-1] if self.samples else {}
        return {
            "sent": last.get("sent"),
            "acked": last.get("acked"),
            "failed": last.get("failed"),
            "in_log": self.in_log,
            "bounces": self.bounces,
            "rss_slope_kib_per_minute": round(self.slope, 2),
            "rss_growth": round(self.growth, 4),
            "wrong": self.wrong(),
            "samples": self.samples,
        }


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of the line with the least squares through these points; 0 where there are too few."""
    if len(xs) < 2:
        return 0.0
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle_x) ** 2 for x in xs)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / spread


def soak(
    cluster: KafkaCluster,
    topic: str,
    plan: SoakPlan,
    *,
    say: Callable[[str], None],
    on_sample: Callable[[dict[str, Any]], None],
) -> SoakReport:
    """Run it.

    Args:
        cluster: Three nodes with ``BROKER_PROPERTIES``.
        topic: To be created.
        plan: What to do.
        say: Told of each bounce.
        on_sample: Told of each sample, from another thread.
    """
    cluster.create_topic(topic, partitions=PARTITIONS, configs=TOPIC_CONFIGS)
    report = SoakReport()
    seconds = plan.minutes * 60
    command = [
        *(sys.executable, "-m", "tests.chaos.soak_producer", "--topic", topic),
        *("--bootstrap-server", cluster.bootstrap_servers, "--rate", str(plan.rate)),
        *("--seconds", str(seconds), "--sample-every", str(plan.sample_every)),
    ]
    process = subprocess.Popen(
        under_this_process(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=REPOSITORY
    )

    def collect() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            sample = json.loads(line)
            report.samples.append(sample)
            on_sample(sample)

    collector = threading.Thread(target=collect, name="collects samples", daemon=True)
    collector.start()
    try:
        _bounce(cluster, topic, plan, process, report, say)
        code = process.wait(seconds + DELIVERY_TIMEOUT_MS / 1000 + 60)
        if code != 0:
            report.complaints.append(f"the producer's process ended with {code}")
    except subprocess.TimeoutExpired:
        report.complaints.append("the producer's process did not end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        collector.join()
    report.in_log = sum(end for _, end in cluster.offsets(topic).values())
    return report


def _bounce(
    cluster: KafkaCluster,
    topic: str,
    plan: SoakPlan,
    process: subprocess.Popen[bytes],
    report: SoakReport,
    say: Callable[[str], None],
) -> None:
    """Bounce a leader at each interval, as long as the time after it is enough for it to come back."""
    began_at = time.monotonic()
    last_at = plan.minutes * 60 - min(plan.bounce_every, 30.0)
    faults = endless(plan.seed, PARTITIONS, BOUNCES)
    for number in itertools.count(1):
        at = number * plan.bounce_every
        if at > last_at:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):  # it still runs when the interval is over
            process.wait(max(0.0, began_at + at - time.monotonic()))
            return
        fault = next(faults)
        started_at = time.monotonic()
        node = carry_out(cluster, topic, fault)
        kind = fault.kind.value
        report.bounces[kind] = report.bounces.get(kind, 0) + 1
        say(
            f"{started_at - began_at:6.1f} s: {kind} of node {node}, down for {fault.length:.1f} s, "
            f"whole again after {time.monotonic() - started_at:.1f} s"
        )
