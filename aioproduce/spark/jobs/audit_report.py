"""The findings of an audit: for the lake as a whole, and for each producer that is worth mentioning.

Created by `audit_judge`; printed, written as JSON and converted to an exit code by the `audit` job.

1. Every list is bounded and says how much it omits, so that the audit of a badly damaged lake still fits on a page.
2. `rows = numbers + duplicates + conflicts`, for each producer and in total; together with the unstamped rows, that
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
"""Maximum ranges that the report lists for one producer; the totals include all."""


class ExitCode(IntEnum):
    """The exit code of the process."""

    CLEAN = 0
    LOSS = 1
    """Records are lost, or two different records have the same id."""
    FAILED = 2
    """Wrong usage, or the audit failed."""
    DUPLICATES = 3
    """Nothing is lost, but there are duplicates, and `--fail-on-duplicates` was given."""


class Status(StrEnum):
    """What is known about a producer's end."""

    CLOSED = "closed"
    """Its closing mark has the number of records, so a missing tail is detected."""
    OPEN = "open"
    """Its last mark was a heartbeat: it is running, or ended without a closing mark.

    Later numbers cannot be checked.
    """
    UNMARKED = "unmarked"
    """It has no mark: numbers up to the highest one in the lake are expected."""
    VANISHED = "vanished"
    """Its mark reports acknowledged records, but the lake has none."""


@dataclass(kw_only=True)
class Counts:
    """The counts for each producer, and in total.

    Attributes:
        rows: Rows of the lake.
        numbers: Different ids among them.
        duplicates: Rows with the id and the checksum of another one.
        reread: Duplicates with the same topic, partition and offset: landed twice, not sent twice.
        conflicts: Rows with the id of another one but a different checksum.
        lost: Numbers that were assigned, are not excused, and are not in the lake.
        undecided: Missing numbers that may never have been acknowledged: in flight at the last mark of an open
            producer, or among more failures than a mark lists.
        excused: Numbers that are missing because their records failed, which the producer reported to its caller.
        beyond: Numbers that a closed producer should not have, because its mark does not cover them.
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
    """The findings for one producer id.

    Attributes:
        producer_id: 32 hexadecimal digits.
        status: What is known about its end.
        next: The first number that was not assigned, according to its last mark; None without a mark.
        lowest: The lowest number in the lake; None if there is none.
        highest: The highest number.
        holes: Missing numbers that are not excused, as ranges; bounded.
        holes_more: How many missing numbers are not listed.
        conflicting: Some of the numbers with conflicts.
        is_by_counts: Whether some of its topics are not audited. Lost records are then computed from the number of
            acknowledged records in the others, and holes are unknown.
        client_id: `client.id`, if a mark has it.
        run: The writer's own data in its mark.
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
        """Whether there is anything wrong or unknown that a person should see."""
        return (
            bool(self.lost or self.undecided or self.duplicates or self.conflicts or self.beyond)
            or self.status is Status.VANISHED
        )

    @property
    def gravity(self) -> tuple[int, ...]:
        """The sort key: worse findings come first."""
        return (-self.lost, -self.conflicts, -self.undecided, -self.duplicates, -self.beyond)

    def line(self) -> str:
        """Return a line for people."""
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
    """The findings for a lake; its rows include those without a stamp.

    Attributes:
        unstamped: Rows without an id, about which nothing can be said.
        quarantined: Rows in the quarantine, which are not lost.
        producers: Producer ids in the lake or in marks.
        closed: Those with a closing mark.
        open: Those whose last mark is a heartbeat.
        unmarked: Those without a mark.
        vanished: Those whose mark reports acknowledged records but that have none in the lake.
        findings: The producers worth mentioning, the worst first; bounded.
        findings_more: How many are omitted.
        missing_topics: Topics that marks name and the lake does not have.
        topics: The audited topics of the lake.
        marks: Marks read.
        unreadable_marks: Records of the audit topic that are not marks.
        suspects: Blocks that the exact pass read.
        files: Files of the lake.
        size: Their bytes.
        is_strict: Whether undecided numbers count as lost.
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
        """The exit code; see `ExitCode`."""
        if self.lost or self.conflicts or (self.is_strict and self.undecided):
            return ExitCode.LOSS
        return ExitCode.DUPLICATES if self.fails_on_duplicates and self.duplicates else ExitCode.CLEAN

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        names = {ExitCode.CLEAN: "clean", ExitCode.LOSS: "loss", ExitCode.DUPLICATES: "duplicates"}
        if self.exit_code == ExitCode.LOSS and not self.lost:
            return "conflicts" if self.conflicts else "undecided"
        return names[ExitCode(self.exit_code)]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        rate = round(self.rows / self.seconds) if self.seconds else None
        told = {"verdict": self.verdict, "exit_code": int(self.exit_code), "rows_per_second": rate}
        return {**super().to_json(), **told}

    def lines(self) -> list[str]:
        """Return the report for people."""
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
                f"CONFLICTS: {self.conflicts:,} rows have the id of another row but a different checksum. "
                "Two writers use one id, or row numbers were not stable ids. Do not drop duplicates by id "
                "alone: that loses data"
            )
        if self.quarantined:
            out.append(
                f"{self.quarantined:,} of the rows are in the quarantine: not lost, but they need attention"
            )
        if self.excused:
            out.append(
                f"{self.excused:,} numbers are missing because their records failed, which was reported to "
                "their callers"
            )
        if self.reread:
            out.append(
                f"{self.reread:,} of the duplicates have the same place in Kafka: landed twice, not sent twice"
            )
        if self.missing_topics:
            out.append(
                f"marks name {', '.join(self.missing_topics)}, which the lake does not have: if that is intended, "
                "name the topics that it has (--topics)"
            )
        if self.unreadable_marks:
            out.append(f"{self.unreadable_marks:,} records of the audit topic are not marks")
        out += [f"  {found.line()}" for found in self.findings]
        if self.findings_more:
            out.append(f"  and {self.findings_more:,} more producers with findings (--limit)")
        return out
