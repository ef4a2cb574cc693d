"""One task of the sink, end to end: rows, ids, marks, reports."""

from __future__ import annotations

import json

from aioproduce.audit.mark import Mark
from tests.spark.task_bench import AUDIT, QUERY, by_value, cluster, identity, options_for, rows, write

# printf '%s\n0\n3' 5f0c9f2e-7a55-4d4c-9b5e-1f2a3b4c5d6e | b2sum -l 128
TASK_3 = "99ff4717ad3ae0135c378732b5236bc0"


def test_rows_arrive_with_their_ids_and_a_mark_ends_them() -> None:
    with cluster(t=3) as found:
        report = write(options_for(found), rows(250), identity(partition=3))
        records = by_value(found)
        marks = [Mark.from_json(record.value) for record in found.records(AUDIT)]
        keys = [record.key for record in found.records(AUDIT)]
    assert {value: headers["ap.id"] for value, headers in records.items()} == {
        b"row-%d" % row: bytes.fromhex(TASK_3) + row.to_bytes(8, "big") for row in range(250)
    }
    assert (report.rows, report.batches, report.partition, report.next_row) == (250, 3, 3, 250)
    assert (report.topics, report.producer_id) == ({"t": 250}, TASK_3)
    assert report.bytes == sum(len(b"row-%d" % row) for row in range(250))
    assert report.requests >= 1
    assert 0 < report.ack_p50_ms <= report.ack_p99_ms
    assert keys == [TASK_3.encode()]
    [mark] = marks
    assert (mark.kind, mark.producer_id.hex(), mark.next, mark.acknowledged) == ("closing", TASK_3, 250, 250)
    assert (mark.failed, mark.topics) == ((), {"t": 250})
    assert mark.run == {"query": QUERY, "batch": 0, "partition": 3, "attempt": 0}


def test_a_replay_writes_the_same_ids_whatever_the_batches_are() -> None:
    with cluster(t=3) as found:
        write(options_for(found), rows(250, batch_size=100))
        write(options_for(found), rows(250, batch_size=7), identity(attempt=1))
        twice = [(record.value, record.headers) for record in found.records("t")]
        marks = [json.loads(record.value or b"") for record in found.records(AUDIT)]
    assert len(twice) == 500
    assert len(set(twice)) == 250
    assert marks[0]["producer_id"] == marks[1]["producer_id"]
    assert [mark["run"]["attempt"] for mark in marks] == [0, 1]


def test_without_a_stamp_there_is_neither_header_nor_mark() -> None:
    with cluster(t=1) as found:
        report = write(options_for(found, stamp="off"), rows(5))
        assert [record.headers for record in found.records("t")] == [()] * 5
        assert found.records(AUDIT) == []
    assert (report.producer_id, report.next_row, report.rows) == ("", 0, 5)
