"""`benchmarks.spool`: its counts, its verdicts, and all of it once, small, on the null broker."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.spool import startup
from benchmarks.spool.always import batches_of
from benchmarks.spool.tables import PARTS
from benchmarks.spool.workload import Cost, paired, target
from tests.benchmarks.evidence_samples import FIGURES

ROOT = Path(__file__).parents[2]


def head(size: int, records: int, magic: int = 2) -> bytes:
    """A batch as Kafka's protocol guide has it: 61 bytes of head, and a rest. Its length counts from byte 12."""
    fields = (0, size - 12, 0, magic, 0, 0, records - 1, 0, 0, -1, -1, -1, records)
    return struct.pack(">qiibIhiqqqhii", *fields).ljust(size, b"r")


def test_batches_are_counted_up_to_what_is_none() -> None:
    assert batches_of(head(100, 3) + head(61, 1) + bytes(200)) == [(100, 3), (61, 1)]
    assert batches_of(head(100, 3, magic=1)) == []
    assert batches_of(b"") == []


def test_a_target_is_judged_by_the_median_of_its_rounds() -> None:
    assert target("rate", [0.1, 0.9, 0.8], 0.8).is_met
    assert not target("rate", [0.7, 0.9, 0.75], 0.8).is_met
    assert target("cost", [9.0, 0.2, 0.3], 0.3, is_least=False).is_met
    assert not target("cost", [0.31, 0.2, 0.4], 0.3, is_least=False).is_met
    assert target("rate", [3.0, 1.0, 2.0], 1.0).spread == (1.0, 3.0)


def test_a_cost_is_of_a_record() -> None:
    cost = Cost(2_000, 0.5, 0.004)
    assert (cost.rate, cost.cpu_us) == (4_000.0, 2.0)
    assert paired([1.0, 4.0], [2.0, 2.0]) == [0.5, 2.0]


def test_each_row_of_a_table_has_a_cell_for_each_heading() -> None:
    figures = FIGURES["spool"]
    for name, rows_of in PARTS.items():
        headings, *rows = rows_of(figures[name])
        assert rows, name
        assert all(len(row) == len(headings) for row in rows), name


def test_the_backlog_is_of_the_size_that_it_says_and_its_ends_have_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("BACKLOG", 20 * startup.SEGMENT), ("REAL", 1), ("_RECORDS", 1_000)):
        monkeypatch.setattr(startup, name, value)
    told = startup.prepare(tmp_path)
    (log,) = tmp_path.glob("**/logs/bench-0")
    files = sorted(log.glob("*.log"))
    assert told["segments"] == len(files) == 21
    assert told["real"] == 2
    assert [bool(batches_of(file.read_bytes())) for file in files] == [True, *[False] * 19, True]
    assert all(file.stat().st_size == startup.SEGMENT for file in files[1:-1])
    assert told["blocks"] < told["bytes"] / 4


@pytest.mark.extended("measures each part, and sends a million records")
def test_the_whole_program(tmp_path: Path) -> None:
    words = ("--quick", "--folder", str(tmp_path), "--json", str(tmp_path / "told.json"))
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.spool", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert set(told) == set(PARTS)
    assert all(row["measured"] != 0 for row in told["targets"])
    assert [file.name for file in tmp_path.iterdir()] == ["told.json"]
