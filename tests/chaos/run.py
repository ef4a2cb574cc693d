"""A chaos run: senders and faults at the same time, then the audit.

Called by ``python -m tests.chaos`` and by ``integration/test_verifiable_chaos.py``.

1. The senders send from before the first fault until the last one is over and all records are settled or more;
   then SIGTERM ends them, and each must have told the outcome of every record that it sent.
2. The verdict is the audit's, the senders' exit codes and the counts of their own last lines: see ``Report.wrong``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.chaos.audit import Findings, audit, consumed
from tests.chaos.outcomes import acknowledging_seconds, longest_gap
from tests.chaos.schedule import Fault, Kind, carry_out
from tests.chaos.senders import END_TIMEOUT, Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

PARTITIONS = 6
# How often what the senders printed is looked at.
FOLLOW_INTERVAL = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do.

    Attributes:
        records: How many records at least; the run ends with the fault during which they are settled.
        rate: Records a second of all senders together, -1 for as many as go.
        senders: How many producers.
        faults: What happens to the brokers; an endless one ends with the records.
        is_endless: Whether ``faults`` is that.
        client: ``aioproduce`` or ``java``.
        is_idempotent: Whether the senders are; without it the verdict is expected to be bad.
    """

    records: int
    rate: int
    faults: Iterator[Fault]
    is_endless: bool = True
    senders: int = 2
    client: str = "aioproduce"
    is_idempotent: bool = True


@dataclass(slots=True)
class Report:
    """What came of it."""

    sent: int = 0
    acked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    faults: Counter[Kind] = field(default_factory=Counter)
    unsettled: int = 0
    settled_again: int = 0
    seconds: float = 0.0
    longest_gap: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def wrong(self) -> list[str]:
        """What must not be, in words; nothing if all is well."""
        found = [f"{count} {kind}" for kind, count in self.findings.wrong().items()]
        if self.unsettled:
            found.append(f"{self.unsettled} without an outcome")
        if self.settled_again:
            found.append(f"{self.settled_again} with two outcomes")
        return found + self.complaints

    def as_json(self) -> dict[str, Any]:
        """Every figure."""
        findings = self.findings
        return {
            "records": self.sent,
            "acked": self.acked,
            "failed": dict(self.failed),
            "in_log": findings.read,
            "lost": findings.lost,
            "duplicated": findings.duplicated,
            "misordered": findings.misordered,
            "misplaced": findings.misplaced,
            "undead": findings.undead,
            "foreign": findings.foreign,
            "acked_without_offset": findings.unplaced,
            "unsettled": self.unsettled,
            "settled_again": self.settled_again,
            "faults": {kind.value: self.faults[kind] for kind in Kind},
            "seconds": round(self.seconds, 1),
            "records_per_second": round(self.acked / self.seconds) if self.seconds else 0,
            "longest_gap_seconds": round(self.longest_gap, 2),
            "wrong": self.wrong(),
            "examples": findings.examples,
        }


class SendersError(Exception):
    """A sender ended by itself, or none of their records is settled any more."""


class _Follower(threading.Thread):
    """Takes in what the senders print; an error of it is raised by ``finish``."""

    def __init__(self, senders: list[Sender], on_progress: Callable[[int], None]) -> None:
        super().__init__(name="follows the senders", daemon=True)
        self._senders = senders
        self._on_progress = on_progress
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._changed_at = time.monotonic()
        self.settled = 0

    def run(self) -> None:
        try:
            while not self._ended.wait(FOLLOW_INTERVAL):
                for sender in self._senders:
                    sender.follow()
                settled = sum(sender.outcomes.acked + len(sender.outcomes.failed) for sender in self._senders)
                if settled != self.settled:
                    self._changed_at = time.monotonic()
                self.settled = settled
                self._on_progress(settled)
        except BaseException as error:  # for the thread that waits
            self._error = error

    def check(self) -> None:
        """Raise what went wrong here, or with the senders (SendersError)."""
        if self._error is not None:
            raise self._error
        if time.monotonic() - self._changed_at > END_TIMEOUT:
            raise SendersError(f"no record was acknowledged or failed for {END_TIMEOUT:.0f} s")
        for sender in self._senders:
            if sender.process.poll() is not None:
                raise SendersError(f"sender {sender.outcomes.prefix} ended by itself")

    def finish(self) -> None:
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error


def run(
    cluster: KafkaCluster,
    topic: str,
    plan: Plan,
    directory: Path,
    *,
    say: Callable[[str], None],
    on_progress: Callable[[int], None],
) -> Report:
    """Run it.

    Args:
        cluster: Three nodes.
        topic: To be created.
        plan: What to do.
        directory: For what the senders print: some 130 bytes a record.
        say: Told of each fault, in words.
        on_progress: Told how many records are settled, from another thread.
    """
    cluster.create_topic(topic, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
    report = Report()
    with contextlib.ExitStack() as stack:
        rate = plan.rate if plan.rate < 0 else max(1, plan.rate // plan.senders)
        senders: list[Sender] = []
        for prefix in range(plan.senders):
            sender = Sender(
                cluster,
                topic,
                prefix,
                rate=rate,
                client=plan.client,
                is_idempotent=plan.is_idempotent,
                directory=directory,
            )
            stack.callback(sender.close)
            senders.append(sender)
        follower = _Follower(senders, on_progress)
        follower.start()
        try:
            _hurt(cluster, topic, plan, follower, report, say)
        except SendersError as error:
            report.complaints.append(str(error))  # the log is audited all the same
        finally:
            follower.finish()
        for sender in senders:
            sender.stop()
        report.complaints += [complaint for sender in senders if (complaint := sender.end())]
        _count(senders, report)
        say(f"reading {report.sent:,} records back")
        report.findings = audit([sender.outcomes for sender in senders], consumed(cluster, topic))
    return report


def _hurt(
    cluster: KafkaCluster,
    topic: str,
    plan: Plan,
    follower: _Follower,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """One fault after the other, until the plan is fulfilled."""
    began_at = time.monotonic()
    for fault in plan.faults:
        _pause(fault.pause, plan, follower)
        if plan.is_endless and follower.settled >= plan.records:
            return
        at = time.monotonic()
        node = carry_out(cluster, topic, fault)
        report.faults[fault.kind] += 1
        say(
            f"{at - began_at:6.1f} s: {fault.kind.value} of node {node} for {fault.length:.1f} s, "
            f"whole again after {time.monotonic() - at:.1f} s; {follower.settled:,} records settled"
        )
    while follower.settled < plan.records:
        follower.check()
        time.sleep(FOLLOW_INTERVAL)


def _pause(seconds: float, plan: Plan, follower: _Follower) -> None:
    """Let the senders send to a whole cluster; at least until they do."""
    deadline = time.monotonic() + seconds
    before = follower.settled
    while time.monotonic() < deadline or follower.settled == before:
        follower.check()
        if plan.is_endless and follower.settled >= plan.records:
            return
        time.sleep(FOLLOW_INTERVAL)


def _count(senders: list[Sender], report: Report) -> None:
    all_outcomes = [sender.outcomes for sender in senders]
    for outcomes in all_outcomes:
        report.sent += outcomes.sent or 0
        report.acked += outcomes.acked
        report.failed += outcomes.failures
        report.unsettled += outcomes.unsettled
        report.settled_again += outcomes.settled_again
    report.seconds = acknowledging_seconds(all_outcomes)
    report.longest_gap = longest_gap(all_outcomes)
