"""Which files make up the lake now: what the jobs read, whatever a compaction is at.

`layout` knows the names of a table's directories; what compact needs of its own lies beside the tables, in
`<lake>/_compact/<table>/`.

Invariants:

1. A snapshot holds each record that was landed before it was begun, once: of sources and result of a compaction it
   names those that count by the manifest (`manifest`).
2. A directory is not listed at one instant, so an hour that a compaction touched while it was listed is listed
   again: passing the result's name before it was there, and the sources' after they were gone, would lose both.
3. Names that begin with `.` or `_` are nobody's data: Spark's staging, checksums, markers.
4. A snapshot's files may be gone when they are opened: `read_consistently` then takes a new one. Nothing may pass
   over a missing file (`ignoreMissingFiles` would lose records in silence).
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
# A listing is repeated for the hours that were compacted meanwhile, which takes less time than a compaction does.
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
        strange: Names in it that are neither data nor hidden: somebody else's.
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
    """What made up a table at one moment.

    Attributes:
        root: The table's directory.
        batches: What counts, by hour and name.
        manifest: What it was told by.
    """

    root: Path
    batches: tuple[Batch, ...]
    manifest: Manifest

    @property
    def files(self) -> list[str]:
        """The absolute path of each data file: for `spark.read.option("basePath", root).parquet(*files)`."""
        return [
            str(self.root / batch.hour / batch.name / name)
            for batch in self.batches
            for name, _ in batch.files.files
        ]

    def has_lost_files(self) -> bool:
        """Whether a file of it is not there any more."""
        return any(not os.path.exists(path) for path in self.files)


class Store:
    """One table of a lake on a local file system.

    Args:
        lake: Its directory, as a path or `file:` URL.
        table: Which.

    Raises:
        LayoutError: The lake is not on a local file system.
    """

    def __init__(self, lake: str, table: Table = Table.DATA) -> None:
        if not is_local(lake):
            raise LayoutError(
                f"{lake}: this needs directories that are renamed as one, and locks: a local file system. On an "
                "object store use a table format and its own compaction",
                path=lake,
            )
        self.root: Path = local_path(table_path(lake, table))
        self.work: Path = local_path(lake) / WORK / table

    @property
    def manifest_path(self) -> Path:
        """Where the manifest is, once there was a compaction."""
        return self.work / MANIFEST

    def manifest(self) -> Manifest:
        """How far a compaction got.

        Raises:
            ManifestError: It is damaged.
        """
        try:
            content = self.manifest_path.read_bytes()
        except FileNotFoundError:
            return Manifest()
        return Manifest.from_json(content, path=str(self.manifest_path))

    def snapshot(self) -> Snapshot:
        """What makes up the table now.

        Raises:
            ManifestError: The manifest is damaged.
            LakeChangingError: Compactions were done faster than hours can be listed.
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
        """Each hour's directory, below the table's; none where there is no table yet."""
        yield from _below(self.root, "", LEVELS)

    def batches(self, hour: str) -> list[Batch]:
        """All `batch=` directories of an hour as they are on disk, whether they count or not; sorted."""
        found = [self.batch(hour, name) for name in _directories(self.root / hour, "batch=")]
        return [batch for batch in found if batch is not None]

    def batch(self, hour: str, name: str) -> Batch | None:
        """One `batch=` directory as it is on disk; `None` where there is none."""
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
    """Read a table whole, again from a new snapshot where a compaction took files away meanwhile.

    Args:
        store: The table.
        read: Reads a snapshot's files to the end and returns what it made of them; called again from the start.

    Raises:
        LakeChangingError: Files went away each time; the last reader's error is the cause.
    """
    for attempt in range(READING_LIMIT):
        snapshot = store.snapshot()
        try:
            return read(snapshot)
        except Exception as error:
            # Whatever it raised: Spark's errors for a file that is gone are many, and the file is not.
            if not snapshot.has_lost_files():
                raise
            if attempt == READING_LIMIT - 1:
                raise LakeChangingError(
                    f"files of {store.root} went away {READING_LIMIT} times while they were read: read it when "
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
