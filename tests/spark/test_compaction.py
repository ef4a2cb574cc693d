"""compact without Spark: killed at every step, with land and readers, and what it must leave alone."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproduce.spark.compaction import Compactor, Outcome, Policy, SafeBatches, plan_hour
from aioproduce.spark.errors import CompactRunningError, LakeChangingError, LayoutError, ManifestError
from aioproduce.spark.lake_files import LakeFiles, compact_lock
from aioproduce.spark.layout import Table
from aioproduce.spark.manifest import RECENT_LIMIT, BatchFiles, Manifest, Phase
from aioproduce.spark.store import Batch, Snapshot, Store, read_consistently
from tests.spark.lake_harness import (
    HOUR,
    LATER_HOUR,
    OTHER_QUERY,
    QUERY,
    KilledError,
    Lake,
    UnsyncedFiles,
    WatchedFiles,
    dying_files,
    numbers_in,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def compact(lake: Lake, files: LakeFiles | None = None, policy: Policy | None = None) -> Outcome:
    return Compactor(lake.store, lake.safe, policy or Policy(), files or UnsyncedFiles()).run()


def landed(lake: Lake, batches: int = 3, hours: Sequence[str] = (HOUR, LATER_HOUR)) -> Lake:
    for _ in range(batches):
        lake.land(hours=hours)
    return lake


class TestOneRun:
    def test_small_files_become_one_and_the_last_batch_stays(self, lake: Lake) -> None:
        landed(lake)
        outcome = compact(lake)
        assert lake.numbers() == lake.listed_numbers() == lake.landed
        for hour in (HOUR, LATER_HOUR):
            names = lake.names(hour)
            assert [name for name in names if not name.startswith("batch=compact-")] == [f"batch={QUERY}-2"]
            assert len(names) == 2
        assert outcome.hours == {HOUR, LATER_HOUR}
        assert (outcome.compactions, outcome.files_before, outcome.rows) == (2, 4, 20)
        assert outcome.left == {"not committed yet, or the last committed one": 2}
        assert outcome.failed == {}
        assert [path.name for path in lake.store.work.iterdir() if path.is_dir()] == []

    def test_the_result_is_sorted_and_has_every_value(self, lake: Lake) -> None:
        lake.land(count=40, files=2)
        lake.land(count=40)
        before = pa.concat_tables(
            [pq.ParquetFile(path).read() for path in sorted((lake.store.root / HOUR).rglob("*.parquet"))]
        )
        lake.land()
        compact(lake)
        (path,) = (lake.store.root / HOUR).glob("batch=compact-*/*.parquet")
        after = pq.ParquetFile(path).read()
        order = [("partition", "ascending"), ("offset", "ascending")]
        assert after.to_pylist() == before.sort_by(order).to_pylist()
        assert after.schema.equals(before.schema)
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"

    def test_again_there_is_nothing_to_do(self, lake: Lake) -> None:
        landed(lake)
        compact(lake)
        before = lake.names()
        assert compact(lake).compactions == 0
        assert lake.names() == before

    def test_what_came_later_joins_what_was_compacted(self, lake: Lake) -> None:
        landed(lake)
        compact(lake)
        landed(lake)
        compact(lake)
        assert len([name for name in lake.names() if name.startswith("batch=compact-")]) == 1
        assert lake.numbers() == lake.landed

    def test_no_table_yet_and_empty_hours(self, lake: Lake) -> None:
        assert compact(lake).compactions == 0
        assert not lake.path.exists()
        assert lake.store.snapshot().files == []
        (lake.store.root / HOUR).mkdir(parents=True)
        (lake.store.root / LATER_HOUR / f"batch={QUERY}-0").mkdir(parents=True)
        assert compact(lake).compactions == 0
        assert lake.names(LATER_HOUR) == [f"batch={QUERY}-0"]

    def test_files_without_rows(self, lake: Lake) -> None:
        for _ in range(3):
            lake.land(count=0)
        assert compact(lake).compactions == 1
        assert lake.numbers() == Counter()

    def test_only_some_topics(self, lake: Lake) -> None:
        other = HOUR.replace("orders", "payments")
        for _ in range(3):
            lake.land(hours=(HOUR, other))
        outcome = Compactor(lake.store, lake.safe, Policy(), UnsyncedFiles()).run(["payments"])
        assert outcome.hours == {other}

    def test_a_dry_run_touches_nothing(self, lake: Lake) -> None:
        landed(lake)
        planned, outcome = Compactor(lake.store, lake.safe, Policy()).plan()
        assert {hour: [len(group) for group in groups] for hour, groups in planned.items()} == {
            HOUR: [2],
            LATER_HOUR: [2],
        }
        assert sum(outcome.left.values()) == 2
        assert not lake.store.work.exists()

    def test_columns_that_came_later_are_null_before(self, lake: Lake) -> None:
        first, second = lake.land()[0], lake.land()[0]
        lake.land()
        (path,) = first.glob("part-*.parquet")
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["reason"]), path)
        (path,) = second.glob("part-*.parquet")
        table = pq.ParquetFile(path).read()
        pq.write_table(table.append_column("extra", pa.array(["x"] * table.num_rows)), path)
        assert compact(lake).failed == {}
        (path,) = (lake.store.root / HOUR).glob("batch=compact-*/*.parquet")
        after = pq.ParquetFile(path).read()
        assert sorted(after["extra"].to_pylist(), key=str) == [None] * 5 + ["x"] * 5
        assert after["reason"].null_count == 10


class TestWhatIsLeftAlone:
    def test_what_may_be_written_again_or_is_nobody_knows_whose(self, lake: Lake) -> None:
        safe = SafeBatches({QUERY: 7})
        assert safe.why_not(f"batch={QUERY}-6") is None
        assert safe.why_not("batch=compact-0123456789abcdef") is None
        for name in (f"batch={QUERY}-7", f"batch={QUERY}-8"):
            assert "not committed yet" in str(safe.why_not(name))
        assert "does not know" in str(safe.why_not(f"batch={OTHER_QUERY}-0"))
        for name in (f"batch={QUERY}", f"batch={QUERY}-x", "batch=7", f"batch={QUERY}-1.bak", "batch="):
            assert safe.why_not(name) == "not a batch of land"
        gone = SafeBatches({}, frozenset({OTHER_QUERY}))
        assert "--retired" in str(gone.why_not(f"batch={OTHER_QUERY}-0"))

    def test_other_peoples_files(self, lake: Lake) -> None:
        first, second, third = lake.land()[0], lake.land()[0], lake.land()[0]
        lake.land()
        (second / "notes.txt").write_text("mine")
        (third / "_SUCCESS").write_bytes(b"")
        (lake.store.root / HOUR / "backup").mkdir()
        outcome = compact(lake)
        assert (second / "notes.txt").read_text() == "mine"
        assert not first.exists()
        assert not third.exists()
        assert outcome.left["with foreign files in it"] == 1
        assert lake.numbers() == lake.landed

    def test_large_enough_batches(self) -> None:
        def batch(number: int, size: int) -> Batch:
            return Batch(HOUR, BatchFiles(f"batch={QUERY}-{number}", (("part-0.parquet", size),)))

        safe = SafeBatches({QUERY: 100})
        policy = Policy(target_bytes=100)
        sizes = {10: 40, 2: 30, 3: 80, 4: 30, 5: 75, 6: 74}
        groups = plan_hour([batch(number, size) for number, size in sizes.items()], safe, policy)
        # By number, not by name; 3 and 5 are large; 6 does not fit to 2 and 4, and 10 not to 6.
        assert [[files.name for files in group] for group in groups] == [
            [f"batch={QUERY}-2", f"batch={QUERY}-4"],
        ]
        assert plan_hour([batch(2, 30), batch(4, 30)], safe, Policy(min_files=3)) == []

    def test_one_batch_with_many_files(self, lake: Lake) -> None:
        lake.land(files=4)
        lake.land()
        assert compact(lake).files_before == 4
        assert lake.numbers() == lake.landed

    def test_a_damaged_file_leaves_its_hour_as_it_is_and_the_others_go_on(self, lake: Lake) -> None:
        landed(lake)
        (path,) = (lake.store.root / HOUR / f"batch={QUERY}-1").glob("part-*.parquet")
        path.write_bytes(b"PAR1 no more")
        names = lake.names()
        outcome = compact(lake)
        assert list(outcome.failed) == [HOUR]
        assert outcome.hours == {LATER_HOUR}
        assert lake.names() == names

    def test_types_that_do_not_go_together(self, lake: Lake) -> None:
        first, _ = lake.land()[0], lake.land()
        lake.land()
        (path,) = first.glob("part-*.parquet")
        table = pq.ParquetFile(path).read()
        table = table.set_column(table.schema.get_field_index("sequence"), "sequence", pa.array(["x"] * 5))
        pq.write_table(table, path)
        outcome = compact(lake)
        assert list(outcome.failed) == [HOUR]
        assert lake.numbers() == lake.landed

    def test_what_is_committed_just_when_it_is_asked(self, lake: Lake) -> None:
        """A batch that was half there until then: an earlier reader had listed half of it."""
        landed(lake, hours=(HOUR,))
        half = lake.store.root / HOUR / f"batch={QUERY}-1" / "part-00001-late.parquet"
        late = rows(range(100, 105))

        def safe() -> SafeBatches:
            pq.write_table(late, half)
            return lake.safe()

        lake.landed.update(range(100, 105))
        outcome = Compactor(lake.store, safe, Policy(), UnsyncedFiles()).run()
        assert (outcome.failed, outcome.files_before) == ({}, 3)
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    def test_a_batch_that_is_written_again_meanwhile(self, lake: Lake) -> None:
        landed(lake)
        target = lake.store.root / HOUR / f"batch={QUERY}-0"

        def watch(name: str, number: int, done: bool) -> None:
            if name == "sync_file" and not done and target.exists():
                for path in target.glob("part-*.parquet"):
                    path.rename(path.with_name("part-again.parquet"))

        outcome = compact(lake, WatchedFiles(watch))
        assert "reset" in outcome.failed[HOUR]
        assert lake.numbers() == lake.listed_numbers() == lake.landed
        assert lake.store.manifest().phase is Phase.IDLE


def effects_of_a_run(tmp_path: Path) -> int:
    lake = landed(Lake(tmp_path / "count"), hours=(HOUR,))
    files = dying_files(-1, after=False)
    compact(lake, files)
    return files.count


class TestKilled:
    def test_at_each_effect_and_run_again(self, tmp_path: Path) -> None:
        count = effects_of_a_run(tmp_path)
        assert count > 12
        seen: Counter[Phase] = Counter()
        for at in range(count):
            # Not done is what done is for the one before; so only the first is tried both ways.
            for after in (False, True) if at == 0 else (True,):
                lake = landed(Lake(tmp_path / f"{at}{after}"), hours=(HOUR,))
                with pytest.raises(KilledError):
                    compact(lake, dying_files(at, after=after))
                manifest = lake.store.manifest()
                seen[manifest.phase] += 1
                assert lake.numbers() == lake.landed, (at, after)
                # Who only lists sees no record less, and none more than twice.
                listed = lake.listed_numbers()
                assert set(listed) == set(lake.landed)
                assert max(listed.values()) <= 2
                lake.land()
                outcome = compact(lake)
                assert lake.numbers() == lake.listed_numbers() == lake.landed, (at, after)
                assert outcome.resumed == (manifest.phase is not Phase.IDLE)
                assert outcome.given_up == 0
                assert [path.name for path in lake.store.work.iterdir() if path.is_dir()] == []
        assert all(seen[phase] >= 2 for phase in Phase)

    def test_again_and_again_while_it_recovers(self, tmp_path: Path) -> None:
        for at in range(effects_of_a_run(tmp_path)):
            lake = landed(Lake(tmp_path / f"{at}"), hours=(HOUR,))
            kills = 0
            while True:
                try:
                    compact(lake, dying_files(at, after=True))
                except KilledError:
                    kills += 1
                    assert lake.numbers() == lake.landed, (at, kills)
                    if kills > 3:
                        compact(lake)
                        break
                else:
                    break
            assert lake.numbers() == lake.listed_numbers() == lake.landed, at

    def test_readers_and_land_between_all_effects(self, lake: Lake) -> None:
        landed(lake, hours=(HOUR,))
        looks = 0

        def watch(name: str, number: int, done: bool) -> None:
            nonlocal looks
            looks += 1
            assert lake.numbers() == lake.landed, (name, number, done)
            assert set(lake.listed_numbers()) == set(lake.landed)
            if looks % 10 == 0:
                lake.land(hours=(HOUR,))

        compact(lake, WatchedFiles(watch))
        assert looks > 24
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    @given(
        batches=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 4)), min_size=1, max_size=4),
        runs=st.lists(
            st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 40)), min_size=1, max_size=4
        ),
    )
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_interleaving(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        batches: list[tuple[bool, bool, int]],
        runs: list[tuple[int, bool, int]],
    ) -> None:
        lake = Lake(tmp_path_factory.mktemp("lake"))

        def land_all() -> None:
            for first, second, count in batches:
                hours = [hour for hour, wanted in ((HOUR, first), (LATER_HOUR, second)) if wanted]
                lake.land(hours=hours, count=count)

        for at, after, land_at in runs:
            land_all()

            def watch(
                name: str, number: int, done: bool, at: int = at, after: bool = after, land_at: int = land_at
            ) -> None:
                if number == land_at and done:
                    land_all()
                if (number + at) % 5 == 0:
                    assert lake.numbers() == lake.landed
                    assert set(lake.listed_numbers()) == set(lake.landed)
                if number == at and done == after:
                    raise KilledError(name)

            try:
                compact(lake, WatchedFiles(watch))
            except KilledError:
                assert lake.numbers() == lake.landed
        compact(lake)
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    def test_the_result_is_lost_before_it_counts(self, lake: Lake) -> None:
        landed(lake)
        with pytest.raises(KilledError):
            compact(lake, WatchedFiles(_die_when_published))
        for path in (lake.store.root / HOUR).glob("batch=compact-*/*.parquet"):
            path.write_bytes(b"half")
        assert lake.numbers() == lake.landed
        outcome = compact(lake)
        assert (outcome.given_up, outcome.resumed) == (1, 0)
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    def test_the_result_is_lost_after_it_counts(self, lake: Lake) -> None:
        landed(lake)
        with pytest.raises(KilledError):
            compact(lake, die_before_hiding())
        (result,) = (lake.store.root / HOUR).glob("batch=compact-*")
        for path in result.iterdir():
            path.unlink()
        before = lake.names()
        with pytest.raises(ManifestError, match="missing or was changed") as caught:
            compact(lake)
        assert lake.names() == before
        assert caught.value.path == str(lake.store.manifest_path)

    def test_a_source_that_was_written_again_after_it_was_replaced(self, lake: Lake) -> None:
        landed(lake)
        with pytest.raises(KilledError):
            compact(lake, die_before_hiding())
        (lake.store.root / HOUR / f"batch={QUERY}-0" / "part-9.parquet").write_bytes(b"more")
        with pytest.raises(ManifestError, match="written again"):
            compact(lake)
        assert (lake.store.root / HOUR / f"batch={QUERY}-0" / "part-9.parquet").exists()


def _die_when_published(name: str, number: int, done: bool) -> None:
    if name == "move_directory" and done:
        raise KilledError


def die_before_hiding() -> WatchedFiles:
    """The first move is that of the result, the second that of a source."""
    moves = 0

    def watch(name: str, number: int, done: bool) -> None:
        nonlocal moves
        if name == "move_directory" and not done:
            moves += 1
            if moves == 2:
                raise KilledError

    return WatchedFiles(watch)


class TestTornListings:
    def test_a_compaction_within_the_listing_of_an_hour(self, lake: Lake) -> None:
        """The first names of a directory as they were before a compaction, the rest as they were after it."""
        landed(lake, 4)

        class Torn(Store):
            done = False

            def batches(self, hour: str) -> list[Batch]:
                before = super().batches(hour)
                if hour == HOUR and not Torn.done:
                    Torn.done = True
                    compact(lake)
                    after = super().batches(hour)
                    # The result's name comes first and was passed; the sources' names are gone.
                    assert after[-1].name.startswith("batch=compact-")
                    return [batch for batch in after if not batch.name.startswith("batch=compact-")]
                return before

        assert numbers_in(Torn(str(lake.path)).snapshot().files) == lake.landed

    def test_a_reader_that_missed_many_compactions(self, lake: Lake) -> None:
        old = Manifest()
        manifest = old
        for number in range(RECENT_LIMIT + 5):
            manifest = manifest.begun(
                hour=f"h{number}", sources=(), result=BatchFiles("batch=compact-x", ()), rows=0
            ).moved_to(Phase.IDLE)
        assert manifest.hours_since(old) is None
        assert len(manifest.recent) == RECENT_LIMIT
        near = manifest.begun(hour="h", sources=(), result=BatchFiles("batch=compact-y", ()), rows=0)
        assert near.hours_since(manifest) == frozenset({"h", f"h{RECENT_LIMIT + 4}"})
        assert old.hours_since(manifest) is None

    def test_compacted_each_time_that_it_is_listed(self, lake: Lake) -> None:
        landed(lake)
        store = lake.store

        class Restless(Store):
            calls = 0

            def manifest(self) -> Manifest:
                Restless.calls += 1
                return Manifest(number=Restless.calls)

        with pytest.raises(LakeChangingError, match="in a loop") as caught:
            Restless(str(lake.path)).snapshot()
        assert caught.value.path == str(store.root)

    def test_files_that_go_away_while_they_are_read(self, lake: Lake) -> None:
        landed(lake)
        calls = 0

        def read(snapshot: Snapshot) -> Counter[int]:
            nonlocal calls
            calls += 1
            if calls == 1:
                compact(lake)
            return numbers_in(snapshot.files)

        assert read_consistently(lake.store, read) == lake.landed
        assert calls == 2

    def test_a_readers_own_error_is_its_own(self, lake: Lake) -> None:
        landed(lake)

        def read(snapshot: Snapshot) -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            read_consistently(lake.store, read)

    def test_files_that_go_away_each_time(self, lake: Lake) -> None:
        def read(snapshot: Snapshot) -> Counter[int]:
            landed(lake)
            compact(lake)
            return numbers_in(snapshot.files)

        landed(lake)
        with pytest.raises(LakeChangingError, match="while they were read") as caught:
            read_consistently(lake.store, read)
        assert isinstance(caught.value.__cause__, FileNotFoundError)


class TestManifest:
    def test_written_and_read(self) -> None:
        batch = BatchFiles("batch=é", (("part-0.parquet", 7),))
        begun = Manifest(4).begun(hour=HOUR, sources=(batch,), result=batch, rows=9)
        for manifest in (Manifest(), begun, begun.moved_to(Phase.SWITCHED), begun.moved_to(Phase.IDLE)):
            assert Manifest.from_json(manifest.to_json(), path="m") == manifest
        assert begun.number == 5

    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_any_damage_is_seen(self, data: st.DataObject) -> None:
        batch = BatchFiles("batch=x", (("part-0.parquet", 7),))
        content = Manifest(4).begun(hour=HOUR, sources=(batch,), result=batch, rows=9).to_json()
        at = data.draw(st.integers(0, len(content) - 1))
        damaged = data.draw(
            st.sampled_from([content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]])
        )
        with pytest.raises(ManifestError):
            Manifest.from_json(damaged, path="m")

    @given(
        st.recursive(
            st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
        )
    )
    @settings(max_examples=60, deadline=None)
    def test_other_json(self, value: object) -> None:
        import zlib

        body = json.dumps(value)
        for content in (body, json.dumps({"version": 1, "crc": zlib.crc32(body.encode()), "body": body})):
            with pytest.raises(ManifestError):
                Manifest.from_json(content.encode(), path="m")

    def test_a_later_version(self) -> None:
        content = Manifest().to_json().replace(b'"version": 1', b'"version": 2')
        with pytest.raises(ManifestError, match="version 2"):
            Manifest.from_json(content, path="m")

    def test_nobody_goes_on_with_a_damaged_one_until_it_is_repaired(self, lake: Lake) -> None:
        landed(lake, 4)
        with pytest.raises(KilledError):
            compact(lake, die_before_hiding())
        lake.store.manifest_path.write_bytes(b"{")
        with pytest.raises(ManifestError, match="--repair"):
            compact(lake)
        with pytest.raises(ManifestError, match="--repair"):
            lake.store.snapshot()
        outcome = Compactor(lake.store, lake.safe, Policy(), UnsyncedFiles()).repair()
        assert outcome.resumed == 1
        assert lake.numbers() == lake.listed_numbers() == lake.landed
        compact(lake)
        assert lake.numbers() == lake.listed_numbers() == lake.landed

    def test_repair_wherever_it_was_killed(self, tmp_path: Path) -> None:
        for at in range(effects_of_a_run(tmp_path)):
            lake = landed(Lake(tmp_path / f"{at}"), hours=(HOUR,))
            with pytest.raises(KilledError):
                compact(lake, dying_files(at, after=True))
            lake.store.manifest_path.unlink(missing_ok=True)
            Compactor(lake.store, lake.safe, Policy(), UnsyncedFiles()).repair()
            assert lake.numbers() == lake.listed_numbers() == lake.landed, at

    def test_repair_without_a_footer(self, lake: Lake) -> None:
        landed(lake)
        foreign = lake.store.root / HOUR / "batch=compact-foreign"
        foreign.mkdir()
        (source,) = (lake.store.root / HOUR / f"batch={QUERY}-0").glob("part-*.parquet")
        (foreign / "part-00000.parquet").write_bytes(source.read_bytes())
        with pytest.raises(ManifestError, match="does not name the batches"):
            Compactor(lake.store, lake.safe, Policy(), UnsyncedFiles()).repair()
        assert (lake.store.root / HOUR / f"batch={QUERY}-0").exists()


class TestTwoAtOnce:
    def test_the_second_is_refused_and_told_by_whom(self, lake: Lake) -> None:
        landed(lake)
        lake.store.work.mkdir(parents=True)
        with compact_lock(lake.store.work / "lock"), pytest.raises(CompactRunningError) as caught:
            compact(lake)
        assert json.loads(caught.value.owner)["pid"] == os.getpid()
        assert compact(lake).compactions == 2

    def test_the_lock_of_a_killed_process_is_free(self, lake: Lake) -> None:
        landed(lake)
        lake.store.work.mkdir(parents=True)
        program = (
            "import sys, pathlib\n"
            "from aioproduce.spark.lake_files import compact_lock\n"
            "lock = compact_lock(pathlib.Path(sys.argv[1]))\n"
            "lock.__enter__()\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(lake.store.work / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(CompactRunningError, match=f'"pid": {holder.pid}'):
                compact(lake)
            holder.send_signal(signal.SIGKILL)
            holder.wait(60)
        assert compact(lake).compactions == 2

    def test_a_file_system_without_locks(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        landed(lake)

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", refuse)
        with pytest.raises(LayoutError, match="needs flock"):
            compact(lake)

    def test_an_object_store_is_refused(self) -> None:
        with pytest.raises(LayoutError, match="object store"):
            Store("s3a://bucket/lake")

    def test_each_table_is_its_own(self, lake: Lake) -> None:
        store = Store(f"file:{lake.path}", Table.MARKS)
        assert store.root == lake.path / "table=marks"
        assert store.work == lake.path / "_compact" / "marks"


class TestFullDisk:
    def test_while_the_result_is_written(self, lake: Lake) -> None:
        """A limit on the size of files is met where a full disk would be: in the writer's system call."""
        lake.land(count=3000)
        lake.land(count=3000)
        lake.land()
        program = (
            "import resource, signal, sys\n"
            "from aioproduce.spark.compaction import Compactor, Policy, SafeBatches\n"
            "from aioproduce.spark.store import Store\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
            "outcome = Compactor(Store(sys.argv[1]), lambda: SafeBatches({sys.argv[2]: 2}), Policy()).run()\n"
            "print(outcome.failed)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(lake.path), QUERY], capture_output=True, text=True, check=True
        )
        assert "File too large" in done.stdout
        assert lake.numbers() == lake.listed_numbers() == lake.landed
        assert not (lake.store.work / "new").exists()
        assert compact(lake).compactions == 1

    @pytest.mark.parametrize("at", ["replace_file", "move_directory", "make_directory"])
    def test_at_an_effect(self, lake: Lake, at: str) -> None:
        landed(lake)

        def watch(name: str, number: int, done: bool) -> None:
            if name == at and not done and number > 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        # While the result is written it is that hour's failure; later the run's, which then says where it stopped.
        with contextlib.ExitStack() as stack:
            if at != "make_directory":
                stack.enter_context(pytest.raises(OSError, match="No space left"))
            outcome = compact(lake, WatchedFiles(watch))
            assert "No space left" in outcome.failed[HOUR]
        assert lake.numbers() == lake.landed
        compact(lake)
        assert lake.numbers() == lake.listed_numbers() == lake.landed
