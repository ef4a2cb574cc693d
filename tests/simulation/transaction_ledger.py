"""The oracle of transactions: it compares each reported outcome with the logs and the committed offsets.

In addition to L, A, X, C and M of `ledger`, which it uses:

N  no transaction is torn: readers of committed records see all of it or nothing, its offsets included
V  what was told is never the opposite: committed is visible, aborted is not, nor what nobody asked to commit
I  no record of one transaction is in another: between two markers of a producer are records of one
D  no record is seen twice
G  offsets are committed with the transaction that they were sent in, for their own group and partition
E  in the end no last stable offset is below the high watermark, and nothing is pending
F  a transaction is ended in the version in which it was begun
R  no producer dies that had no rival; S: when all is healed, the same producer commits the next one
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioproduce.errors import DeliveryError, TransactionOutcome
from aioproduce.testing.fake_cluster.control_batch import is_commit_marker
from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator
from aioproduce.testing.fake_cluster.transaction_states import EPOCH_BUMP, TransactionState
from tests.simulation.case import TOPIC
from tests.simulation.ledger import Entry, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.testing.simulation import Simulation
    from tests.simulation.case_transactional import TransactionalCase

COMMITTED, ABORTED, UNKNOWN = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.UNKNOWN,
)


@dataclass(eq=False)
class TransactionEntry:
    """One transaction's life.

    Attributes:
        asked_commit: Whether anybody asked for it to be committed.
        told: What was said of it; `None`: nothing.
        offsets: Offset -> (group, partition, whether `send_offsets()` came back).
    """

    number: int
    writer: int
    asked_commit: bool = False
    told: TransactionOutcome | None = None
    records: list[Entry] = field(default_factory=list)
    offsets: dict[int, tuple[str, int, bool]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"transaction {self.number} of writer {self.writer}"

    @property
    def accepted(self) -> list[Entry]:
        return [entry for entry in self.records if entry.accepted_at is not None]


class TransactionLedger(Ledger):
    """All transactions of one run."""

    def __init__(self, simulation: Simulation, case: TransactionalCase) -> None:
        super().__init__(simulation, case)  # type: ignore[arg-type]
        self.transactions: list[TransactionEntry] = []
        self._of: dict[bytes, TransactionEntry] = {}
        self._next_offset = 0
        self._decided: dict[int, list[tuple[str, int, bool]]] = {}

    # -- what happens ---

    def begin(self, writer: int) -> TransactionEntry:
        entry = TransactionEntry(len(self.transactions), writer)
        self.transactions.append(entry)
        return entry

    def offer_in(self, transaction: TransactionEntry, size: int) -> Entry:
        entry = self.offer(transaction.writer, size)
        transaction.records.append(entry)
        self._of[entry.value] = transaction
        return entry

    def offset_in(self, transaction: TransactionEntry, group: str, partition: int) -> int:
        """An offset that nothing else has."""
        self._next_offset += 1
        transaction.offsets[self._next_offset] = (group, partition, False)
        return self._next_offset

    def offset_taken(self, transaction: TransactionEntry, offset: int) -> None:
        group, partition, _ = transaction.offsets[offset]
        transaction.offsets[offset] = (group, partition, True)

    def tell(self, transaction: TransactionEntry, outcome: TransactionOutcome | None) -> None:
        """What the producer says."""
        if outcome is None or outcome is transaction.told:
            return
        self._simulation.trace.add(f"{transaction}: {outcome.value}")
        if transaction.told not in (None, UNKNOWN) and outcome is not UNKNOWN:
            self.accuse("V", f"{transaction}: told {transaction.told}, and then {outcome}")
        if transaction.told in (None, UNKNOWN):
            transaction.told = outcome

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See which offsets count, and how transactions are ended."""
        decide, end = PendingOffsets._decide, TransactionCoordinator.end

        def decide_seen(
            offsets: PendingOffsets, group: str, place: Any, pending: Any, is_commit: bool
        ) -> None:
            self._decided.setdefault(pending.offset, []).append((group, place[1], is_commit))
            decide(offsets, group, place, pending, is_commit)

        def end_seen(
            coordinator: TransactionCoordinator,
            name: str,
            producer: Any,
            version: int,
            now: float,
            **how: Any,
        ) -> Any:
            open_one = coordinator.transactions.get(name)
            if (
                open_one is not None
                and open_one.state is TransactionState.ONGOING
                and open_one.producer == producer
                and (open_one.version >= EPOCH_BUMP) != (version >= EPOCH_BUMP)
            ):
                self.accuse("F", f"{name}: begun in {open_one.version}, ended in {version} at {now:.3f}")
            return end(coordinator, name, producer, version, now, **how)

        with (
            patch.object(PendingOffsets, "_decide", decide_seen),
            patch.object(TransactionCoordinator, "end", end_seen),
        ):
            yield

    # -- what must hold in the end ---

    def check(self) -> None:
        self._check_outcomes()
        raw: dict[bytes, int] = {}
        seen: dict[bytes, int] = {}
        for state in self._simulation.cluster.state.partitions():
            if state.topic != TOPIC:
                continue
            if state.log.corrupt:
                self.accuse("C", f"{state.log.corrupt} batches for partition {state.partition} were broken")
            self._read(state, raw, seen)
        self._check_rest()
        for transaction in self.transactions:
            for entry in transaction.records:
                self._check_record(entry, raw.get(entry.value, 0), seen.get(entry.value, 0))
            self._check_transaction(transaction, seen)
        for value in raw.keys() - self._of.keys():
            self.accuse("A", f"in the log, and never sent: {value!r}")
        self._check_offsets()

    def _read(self, state: Any, raw: dict[bytes, int], seen: dict[bytes, int]) -> None:
        """Read a log as a consumer of committed records does, from the markers alone."""
        pending: dict[int, list[bytes]] = {}
        for batch in state.log.batches:
            section = pending.setdefault(batch.producer_id, [])
            if batch.header.is_control:
                owners = {self._of[value].number for value in section if value in self._of}
                if len(owners) > 1:
                    self.accuse("I", f"records of transactions {sorted(owners)} are in one")
                if is_commit_marker(batch.content):
                    for value in section:
                        seen[value] = seen.get(value, 0) + 1
                section.clear()
            else:
                values = [record.value for record in batch.records() if record.value is not None]
                section += values
                for value in values:
                    raw[value] = raw.get(value, 0) + 1
        if state.last_stable_offset < state.high_watermark or any(pending.values()):
            self.accuse(
                "E",
                f"partition {state.partition}: last stable offset {state.last_stable_offset} of "
                f"{state.high_watermark}, open: {[each for each, values in pending.items() if values]}",
            )

    def _check_rest(self) -> None:
        model = self._simulation.cluster.model
        for transaction in model.transactions.transactions.values():
            if transaction.is_open:
                self.accuse("E", f"{transaction.transactional_id} is {transaction.state} in the end")
        if model.offsets._pending:
            self.accuse("E", f"offsets are pending in the end: {model.offsets._pending}")

    def _check_record(self, entry: Entry, copies: int, visible: int) -> None:
        if copies > 1 or visible > 1:
            self.accuse("D", f"{entry}: in the log {copies} times, visible {visible} times")
        error: BaseException | None = entry.refusal
        if error is None and entry.outcomes:
            error = entry.outcomes[0][1]
            if error is None and not copies:
                self.accuse("A", f"{entry}: acknowledged, and not in the log")
        is_certain = not isinstance(error, DeliveryError) or not error.possibly_written
        if error is not None and is_certain and copies:
            self.accuse("X", f"{entry}: certainly not written ({error}), and in the log")

    def _check_transaction(self, transaction: TransactionEntry, seen: dict[bytes, int]) -> None:
        parts = [entry.value in seen for entry in transaction.accepted]
        parts += [
            any(is_commit for *_, is_commit in self._decided.get(offset, ()))
            for offset, (_, _, is_taken) in transaction.offsets.items()
            if is_taken
        ]
        if any(parts) and not all(parts):
            self.accuse("N", f"{transaction}, told {transaction.told}: torn: {parts}")
        if transaction.told is COMMITTED and not all(parts):
            self.accuse("V", f"{transaction}: told committed, and {parts.count(False)} parts are not seen")
        if any(parts) and (transaction.told is ABORTED or not transaction.asked_commit):
            self.accuse(
                "V", f"{transaction}: told {transaction.told}, and {parts.count(True)} parts are seen"
            )

    def _check_offsets(self) -> None:
        sent = {
            offset: (transaction, group, partition)
            for transaction in self.transactions
            for offset, (group, partition, _) in transaction.offsets.items()
        }
        for offset, decisions in self._decided.items():
            for group, partition, is_commit in decisions:
                transaction, *place = sent[offset]
                if place != [group, partition]:
                    self.accuse("G", f"{transaction}: {offset} was for {place}, and is {group}, {partition}")
                if is_commit and (transaction.told is ABORTED or not transaction.asked_commit):
                    self.accuse("G", f"{transaction}: told {transaction.told}, offset {offset} is committed")
