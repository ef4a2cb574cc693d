"""The file that records the progress of a compaction, and so which of two copies of the same records counts.

Written by `compaction`, read by `store`, at `<lake>/_compact/<table>/manifest.json`, outside of the table.

Invariants:

1. It is only replaced as a whole (written under another name, synced, renamed): a reader sees the old or the new
   one.
2. `WRITTEN`: the sources count, the result does not, wherever it is. `SWITCHED`: the result counts, the sources do
   not. `IDLE`: everything in the table counts. Replacing WRITTEN by SWITCHED is the commit point of a compaction.
3. Numbers only grow, also over compactions that were undone, so that two equal manifests mean that nothing was
   compacted between them.
4. An invalid or unexpected manifest is an error and is never treated as "no compaction": a guess would count
   records twice or not at all.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import final

from aioproduce.spark.errors import ManifestError

VERSION = 1
# Readers that were slower than this many compactions list all hours again. Each takes some 60 bytes in the
# manifest.
RECENT_LIMIT = 500


class Phase(StrEnum):
    """Whether the sources or the result counts."""

    IDLE = "idle"
    WRITTEN = "written"
    SWITCHED = "switched"


@final
@dataclass(frozen=True, slots=True)
class BatchFiles:
    """A `batch=` directory at the time it was listed.

    Attributes:
        name: The directory's name, e.g. `batch=<query id>-7`.
        files: Name and size in bytes of each data file in it, sorted.
    """

    name: str
    files: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """The bytes of all its data files."""
        return sum(size for _, size in self.files)


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """The progress of one hour's compaction.

    Attributes:
        number: The compaction's number, from 1; 0 before the first.
        phase: See the invariants.
        hour: The hour's directory below the table, e.g. `topic=t/date=2026-01-31/hour=07`; empty before the first.
        sources: The batches that the result replaces.
        result: The result; `None` only before the first compaction.
        rows: The rows of the result, and of the sources together.
        recent: Number and hour of the last compactions, including this one.
    """

    number: int = 0
    phase: Phase = Phase.IDLE
    hour: str = ""
    sources: tuple[BatchFiles, ...] = ()
    result: BatchFiles | None = None
    rows: int = 0
    recent: tuple[tuple[int, str], ...] = ()

    def begun(self, *, hour: str, sources: tuple[BatchFiles, ...], result: BatchFiles, rows: int) -> Manifest:
        """Return the manifest of the next compaction, whose checked result is not yet in the table."""
        number = self.number + 1
        recent = (*self.recent, (number, hour))[-RECENT_LIMIT:]
        return Manifest(number, Phase.WRITTEN, hour, sources, result, rows, recent)

    def moved_to(self, phase: Phase) -> Manifest:
        """Return the manifest of the same compaction in a later phase. An idle one keeps only the hour."""
        if phase is Phase.IDLE:
            return replace(self, phase=phase, sources=(), result=None, rows=0)
        return replace(self, phase=phase)

    def ignored(self, hour: str) -> frozenset[str]:
        """Return the names of the `batch=` directories of this hour that do not count."""
        if hour != self.hour or self.phase is Phase.IDLE or self.result is None:
            return frozenset()
        if self.phase is Phase.WRITTEN:
            return frozenset((self.result.name,))
        return frozenset(source.name for source in self.sources)

    def hours_since(self, earlier: Manifest) -> frozenset[str] | None:
        """Return the hours that may have changed since an earlier manifest; `None` if it is too old to know."""
        if earlier == self:
            return frozenset()
        if earlier.number > self.number:
            return None
        numbers = {number for number, _ in self.recent}
        if not numbers.issuperset(range(max(earlier.number, 1), self.number + 1)):
            return None
        return frozenset(hour for number, hour in self.recent if number >= earlier.number)

    def to_json(self) -> bytes:
        """Return the content for `from_json`."""
        body = json.dumps(asdict(self), separators=(",", ":"))
        return json.dumps({"version": VERSION, "crc": zlib.crc32(body.encode()), "body": body}).encode()

    @classmethod
    def from_json(cls, content: bytes, *, path: str) -> Manifest:
        """Parse a manifest.

        Args:
            content: The whole file.
            path: The file's path, for the error.

        Raises:
            ManifestError: If it is damaged, or a later version's.
        """
        try:
            outer = json.loads(content)
            version, crc, body = outer["version"], outer["crc"], outer["body"]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, f"its format is wrong ({error})") from error
        if version != VERSION:
            raise ManifestError(
                f"{path}: manifest version {version!r} is unknown, only {VERSION} is known: use the "
                "aioproduce that wrote it, or a later one",
                path=path,
            )
        if not isinstance(body, str) or zlib.crc32(body.encode(errors="replace")) != crc:
            raise _damaged(path, "its checksum is wrong")
        try:
            return _from_body(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, f"its content is inconsistent ({error})") from error


def _from_body(body: dict[str, object]) -> Manifest:
    result = body["result"]
    sources, recent = body["sources"], body["recent"]
    if not isinstance(sources, list) or not isinstance(recent, list):
        raise TypeError("sources and recent must be lists")
    return Manifest(
        number=_whole(body["number"]),
        phase=Phase(str(body["phase"])),
        hour=str(body["hour"]),
        sources=tuple(_batch(each) for each in sources),
        result=None if result is None else _batch(result),
        rows=_whole(body["rows"]),
        recent=tuple((_whole(number), str(hour)) for number, hour in recent),
    )


def _batch(value: object) -> BatchFiles:
    if not isinstance(value, dict):
        raise TypeError("a batch must be an object")
    return BatchFiles(str(value["name"]), tuple((str(name), _whole(size)) for name, size in value["files"]))


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _damaged(path: str, why: str) -> ManifestError:
    return ManifestError(
        f"{path} is damaged: {why}. It records which of two copies of the same records counts, so nothing "
        "is read or compacted without it. `python -m aioproduce.spark compact --repair` rebuilds it from "
        "the compacted files, each of which names the batches that it replaces",
        path=path,
    )
