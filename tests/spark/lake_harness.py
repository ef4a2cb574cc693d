"""A lake without Spark: batches as `land` leaves them, a checkpoint as Spark leaves it, and effects that die.

Used by the tests of `store`, `compaction` and `merging`. Files are written by pyarrow, and read back by it, not by
the code under test.
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from aioproduce.spark.compaction import SafeBatches
from aioproduce.spark.lake_files import LakeFiles
from aioproduce.spark.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

QUERY = "6f2d0c1e-8a4b-4c3d-9e5f-0123456789ab"
OTHER_QUERY = "00000000-1111-2222-3333-444444444444"
HOUR = "topic=orders/date=2026-01-31/hour=07"
LATER_HOUR = "topic=orders/date=2026-01-31/hour=08"
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
        ("producer_id", pa.binary()),
        ("sequence", pa.int64()),
        ("checksum", pa.int64()),
        ("reason", pa.string()),
    ]
)


def rows(numbers: Iterable[int], *, partitions: int = 3) -> pa.Table:
    """Records of a topic: number n has offset n, is record n of its producer, and every seventh has no stamp."""
    return pa.Table.from_pylist(
        [
            {
                "key": b"k%d" % n,
                "value": b"v" * (n % 50),
                "headers": [{"key": "h", "value": b"%d" % n}] * (n % 3),
                "partition": n % partitions,
                "offset": n,
                "timestamp": 1_769_843_000_000_000 + n,
                "timestamp_type": 0,
                "producer_id": None if n % 7 == 0 else bytes([n % 4]) * 16,
                "sequence": None if n % 7 == 0 else n,
                "checksum": n * 2_654_435_761,
            }
            for n in numbers
        ],
        schema=SCHEMA,
    )


class Lake:
    """A lake with one table, its landing query, and what must be in it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lake"
        self.store = Store(str(self.path))
        self.landed: Counter[int] = Counter()
        self.committed = -1
        self._next_row = 0

    def land(
        self, *, hours: Sequence[str] = (HOUR,), count: int = 5, files: int = 1, query: str = QUERY
    ) -> list[Path]:
        """One micro-batch into some hours, committed; returns its directories."""
        directories = []
        self.committed += 1
        for hour in hours:
            directory = self.store.root / hour / f"batch={query}-{self.committed}"
            directory.mkdir(parents=True)
            for part in range(files):
                numbers = range(self._next_row, self._next_row + count)
                self._next_row += count
                # Backwards: what Spark writes is not sorted.
                pq.write_table(rows(reversed(numbers)), directory / f"part-{part:05d}-c000.zstd.parquet")
                (directory / f".part-{part:05d}-c000.zstd.parquet.crc").write_bytes(b"crc")
                self.landed.update(numbers)
            directories.append(directory)
        return directories

    def safe(self) -> SafeBatches:
        """All batches but the last."""
        return SafeBatches({QUERY: self.committed})

    def numbers(self) -> Counter[int]:
        """The records that a reader finds who asks the manifest."""
        return numbers_in(self.store.snapshot().files)

    def listed_numbers(self) -> Counter[int]:
        """The records that a reader finds who lists the table as any engine does."""
        found = [
            path
            for path in self.store.root.rglob("*.parquet")
            if not any(part.startswith((".", "_")) for part in path.relative_to(self.store.root).parts)
        ]
        return numbers_in(map(str, found))

    def names(self, hour: str = HOUR) -> list[str]:
        """The directories of an hour, on disk."""
        return sorted(path.name for path in (self.store.root / hour).iterdir())


def numbers_in(files: Iterable[str]) -> Counter[int]:
    """The records of some files, by their offset."""
    found: Counter[int] = Counter()
    for file in files:
        with pq.ParquetFile(file) as opened:
            found.update(opened.read(["offset"])["offset"].to_pylist())
    return found


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it, as nothing after a kill runs."""


class UnsyncedFiles(LakeFiles):
    """Effects without waiting for the disk: no power is cut in a test, and there are hundreds of runs."""

    def sync_file(self, path: Path) -> None:
        assert path.exists()


class WatchedFiles(UnsyncedFiles):
    """Calls ``watch`` with each effect's name and number before it is done, and once more after."""

    def __init__(self, watch: Callable[[str, int, bool], None]) -> None:
        self._watch = watch
        self.count = 0

    def _effect(self, name: str, act: Callable[[], None]) -> None:
        number = self.count
        self.count += 1
        self._watch(name, number, False)
        act()
        self._watch(name, number, True)

    def make_directory(self, path: Path) -> None:
        self._effect("make_directory", lambda: super(WatchedFiles, self).make_directory(path))

    def replace_file(self, path: Path, content: bytes) -> None:
        self._effect("replace_file", lambda: super(WatchedFiles, self).replace_file(path, content))

    def move_directory(self, path: Path, to: Path) -> None:
        self._effect("move_directory", lambda: super(WatchedFiles, self).move_directory(path, to))

    def remove_tree(self, path: Path) -> None:
        def remove_half_then_all() -> None:
            # What a kill in the middle leaves: some files gone, the directories still there.
            for file in sorted(file for file in path.rglob("*") if file.is_file())[::2]:
                file.unlink()
            self._effect("remove_tree_half", lambda: None)
            shutil.rmtree(path, ignore_errors=True)

        self._effect("remove_tree", remove_half_then_all)

    def sync_file(self, path: Path) -> None:
        self._effect("sync_file", lambda: super(WatchedFiles, self).sync_file(path))


def dying_files(at: int, *, after: bool) -> WatchedFiles:
    """Effects of which one, counted from 0, is the last: not done at all, or done."""

    def watch(name: str, number: int, done: bool) -> None:
        if number == at and done == after:
            raise KilledError(f"{name} {'done' if after else 'not done'}")

    return WatchedFiles(watch)
