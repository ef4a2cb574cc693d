"""Merges the small files of an hour into one, safely against kills at any step: a state machine over a manifest.

Used by `jobs.compact`. It reads and writes Parquet through `merging`, changes the lake through `lake_files`, and
records its progress in the `manifest`.

    IDLE ──write, check, record──▶ WRITTEN ──publish, switch──▶ SWITCHED ──hide, delete, finish──▶ IDLE
      ▲                              │ a source changed, or the result is gone
      └───────── give up ◀───────────┘

Invariants:

1. Only batches are touched that no query writes again (`SafeBatches`). What is safe is determined *before* the hour
   is listed: otherwise a batch that was listed half-written and became safe afterwards would lose its other half.
2. A source is removed only after a file with all of its rows, read back and compared, is on the disk under its own
   name and the manifest says that it counts.
3. Each step may be repeated from its start. A run begins with the remaining steps of the previous one, whatever
   happened to it. Before WRITTEN, only the work directory was touched, and that is emptied.
4. A reader that uses the manifest (`store`) sees each record exactly once at every moment. A reader that only lists
   the table's directories may see the records of one hour twice between publish and the end of hide: for
   milliseconds, or until the next run if compact was killed in between. It never sees fewer, because the result is
   there before a source is removed.
5. Only one compact at a time works on a table (`compact_lock`).
6. Unknown files and directories are left alone and reported: foreign files in a batch's directory, names that are
   not a batch's, batches of queries without a known checkpoint, unreadable files.
7. A source that differs from what was recorded stops the compaction, on either side of the commit point: a batch
   that Spark had committed was written again.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import pyarrow as pa
import pyarrow.parquet as pq

from aioproduce.spark.errors import CompactCheckError, ManifestError
from aioproduce.spark.lake_files import LakeFiles, compact_lock
from aioproduce.spark.layout import COMPACT_PREFIX, LandedBatch
from aioproduce.spark.manifest import BatchFiles, Manifest, Phase
from aioproduce.spark.merging import digest_of_file, merge_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from aioproduce.spark.store import Batch, Store

RESULT_PREFIX = f"batch={COMPACT_PREFIX}"
RESULT_FILE = "part-00000.parquet"
# In a result's footer: the replaced batches, for `repair`.
FOOTER_KEY = b"aioproduce.compact"
NEW, OLD = "new", "old"


@final
@dataclass(frozen=True, slots=True)
class SafeBatches:
    """The batches that no query writes again.

    Attributes:
        below: By query id, the number from which on batches may still be written; those below it are safe.
        gone: Queries that landed here and whose checkpoint is missing.
    """

    below: Mapping[str, int]
    gone: frozenset[str] = frozenset()

    def why_not(self, name: str) -> str | None:
        """Return a short reason why this directory must be left alone, or `None` if it is safe."""
        if name.startswith(RESULT_PREFIX):
            return None
        landed = _landed(name)
        if landed is None:
            return "not a batch of land"
        if landed.query_id in self.gone:
            return "of a query whose checkpoint is gone (see --retired)"
        if landed.query_id not in self.below:
            return "of a query that this lake does not know (see --checkpoint)"
        if landed.number >= self.below[landed.query_id]:
            return "not committed yet, or the last committed one"
        return None


@final
@dataclass(frozen=True, slots=True)
class Policy:
    """What is worth compacting.

    Attributes:
        target_bytes: The target size. A batch of at least three quarters of it is large enough.
        min_files: The minimum number of files in an hour, at least 2.
        memory_bytes: The approximate memory for merging.
    """

    target_bytes: int = 256 << 20
    min_files: int = 2
    memory_bytes: int = 256 << 20


@final
@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        hours: Hours in which something was compacted.
        compactions: Results that were written.
        files_before: Files that they replaced.
        rows: Rows in them.
        bytes_before: Size of the replaced files.
        bytes_after: Size of the results.
        resumed: Compactions of an earlier run that were finished.
        given_up: Compactions of an earlier run that were undone before they counted.
        left: Batches that were left alone, by reason.
        failed: By hour, why it could not be compacted; it is unchanged.
    """

    hours: set[str] = field(default_factory=set)
    compactions: int = 0
    files_before: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    resumed: int = 0
    given_up: int = 0
    left: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def plan_hour(
    batches: Sequence[Batch], safe: SafeBatches, policy: Policy, left: dict[str, int] | None = None
) -> list[tuple[BatchFiles, ...]]:
    """Group the batches of an hour that are merged into one file each.

    Args:
        batches: The hour's batches, listed after `safe` was determined.
        safe: The batches that may be touched.
        policy: What is worth compacting.
        left: Counts the batches that must not be touched, by reason.

    Returns:
        Groups of at most the target size, ordered by query and number; none if nothing is worth compacting.
    """
    small: list[BatchFiles] = []
    for batch in batches:
        why = "with foreign files in it" if batch.strange else safe.why_not(batch.name)
        if why is not None:
            if left is not None:
                left[why] = left.get(why, 0) + 1
        elif batch.files.files and batch.files.size < policy.target_bytes * 3 // 4:
            small.append(batch.files)
    groups: list[list[BatchFiles]] = []
    room = 0
    for files in sorted(small, key=_in_order):
        if not groups or files.size > room:
            groups.append([])
            room = policy.target_bytes
        groups[-1].append(files)
        room -= files.size
    wanted = max(policy.min_files, 2)
    return [tuple(group) for group in groups if sum(len(each.files) for each in group) >= wanted]


@final
class Compactor:
    """Compacts one table.

    Args:
        store: The table.
        safe: Returns the batches that may be touched; called again for each hour.
        policy: What is worth compacting.
        files: The effects on the file system.
    """

    def __init__(
        self, store: Store, safe: Callable[[], SafeBatches], policy: Policy, files: LakeFiles | None = None
    ) -> None:
        self._store = store
        self._safe = safe
        self._policy = policy
        self._files = files or LakeFiles()
        self._manifest = Manifest()
        self._outcome = Outcome()

    def run(
        self, topics: Iterable[str] | None = None, *, progress: Callable[[str, Outcome], None] | None = None
    ) -> Outcome:
        """Finish what an earlier run began, then compact every hour that is worth it.

        Args:
            topics: Only these topics; all by default.
            progress: Called with each hour before it is processed, and with the result so far.

        Returns:
            The result; `failed` names the hours that could not be compacted.

        Raises:
            CompactRunningError: If another compact works on this table.
            ManifestError: If the manifest is damaged or contradicts the lake; nothing was touched since.
            OSError: If the file system failed for another reason than being full; run it again.
        """
        self._outcome = Outcome()
        if not self._store.root.is_dir():
            return self._outcome
        with self._lock():
            self._recover()
            for hour in self._hours(topics):
                if progress is not None:
                    progress(hour, self._outcome)
                self._compact_hour(hour)
        return self._outcome

    def plan(
        self, topics: Iterable[str] | None = None
    ) -> tuple[dict[str, list[tuple[BatchFiles, ...]]], Outcome]:
        """Return what `run` would compact, by hour, without touching anything or taking a lock."""
        outcome = Outcome()
        planned = {}
        for hour in self._hours(topics):
            safe = self._safe()
            groups = plan_hour(self._store.batches(hour), safe, self._policy, outcome.left)
            if groups:
                planned[hour] = groups
        return planned, outcome

    def repair(self) -> Outcome:
        """Rebuild a damaged or missing manifest: finish every compaction whose result is in the table.

        A result is moved there only when it is complete and checked, and its footer names the batches that it
        replaces. So if a source still exists, its compaction was interrupted, and is finished. Results that were
        not yet moved there are deleted.

        Raises:
            CompactRunningError: If another compact works on this table.
            ManifestError: If a result's footer does not name the batches that it replaces.
        """
        self._outcome = Outcome()
        if not self._store.root.is_dir():
            return self._outcome
        with self._lock():
            numbers = [0]
            for hour in list(self._store.hours()):
                batches = {batch.name: batch.files for batch in self._store.batches(hour)}
                for name in [name for name in batches if name.startswith(RESULT_PREFIX)]:
                    path = self._store.root / hour / name / RESULT_FILE
                    number, rows, sources = _read_footer(path)
                    numbers.append(number)
                    there = tuple(source for source in sources if source.name in batches)
                    if there:
                        self._manifest = Manifest(number, Phase.SWITCHED, hour, there, batches[name], rows)
                        self._save(self._manifest)
                        self._go_on()
                        self._outcome.resumed += 1
            # Higher than any before, and without history, so that concurrent readers list everything again.
            self._save(Manifest(number=max(numbers) + 1))
            self._empty_work()
        return self._outcome

    def _hours(self, topics: Iterable[str] | None) -> list[str]:
        hours = list(self._store.hours())
        if topics is None:
            return hours
        wanted = {f"topic={topic}" for topic in topics}
        return [hour for hour in hours if hour.partition("/")[0] in wanted]

    def _lock(self) -> AbstractContextManager[None]:
        self._files.make_directory(self._store.work)
        return compact_lock(self._store.work / "lock")

    def _recover(self) -> None:
        self._manifest = self._store.manifest()
        if self._manifest.phase is not Phase.IDLE:
            if self._manifest.phase is Phase.WRITTEN and not self._is_sound():
                self._give_up()
                self._outcome.given_up += 1
            else:
                self._go_on()
                self._outcome.resumed += 1
        self._empty_work()

    def _compact_hour(self, hour: str) -> None:
        safe = self._safe()
        for sources in plan_hour(self._store.batches(hour), safe, self._policy, self._outcome.left):
            try:
                rows, result = self._write(hour, sources)
            except (pa.ArrowException, OSError, CompactCheckError) as error:
                # Only the work directory was touched.
                self._empty_work()
                self._outcome.failed[hour] = f"{type(error).__name__}: {error}"
                continue
            self._save(self._manifest.begun(hour=hour, sources=sources, result=result, rows=rows))
            if not self._is_sound():
                self._give_up()
                self._outcome.failed[hour] = (
                    "a batch changed while it was compacted, although its checkpoint had committed it: was "
                    "the checkpoint reset, or does a second query use it?"
                )
                continue
            self._go_on()
            outcome = self._outcome
            outcome.hours.add(hour)
            outcome.compactions += 1
            outcome.files_before += sum(len(source.files) for source in sources)
            outcome.rows += rows
            outcome.bytes_before += sum(source.size for source in sources)
            outcome.bytes_after += result.size

    def _write(self, hour: str, sources: tuple[BatchFiles, ...]) -> tuple[int, BatchFiles]:
        """Write the result into the work directory, read it back, and compare."""
        name = f"{RESULT_PREFIX}{uuid.uuid4().hex[:16]}"
        directory = self._store.work / NEW / name
        self._files.make_directory(directory)
        paths = [
            self._store.root / hour / source.name / file for source in sources for file, _ in source.files
        ]
        path = directory / RESULT_FILE
        expected = merge_files(
            paths,
            path,
            memory_bytes=self._policy.memory_bytes,
            metadata={FOOTER_KEY: _footer(self._manifest.number + 1, sources)},
        )
        self._files.sync_file(path)
        found = digest_of_file(path)
        if found != expected:
            raise CompactCheckError(
                f"{hour}: the compacted file differs from its sources ({found} instead of {expected}); it is "
                "deleted and its sources stay. Run compact again; if it happens again, report a bug",
                hour=hour,
                expected=str(expected),
                found=str(found),
            )
        self._files.sync_directory(directory)
        return expected.rows, BatchFiles(name, ((RESULT_FILE, path.stat().st_size),))

    def _go_on(self) -> None:
        """Do the remaining steps of a compaction, each of which may have been done before."""
        if self._manifest.phase is Phase.WRITTEN:
            self._publish()
            self._save(self._manifest.moved_to(Phase.SWITCHED))
        if self._manifest.phase is Phase.SWITCHED:
            self._hide()
            self._empty_work()
            self._save(self._manifest.moved_to(Phase.IDLE))

    def _is_sound(self) -> bool:
        """Return whether a WRITTEN compaction can continue: sources as recorded, and a complete result."""
        manifest = self._manifest
        for source in manifest.sources:
            batch = self._store.batch(manifest.hour, source.name)
            if batch is None or batch.strange or batch.files != source:
                return False
        result = _result_of(manifest)
        hidden = self._store.work / NEW / result.name / RESULT_FILE
        is_hidden = hidden.is_file() and ((RESULT_FILE, hidden.stat().st_size),) == result.files
        return is_hidden or self._on_disk(result.name) == result

    def _publish(self) -> None:
        name = _result_of(self._manifest).name
        hidden = self._store.work / NEW / name
        if hidden.is_dir():
            hour = self._store.root / self._manifest.hour
            self._files.move_directory(hidden, hour / name)
            self._files.sync_directory(hour)

    def _hide(self) -> None:
        result = _result_of(self._manifest)
        if self._on_disk(result.name) != result:
            raise ManifestError(
                f"{self._store.manifest_path} says that {result.name} replaces "
                f"{len(self._manifest.sources)} batches of {self._manifest.hour}, but it is missing or was "
                "changed. Nothing was removed. If somebody removed it, remove the manifest too: the "
                "batches that still exist then count again",
                path=str(self._store.manifest_path),
            )
        hour, aside = self._store.root / self._manifest.hour, self._store.work / OLD
        self._files.make_directory(aside)
        for source in self._manifest.sources:
            there = self._on_disk(source.name)
            if there is None:
                continue
            if there != source:
                raise ManifestError(
                    f"{self._manifest.hour}/{source.name} was written again after it was compacted into "
                    f"{result.name}: was its checkpoint reset? Its records are there twice; nothing was "
                    "removed. Find out which copy is right, and remove the other",
                    path=str(hour / source.name),
                )
            self._files.move_directory(hour / source.name, aside / source.name)
        # Once for all of them: until the last is hidden, readers that only list the table see records twice.
        self._files.sync_directory(hour)
        self._files.sync_directory(aside)

    def _give_up(self) -> None:
        """Undo a compaction that does not count yet."""
        name = _result_of(self._manifest).name
        if self._on_disk(name) is not None:
            aside = self._store.work / OLD
            self._files.make_directory(aside)
            self._files.move_directory(self._store.root / self._manifest.hour / name, aside / name)
        self._save(self._manifest.moved_to(Phase.IDLE))
        self._empty_work()

    def _empty_work(self) -> None:
        for name in (OLD, NEW):
            self._files.remove_tree(self._store.work / name)

    def _on_disk(self, name: str) -> BatchFiles | None:
        batch = self._store.batch(self._manifest.hour, name)
        return None if batch is None else batch.files

    def _save(self, manifest: Manifest) -> None:
        self._files.replace_file(self._store.manifest_path, manifest.to_json())
        self._manifest = manifest


def _result_of(manifest: Manifest) -> BatchFiles:
    assert manifest.result is not None
    return manifest.result


def _in_order(files: BatchFiles) -> tuple[str, int]:
    landed = _landed(files.name)
    return (files.name, 0) if landed is None else (landed.query_id, landed.number)


def _landed(name: str) -> LandedBatch | None:
    return LandedBatch.parse(name.removeprefix("batch="))


def _footer(number: int, sources: Sequence[BatchFiles]) -> bytes:
    replaced = [{"name": source.name, "files": source.files} for source in sources]
    return json.dumps({"version": 1, "number": number, "sources": replaced}).encode()


def _read_footer(path: Path) -> tuple[int, int, list[BatchFiles]]:
    try:
        footer = pq.read_metadata(path)
        said = json.loads(footer.metadata[FOOTER_KEY])
        sources = [
            BatchFiles(each["name"], tuple((name, size) for name, size in each["files"]))
            for each in said["sources"]
        ]
        return int(said["number"]), footer.num_rows, sources
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise ManifestError(
            f"{path} does not name the batches that it replaced ({error}), so nothing was repaired: restore "
            "it, or move its directory out of the lake and land the hour's records again",
            path=str(path),
        ) from error
