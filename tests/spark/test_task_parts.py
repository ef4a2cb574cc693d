"""The parts of a task by themselves: ids, headers, order, pace, marks."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.audit.mark import MAX_FAILED_RANGES
from aioproduce.audit.stamp import pack_stamp
from aioproduce.spark.errors import OptionError, RowError
from aioproduce.spark.ids import TaskIdentity, record_id, task_id
from aioproduce.spark.marks import closing_mark
from aioproduce.spark.order import sorted_rows, unstable_operator
from aioproduce.spark.pacing import Pacer, TokenBucket
from aioproduce.spark.stamping import HeaderMaker, stamps_of_column
from tests.spark.task_bench import by_value, cluster, identity, options_for, rows, write

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
NUMBERS = st.integers(0, 2**31 - 1)

# -- ids ---


@pytest.mark.parametrize(
    ("of", "printed"),
    [
        # printf '%s\n%d\n%d' RUN BATCH PARTITION | b2sum -l 128
        (("a run", 0, 0), "ffa2797bab6c2e3c7e11a68a3a42a22b"),
        (("é\n1", 12, 2147483647), "442e0b1f24506225b6231eae6ec63d98"),
    ],
)
def test_a_tasks_id_is_what_b2sum_prints(of: tuple[str, int, int], printed: str) -> None:
    assert task_id(*of).hex() == printed


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), NUMBERS, NUMBERS), max_size=30))
def test_other_tasks_have_other_ids_and_the_same_one_always_has_its_own(
    tasks: list[tuple[str, int, int]],
) -> None:
    ids = {task: task_id(*task) for task in tasks}
    assert len(set(ids.values())) == len(ids)
    assert all(len(each) == 16 and task_id(*task) == each for task, each in ids.items())


@settings(deadline=None)
@given(st.text(max_size=5), NUMBERS, NUMBERS)
def test_no_run_can_be_written_so_that_it_looks_like_another(run: str, batch: int, partition: int) -> None:
    assert task_id(f"{run}\n{batch}", partition, 0) != task_id(run, batch, partition)


class Context:
    """Of a task, as `pyspark.TaskContext` tells it."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key.replace(".", "_"))

    def partitionId(self) -> int:
        return 3

    def attemptNumber(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return 77


def test_the_identity_that_spark_tells() -> None:
    stream = TaskIdentity.of_context(Context(streaming_sql_batchId="9", sql_streaming_queryId="q"))
    assert stream == TaskIdentity("q", 9, 3, 1, 77)
    assert str(stream) == "query q, batch 9, partition 3, attempt 1"
    assert stream.producer_id(None) == task_id("q", 9, 3)
    assert stream.producer_id("mine") == task_id("mine", 9, 3)
    batch = TaskIdentity.of_context(Context())
    assert batch == TaskIdentity(None, None, 3, 1, 77)
    assert batch.producer_id("mine") == task_id("mine", 0, 3)
    with pytest.raises(OptionError, match=r"write\.id"):
        batch.producer_id(None)


# -- headers ---


@settings(deadline=None)
@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**40),
    st.integers(1, 40),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=80)), max_size=3),
)
def test_numbered_headers_are_what_the_format_says(
    producer_id: bytes, first: int, count: int, static: list[tuple[str, bytes]]
) -> None:
    def varint(number: int) -> bytes:
        """Zigzag, least group first, by the protocol's description."""
        raw, out = number * 2, b""
        while raw >= 0x80:
            out, raw = out + bytes([raw & 0x7F | 0x80]), raw >> 7
        return out + bytes([raw])

    def encoded(headers: list[tuple[str, bytes]]) -> bytes:
        parts = [varint(len(part)) + part for name, value in headers for part in (name.encode(), value)]
        return varint(len(headers)) + b"".join(parts)

    found = HeaderMaker(static).numbered(producer_id, first, count)
    assert [row.tobytes() for row in found] == [
        encoded([*static, ("ap.id", pack_stamp(producer_id, first + row))]) for row in range(count)
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3),
        min_size=1,
        max_size=20,
    ),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=5)), max_size=2),
    st.booleans(),
)
def test_a_rows_own_headers_come_first(
    own: list[Any], static: list[tuple[str, bytes]], is_stamped: bool
) -> None:
    of_rows = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in own]
    column = pa.array([None, *of_rows], HEADERS).slice(1)
    stamps = HeaderMaker().numbered(bytes(16), 0, len(own))[:, -24:] if is_stamped else None
    found = HeaderMaker(static).joined(column, stamps).to_pylist()
    assert [[(pair["key"], pair["value"]) for pair in row or []] for row in found] == [
        [*(row or []), *static, *([("ap.id", pack_stamp(bytes(16), place))] if is_stamped else [])]
        for place, row in enumerate(own)
    ]


def test_ids_from_a_column() -> None:
    def hashed(value: bytes) -> bytes:
        return hashlib.blake2b(b"scope\n" + value, digest_size=16).digest() + bytes(8)

    def stamps(array: Any) -> list[bytes]:
        return [row.tobytes() for row in stamps_of_column(array, "scope")]

    whole = bytes(range(24))
    assert stamps(pa.array([whole, b"short", b""])) == [whole, hashed(b"short"), hashed(b"")]
    assert stamps(pa.array(["x" * 24, "é"])) == [hashed(b"x" * 24), hashed("é".encode())]
    assert stamps(pa.array([5, -1], pa.int32())) == [hashed(b"5"), hashed(b"-1")]
    assert record_id("scope", b"5") == hashed(b"5")[:16]


def test_ids_of_a_column_do_not_hang_on_the_task() -> None:
    batch = pa.record_batch({"value": [b"a", b"b"], "order_id": [7, 8]})
    with cluster(t=1) as found:
        options = replace(options_for(found), id_column="order_id")
        write(options, [batch], identity(batch=1, partition=0))
        once = by_value(found)
        report = write(options, [batch.take(pa.array([1, 0]))], identity(batch=2, partition=5))
        assert by_value(found) == once
        assert found.records("aioproduce.audit") == []
        assert (report.producer_id, report.next_row) == ("", 0)
        with pytest.raises(RowError, match="row 1 has a null in column 'order_id'") as caught:
            write(options, [pa.record_batch({"value": [b"a", b"b"], "order_id": [7, None]})])
        assert (caught.value.row, caught.value.column) == (1, "order_id")


# -- order ---


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_sorted_rows_do_not_hang_on_the_order_they_came_in(rng: random.Random, batch_size: int) -> None:
    cells = [
        {"key": key, "value": value, "headers": [{"key": "h", "value": value}] if key else None}
        for key in (None, b"", b"k")
        for value in (None, b"", b"a", b"ab", b"b", b"b")
    ]
    schema = pa.schema({"key": pa.binary(), "value": pa.binary(), "headers": HEADERS})

    def written() -> list[Any]:
        shuffled = list(cells)
        rng.shuffle(shuffled)
        batches = pa.Table.from_pylist(shuffled, schema).to_batches(max_chunksize=batch_size)
        return [row for batch in sorted_rows(batches) for row in batch.to_pylist()]

    first = written()
    assert first == written()
    assert sorted(map(repr, first)) == sorted(map(repr, cells))


def test_sorting_makes_numbers_stable() -> None:
    held = rows(200, batch_size=30)
    backwards = [batch.take(pa.array(range(len(batch) - 1, -1, -1))) for batch in reversed(held)]
    with cluster(t=2) as found:
        options = options_for(found, row_order="sort")
        write(options, held)
        once = by_value(found)
        write(options, backwards, identity(attempt=1))
        assert by_value(found) == once
        assert len(found.records("t")) == 400


SHUFFLED = """
AdaptiveSparkPlan isFinalPlan=false
+- Project [id#1]
   +- Exchange RoundRobinPartitioning(4), REPARTITION_BY_NUM, [plan_id=11]
      +- Range (0, 10, step=1, splits=2)
"""
SORTED = """
*(2) Project [id#1]
+- *(2) Sort [id#1 ASC NULLS FIRST], false, 0
   +- Exchange hashpartitioning(id#1, 4), REPARTITION_BY_NUM, [plan_id=11]
      +- *(1) Range (0, 10, step=1, splits=2)
"""
JOINED = """
*(2) Project [id#1]
+- *(2) BroadcastHashJoin [id#1], [id#2], Inner, BuildRight, false
   :- *(2) Range (0, 10, step=1, splits=2)
   +- BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, false]),false), [plan_id=20]
      +- Exchange SinglePartition, ENSURE_REQUIREMENTS, [plan_id=19]
         +- *(1) Range (0, 10, step=1, splits=2)
"""
MERGED = """
*(5) Project [id#1]
+- *(5) SortMergeJoin [k#1], [k#2], Inner
   :- *(2) Sort [k#1 ASC NULLS FIRST], false, 0
   :  +- Exchange hashpartitioning(k#1, 4), ENSURE_REQUIREMENTS, [plan_id=3]
   :     +- *(1) Range (0, 10, step=1, splits=2)
   +- *(4) Sort [k#2 ASC NULLS FIRST], false, 0
      +- ReusedExchange [k#2], Exchange hashpartitioning(k#1, 4), ENSURE_REQUIREMENTS, [plan_id=3]
"""
RUN = """
AdaptiveSparkPlan isFinalPlan=true
+- == Final Plan ==
   *(2) Sort [id#1 ASC NULLS FIRST], false, 0
   +- AQEShuffleRead coalesced
      +- ShuffleQueryStage 0
         +- Exchange hashpartitioning(id#1, 4), REPARTITION_BY_NUM, [plan_id=11]
+- == Initial Plan ==
   Exchange hashpartitioning(id#1, 4), REPARTITION_BY_NUM, [plan_id=8]
"""
ONE_SIDE = """
Union
:- *(1) Sort [id#1 ASC NULLS FIRST], false, 0
:  +- Exchange rangepartitioning(id#1 ASC NULLS FIRST, 4), ENSURE_REQUIREMENTS, [plan_id=1]
:     +- *(1) Range (0, 10, step=1, splits=2)
+- *(2) HashAggregate(keys=[id#2], functions=[])
   +- Exchange hashpartitioning(id#2, 4), ENSURE_REQUIREMENTS, [plan_id=2]
      +- *(2) Range (0, 10, step=1, splits=2)
"""


@pytest.mark.parametrize(
    ("plan", "blamed"),
    [
        ("*(1) Range (0, 10, step=1, splits=2)", None),
        (SHUFFLED, "Exchange RoundRobinPartitioning(4)"),
        (SORTED, None),
        (JOINED, None),
        (ONE_SIDE, "Exchange hashpartitioning(id#2, 4)"),
        (MERGED, "Exchange hashpartitioning(k#1, 4)"),
        ("Sort [k#1 ASC NULLS FIRST], false, 0\n+- " + MERGED.strip().replace("\n", "\n   "), None),
        (RUN, None),
        # df.limit(10), and df.orderBy("id").limit(10)
        ("CollectLimit 10\n+- *(1) Range (0, 100, step=1, splits=2)", "CollectLimit 10"),
        (
            "TakeOrderedAndProject(limit=10, orderBy=[id#1 ASC])\n+- *(1) Range (0, 100, step=1, splits=2)",
            None,
        ),
    ],
    ids=[
        *("scan", "shuffled", "sorted", "broadcast", "one side", "merged", "merged and sorted", "run"),
        *("limit", "sorted limit"),
    ],
)
def test_which_shuffle_leaves_the_order_open(plan: str, blamed: str | None) -> None:
    found = unstable_operator(plan)
    assert found is None if blamed is None else (found or "").startswith(blamed)


# -- pace ---


@settings(deadline=None)
@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100_000)), min_size=1, max_size=40),
)
def test_no_span_of_time_sees_more_than_its_rate(rate: float, steps: list[tuple[float, int]]) -> None:
    now, sent = 0.0, []
    bucket = TokenBucket(rate, now)
    for passes, units in steps:
        now += passes
        now += bucket.take(units, now)
        sent.append((now, units))
    for first, (since, _) in enumerate(sent):
        total = 0
        for until, units in sent[first:]:
            # What is handed over at the end of the span is the one that may be more.
            assert total <= rate * (until - since + 1) * (1 + 1e-9) + max(units for _, units in sent)
            total += units


def test_both_limits_hold_and_none_waits_for_nothing() -> None:
    waits: list[float] = []
    pacer = Pacer(100, 1000, clock=lambda: 0.0, sleep=waits.append)
    pacer.wait(100, 10)
    pacer.wait(50, 10)  # the second's worth of records is used up, and not in debt
    pacer.wait(1, 2000)  # 50 records in debt
    pacer.wait(1, 1)  # and 1,020 bytes
    assert waits == [0.5, pytest.approx(1.02)]
    assert pacer.waited == pytest.approx(1.52)
    Pacer(0, 0, clock=lambda: 0.0, sleep=waits.append).wait(10**9, 10**12)
    assert len(waits) == 2
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(-1, 0)


@pytest.mark.parametrize("batch_size", [400, 100, 7])
@pytest.mark.parametrize("limit", ["rate_limit_records", "rate_limit_bytes"])
def test_a_task_is_held_to_its_rate_whatever_the_batches_are(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, limit: str
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(
        "aioproduce.spark.task.Pacer", partial(Pacer, clock=lambda: sum(waits), sleep=waits.append)
    )
    with cluster(t=1) as found:
        per_row = 1 if limit == "rate_limit_records" else 10
        batches = rows(400, batch_size, key=[b"key"] * 400)
        batches = [batch.set_column(0, "value", pa.array([b"1234567"] * len(batch))) for batch in batches]
        report = write(options_for(found, **{limit: str(50 * per_row)}), batches)
        numbers = [int.from_bytes(dict(r.headers)["ap.id"][16:], "big") for r in found.records("t")]  # type: ignore[index]
    assert (report.rows, report.batches) == (400, len(batches))
    assert numbers == list(range(400))
    # A second's worth is there at once; of what goes beyond each piece is a debt, which the next one waits for.
    assert 6.75 <= sum(waits) <= 7
    assert max(waits) <= 0.25 * (1 + 1e-9)


def test_pieces_are_all_rows_and_each_once() -> None:
    pacer = Pacer(10, 1000)
    assert list(pacer.pieces(5, 0)) == [(0, 2), (2, 2), (4, 1)]
    assert list(pacer.pieces(3, 30_000)) == [(0, 1), (1, 1), (2, 1)]
    assert list(Pacer(0, 1000).pieces(100, 1000)) == [(0, 25), (25, 25), (50, 25), (75, 25)]
    assert list(Pacer(1_000_000, 0).pieces(10_000, 10**6)) == [(0, 10_000)]


# -- marks ---


def test_a_mark_holds_so_many_ranges_and_counts_the_rest() -> None:
    refused = range(0, 2 * MAX_FAILED_RANGES + 20, 2)
    mark = closing_mark(
        bytes(16),
        identity(),
        "q",
        next_row=5000,
        failed=refused,
        topics={"t": 5000 - len(refused)},
        client_id="c",
    )
    assert (len(mark.failed), mark.failed_more, mark.failed_count) == (MAX_FAILED_RANGES, 10, len(refused))
