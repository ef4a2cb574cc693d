"""What a lake knows of its queries, and the local files that it is kept in."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproduce.spark.checkpoint import Checkpoint
from aioproduce.spark.errors import LandRunningError, LayoutError
from aioproduce.spark.files import LocalFiles, files_of, is_local, join, local_path
from aioproduce.spark.jobs.land import remove_leftovers
from aioproduce.spark.lake import (
    LOCK_NAME,
    CheckpointNote,
    Lander,
    held_offsets,
    lake_id,
    landers_of,
    read_note,
    remove_incomplete,
    remove_staging,
    write_lander,
    write_note,
)
from aioproduce.spark.lake_files import land_lock
from aioproduce.spark.starting import Found

FILES = LocalFiles()
ONE = "a1cc365a-d2bd-4c7e-adb1-071156ad6f08"
TWO = "b1cc365a-d2bd-4c7e-adb1-071156ad6f08"


def test_a_lake_keeps_its_id(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert lake_id(lake, FILES) == lake_id(lake, FILES)
    assert lake_id(lake, FILES) != lake_id(str(tmp_path / "other"), FILES)


def test_a_query_says_how_far_it_is(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert landers_of(lake, FILES) == []
    write_lander(lake, Lander(ONE, "/c", -1, {}), FILES)
    write_lander(lake, Lander(ONE, "/c", 4, {"t": {0: 7}}), FILES)
    write_lander(lake, Lander(TWO, "/d", 0, {"t": {0: 5, 1: 2}, "u": {0: 1}}), FILES)
    found = landers_of(lake, FILES)
    assert found == [
        Lander(ONE, "/c", 4, {"t": {0: 7}}),
        Lander(TWO, "/d", 0, {"t": {0: 5, 1: 2}, "u": {0: 1}}),
    ]
    assert held_offsets(found) == {"t": {0: 7, 1: 2}, "u": {0: 1}}
    # What a killed writer left is no query.
    (tmp_path / "_land" / "queries" / ".x.json.123").write_text("{")
    assert landers_of(lake, FILES) == found


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version":"x"}'])
def test_what_somebody_changed_is_an_error(tmp_path: Path, text: str) -> None:
    lake_id(str(tmp_path), FILES)
    (tmp_path / "_land" / "lake.json").write_text(text)
    with pytest.raises(LayoutError, match="was changed after aioproduce wrote it"):
        lake_id(str(tmp_path), FILES)


def test_what_is_newer_is_refused(tmp_path: Path) -> None:
    lake_id(str(tmp_path), FILES)
    (tmp_path / "_land" / "lake.json").write_text('{"version":2,"id":"x"}')
    with pytest.raises(LayoutError, match="of a newer aioproduce"):
        lake_id(str(tmp_path), FILES)


def test_a_checkpoint_says_what_it_is_for(tmp_path: Path) -> None:
    assert read_note(str(tmp_path), FILES) is None
    note = CheckpointNote("id", ("a", "b"), is_pattern=False, audit_topic=None)
    write_note(str(tmp_path), note, FILES)
    assert read_note(str(tmp_path), FILES) == note


def test_only_what_a_query_that_is_gone_left_half_done_is_removed(tmp_path: Path) -> None:
    hour = tmp_path / "table=data" / "topic=t" / "date=2026-11-22" / "hour=07"
    kept = [f"batch={ONE}-0", f"batch={ONE}-1", f"batch={TWO}-9", "batch=compact-1", "other"]
    for name in [*kept, f"batch={ONE}-2"]:
        (hour / name).mkdir(parents=True)
    (hour / f"batch={ONE}-2" / "part-0.parquet").write_bytes(b"x")
    assert remove_incomplete(str(tmp_path), {ONE: 1}, FILES) == [
        f"table=data/topic=t/date=2026-11-22/hour=07/batch={ONE}-2"
    ]
    assert sorted(each.name for each in hour.iterdir()) == sorted(kept)


@pytest.mark.parametrize(
    "below",
    [
        "_temporary/0/_temporary/attempt_202611220759591234567890_0001_m_000000_1/table=data",
        "_temporary/0/task_202611220759591234567890_0001_m_000000/table=marks",
        "table=quarantine",
    ],
    ids=["a task writes", "a task is done", "all are done"],
)
def test_what_a_killed_batch_had_written_out_of_sight_is_removed(tmp_path: Path, below: str) -> None:
    def staged(name: str, query: str) -> Path:
        hour = tmp_path / f".spark-staging-{name}" / below / "topic=t.1" / "date=2026-11-22" / "hour=07"
        batch = hour / f"batch={query}-3"
        batch.mkdir(parents=True)
        (batch / "part-0.zstd.parquet").write_bytes(b"half")
        (hour / ".x.crc").write_bytes(b"")
        return tmp_path / f".spark-staging-{name}"

    mine, theirs = staged("1", ONE), staged("2", TWO)
    # Nobody knows whose this is: another query's write may have just begun.
    nobodys = tmp_path / ".spark-staging-3" / "_temporary" / "0"
    nobodys.mkdir(parents=True)
    landed = tmp_path / "table=data" / "topic=t.1" / "date=2026-11-22" / "hour=07" / f"batch={ONE}-2"
    landed.mkdir(parents=True)
    assert remove_staging(str(tmp_path), {ONE}, FILES) == [mine.name]
    assert (mine.exists(), theirs.exists(), nobodys.exists(), landed.exists()) == (False, True, True, True)
    assert remove_staging(str(tmp_path / "none"), {ONE}, FILES) == []


@pytest.mark.parametrize(
    ("planned", "alive", "left"),
    [
        # Begun: others' batches are not its business, and its own planned one replaces itself.
        (0, (), {ONE, TWO}),
        (-1, (), set()),
        (-1, (TWO,), {TWO}),
    ],
    ids=["begun", "not begun", "another lives"],
)
def test_what_a_landing_removes_at_its_start(
    tmp_path: Path, planned: int, alive: tuple[str, ...], left: set[str]
) -> None:
    hour = tmp_path / "table=data" / "topic=t" / "date=2026-11-22" / "hour=07"
    for query in (ONE, TWO):
        (hour / f"batch={query}-0").mkdir(parents=True)
    landers = [Lander(ONE, "/c", -1, {}), Lander(TWO, "/d", -1, {})]
    found = Found(Checkpoint("/c", ONE, -1, planned, FILES), None, landers, {ONE, *alive})
    assert remove_leftovers(str(tmp_path), found, FILES) == 2 - len(left)
    assert {path.name for path in hour.iterdir()} == {f"batch={query}-0" for query in left}


def test_local_files(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b.json")
    assert FILES.read(path) is None
    assert FILES.names(str(tmp_path / "a")) == []
    FILES.replace(path, "one")
    FILES.replace(path, "tw\N{LATIN SMALL LETTER O WITH DIAERESIS}")
    assert FILES.read(path) == "tw\N{LATIN SMALL LETTER O WITH DIAERESIS}"
    assert FILES.names(str(tmp_path / "a")) == ["b.json"]
    FILES.rename(path, str(tmp_path / "c" / "d.json"))
    assert not FILES.exists(path)
    FILES.replace(path, "three")
    with pytest.raises(LayoutError, match="already exists"):
        FILES.rename(path, str(tmp_path / "c" / "d.json"))
    FILES.delete(str(tmp_path / "a"))
    FILES.delete(str(tmp_path / "a"))
    assert FILES.names(str(tmp_path)) == ["c"]


def test_which_paths_are_local() -> None:
    paths = ["/lake", "lake", "file:/lake", "file:///lake", "hdfs://host/lake", "s3a://bucket/lake"]
    assert [is_local(path) for path in paths] == [True] * 4 + [False] * 2
    assert str(local_path("file:/a%20b")) == "/a b"
    assert str(local_path("/a%20b")) == "/a%20b"
    assert join("s3a://bucket/lake/", "a", "b") == "s3a://bucket/lake/a/b"
    with pytest.raises(LayoutError, match="only a job with a session"):
        files_of("hdfs://host/lake")


def test_one_land_with_a_checkpoint_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / LOCK_NAME
    with (
        land_lock(path),
        pytest.raises(LandRunningError, match="another land works with the checkpoint") as told,
    ):
        land_lock(path).__enter__()
    assert told.value.path == str(path)
    assert '"pid"' in told.value.owner
    with land_lock(path):
        pass
