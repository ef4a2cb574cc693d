"""The picture of `aioproduce top`: whatever is in it, it is as large as the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aioproduce.cli.top_view import count, milliseconds, picture, sparkline
from aioproduce.dashboard.reading import STAGES

TIMES = {"avg": 1.5, "p50": 1.0, "p99": 10.0, "p999": 100.0, "max": 100.0}
NOTHING = dict.fromkeys(TIMES)


def reading(**changes: Any) -> dict[str, Any]:
    return {
        "client_id": "shop",
        "limits": {"linger": 5.0, "request_timeout": 3e4, "delivery_timeout": 1.2e5, "window": 6e4},
        "records_per_s": 1500.0,
        "bytes_per_s": 3e6,
        "retries_per_s": 0.0,
        "errors_per_s": 0.0,
        "totals": {"records": 1.0, "retries": 0.0, "errors": 0.0, "unobserved": 0.0, "exhausted": 0.0},
        "latency": TIMES,
        "loop_lag": TIMES,
        "throttle": TIMES,
        "stages": dict.fromkeys(STAGES, TIMES) | {"retry": NOTHING},
        "buffer": {"total": 1000, "used": 250, "waiting": 2},
        "requests_in_flight": 4,
        "connections": 3,
        "topics": [
            {
                "name": name,
                "records_per_s": 5.0,
                "bytes_per_s": 6.0,
                "retries_per_s": 0.0,
                "errors_per_s": 0.0,
            }
            for name in ("clicks", "orders")
        ],
        "brokers": [
            {
                "name": str(number),
                "requests_per_s": 7.0,
                "bytes_per_s": 8.0,
                "in_flight": 1.0,
                "latency_avg": 9.0,
                "latency_max": None,
            }
            for number in range(3)
        ],
    } | changes


def drawn(
    *readings: dict[str, Any], width: int = 80, height: int = 24, status: str = "here", is_lost: bool = False
) -> list[str]:
    samples = [{"at_ms": 0, "interval_s": 1.0, "producers": [one]} for one in readings]
    text = picture(samples, chosen=0, width=width, height=height, status=status, is_lost=is_lost)
    return text.plain.split("\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.25, "0.25"),
        (12.34, "12.3"),
        (999.4, "999"),
        (1e3, "1 k"),
        (2.5e6, "2.5 M"),
        (4e9, "4 G"),
    ],
)
def test_counts(value: float | None, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.25, "0.25 ms"), (5.0, "5 ms"), (1500.0, "1.5 s"), (119e3, "119 s"), (120e3, "2 min")],
)
def test_times(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_bars() -> None:
    assert sparkline([0.0, 1.0, None, 7.0], 6) == "  ▁▂ █"
    assert sparkline([5.0, 0.0, 7.0], 2) == "▁█"
    assert sparkline([0.0, 0.0], 2) == "▁▁"
    assert sparkline([], 3) == "   "


def test_what_it_shows() -> None:
    lines = drawn(reading(), reading())
    text = "\n".join(lines)
    assert lines[0].startswith("aioproduce  shop")
    assert lines[0].endswith("here")
    assert "1.5 k/s" in lines[1]
    assert "3 MB/s" in lines[1]
    assert "25 %" in text
    assert "delivery.timeout.ms 2 min" in text
    (retry,) = [line for line in lines if line.startswith("retrying")]
    assert retry.endswith("none")
    assert "█" not in retry
    (flight,) = [line for line in lines if line.startswith("in flight")]
    assert flight.endswith("1 ms … 10 ms")
    (row,) = [line for line in lines if line.startswith("1 ")]
    assert row.split()[:6] == ["1", "1", "7", "9", "ms", "-"]


def test_transactions_have_a_line_of_their_own() -> None:
    transactions = {
        "id": "orders-1",
        "state": "in transaction",
        "open_ms": 250.0,
        "error": None,
        "committed_per_s": 12.0,
        "aborted_per_s": 0.0,
        "commit_avg": 3.0,
    }
    (line,) = [each for each in drawn(reading(transactions=transactions), width=120) if "orders-1" in each]
    told = "orders-1: in transaction for 250 ms, 12/s committed, 0/s aborted, a commit 3 ms"
    assert line.split(maxsplit=1) == ["transactions", told.ljust(101)]
    failed = transactions | {"state": "abortable error", "error": "a record failed"}
    (line,) = [each for each in drawn(reading(transactions=failed), width=120) if "orders-1" in each]
    assert line.rstrip().endswith("orders-1: abortable error: a record failed")
    assert drawn(reading(transactions=None)) == drawn(reading())


def test_bars_stand_where_the_axis_says() -> None:
    lines = drawn(reading(), width=120)
    (flight,) = [line for line in lines if line.startswith("in flight")]
    (ticks,) = [line for line in lines if line.strip().startswith("0.1 ms")]
    assert flight.index("█") == ticks.index(" 1 ms") + 1
    assert flight.rindex("█") == ticks.index("10 ms")
    assert flight.rindex("─") == ticks.index("100 ms")


def test_where_lines_are_few_it_says_how_many_are_left_out() -> None:
    brokers = [{**reading()["brokers"][0], "name": str(number)} for number in range(100)]
    lines = drawn(reading(brokers=brokers))
    # Six lines are left: the head, four brokers, and how many more.
    assert lines[-1].startswith("and 96 more"), lines
    assert [line.split()[0] for line in lines[-5:-1]] == ["0", "1", "2", "3"]


def test_warnings_and_what_is_late() -> None:
    """A broker that stopped answering stands there by name."""
    warning = "Broker 2 (kafka-2:9092) has not answered for 4 s: 3 requests and 1200 records wait for it."
    late = reading(
        warnings=[warning],
        ages={"record": {"ms": 70_000.0, "is_late": True}, "send": {"ms": 0.0, "is_late": False}},
    )
    lines = drawn(late, width=120)
    assert [line.rstrip() for line in lines if line.startswith("!")] == [f"! {warning}"]
    (ages,) = [line for line in lines if line.startswith("oldest record")]
    assert ages.split()[2:4] == ["70", "s"]
    # A service of an earlier version tells nothing of either.
    (ages,) = [line for line in drawn(reading(), width=120) if line.startswith("oldest record")]
    assert ages.split()[2] == "-"


def test_a_client_id_cannot_command_the_terminal() -> None:
    lines = drawn(reading(client_id="shop\x1b[2J\nmore"))
    assert lines[0].startswith("aioproduce  shop\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}more")
    assert len(lines) == 24


def test_that_it_is_lost() -> None:
    lines = drawn(reading(), status="LOST for 5 s", is_lost=True)
    assert lines[0].endswith("LOST for 5 s")
    assert "1.5 k/s" in lines[1]


def test_before_the_first_sample() -> None:
    assert "waiting for the first sample" in "\n".join(drawn())


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
numbers = st.one_of(st.none(), st.floats(0, 1e15))


@given(
    width=st.integers(1, 300),
    height=st.integers(1, 80),
    name=names,
    value=numbers,
    limit=numbers,
    rows=st.integers(0, 30),
)
def test_it_is_as_large_as_the_terminal(
    width: int, height: int, name: str, value: float | None, limit: float | None, rows: int
) -> None:
    times = dict.fromkeys(TIMES, value)
    one = reading(
        client_id=name,
        records_per_s=value,
        latency=times,
        stages=dict.fromkeys(STAGES, times),
        limits={"linger": 5.0, "request_timeout": 3e4, "delivery_timeout": limit, "window": 6e4},
        topics=[{**reading()["topics"][0], "name": name, "bytes_per_s": value}] * rows,
        brokers=[{**reading()["brokers"][0], "latency_avg": value}] * rows,
    )
    lines = drawn(one, width=width, height=height, status=name if name.isprintable() else "")
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_a_queue_on_disk_says_in_words_whether_it_takes_records() -> None:
    queue: dict[str, Any] = {
        "takes_records": True,
        "records": 1500.0,
        "bytes": 2e6,
        "is_estimate": True,
        "oldest_ms": 65_000.0,
        "drain_ms": None,
        "stored_per_s": 10.0,
        "forwarded_per_s": 0.0,
        "size": 3e6,
        "max_size": 6e6,
        "free": 1e9,
        "sync": TIMES,
        "group": 3.0,
        "blocked_topics": 1.0,
        "totals": {"full_wait": 0.0, "resend": 0.0, "dead_letter": 2.0, "damage": 0.0},
        "topics": [],
    }
    text = "\n".join(drawn(reading(spool=queue), width=120))
    assert "takes records, about 1.5 k records and 2 MB wait, the oldest for 65 s, empty in -" in text
    assert (
        "10/s put on disk, 0/s forwarded, a sync 10 ms (p99), 50 % full, 1 topics blocked, 2 dead letters"
        in text
    )
    full = drawn(reading(spool=queue | {"takes_records": False}), width=120)
    assert any("queue on disk      TAKES NO RECORDS" in line for line in full)
    assert "queue on disk" not in "\n".join(drawn(reading(spool=None), width=120))
