"""The oracle: what was offered, accepted and settled, held against what is in the logs.

What must hold for every run (the letters are those of the scenarios' oracle):

L  every accepted record is settled, once, by its deadline; nothing is awaited for ever
A  every acknowledged record is in the log at the offset that was told, but for what a broker lost
D  with idempotence no record is in the log twice
O  the records of a writer are in order in each partition, where the settings promise it
X  what was refused, or failed with `possibly_written=False`, is not in the log
M  all memory is back
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.records import RecordMetadata
    from aioproduce.testing.simulation import Simulation
    from tests.simulation.case import Case

TICK = 0.05
"""How much later than its deadline a record may be told: the loop's turns, and a codec's time."""


@dataclass(slots=True)
class Entry:
    """One record's life."""

    writer: int
    counter: int
    value: bytes
    offered_at: float
    accepted_at: float | None = None
    settled_at: float = 0.0
    refusal: BaseException | None = None
    outcomes: list[tuple[RecordMetadata, BaseException | None]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"record {self.counter} of writer {self.writer}, accepted at {self.accepted_at}"


class Ledger:
    """All records of one run."""

    def __init__(self, simulation: Simulation, case: Case) -> None:
        self._simulation = simulation
        self._case = case
        self._counters: dict[int, int] = {}
        self.entries: dict[bytes, Entry] = {}
        self.violations: list[str] = []

    # -- what happens ---

    def offer(self, writer: int, size: int) -> Entry:
        """A record that is about to be sent."""
        counter = self._counters[writer] = self._counters.get(writer, -1) + 1
        value = b"%d:%d:" % (writer, counter)
        entry = Entry(writer, counter, value.ljust(size, b"."), self._simulation.clock.now)
        self.entries[entry.value] = entry
        return entry

    def accept(self, entry: Entry) -> None:
        entry.accepted_at = self._simulation.clock.now

    def refuse(self, entry: Entry, error: BaseException) -> None:
        entry.refusal = error
        self._simulation.trace.add(f"{entry.writer}:{entry.counter} refused: {type(error).__name__}")

    def settle(self, entry: Entry, metadata: RecordMetadata, error: BaseException | None) -> None:
        entry.outcomes.append((metadata, error))
        entry.settled_at = self._simulation.clock.now
        outcome = f"offset {metadata.offset}" if error is None else _kind_of(error)
        self._simulation.trace.add(f"{entry.writer}:{entry.counter} {metadata.partition} {outcome}")

    def accuse(self, letter: str, what: str) -> None:
        """Something does not hold."""
        self.violations.append(f"{letter}: {what}")

    # -- what must hold in the end ---

    @property
    def acknowledged(self) -> int:
        return sum(1 for entry in self.entries.values() if entry.outcomes and entry.outcomes[0][1] is None)

    @property
    def failures(self) -> dict[str, int]:
        """How many records failed, by how."""
        kinds: dict[str, int] = {}
        for entry in self.entries.values():
            error = entry.refusal
            if error is None and entry.outcomes:
                error = entry.outcomes[0][1]
            if error is not None:
                kinds[_kind_of(error)] = kinds.get(_kind_of(error), 0) + 1
        return dict(sorted(kinds.items()))

    def check(self) -> None:
        """Hold everything against the logs."""
        self._check_outcomes()
        places = self._read_logs()
        for value, entry in self.entries.items():
            self._check_entry(entry, places.get(value, []))
        for value in places.keys() - self.entries.keys():
            self.accuse("A", f"in the log, and never sent: {value!r}")
        if self._case.keeps_order:
            self._check_order()

    def _check_outcomes(self) -> None:
        blocked = [fault.seconds for fault in self._case.faults if fault.kind == "blocked"]
        slack = TICK + max(blocked, default=0.0)
        for entry in self.entries.values():
            if entry.accepted_at is None:
                if entry.refusal is None:
                    self.accuse("L", f"{entry}: send() neither returned nor raised")
                if entry.outcomes:
                    self.accuse("L", f"{entry}: refused, and settled")
            elif len(entry.outcomes) != 1:
                self.accuse("L", f"{entry}: settled {len(entry.outcomes)} times")
            elif entry.settled_at > entry.accepted_at + self._case.delivery_timeout + slack:
                self.accuse("L", f"{entry}: settled {entry.settled_at - entry.accepted_at:.3f} s later")

    def _read_logs(self) -> dict[bytes, list[tuple[int, int]]]:
        places: dict[bytes, list[tuple[int, int]]] = {}
        for partition, offset, value in self._log_records():
            places.setdefault(value, []).append((partition, offset))
        return places

    def _log_records(self) -> Iterator[tuple[int, int, bytes]]:
        for topic in self._simulation.cluster.state.topics.values():
            for state in topic.partitions:
                for batch in state.log.batches:
                    for record in batch.records():
                        assert record.value is not None
                        yield state.partition, record.offset, record.value

    def _check_entry(self, entry: Entry, places: list[tuple[int, int]]) -> None:
        if entry.writer >= 0 and any(partition != entry.writer for partition, _ in places):
            self.accuse("A", f"{entry}: in another partition: {places}")
        if self._case.is_idempotent and len(places) > 1:
            self.accuse("D", f"{entry}: in the log {len(places)} times: {places}")
        if entry.refusal is not None and places:
            self.accuse("X", f"{entry}: refused ({entry.refusal}), and in the log at {places}")
        if not entry.outcomes:
            return
        metadata, error = entry.outcomes[0]
        if error is None:
            if not places:
                self.accuse("A", f"{entry}: acknowledged at {metadata.offset}, and not in the log")
            elif metadata.offset >= 0 and (metadata.partition, metadata.offset) not in places:
                self.accuse("A", f"{entry}: acknowledged at {metadata.offset}, and in the log at {places}")
        elif not isinstance(error, DeliveryError):
            self.accuse("L", f"{entry}: failed with {error!r}")
        elif not error.possibly_written and places:
            self.accuse("X", f"{entry}: certainly not written ({error}), and in the log at {places}")

    def _check_order(self) -> None:
        last: dict[tuple[int, int], int] = {}
        seen: set[bytes] = set()
        for partition, offset, value in self._log_records():
            entry = self.entries.get(value)
            if entry is None or value in seen:
                continue  # a repetition, which D judges
            seen.add(value)
            before = last.get((partition, entry.writer), -1)
            if entry.counter < before:
                self.accuse("O", f"{entry}: at {partition}/{offset} behind record {before}")
            last[partition, entry.writer] = entry.counter


def _kind_of(error: BaseException) -> str:
    ambiguity = ", maybe written" if getattr(error, "possibly_written", False) else ""
    return type(error).__name__ + ambiguity
