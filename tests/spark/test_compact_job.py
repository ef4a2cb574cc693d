"""The job compact: what it takes, what it tells, and which batches it takes for safe. No JVM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioproduce.spark.__main__ import main
from aioproduce.spark.compaction import Compactor, Policy
from aioproduce.spark.errors import CheckpointError, OptionError
from aioproduce.spark.files import LocalFiles
from aioproduce.spark.jobs.compact import size_of
from aioproduce.spark.jobs.land import rows_since
from aioproduce.spark.lake import Lander, write_lander
from aioproduce.spark.lake_files import compact_lock
from aioproduce.spark.safety import safe_batches
from aioproduce.spark.store import Snapshot, read_consistently
from tests.spark.dying_compact import STEPS
from tests.spark.lake_harness import HOUR, OTHER_QUERY, QUERY, Lake

ROOT = Path(__file__).parents[2]


def write_checkpoint(path: Path, query: str, *, committed: int, planned: int) -> Path:
    """As Spark leaves it: a line of JSON, and a file for each batch."""
    for log, last in (("offsets", planned), ("commits", committed)):
        (path / log).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (path / log / str(number)).write_text("v1\n{}")
            (path / log / f".{number}.crc").write_bytes(b"crc")
    (path / "metadata").write_text(json.dumps({"id": query}))
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Four batches; the third of them is the last that is committed."""
    lake = Lake(tmp_path)
    for _ in range(4):
        lake.land()
    checkpoint = write_checkpoint(tmp_path / "checkpoint", QUERY, committed=2, planned=3)
    write_lander(str(lake.path), Lander(QUERY, str(checkpoint), 3, {}), LocalFiles())
    return lake


def compact(lake: Lake, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    code = main(["compact", "--lake", str(lake.path), "--json", *more])
    return code, json.loads(capsys.readouterr().out)


class TestSafety:
    def test_what_a_later_commit_has_sealed(self, lake: Lake) -> None:
        assert safe_batches(str(lake.path)).below == {QUERY: 2}
        assert safe_batches(str(lake.path), has_last=True).below == {QUERY: 3}

    def test_no_commit_yet(self, tmp_path: Path) -> None:
        checkpoint = write_checkpoint(tmp_path / "checkpoint", QUERY, committed=-1, planned=0)
        write_lander(str(tmp_path), Lander(QUERY, str(checkpoint), -1, {}), LocalFiles())
        safe = safe_batches(str(tmp_path))
        assert safe.why_not(f"batch={QUERY}-0") == "not committed yet, or the last committed one"

    def test_a_checkpoint_that_is_gone_or_anothers(self, lake: Lake, tmp_path: Path) -> None:
        write_lander(str(lake.path), Lander(OTHER_QUERY, str(tmp_path / "checkpoint"), 7, {}), LocalFiles())
        safe = safe_batches(str(lake.path))
        assert safe.gone == {OTHER_QUERY}
        assert safe.below == {QUERY: 2}
        retired = safe_batches(str(lake.path), retired=[OTHER_QUERY])
        assert retired.why_not(f"batch={OTHER_QUERY}-7") is None
        assert retired.why_not(f"batch={OTHER_QUERY}-8") is not None

    def test_a_checkpoint_that_was_moved(self, lake: Lake, tmp_path: Path) -> None:
        (tmp_path / "checkpoint").rename(tmp_path / "moved")
        assert safe_batches(str(lake.path)).gone == {QUERY}
        assert safe_batches(str(lake.path), checkpoints=[str(tmp_path / "moved")]).below == {QUERY: 2}

    def test_one_that_is_none(self, lake: Lake, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="is not a checkpoint"):
            safe_batches(str(lake.path), checkpoints=[str(tmp_path / "nowhere")])

    def test_retired_but_never_here(self, lake: Lake) -> None:
        with pytest.raises(OptionError, match=QUERY) as caught:
            safe_batches(str(lake.path), retired=[OTHER_QUERY])
        assert caught.value.option == "--retired"


@pytest.mark.extended("starts seven processes; effects that fail at each step stay in the gate")
def test_a_process_that_is_killed_at_each_step_in_turn(lake: Lake) -> None:
    """Each run goes on where the one before was killed; the last has nothing left to do."""
    for number, step in enumerate((*STEPS, STEPS[0])):
        command = [sys.executable, "-m", "tests.spark.dying_compact", str(lake.path), step]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == (-signal.SIGKILL if number < len(STEPS) else 0), (step, done.stderr)
        assert lake.numbers() == lake.landed, step
    assert lake.listed_numbers() == lake.landed


def test_what_land_counts_at_its_end_while_compact_takes_files_away(lake: Lake) -> None:
    found: list[int] = []

    def count(snapshot: Snapshot) -> int:
        if not found:
            found.append(Compactor(lake.store, lake.safe, Policy()).run().compactions)
        return rows_since(snapshot, QUERY, 1)

    # Batches 1 to 3 have five rows each; the first three batches are one file now, and the first look's are gone.
    assert read_consistently(lake.store, count) == 5
    assert found == [1]
    assert rows_since(lake.store.snapshot(), OTHER_QUERY, 0) == 0


class TestJob:
    def test_compacts_and_tells(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        code, told = compact(lake, capsys)
        assert code == 0
        data = told["tables"]["data"]
        assert (data["files_before"], data["compactions"], data["rows"]) == (2, 1, 10)
        assert data["hours"] == [HOUR]
        assert data["left"] == {"not committed yet, or the last committed one": 2}
        assert set(told["tables"]) == {"data", "quarantine", "marks"}
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    def test_with_the_last(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        _, told = compact(lake, capsys, "--with-last", "--table", "data")
        assert told["tables"]["data"]["files_before"] == 3
        assert set(told["tables"]) == {"data"}

    def test_for_people(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compact", "--lake", str(lake.path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("data: 2 files became 1, hours touched: 1, rows: 10, MB: ")
        assert lines[1] == "data: left alone: 2 batches not committed yet, or the last committed one"

    def test_a_dry_run(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        names = lake.names()
        code, told = compact(lake, capsys, "--dry-run")
        assert code == 0
        assert told["planned"]["data"] == {HOUR: [2]}
        assert lake.names() == names
        assert main(["compact", "--lake", str(lake.path), "--dry-run"]) == 0
        assert "data: 2 files would become 1" in capsys.readouterr().out

    def test_an_hour_that_fails_fails_the_job(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        (path,) = (lake.store.root / HOUR / f"batch={QUERY}-0").glob("part-*.parquet")
        path.write_bytes(b"PAR1")
        code, told = compact(lake, capsys)
        assert code == 1
        assert list(told["tables"]["data"]["failed"]) == [HOUR]

    def test_a_damaged_manifest_and_its_repair(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        compact(lake, capsys)
        lake.store.manifest_path.write_bytes(b"")
        assert main(["compact", "--lake", str(lake.path)]) == 1
        assert "--repair" in capsys.readouterr().err
        assert compact(lake, capsys, "--repair")[0] == 0
        assert compact(lake, capsys)[0] == 0
        assert lake.numbers() == lake.landed

    def test_another_is_at_work(self, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        lake.store.work.mkdir(parents=True)
        with compact_lock(lake.store.work / "lock"):
            assert main(["compact", "--lake", str(lake.path)]) == 1
        assert "another compact works on" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--lake", "/nowhere/at/all"], "no such directory"),
            (["--lake", "s3a://bucket/lake"], "a local file system"),
            (["--min-files", "1"], "--min-files is 1"),
            (["--target-size", "12 parsecs"], "--target-size"),
            (["--memory", "1k"], "at least 1m"),
            (["--retired", OTHER_QUERY], "this query never landed"),
            (["--checkpoint", "/nowhere"], "is not a checkpoint"),
        ],
        ids=["lake", "store", "files", "size", "memory", "retired", "checkpoint"],
    )
    def test_bad_input(
        self, lake: Lake, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        names = lake.names()
        assert main(["compact", "--lake", str(lake.path), *arguments]) in (1, 2)
        told = capsys.readouterr()
        assert message in told.err
        assert told.err.startswith("error: ")
        assert told.out == ""
        assert lake.names() == names

    def test_sizes(self) -> None:
        sizes = {"1m": 1 << 20, "64M": 64 << 20, "2 GiB": 2 << 30, "5000000": 5_000_000, "3mb": 3 << 20}
        assert {text: size_of(text, "--memory") for text in sizes} == sizes
