"""An audited producer in any weather: what the log holds and what the marks tell prove that nothing was lost.

The marks are read as an auditor would: from the log of the audit topic, with no look at the producer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, STAMP_HEADER, Auditor, Mark, unpack_stamp
from aioproduce.testing.simulation import Simulation
from tests.simulation.case import TOPIC, Case, make_case
from tests.simulation.ledger import Ledger
from tests.simulation.run import Run
from tests.simulation.sides import AsyncioSide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioproduce.testing.fake_cluster.record_batch import DecodedRecord

SEEDS = 12


class OrdersLedger(Ledger):
    """Marks are nothing that was offered."""

    def _log_records(self) -> Iterator[tuple[int, int, bytes]]:
        for state in self._simulation.cluster.state.topics[TOPIC].partitions:
            for batch in state.log.batches:
                for record in batch.records():
                    assert record.value is not None
                    self._newest[state.partition, record.offset] = batch.header.max_timestamp
                    yield state.partition, record.offset, record.value


class Story:
    """One case, played with an Auditor."""

    def __init__(self, case: Case) -> None:
        self.auditor = Auditor(heartbeat_ms=10_000)
        self.case = replace(case, settings={**case.settings, "interceptors": (self.auditor,)})
        self.simulation = Simulation(
            case.seed,
            brokers=case.brokers,
            topics={TOPIC: case.partitions, DEFAULT_AUDIT_TOPIC: 1},
            **case.cluster_settings(),
        )
        for link in self.simulation.network.links.values():
            link.buffer = case.buffer
        self.ledger = OrdersLedger(self.simulation, self.case)

    def play(self) -> None:
        side = AsyncioSide(self.simulation, self.case.settings)
        with self.ledger.watching():
            side.run(Run(self.simulation, side, self.ledger, self.case).main())
        self.ledger.check()
        assert [*self.ledger.violations, *side.troubles] == []

    def numbers(self) -> list[int]:
        """Those in the log, in the order of the log; of a record each, under the one id."""
        found = []
        for record in self.records(TOPIC):
            names = [name for name, _ in record.headers]
            assert names == [STAMP_HEADER]
            stamp = unpack_stamp(record.headers[0][1])
            assert stamp.producer_id == self.auditor.producer_id
            found.append(stamp.sequence)
        return found

    def marks(self) -> Sequence[Mark]:
        return [Mark.from_json(each.value) for each in self.records(DEFAULT_AUDIT_TOPIC)]

    def records(self, topic: str) -> list[DecodedRecord]:
        partitions = self.simulation.cluster.state.topics[topic].partitions  # there may be more than at first
        return [record for each in partitions for batch in each.log.batches for record in batch.records()]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_marks_and_log_prove_that_nothing_was_lost(seed: int) -> None:
    case = make_case(seed, is_bare=False, mode="idempotent" if seed % 3 else "plain")
    story = Story(case)
    story.play()
    accepted = sum(entry.accepted_at is not None for entry in story.ledger.entries.values())
    found = set(story.numbers())
    marks = story.marks()
    assert marks, "not even a closing mark"
    for mark in marks:
        excused = {number for first, last in mark.failed for number in range(first, last + 1)}
        assert mark.failed_more == 0
        lost = set(range(mark.next)) - excused - found
        assert not lost or case.may_lose
    closing = marks[-1]
    assert (closing.kind, closing.next) == ("closing", accepted)
    assert closing.acknowledged == story.ledger.acknowledged == closing.topics[TOPIC]
    assert closing.acknowledged + closing.failed_count == accepted
    assert found <= set(range(accepted))
    if case.is_idempotent:
        assert len(story.numbers()) == len(found)
