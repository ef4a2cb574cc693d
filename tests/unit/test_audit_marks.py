"""When an audited producer publishes marks, to the instant: a Sender on a virtual clock, brokers played by hand.

What the marks say is tested against a log in `drivers/test_producer_audit.py`; here they are short texts.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.core.batching.buffer_pool import OwnMemory
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import METADATA, TOPIC, Topic, topic_id_of

if TYPE_CHECKING:
    from aioproduce.core.batching.record_audit import Account, RecordAudit
    from tests.unit.sender_wire import Request

AUDIT = "audited"
MARKS = Topic(topic_id_of(77), [(0, 0)])


class Source:
    """Marks that tell how many records were acknowledged; `filler` bytes longer, and `per_run` for each run."""

    def __init__(self, heartbeat: float, filler: int = 0, per_run: int = 0) -> None:
        self.topic = AUDIT
        self.producer_id = bytes(range(16))
        self.heartbeat = heartbeat
        self.filler = filler
        self.per_run = per_run
        self.asked: list[int] = []

    def begin(self, audit: RecordAudit) -> None:
        self.audit = audit

    def make(self, account: Account, at: int, *, is_closing: bool) -> tuple[bytes, bytes]:
        self.asked.append(len(account.failed))
        kind = "closing" if is_closing else "beat"
        text = f"{kind} {account.acknowledged} at {at}"
        return b"key", text.encode() + b"." * (self.filler + self.per_run * len(account.failed))


def audited(heartbeat: float = inf, *, has_topic: bool = True, **settings: Any) -> SenderHarness:
    source = settings.pop("source", None) or Source(heartbeat)
    h = SenderHarness(audit=source, is_bootstrapped=False, **{"delivery_timeout_ms": 60_000, **settings})
    if has_topic:
        h.topics[AUDIT] = MARKS
    h.want(TOPIC)
    h.run()
    return h


def marks(h: SenderHarness) -> list[str]:
    """What the marks said that were ever sent, in order."""
    return [
        (value or b"").decode()
        for request in h.history
        for (topic, _), batch in request.batches.items()
        if topic == AUDIT
        for value in batch.values
    ]


def of_marks(h: SenderHarness) -> list[Request]:
    """The requests with marks that wait for an answer."""
    return [request for request in h.produces if any(topic == AUDIT for topic, _ in request.batches)]


def audit_topic_asked(h: SenderHarness) -> int:
    """How often brokers were asked for the audit topic."""
    return sum(
        request.api == METADATA and any(topic["name"] == AUDIT for topic in request.body["topics"] or ())
        for request in h.history
    )


def close(h: SenderHarness) -> None:
    h.sender.begin_close(h.now)
    h.run()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "aioproduce.audit"]


def test_heartbeats_come_in_time_and_only_with_news() -> None:
    h = audited(10.0)
    h.advance(10.0)
    assert marks(h) == [], "there is no mark"
    h.send_acknowledged()
    h.advance(9.9)
    assert marks(h) == []
    h.advance(0.1)
    assert marks(h) == ["beat 1 at 1020000"]
    h.acknowledge(of_marks(h)[0])
    h.advance(20.0)
    assert len(marks(h)) == 1, "nothing has changed"
    h.send_acknowledged(offset=1)
    h.advance(10.0)
    assert marks(h)[1:] == ["beat 2 at 1050000"]


def test_the_audit_topic_is_asked_for_at_the_start() -> None:
    h = audited()
    assert audit_topic_asked(h) == 1
    assert h.sender.metadata.topic(AUDIT) is not None


def test_a_mark_that_failed_is_told_again_though_nothing_is_new() -> None:
    h = audited(10.0)
    h.send_acknowledged()
    h.advance(10.0)
    h.answer(of_marks(h)[0], 87)  # INVALID_RECORD: no second attempt
    h.advance(10.0)
    assert marks(h) == ["beat 1 at 1010000", "beat 1 at 1020000"]
    h.acknowledge(of_marks(h)[0])
    h.advance(30.0)
    assert len(marks(h)) == 2


def test_where_the_topic_is_not_known_it_is_looked_again_each_second() -> None:
    h = audited(3.0, has_topic=False)
    h.send_acknowledged()
    h.advance(3.5)
    h.topics[AUDIT] = MARKS
    h.advance(0.49)
    assert marks(h) == []
    h.advance(0.01)
    assert marks(h) == ["beat 1 at 1004000"]


def test_it_is_not_looked_more_often_than_there_are_heartbeats() -> None:
    h = audited(0.25, has_topic=False)
    h.send_acknowledged()
    h.advance(0.5)
    before = h.sender.next_timer()
    assert before is not None
    assert before <= h.now + 0.25
    h.topics[AUDIT] = MARKS
    h.advance(0.5)
    assert marks(h)[0] == "beat 1 at 1000750"


def test_the_closing_mark_comes_when_all_is_settled() -> None:
    h = audited(10.0)
    record = h.send()
    close(h)
    assert marks(h) == []
    h.advance(9.0)
    h.acknowledge()
    assert record.offset == 0
    assert marks(h) == ["closing 1 at 1009000"]
    assert not h.is_closed()
    h.acknowledge(of_marks(h)[0])
    assert h.is_closed()


def test_while_it_closes_there_are_no_heartbeats_and_nothing_wakes_for_one() -> None:
    h = audited(0.3)
    h.send_acknowledged()
    h.send()
    close(h)
    assert h.sender.next_timer() == h.now + 1.0, "what comes next is the request's time-out"
    h.advance(0.5)
    h.acknowledge(offset=1)
    assert marks(h) == ["closing 2 at 1000500"]


def test_without_a_record_there_is_no_closing_mark() -> None:
    h = audited()
    close(h)
    assert marks(h) == []
    assert h.is_closed()


def test_a_topic_that_was_refused_is_asked_for_as_the_close_begins() -> None:
    h = audited(has_topic=False)
    h.topics[AUDIT] = Topic(None, [], code=29)  # TOPIC_AUTHORIZATION_FAILED: not asked for again and again
    h.advance(1.0)
    h.send_acknowledged()
    h.send()
    h.advance(0.5)
    before = audit_topic_asked(h)
    close(h)
    assert audit_topic_asked(h) == before + 1


def test_the_end_waits_for_a_topic_that_has_just_been_missing(caplog: pytest.LogCaptureFixture) -> None:
    h = audited(has_topic=False)
    h.send_acknowledged()
    h.advance(2.0)
    close(h)
    h.advance(2.9)
    assert not h.is_closed()
    assert warnings(caplog) == []
    h.advance(0.1)  # 5 s after the start
    assert h.is_closed()
    assert len(warnings(caplog)) == 1


def test_the_end_does_not_wait_for_a_topic_that_has_been_missing_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    h = audited(has_topic=False)
    h.send_acknowledged()
    h.advance(5.0)
    close(h)
    assert h.is_closed()
    (warning,) = warnings(caplog)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in warning


def test_the_end_waits_for_the_partitions_of_a_topic_that_is_there(caplog: pytest.LogCaptureFixture) -> None:
    h = audited(has_topic=False)
    h.topics[AUDIT] = Topic(MARKS.topic_id, [])
    h.advance(1.0)
    h.send_acknowledged()
    h.advance(60.0)
    close(h)
    h.advance(4.9)
    assert not h.is_closed()
    h.advance(0.1)
    assert h.is_closed()
    (warning,) = warnings(caplog)
    assert "did not become known" in warning


def test_a_topic_that_comes_while_the_end_waits_gets_the_mark() -> None:
    h = audited(has_topic=False)
    h.send_acknowledged()
    close(h)
    assert not h.is_closed()
    h.topics[AUDIT] = MARKS
    h.advance(1.0)
    assert len(marks(h)) == 1
    h.acknowledge(of_marks(h)[0])
    assert h.is_closed()


@pytest.mark.parametrize(("spare", "runs"), [(0, 1), (-1, 0), (49, 1), (99, 1), (100, 2), (10_000, 3)])
def test_a_mark_has_as_many_runs_as_fit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, spare: int, runs: int
) -> None:
    # The header of a batch has 61 bytes (KIP-98). Besides key and value a record needs at most 36: attributes, a
    # timestamp of 10, and five numbers of 5 each.
    monkeypatch.setattr("aioproduce.core.exchanges.audit_marks._MOST_RUNS", 4)
    text = len("closing 3 at 1000000")
    one_run = 61 + 36 + len(b"key") + text + 100
    source = Source(inf, per_run=100)
    h = audited(source=source, max_request_size=one_run + spare)
    for number in range(6):
        h.send(value=b"")
        h.answer(code=87 if number % 2 else 0, offset=number)
    close(h)
    assert source.asked[-1] == runs
    assert len(marks(h)) == 1
    assert warnings(caplog) == []
    h.acknowledge(of_marks(h)[0])
    assert h.is_closed()


def test_a_mark_that_does_not_fit_without_any_run_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(inf, filler=1000)
    h = audited(source=source, max_request_size=1000)
    h.send(value=b"")
    h.acknowledge()
    close(h)
    assert h.is_closed()
    assert marks(h) == []
    (warning,) = warnings(caplog)
    assert "max.request.size is 1000" in warning


def test_a_record_that_fills_more_than_a_batch_has_room_for_its_number() -> None:
    h = audited(batch_size=100)
    h.send(value=bytes(300))
    ((_, batch),) = h.produce().batches.items()
    assert batch.values == (bytes(300),)
    # 61 bytes of header; the header `ap.id` takes 1 + 5 + 1 + 24 and its count is in any record.
    assert len(batch.content) >= 61 + 300 + 31


def test_memory_of_a_mark_is_let_go_of_with_its_release() -> None:
    """As a lease of the pool is: a holder of the batch holds no bytes."""
    memory = OwnMemory(100)
    assert len(memory.buffer) == 100
    memory.release()
    assert not memory.buffer


def test_marks_take_nothing_of_the_buffer() -> None:
    h = audited(10.0)
    h.send_acknowledged()
    h.advance(10.0)
    assert of_marks(h)
    assert h.outstanding == 0
    h.acknowledge(of_marks(h)[0])
    assert h.outstanding == 0
