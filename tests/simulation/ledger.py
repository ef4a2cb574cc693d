"""The oracle: what was offered, accepted and settled, held against what is in the logs.

What must hold for every run (the letters are those of the scenarios' oracle):

L  every accepted record is settled, once, by its deadline; send(), flush() and close() come back in time
A  every acknowledged record is in the log at the offset that was told, but for what a broker lost by an election
   where it may (acks=1, unclean); only with idempotence an offset may be unknown
D  with idempotence no record is in the log twice
O  the records of a writer are in order in each partition, where the settings promise it
X  what was refused, or failed with `possibly_written=False`, is not in the log
S  in fair weather every record is acknowledged
T  each record in the log has the timestamp that it was sent with, and so has its metadata
B  a client that meets errors backs off: it neither reconnects, nor asks for metadata, nor sends a batch again in a
   storm
C  what a broker reads is what was sealed: no buffer is written to while its bytes may be on the way
M  all memory is back
W  no send and no record waits longer than its cause explains (`liveness`)
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioproduce.core.batching.producer_batch import ProducerBatch
from aioproduce.errors import DeliveryError, ProducerError
from aioproduce.wire.api import ApiKey
from tests.native_builds import core_is_compiled
from tests.simulation.liveness import check_liveness
from tests.simulation.observations import Observations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioproduce.records import RecordMetadata
    from aioproduce.testing.simulation import Simulation
    from tests.simulation.case import Case

# retry.backoff.ms is 100 and reconnect.backoff.ms 50, less a fifth by jitter; now and then one comes at once.
_METADATA_A_SECOND = 16
_CONNECTIONS_A_SECOND = 26
# 0, 80, 240 and 560 ms by the same settings; a new leader is tried without delay.
_ATTEMPTS_IN_HALF_A_SECOND = 6

TICK = 0.05
"""How much later than its deadline a record may be told: the loop's turns, and a codec's time."""


@dataclass(slots=True)
class Entry:
    """One record's life."""

    writer: int
    counter: int
    value: bytes
    offered_at: float
    timestamp: int
    answered_at: float | None = None
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
        self._lost: set[bytes | None] = set()
        self._newest: dict[tuple[int, int], int] = {}
        self._blocked = sorted((f.at, f.at + f.seconds) for f in case.faults if f.kind == "blocked")
        self._attempts: list[list[float]] = []
        self._seen = Observations(simulation, acks=case.settings["acks"])
        self._flushes: list[float] = []

    # -- what happens ---

    def offer(self, writer: int, size: int) -> Entry:
        """A record that is about to be sent."""
        counter = self._counters[writer] = self._counters.get(writer, -1) + 1
        value = b"%d:%d:" % (writer, counter)
        now = self._simulation.clock.now
        # Records of a batch differ: so that a timestamp that is told for the wrong one shows.
        entry = Entry(writer, counter, value.ljust(size, b"."), now, self._simulation.wall_ms() + counter % 7)
        self.entries[entry.value] = entry
        return entry

    def accept(self, entry: Entry) -> None:
        entry.accepted_at = entry.answered_at = self._simulation.clock.now

    def refuse(self, entry: Entry, error: BaseException) -> None:
        entry.refusal = error
        entry.answered_at = self._simulation.clock.now
        self._simulation.trace.add(f"{entry.writer}:{entry.counter} refused: {type(error).__name__}")

    def settle(self, entry: Entry, metadata: RecordMetadata, error: BaseException | None) -> None:
        entry.outcomes.append((metadata, error))
        entry.settled_at = self._simulation.clock.now
        outcome = f"offset {metadata.offset}" if error is None else _kind_of(error)
        self._simulation.trace.add(f"{entry.writer}:{entry.counter} {metadata.partition} {outcome}")

    def note_flush(self) -> None:
        """flush() is about to be called."""
        self._flushes.append(self._simulation.clock.now)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See what the producer does while the body runs."""
        with self._seen.watching(), self._watching_attempts():
            yield

    @contextmanager
    def _watching_attempts(self) -> Iterator[None]:
        """See when each batch is sent, if the core is interpreted: a compiled method cannot be replaced."""
        if core_is_compiled():
            yield
            return
        begin = ProducerBatch.begin_attempt
        of_batch: dict[int, list[float]] = {}  # by an id, which may be another's later

        def begin_seen(batch: ProducerBatch, *options: Any) -> None:
            if batch.attempts == 0 or id(batch) not in of_batch:
                of_batch[id(batch)] = []
                self._attempts.append(of_batch[id(batch)])
            of_batch[id(batch)].append(self._simulation.clock.now)
            begin(batch, *options)

        with patch.object(ProducerBatch, "begin_attempt", begin_seen):
            yield

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
        self._check_back_off()
        for state in self._simulation.cluster.state.partitions():
            if state.log.corrupt:
                self.accuse("C", f"{state.log.corrupt} batches for partition {state.partition} were broken")
        places = self._read_logs()
        self._lost = self._read_losses()
        for value, entry in self.entries.items():
            self._check_entry(entry, places.get(value, []))
        for value in places.keys() - self.entries.keys():
            self.accuse("A", f"in the log, and never sent: {value!r}")
        if self._case.keeps_order:
            self._check_order()
        if not self._case.is_encrypted:  # what explains a wait is read from the wire
            check_liveness(self._seen, self._case, self.entries.values(), self._flushes, self.accuse)

    def check_time(self, what: str, began_at: float, bound: float) -> None:
        """Something that ends now has not taken longer than it may."""
        if self._simulation.clock.now > self._latest(began_at + bound):
            self.accuse("L", f"{what} took {self._simulation.clock.now - began_at:.3f} s")

    def _latest(self, due: float) -> float:
        """When something that is due may happen at the latest: not while its own loop is blocked."""
        latest = due + TICK
        # One may begin while another lasts: it is over when both are.
        for begin, end in self._blocked:
            if begin <= latest and end >= due:
                latest = max(latest, end + TICK)
        return latest

    def _check_outcomes(self) -> None:
        for entry in self.entries.values():
            answered_at = entry.answered_at or entry.offered_at
            if answered_at > self._latest(entry.offered_at + self._case.max_block):
                self.accuse("L", f"{entry}: send() took {answered_at - entry.offered_at:.3f} s")
            if entry.accepted_at is None:
                if entry.refusal is None:
                    self.accuse("L", f"{entry}: send() neither returned nor raised")
                if entry.outcomes:
                    self.accuse("L", f"{entry}: refused, and settled")
            elif len(entry.outcomes) != 1:
                self.accuse("L", f"{entry}: settled {len(entry.outcomes)} times")
            elif entry.settled_at > self._latest(entry.accepted_at + self._case.delivery_timeout):
                self.accuse("L", f"{entry}: settled {entry.settled_at - entry.accepted_at:.3f} s later")

    def _read_logs(self) -> dict[bytes, list[tuple[int, int]]]:
        places: dict[bytes, list[tuple[int, int]]] = {}
        for partition, offset, value in self._log_records():
            places.setdefault(value, []).append((partition, offset))
        return places

    def _read_losses(self) -> set[bytes | None]:
        """What is in no log because an election took it away."""
        return {
            record.value
            for state in self._simulation.cluster.state.partitions()
            for batch in state.log.lost
            for record in batch.records()
        }

    def _log_records(self) -> Iterator[tuple[int, int, bytes]]:
        for state in self._simulation.cluster.state.partitions():
            for batch in state.log.batches:
                for record in batch.records():
                    assert record.value is not None
                    self._newest[state.partition, record.offset] = batch.header.max_timestamp
                    entry = self.entries.get(record.value)
                    if entry is not None and record.timestamp != entry.timestamp:
                        self.accuse(
                            "T", f"{entry}: sent with {entry.timestamp}, written as {record.timestamp}"
                        )
                    yield state.partition, record.offset, record.value

    def _check_entry(self, entry: Entry, places: list[tuple[int, int]]) -> None:
        if entry.writer >= 0 and any(partition != entry.writer for partition, _ in places):
            self.accuse("A", f"{entry}: in another partition: {places}")
        if self._case.is_idempotent and len(places) > 1:
            self.accuse("D", f"{entry}: in the log {len(places)} times: {places}")
        if entry.refusal is not None:
            self._check_failed(entry, entry.refusal, places)
        elif entry.outcomes:
            metadata, error = entry.outcomes[0]
            if error is None:
                self._check_acknowledged(entry, metadata, places)
            else:
                self._check_failed(entry, error, places)

    def _check_acknowledged(
        self, entry: Entry, metadata: RecordMetadata, places: list[tuple[int, int]]
    ) -> None:
        if entry.value in self._lost and self._case.may_lose:
            pass  # if it is in the log all the same, that is another attempt's copy
        elif entry.value in self._lost and not places:
            self.accuse("A", f"{entry}: acknowledged, and lost by an election that was clean")
        elif not places:
            self.accuse("A", f"{entry}: acknowledged at {metadata.offset}, and not in the log")
        elif metadata.offset < 0:
            if not self._case.is_idempotent:
                self.accuse("A", f"{entry}: acknowledged without an offset")
        elif (metadata.partition, metadata.offset) not in places:
            self.accuse("A", f"{entry}: acknowledged at {metadata.offset}, and in the log at {places}")
        if metadata.timestamp != entry.timestamp and not self._is_repetition(metadata, places):
            self.accuse("T", f"{entry}: sent with {entry.timestamp}, told {metadata.timestamp}")

    def _check_failed(self, entry: Entry, error: BaseException, places: list[tuple[int, int]]) -> None:
        if self._case.weather == "fair":
            self.accuse("S", f"{entry}: {error}")
        if not isinstance(error, ProducerError):
            self.accuse("L", f"{entry}: failed with {error!r}")
        is_certain = not isinstance(error, DeliveryError) or not error.possibly_written
        if is_certain and places:
            self.accuse("X", f"{entry}: certainly not written ({error}), and in the log at {places}")

    def _is_repetition(self, metadata: RecordMetadata, places: list[tuple[int, int]]) -> bool:
        """Whether this may be the largest timestamp of its batch, which Kafka tells for what it had before."""
        place = (metadata.partition, metadata.offset)
        is_elsewhere = place not in places  # which is not for T to judge
        return self._case.is_idempotent and (is_elsewhere or metadata.timestamp == self._newest[place])

    def _check_back_off(self) -> None:
        requests = self._simulation.cluster.model.requests
        self._check_rate("requests for metadata", requests.times(ApiKey.METADATA), 1.0, _METADATA_A_SECOND)
        for host, times in self._simulation.network.attempts.items():
            self._check_rate(f"connections to {host}", times, 1.0, _CONNECTIONS_A_SECOND)

        for times in self._attempts:
            self._check_rate("attempts at a batch", times, 0.5, _ATTEMPTS_IN_HALF_A_SECOND)

    def _check_rate(self, what: str, times: Sequence[float], seconds: float, limit: int) -> None:
        for first, last in zip(times, times[limit:], strict=False):
            if last - first < seconds:
                self.accuse("B", f"more than {limit} {what} between {first:.3f} and {last:.3f}")
                return

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
