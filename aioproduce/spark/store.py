"""Determines which files make up the lake now, for the jobs that read it, during compactions, too.

`layout` knows the names of a table's directories. The files of compact are next to the tables, in
`<lake>/_compact/<table>/`.

Invariants:

1. A snapshot has each record that was landed before it was begun exactly once: of a compaction's sources and result
   it names those that count by the manifest (`manifest`).
2. A directory is not listed at one instant, so an hour that was compacted while it was listed is listed again:
   otherwise passing the result's name before it existed, and the sources' after they were gone, would lose both.
3. Names that begin with `.` or `_` are not data: Spark's staging, checksums, markers.
4. A snapshot's files may be gone when they are opened: `read_consistently` then takes a new one. A missing file
   must never be skipped (`ignoreMissingFiles` would silently lose records).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, final

from aioproduce.spark.errors import LakeChangingError, LayoutError
from aioproduce.spark.files import is_local, local_path
from aioproduce.spark.layout import Table, is_hidden, table_path
from aioproduce.spark.manifest import BatchFiles, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Result = TypeVar("Result")

WORK = "_compact"
MANIFEST = "manifest.json"
# A listing is repeated for the hours that were compacted meanwhile, which is faster than a compaction.
LISTING_LIMIT = 100
READING_LIMIT = 5
LEVELS = ("topic=", "date=", "hour=")
DATA_SUFFIX = ".parquet"


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """A `batch=` directory.

    Attributes:
        hour: The hour's directory below the table.
        files: Its name and its data files.
        strange: Names in it that are neither data nor hidden: foreign files.
    """

    hour: str
    files: BatchFiles
    strange: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.files.name


@final
@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a table at one moment.

    Attributes:
        root: The table's directory.
        batches: The batches that count, by hour and name.
        manifest: The manifest that decided it.
    """

    root: Path
    batches: tuple[Batch, ...]
    manifest: Manifest

    @property
    def files(self) -> list[str]:
        """The absolute path of each data file, for `spark.read.option("basePath", root).parquet(*files)`."""
        return [
            str(self.root / batch.hour / batch.name / name)
            for batch in self.batches
            for name, _ in batch.files.files
        ]

    def has_lost_files(self) -> bool:
        """Return whether one of its files no longer exists."""
        return any(not os.path.exists(path) for path in self.files)


class Store:
    """One table of a lake on a local file system.

    Args:
        lake: Its directory, as a path or `file:` URL.
        table: The table.

    Raises:
        LayoutError: If the lake is not on a local file system.
    """

    def __init__(self, lake: str, table: Table = Table.DATA) -> None:
        if not is_local(lake):
            raise LayoutError(
                f"{lake}: this needs atomic renames of directories, and locks: a local file system. On an "
                "object store use a table format with its own compaction",
                path=lake,
            )
        self.root: Path = local_path(table_path(lake, table))
        self.work: Path = local_path(lake) / WORK / table

    @property
    def manifest_path(self) -> Path:
        """The path of the manifest, which exists after the first compaction."""
        return self.work / MANIFEST

    def manifest(self) -> Manifest:
        """Return the progress of compaction.

        Raises:
            ManifestError: If it is damaged.
        """
        try:
            content = self.manifest_path.read_bytes()
        except FileNotFoundError:
            return Manifest()
        return Manifest.from_json(content, path=str(self.manifest_path))

    def snapshot(self) -> Snapshot:
        """Return the files that make up the table now.

        Raises:
            ManifestError: If the manifest is damaged.
            LakeChangingError: If compactions were faster than the listing of hours.
        """
        before = self.manifest()
        found = {hour: self.batches(hour) for hour in self.hours()}
        for _ in range(LISTING_LIMIT):
            after = self.manifest()
            if after == before:
                break
            touched = after.hours_since(before)
            again = self.hours() if touched is None else sorted(touched)
            found.update({hour: self.batches(hour) for hour in again})
            before = after
        else:
            raise LakeChangingError(
                f"{self.root} was compacted {LISTING_LIMIT} times while it was listed: is compact run in a loop?",
                path=str(self.root),
            )
        batches = tuple(
            batch
            for hour in sorted(found)
            for batch in found[hour]
            if batch.name not in before.ignored(hour) and batch.files.files
        )
        return Snapshot(self.root, batches, before)

    def hours(self) -> Iterator[str]:
        """Yield each hour's directory, below the table's; none if there is no table yet."""
        yield from _below(self.root, "", LEVELS)

    def batches(self, hour: str) -> list[Batch]:
        """Return all `batch=` directories of an hour on disk, sorted, whether they count or not."""
        found = [self.batch(hour, name) for name in _directories(self.root / hour, "batch=")]
        return [batch for batch in found if batch is not None]

    def batch(self, hour: str, name: str) -> Batch | None:
        """Return one `batch=` directory on disk, or `None`."""
        files: list[tuple[str, int]] = []
        strange: list[str] = []
        try:
            with os.scandir(self.root / hour / name) as entries:
                for entry in entries:
                    if is_hidden(entry.name):
                        continue
                    if entry.name.endswith(DATA_SUFFIX) and entry.is_file():
                        files.append((entry.name, entry.stat().st_size))
                    else:
                        strange.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Batch(hour, BatchFiles(name, tuple(sorted(files))), tuple(sorted(strange)))


def read_consistently(store: Store, read: Callable[[Snapshot], Result]) -> Result:
    """Read a whole table, and again from a new snapshot if a compaction removed files meanwhile.

    Args:
        store: The table.
        read: Reads all files of a snapshot and returns its result; called again from the start.

    Raises:
        LakeChangingError: If files were removed each time; the last reader's error is the cause.
    """
    for attempt in range(READING_LIMIT):
        snapshot = store.snapshot()
        try:
            return read(snapshot)
        except Exception as error:
            # Any exception: Spark has many errors for a missing file, so the file itself is checked.
            if not snapshot.has_lost_files():
                raise
            if attempt == READING_LIMIT - 1:
                raise LakeChangingError(
                    f"files of {store.root} were removed {READING_LIMIT} times while they were read: read it after "
                    "compact is done, or compact less often",
                    path=str(store.root),
                ) from error
    raise AssertionError("unreachable")


def _below(root: Path, prefix: str, levels: tuple[str, ...]) -> Iterator[str]:
    if not levels:
        yield prefix
        return
    for name in _directories(root / prefix, levels[0]):
        yield from _below(root, f"{prefix}/{name}" if prefix else name, levels[1:])


def _directories(path: Path, start: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.name.startswith(start) and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
