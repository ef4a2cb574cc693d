"""What an audit found: of the lake as a whole and of each producer that there is something to tell about.

Made by `audit_judge`; printed, written as JSON and turned into an exit code by the `audit` job.

1. Every list is bounded, and says how much it leaves out: an audit of a wrecked lake is still a page.
2. `rows = numbers + duplicates + conflicts`, for each producer and in the sum; with the unstamped rows that
   is every row.
3. A conflict is never counted as a duplicate: dropping it would lose a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from aioproduce.spark.jobs.running import Summary
from aioproduce.spark.ranges import Ranges, shown

HOLES_OF_A_PRODUCER = 100
"""Ranges that the report lists of one producer; the sums have all."""


class ExitCode(IntEnum):
    """What the process ends with."""

    CLEAN = 0
    LOSS = 1
    """Records are lost, or two different records have the same id."""
    FAILED = 2
    """Wrong usage, or no audit was made."""
    DUPLICATES = 3
    """Nothing is lost, but there are duplicates, and `--fail-on-duplicates` was given."""


class Status(StrEnum):
    """What is known of a producer's end."""

    CLOSED = "closed"
    """It said how many numbers it gave out: a missing tail is seen."""
    OPEN = "open"
    """The last that it said was a heartbeat: it runs, or ended without a word. Later numbers cannot be missed."""
    UNMARKED = "unmarked"
    """It never said anything: numbers up to the highest one in the lake are looked for."""
    VANISHED = "vanished"
    """It said that records were acknowledged, and the lake has none."""


@dataclass(kw_only=True)
class Counts:
    """What is counted of each producer, and in the sum.

    Attributes:
        rows: Rows of the lake.
        numbers: Different ids among them.
        duplicates: Rows that repeat the id and the checksum of another one.
        reread: Duplicates with the same topic, partition and offset: landed twice, not sent twice.
        conflicts: Rows that repeat the id of another one with another checksum.
        lost: Numbers that were given out, are excused by nothing, and are not in the lake.
        undecided: Numbers that are missing where it cannot be told whether they ever were acknowledged: in
            flight when an open producer was last heard of, or among more failures than a mark lists.
        excused: Numbers that are missing because their records failed, as the producer told its caller.
        beyond: Numbers that a closed producer should not have, as its mark does not speak of them.
    """

    rows: int = 0
    numbers: int = 0
    duplicates: int = 0
    reread: int = 0
    conflicts: int = 0
    lost: int = 0
    undecided: int = 0
    excused: int = 0
    beyond: int = 0


@dataclass
class ProducerFinding(Counts):
    """What was found of one producer id.

    Attributes:
        producer_id: 32 hexadecimal digits.
        status: What is known of its end.
        next: The first number that was not given out, as its last mark has it; None without a mark.
        lowest: The lowest number in the lake; None where there is none.
        highest: The highest.
        holes: Missing numbers that are not excused, as ranges; bounded.
        holes_more: How many missing numbers are not listed.
        conflicting: Some of the numbers with conflicts.
        is_by_counts: Some of its topics are not audited: what is lost is told from the number of records that were
            acknowledged in the others, and holes are not known.
        client_id: `client.id`, where a mark tells it.
        run: What the writer says of itself in its mark.
    """

    producer_id: str
    status: Status
    next: int | None = None
    lowest: int | None = None
    highest: int | None = None
    holes: Ranges = ()
    holes_more: int = 0
    conflicting: tuple[int, ...] = ()
    is_by_counts: bool = False
    client_id: str = ""
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def is_notable(self) -> bool:
        """Whether there is anything wrong, or not known, that a person should see."""
        return (
            bool(self.lost or self.undecided or self.duplicates or self.conflicts or self.beyond)
            or self.status is Status.VANISHED
        )

    @property
    def gravity(self) -> tuple[int, ...]:
        """What is worse sorts first."""
        return (-self.lost, -self.conflicts, -self.undecided, -self.duplicates, -self.beyond)

    def line(self) -> str:
        """For people."""
        parts = [f"{self.producer_id}", self.status.value, f"{self.rows:,} rows"]
        names = ("lost", "undecided", "duplicates", "reread", "conflicts", "excused", "beyond")
        parts += [f"{getattr(self, name):,} {name}" for name in names if getattr(self, name)]
        if self.is_by_counts:
            parts.append("by counts: some of its topics are not audited")
        if self.holes:
            more = " ..." if self.holes_more or len(self.holes) > 8 else ""
            parts.append(f"missing {shown(self.holes[:8])}{more}")
        if self.conflicting:
            parts.append(f"conflicts at {', '.join(map(str, self.conflicting[:8]))}")
        told = ", ".join(f"{name}={value}" for name, value in self.run.items())
        if self.client_id or told:
            parts.append(" ".join(filter(None, (self.client_id, f"({told})" if told else ""))))
        return ": ".join((parts[0], ", ".join(parts[1:])))


@dataclass(kw_only=True)
class AuditReport(Counts, Summary):
    """What was found in a lake; its rows are all, those without a stamp among them.

    Attributes:
        unstamped: Rows without an id: nothing can be said of them.
        quarantined: Rows in the quarantine: they are there, so they are not lost.
        producers: Producer ids in the lake or in marks.
        closed: Those with a closing mark.
        open: Those whose last mark is a heartbeat.
        unmarked: Those without a mark.
        vanished: Those with a mark that tells of acknowledged records, and no record.
        findings: The producers that there is something to tell about, the worst first; bounded.
        findings_more: How many are left out.
        missing_topics: Topics that marks tell of and the lake does not have.
        topics: The topics of the lake that were audited.
        marks: Marks read.
        unreadable_marks: Records of the audit topic that are no marks.
        suspects: Blocks that the exact pass read.
        files: Files of the lake.
        size: Their bytes.
        is_strict: Whether what is undecided counts as lost.
        fails_on_duplicates: Whether duplicates end with `ExitCode.DUPLICATES`.
    """

    job = "audit"
    unstamped: int = 0
    quarantined: int = 0
    producers: int = 0
    closed: int = 0
    open: int = 0
    unmarked: int = 0
    vanished: int = 0
    findings: tuple[ProducerFinding, ...] = ()
    findings_more: int = 0
    missing_topics: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    marks: int = 0
    unreadable_marks: int = 0
    suspects: int = 0
    files: int = 0
    size: int = 0
    is_strict: bool = False
    fails_on_duplicates: bool = False

    @property
    def exit_code(self) -> int:
        """See `ExitCode`."""
        if self.lost or self.conflicts or (self.is_strict and self.undecided):
            return ExitCode.LOSS
        return ExitCode.DUPLICATES if self.fails_on_duplicates and self.duplicates else ExitCode.CLEAN

    @property
    def verdict(self) -> str:
        """In a word."""
        names = {ExitCode.CLEAN: "clean", ExitCode.LOSS: "loss", ExitCode.DUPLICATES: "duplicates"}
        if self.exit_code == ExitCode.LOSS and not self.lost:
            return "conflicts" if self.conflicts else "undecided"
        return names[ExitCode(self.exit_code)]

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        rate = round(self.rows / self.seconds) if self.seconds else None
        told = {"verdict": self.verdict, "exit_code": int(self.exit_code), "rows_per_second": rate}
        return {**super().to_json(), **told}

    def lines(self) -> list[str]:
        """For people."""
        rate = f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds else ""
        out = [
            f"{self.verdict}: lost {self.lost:,}, duplicated {self.duplicates:,}, conflicts {self.conflicts:,}, "
            f"undecided {self.undecided:,}",
            f"{self.rows:,} rows in {self.files:,} files of {', '.join(self.topics) or 'no topic'}; "
            f"{self.unstamped:,} without a stamp; {self.seconds:.1f} s{rate}",
            f"{self.producers:,} producers: {self.closed:,} closed, {self.open:,} open, {self.unmarked:,} without "
            f"a mark, {self.vanished:,} vanished; {self.marks:,} marks",
        ]
        if self.conflicts:
            out.append(
                f"CONFLICTS: {self.conflicts:,} rows have the id of another row and another checksum. Two writers "
                "use one id, or row numbers were no stable ids. Do not drop duplicates by id alone: that loses data"
            )
        if self.quarantined:
            out.append(f"{self.quarantined:,} of the rows are in the quarantine: there, and to be looked at")
        if self.excused:
            out.append(
                f"{self.excused:,} numbers are missing because their records failed, as their callers were told"
            )
        if self.reread:
            out.append(
                f"{self.reread:,} of the duplicates have the same place in Kafka: landed twice, not sent twice"
            )
        if self.missing_topics:
            out.append(
                f"marks tell of {', '.join(self.missing_topics)}, of which the lake has nothing: if that is meant, "
                "name the topics that it holds (--topics)"
            )
        if self.unreadable_marks:
            out.append(f"{self.unreadable_marks:,} records of the audit topic are no marks")
        out += [f"  {found.line()}" for found in self.findings]
        if self.findings_more:
            out.append(f"  and {self.findings_more:,} more producers with something to tell (--limit)")
        return out
