"""A failed load is carried on: `--failed-to`, `--from-failed`, `--from-line`. Each record is in the log once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.cli.failed_records import FailedFile, FailedRecord, PossiblyWritten, failed_records
from aioproduce.cli.line_format import BadLineError, LeftOutError
from aioproduce.testing import FakeCluster
from aioproduce.wire.error_codes import INVALID_RECORD, REQUEST_TIMED_OUT
from tests.cli.command import ENVIRONMENT, Outcome, finish, run_cli
from tests.gate.marks import most_extended

# Each batch is tried once, so that what the cluster answers is what becomes of the record.
ONCE = ("-X", "enable.idempotence=false", "-X", "retries=0")


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def in_the_log(cluster: FakeCluster, topic: str = "t") -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((record.key, record.value) for record in cluster.records(topic))


async def send(cluster: FakeCluster, *arguments: str, stdin: bytes | None = None) -> Outcome:
    return await run_cli("send", "t", "-b", cluster.bootstrap_servers, "--json", *arguments, stdin=stdin)


async def test_after_the_second_run_each_record_is_in_the_log_once(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    lines = [b"key%d;value %d" % (number, number) for number in range(600)]
    lines[299] = b"no separator"
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    cluster.faults.fail_produce(INVALID_RECORD, times=None, partition=1)
    cluster.faults.fail_produce(REQUEST_TIMED_OUT, times=None, partition=3, after_append=True)

    outcome = await send(
        *(cluster, *ONCE, "-K", ";", "-H", "source=test", "--on-error", "skip", "--failed-to", str(first)),
        stdin=b"\n".join(lines),
    )

    assert outcome.code == 1
    rows = rows_of(first)
    written = {record.value for record in cluster.records("t", 3)}
    assert written
    assert len(rows) == outcome.json["failed"] + outcome.json["rejected_lines"]
    assert sum(row["possibly_written"] for row in rows) == outcome.json["possibly_written"] == len(written)
    for row in rows:
        line = lines[row["line"] - 1]
        assert (row["file"], row["topic"]) == ("<stdin>", "t")
        if row["line"] == 300:
            assert row["error"] == "BadLineError"
            assert row["rejected_line"] == "no separator"
            assert "value" not in row
            continue
        assert f"{row['key']};{row['value']}".encode() == line
        assert row["headers"] == [["source", "test"]]
        assert row["error"] == "BrokerRejectedError"
        assert row["possibly_written"] == (row["value"].encode() in written)
    assert f"{len(rows)} records or lines that failed are in {first}" in outcome.err

    cluster.faults.clear()
    outcome = await send(
        *(cluster, "--from-failed", str(first), "--possibly-written", "skip"),
        *("--on-error", "skip", "--failed-to", str(second)),
    )

    assert outcome.code == 6
    assert (outcome.json["left_out"], outcome.json["rejected_lines"]) == (len(written), 1)
    expected = Counter(tuple(line.split(b";")) for line in lines if b";" in line)
    assert in_the_log(cluster) == expected
    assert {tuple(record.headers) for record in cluster.records("t")} == {(("source", b"test"),)}
    [row] = rows_of(second)
    assert row["rejected_line"] == "no separator"


@pytest.mark.extended("starts five processes; the tests above and below stay in the gate")
async def test_what_may_be_written_and_what_is_no_record_need_a_decision(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "failed.jsonl"
    cluster.faults.fail_produce(REQUEST_TIMED_OUT, times=None, after_append=True)
    outcome = await send(
        *(cluster, *ONCE, "-K", ";", "--on-error", "skip", "--failed-to", str(file)),
        stdin=b"a;1\nno separator\nb;2\n",
    )
    assert outcome.code == 1
    cluster.faults.clear()
    requests = cluster.requests.count()

    undecided = await send(cluster, "--from-failed", str(file), "--on-error", "skip")
    rejected = await send(cluster, "--from-failed", str(file), "--possibly-written", "skip")

    assert (undecided.code, rejected.code) == (2, 2)
    assert f"2 of the records in {file} may be in the log already" in undecided.err
    assert "has no record, but a line that was rejected before: has no key separator ';'" in rejected.err
    assert cluster.requests.count() == requests

    # Mended by hand, as the message says.
    rows = [row | ({} if "value" in row else {"key": "no", "value": "separator"}) for row in rows_of(file)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    skipping = await send(cluster, "--from-failed", str(file), "--possibly-written", "skip")
    assert (skipping.code, skipping.json["left_out"]) == (0, 2)
    assert in_the_log(cluster) == {(b"a", b"1"): 1, (b"b", b"2"): 1, (b"no", b"separator"): 1}


@pytest.mark.extended("starts processes; the tests above stay in the gate")
async def test_what_may_be_written_is_sent_again_where_the_user_says_so(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    lines = [b"line %d" % number for number in range(50)]
    file = tmp_path / "failed.jsonl"
    cluster.faults.fail_produce(REQUEST_TIMED_OUT, times=None)  # and nothing is appended

    outcome = await send(
        *(cluster, *ONCE, "-p", "2", "--on-error", "skip", "--failed-to", str(file)),
        stdin=b"\n".join(lines),
    )
    assert (outcome.code, outcome.json["possibly_written"]) == (1, 50)
    assert cluster.records("t") == []
    cluster.faults.clear()

    outcome = await send(cluster, "--from-failed", str(file), "--possibly-written", "send")

    assert outcome.code == 0
    assert [record.value for record in cluster.records("t", 2)] == lines
    assert len(cluster.records("t")) == 50


async def test_a_run_that_stopped_goes_on_with_the_next_line(cluster: FakeCluster, tmp_path: Path) -> None:
    lines = [b"line %d" % number for number in range(3000)]
    for place, name in enumerate("abc"):
        (tmp_path / name).write_bytes(b"\n".join(lines[1000 * place : 1000 * (place + 1)]))
    files = [str(tmp_path / name) for name in "abc"]
    failed = tmp_path / "failed.jsonl"
    cluster.faults.fail_produce(INVALID_RECORD, topic="one")
    to_one = ("send", "one", "-b", cluster.bootstrap_servers, "--json")

    # Slow enough that the failure is known before the second file ends.
    stopped = await run_cli(
        *(*to_one, *ONCE, *files, "--failed-to", str(failed), "-X", "linger.ms=0", "--rate", "20000")
    )

    assert stopped.code == 1
    place, number = files.index(stopped.json["next_line"]["file"]), stopped.json["next_line"]["line"]
    assert stopped.json["sent"] == 1000 * place + number - 1
    assert stopped.json["failed"] == len(rows_of(failed)) > 0
    assert f"not sent: {files[place]} from line {number:,} on" in stopped.err
    assert f"--from-line {number}" in stopped.err

    again = await run_cli(*to_one, "--from-failed", str(failed))
    rest = await run_cli(*to_one, *files[place:], "--from-line", str(number))

    assert (again.code, rest.code) == (0, 0)
    assert rest.json["next_line"] is None
    assert Counter(record.value for record in cluster.records("one")) == Counter(lines)


@pytest.mark.extended("starts processes; the tests above stay in the gate")
async def test_a_line_that_is_beyond_the_end(cluster: FakeCluster) -> None:
    at_the_end = await send(cluster, "--from-line", "3", stdin=b"a\nb\n")
    beyond = await send(cluster, "--from-line", "4", stdin=b"a\nb\n")

    assert (at_the_end.code, at_the_end.json["sent"]) == (0, 0)
    assert (beyond.code, beyond.json["sent"]) == (2, 0)
    assert "--from-line 4: <stdin> has 2 lines" in beyond.err


@pytest.mark.extended("starts processes; the tests above stay in the gate")
async def test_a_file_is_never_written_over_and_an_empty_one_is_not_left(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    kept, new = tmp_path / "kept.jsonl", tmp_path / "new.jsonl"
    kept.write_text("of yesterday")

    there = await send(cluster, "--failed-to", str(kept), stdin=b"a\n")
    nowhere = await send(cluster, "--failed-to", str(tmp_path / "no" / "folder"), stdin=b"a\n")
    fine = await send(cluster, "--failed-to", str(new), stdin=b"a\n")

    assert (there.code, kept.read_text()) == (2, "of yesterday")
    assert "the file exists, and may hold the failed records of an earlier run" in there.err
    assert nowhere.code == 2
    assert "No such file or directory" in nowhere.err
    assert (fine.code, fine.err, new.exists()) == (0, "", False)
    assert len(cluster.records("t")) == 1


@pytest.mark.extended("starts processes; the tests above stay in the gate")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no ulimit")
async def test_a_disk_that_is_full_ends_the_run(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    process = await asyncio.create_subprocess_shell(
        f'ulimit -f 0; exec "$PYTHON" -m aioproduce.cli send t -b {cluster.bootstrap_servers} -K ";" '
        f"--on-error skip --failed-to {file}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHON": sys.executable},
    )
    outcome = await finish(process, b"no separator\n" + b"a;b\n" * 2000)

    assert outcome.code == 2
    assert f"--failed-to {file} cannot be written: File too large" in outcome.err
    assert len(cluster.records("t")) < 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    most_extended(
        [
            (["--from-failed", "{file}", "-K", ";"], "--key-separator: leave it out"),
            (["--from-failed", "{file}", "other.txt"], "FILES: leave it out"),
            (["--from-failed", "{file}"], "line 1: is not a line that --failed-to wrote"),
            (["--from-failed", "no-such-file"], "cannot read 'no-such-file': No such file"),
            (["--possibly-written", "send"], "give both"),
        ],
        one_in=3,
        reason="starts a process for each case",
    ),
)
async def test_wrong_usage(cluster: FakeCluster, tmp_path: Path, arguments: list[str], message: str) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"customer": "ann"}\n')

    outcome = await send(cluster, *(argument.format(file=file) for argument in arguments), stdin=b"a\n")

    assert outcome.code == 2
    assert message in outcome.err
    assert cluster.requests.count() == 0


@pytest.mark.extended("starts processes; the tests above stay in the gate")
async def test_a_record_that_the_producer_refuses_is_kept_as_a_record(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "failed.jsonl"
    value = b"x" * 1000
    small = ("-X", "max.request.size=1020")

    outcome = await send(cluster, "-K", ";", *small, "--failed-to", str(file), stdin=b"key;" + value)

    assert outcome.code == 2
    [row] = rows_of(file)
    assert (row["error"], row["key"], row["value"]) == ("RecordTooLargeError", "key", value.decode())
    outcome = await send(cluster, "--from-failed", str(file))
    assert outcome.code == 0
    assert in_the_log(cluster) == {(b"key", value): 1}


@pytest.mark.extended("starts processes; the tests above stay in the gate")
async def test_a_line_that_is_too_long_to_be_kept_is_named(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"

    outcome = await send(
        *(cluster, "--on-error", "skip", "--failed-to", str(file)),
        stdin=b"before\n" + b"x" * 5_000_000 + b"\nafter",
    )

    assert outcome.code == 6
    [row] = rows_of(file)
    assert (row["line"], row["rejected_line"]) == (2, None)
    assert "max.request.size" in row["message"]
    assert sorted(record.value or b"" for record in cluster.records("t")) == [b"after", b"before"]


# -- the format ---

ANY = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
RECORDS = st.builds(
    FailedRecord,
    key=ANY,
    value=ANY,
    partition=st.none() | st.integers(min_value=0, max_value=2**31 - 1),
    headers=st.none() | st.lists(st.tuples(st.text(max_size=10), ANY), min_size=1, max_size=3),
)


@given(records=st.lists(RECORDS, max_size=5))
def test_a_record_is_read_as_it_was_written(
    records: list[FailedRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("failed") / "failed.jsonl"
    file = FailedFile(str(path), "t")
    for number, record in enumerate(records, 1):
        file.add_record("input", number, record, ValueError("why"))
    file.close()

    lines = path.read_bytes().split(b"\n")[:-1] if records else []
    restore = failed_records("t", None)
    assert [restore(line) for line in lines] == records


ROW = {"error": "E", "possibly_written": False, "topic": "t", "value": "v"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROW | {"topic": "other"}, "is of topic 'other', not of 't'"),
        (ROW | {"value": 1}, "has a value that is neither a text"),
        (ROW | {"value": {"base64": "?"}}, "has a value that is neither a text"),
        (ROW | {"key": {"base64": None}}, "has a key that is neither a text"),
        (ROW | {"key": "\ud800"}, "has a key that is neither a text"),
        (ROW | {"partition": -1}, "has a partition"),
        (ROW | {"partition": True}, "has a partition"),
        (ROW | {"headers": [["name"]]}, "has headers"),
        (ROW | {"headers": {"name": "value"}}, "has headers"),
        (ROW | {"vlaue": "v"}, "is not a line that --failed-to wrote"),
        ([ROW], "is not a line that --failed-to wrote"),
    ],
)
def test_a_line_that_somebody_has_spoiled(row: object, message: str) -> None:
    with pytest.raises(BadLineError, match=message):
        failed_records("t", None)(json.dumps(row).encode())


def test_a_choice_is_about_what_may_be_written_only() -> None:
    maybe = json.dumps(ROW | {"possibly_written": True}).encode()
    surely_not = json.dumps(ROW).encode()

    assert failed_records("t", PossiblyWritten.SEND)(maybe).value == b"v"
    assert failed_records("t", PossiblyWritten.SKIP)(surely_not).value == b"v"
    with pytest.raises(LeftOutError):
        failed_records("t", PossiblyWritten.SKIP)(maybe)


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    file = FailedFile(str(path), "t")
    file.add_line("caf\udce9.txt", 1, b"line", ValueError("why"))
    file.close()

    assert json.loads(path.read_bytes())["file"] == "caf\udce9.txt"
