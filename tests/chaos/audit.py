"""The log, as Kafka's own consumer printed it, against what the producers told of their records.

Used at the end of a chaos run. The oracle of the fault tests (A, D, O and X), for millions of records: nothing is
held but some bytes a record.

1. Every record of the log is read, to the end offsets: no idle time decides that it is over.
2. Each producer's numbers rise in each partition, as an idempotent producer promises.
3. A record whose failure is ambiguous may be in the log once; one whose failure is definite may not.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.outcomes import Outcomes
    from tests.kafka_cluster import KafkaCluster

EXAMPLES = 5


@dataclass(slots=True)
class Findings:
    """What is wrong with a log, in records; nothing, if all counts are 0 but ``read`` and ``unplaced``.

    Attributes:
        read: Records in the log.
        lost: Acknowledged, and not in the log.
        misplaced: Acknowledged at a partition and offset at which the log has something else.
        duplicated: Copies in the log beyond the first.
        misordered: Behind a record of their producer and partition that was sent later.
        undead: In the log, although the producer said that they are not.
        foreign: In the log, and not sent by any of the producers.
        unplaced: Acknowledged without an offset, which a broker may do that has the record already; not wrong.
        examples: Some of each kind, for people.
    """

    read: int = 0
    lost: int = 0
    misplaced: int = 0
    duplicated: int = 0
    misordered: int = 0
    undead: int = 0
    foreign: int = 0
    unplaced: int = 0
    examples: list[str] = field(default_factory=list)

    def wrong(self) -> dict[str, int]:
        """What is wrong, by kind."""
        kinds = ("lost", "misplaced", "duplicated", "misordered", "undead", "foreign")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}

    def found(self, kind: str, what: str) -> None:
        """One more record of a kind."""
        count = getattr(self, kind) + 1
        setattr(self, kind, count)
        if count <= EXAMPLES:
            self.examples.append(f"{kind}: {what}")


def audit(all_outcomes: Sequence[Outcomes], lines: Iterable[bytes]) -> Findings:
    """Compare.

    Args:
        all_outcomes: The producers', by their prefixes: 0, 1, ...
        lines: The log as ``consumed`` gives it.
    """
    findings = Findings()
    seen = [bytearray() for _ in all_outcomes]
    latest: dict[tuple[bytes, int], int] = {}
    for line in lines:
        findings.read += 1
        partition, offset, value = line.split(b"\t")
        before, _, after = value.partition(b".")
        prefix, number = int(before), int(after)
        if not 0 <= prefix < len(all_outcomes) or not all_outcomes[prefix].may_have_sent(number):
            findings.found("foreign", line.decode())
            continue
        outcomes, copies = all_outcomes[prefix], seen[prefix]
        if number >= len(copies):
            copies.extend(bytes(number + 65_536 - len(copies)))
        if copies[number]:
            findings.found("duplicated", line.decode())
        copies[number] = min(copies[number] + 1, 255)
        if number < latest.get((partition, prefix), -1):
            findings.found("misordered", line.decode())
        latest[partition, prefix] = max(number, latest.get((partition, prefix), -1))
        place = outcomes.place(number)
        # A copy at another place is a duplicate, of which the acknowledged one tells by its own line.
        if place is not None and place[1] >= 0 and copies[number] == 1:
            told = b"Partition:%d\tOffset:%d" % place
            if told != partition + b"\t" + offset:
                findings.found("misplaced", f"{line.decode()}, told as {told.decode()}")
        elif (failure := outcomes.failed.get(number)) is not None and failure.is_definite:
            findings.found("undead", f"{line.decode()}, failed with {failure.kind}")
    _find_lost(all_outcomes, seen, findings)
    return findings


def _find_lost(all_outcomes: Sequence[Outcomes], seen: Sequence[bytearray], findings: Findings) -> None:
    for outcomes, copies in zip(all_outcomes, seen, strict=True):
        for number, partition in enumerate(outcomes.partitions):
            if partition < 0:
                continue
            if number >= len(copies) or not copies[number]:
                findings.found("lost", f"{outcomes.prefix}.{number}, told as {outcomes.place(number)}")
            if outcomes.offsets[number] < 0:
                findings.unplaced += 1


def consumed(cluster: KafkaCluster, topic: str) -> Iterator[bytes]:
    """Every record of a topic as ``Partition:P TAB Offset:O TAB value``, printed by Kafka's ConsoleConsumer.

    Raises:
        RuntimeError: The consumer ended before it had read up to the end offsets.
    """
    count = sum(end - first for first, end in cluster.offsets(topic).values())
    if count == 0:
        return
    properties = ("print.partition=true", "print.offset=true")
    process = subprocess.Popen(
        cluster.tools.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "60000"),
            *(word for each in properties for word in ("--formatter-property", each)),
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    read = 0
    try:
        for line in process.stdout:
            read += 1
            yield line.rstrip(b"\n")
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
    if (code, read) != (0, count):
        raise RuntimeError(f"ConsoleConsumer read {read} of {count} records and ended with {code}")
