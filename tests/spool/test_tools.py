"""The tools of a queue on disk: what they find is what was appended, and what was damaged by hand."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from aioproduce.errors import SpoolDirectoryError, SpoolFormatError, SpoolInUseError
from aioproduce.spool.compacting import compact
from aioproduce.spool.dead_letter_table import (
    count_dead_letters,
    read_dead_letters,
    remove_dead_letters,
)
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.inspection import LogStat, look_at
from aioproduce.spool.log_scan import LogScan
from aioproduce.spool.queue_files import QueueFiles, find_queues
from aioproduce.spool.record_reading import LogRecords
from aioproduce.spool.repairing import Repair, repair
from aioproduce.spool.segments import LIFE_STEP
from aioproduce.spool.topic_log import TopicLog
from aioproduce.spool.verifying import Finding, FindingKind, Verification, verify
from tests.spool.batches import make_batch

_SEGMENT = 4_000
_TIME = 1_700_000_000_000
_FIRST = "00000000000000000000.log"


@pytest.fixture
def queue(tmp_path: Path) -> QueueFiles:
    """A queue that nobody uses, without logs."""
    SpoolDirectory(tmp_path / "queue-0").close()
    return QueueFiles(str(tmp_path / "queue-0"))


def _log_path(queue: QueueFiles, topic: str = "orders") -> Path:
    return Path(queue.path) / "logs" / f"{topic}-0"


@contextmanager
def _life(queue: QueueFiles, topic: str = "orders") -> Iterator[TopicLog]:
    """A log in use, whose process is killed at the end: nothing is sealed."""
    directory = SpoolDirectory(queue.path)
    try:
        yield TopicLog(FileSystem(), str(_log_path(queue, topic)), _SEGMENT, keeps=False)
    finally:
        directory.close()


def _append(log: TopicLog, *groups: list[bytes], timestamp: int = _TIME) -> dict[int, bytes]:
    """Append batches, and return the value of each offset."""
    stored: dict[int, bytes] = {}
    for group in groups:
        stored.update(enumerate(group, log.next_offset))
        assert log.append([[make_batch(group, timestamp)]]) == 1
    log.sync()
    return stored


def _values(queue: QueueFiles, topic: str = "orders", **options: Any) -> dict[int, bytes | None]:
    log = queue.log(topic)
    assert log is not None
    settings: dict[str, Any] = {"from_offset": 0, "waits": False, "is_in_use": queue.is_in_use} | options
    return {record.offset: record.value for record in LogRecords(log, **settings).records()}


def _verified(queue: QueueFiles) -> Verification:
    result = Verification(queue.path, queue.user())
    for _ in verify(queue, result):
        pass
    return result


def _kinds(findings: list[Finding]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def _tree(directory: str) -> dict[str, tuple[int, bytes]]:
    """Every file's time of change and content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in Path(directory).rglob("*")
        if path.is_file()
    }


def _dead_letters(queue: QueueFiles, *rows: tuple[str, bytes, bytes]) -> None:
    with closing(sqlite3.connect(queue.dead_letters)) as connection, connection:
        connection.execute(
            "CREATE TABLE dead_letters (topic TEXT NOT NULL, id BLOB NOT NULL, key BLOB, value BLOB, headers TEXT "
            "NOT NULL, timestamp INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL, "
            "PRIMARY KEY (topic, id)) WITHOUT ROWID"
        )
        for topic, record_id, value in rows:
            connection.execute(
                'INSERT INTO dead_letters VALUES (?, ?, NULL, ?, \'[["n", "MQ=="], ["m", null]]\', 7, \'no\', 8.5)',
                (topic, record_id, value),
            )


# -- which queues there are ---


def test_the_queues_of_a_service_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        SpoolDirectory(tmp_path / f"queue-{number}").close()
    (tmp_path / "queue-x").mkdir()
    assert [each.name for each in find_queues(tmp_path)] == ["queue-0", "queue-2", "queue-10"]
    assert [each.path for each in find_queues(tmp_path / "queue-2")] == [str(tmp_path / "queue-2")]


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for path, why in (
        (tmp_path / "empty", "has no queue"),
        (tmp_path / "file", "Not a directory"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(SpoolDirectoryError, match=why):
            find_queues(path)


def test_a_directory_that_the_system_cannot_read_is_named(queue: QueueFiles) -> None:
    logs = Path(queue.path) / "logs"
    logs.rmdir()
    logs.symlink_to(logs)  # a loop: root cannot read it either
    for work in (look_at, _verified, lambda each: list(repair(each)), lambda each: list(compact(each))):
        with pytest.raises(SpoolDirectoryError, match="/logs cannot be read: Too many levels"):
            work(queue)


# -- stat ---


def test_what_waits_is_counted_over_segments_and_lives(queue: QueueFiles) -> None:
    stored: dict[int, bytes] = {}
    for life in range(3):
        with _life(queue) as log:
            for number in range(30):
                stored |= _append(log, [b"x" * 300, b"y"], timestamp=_TIME + 1_000 * life + number)
    assert max(stored) > 2 * LIFE_STEP
    with _life(queue) as log:
        log.settle(21)  # in the middle of a batch
        stat = look_at(queue)
        assert stat.user == str(os.getpid())
    size = sum(path.stat().st_size for path in _log_path(queue).iterdir())
    assert stat.logs == [
        LogStat("orders", size, len(list(_log_path(queue).glob("*.log"))), 21, 180 - 21, _TIME + 10)
    ]
    with _life(queue) as log:
        log.settle(max(stored) + 1)
    stat = look_at(queue)
    assert (stat.user, stat.waiting, stat.oldest_at_ms) == (None, 0, None)
    assert stat.spool_id == uuid.UUID(json.loads((Path(queue.path) / "spool.json").read_text())["id"]).bytes


def test_a_look_reads_little_of_much(queue: QueueFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with _life(queue) as log:
        stored = _append(log, *([b"%04d" % number * 200] for number in range(300)))
    read = 0
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal read
        piece = pread(descriptor, size, offset)
        read += len(piece)
        return piece

    monkeypatch.setattr(os, "pread", counted)
    stat = look_at(queue)
    assert stat.waiting == len(stored)
    assert 0 < read < 3_000 < 240_000 < stat.bytes


def test_a_batch_that_is_half_written_is_not_counted_and_no_damage(queue: QueueFiles) -> None:
    with _life(queue) as log:
        whole = _append(log, [b"1"], [b"2", b"3"])
        path = _log_path(queue) / _FIRST
        end = log.segments[0].extent.size if log.segments[0].extent else 0
        _append(log, [b"z" * 500])
        content = bytearray(path.read_bytes())
        content[end + 300 :] = bytes(len(content) - end - 300)  # the rest is not written yet
        path.write_bytes(content)
        assert look_at(queue).waiting == 3
        assert _verified(queue).findings == []
        assert _values(queue) == whole
    # Its process is gone now.
    assert look_at(queue).waiting == 3
    result = _verified(queue)
    assert (_kinds(result.findings), result.is_clean) == ([FindingKind.TORN], True)
    done = list(repair(queue))
    assert [each.is_done for each in done] == [True]
    assert path.read_bytes() == bytes(content[:end])
    (kept,) = Path(queue.quarantine).glob("*.bytes")
    assert kept.read_bytes() == bytes(content[end:]).rstrip(b"\0")
    assert _verified(queue).findings == []
    assert _values(queue) == whole


def test_looking_changes_nothing(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, *([b"%04d" % number * 200] for number in range(20)))
        log.settle(3)
    _flip(_log_path(queue) / "00000000000000000004.log", 100)
    _dead_letters(queue, ("orders", bytes(24), b"1"))
    before = _tree(queue.path)
    assert not _verified(queue).is_clean
    look_at(queue)
    _values(queue)
    read_dead_letters(queue.dead_letters)
    list(repair(queue, has_new_id=True, is_dry=True))
    assert _tree(queue.path) == before


# -- verify and repair ---


def test_damage_in_the_middle_is_found_kept_and_then_known(queue: QueueFiles) -> None:
    with _life(queue) as log:
        stored = _append(log, [b"1"], [b"two" * 20, b"2b"], [b"3"], [b"4"])
    path = _log_path(queue) / _FIRST
    content = path.read_bytes()
    start, end = len(make_batch([b"1"])), len(make_batch([b"1"])) + len(make_batch([b"two" * 20, b"2b"]))
    _flip(path, content.index(b"two" * 20))
    damaged = path.read_bytes()

    result = _verified(queue)
    (finding,) = result.findings
    assert finding.kind is FindingKind.DAMAGED
    assert finding.damage is not None
    assert finding.damage[1:] == (_FIRST, start, end, 1, 3, False)
    assert (result.records, result.batches, result.is_clean) == (3, 3, False)
    whole = {offset: value for offset, value in stored.items() if offset in (0, 3, 4)}
    assert _values(queue) == whole

    assert [(each.finding, each.is_done) for each in repair(queue)] == [(finding, True)]
    assert path.read_bytes() == damaged
    (kept,) = Path(queue.quarantine).glob("*.bytes")
    assert kept.read_bytes() == damaged[start:end]
    result = _verified(queue)
    assert (_kinds(result.findings), result.is_clean) == ([FindingKind.KNOWN], True)
    assert _values(queue) == whole
    # More damage at the same place is news.
    _flip(path, end)
    assert _kinds(_verified(queue).findings) == [FindingKind.DAMAGED]


def test_damage_is_told_also_if_reading_begins_within_it(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, [b"1"], [b"two", b"2b"], [b"3"])
    _flip(_log_path(queue) / _FIRST, len(make_batch([b"1"])) + 40)
    log_files = queue.log("orders")
    assert log_files is not None
    reading = LogRecords(log_files, from_offset=2, waits=False, is_in_use=queue.is_in_use)
    assert [record.offset for record in reading.records()] == [3]
    (problem,) = reading.problems()
    assert "1 records from offset 2 on" in problem


def test_the_last_batch_of_a_log_that_was_closed_is_not_torn_but_damaged(queue: QueueFiles) -> None:
    with _life(queue) as log:
        stored = _append(log, [b"1"], [b"2"], [b"3"])
        log.close()
    path = _log_path(queue) / _FIRST
    size = len(make_batch([b"1"]))
    assert path.stat().st_size == 3 * size
    for place in (3 * size - 2, 2 * size - 2):
        _flip(path, place)
        (finding,) = _verified(queue).findings
        assert finding.kind is FindingKind.DAMAGED
    assert [each.is_done for each in repair(queue)] == [True]
    assert path.stat().st_size == size
    assert _verified(queue).findings == []
    assert _values(queue) == {0: stored[0]}


def test_a_batch_that_was_torn_in_its_head_is_torn_also_in_a_file_that_is_used_again(
    queue: QueueFiles,
) -> None:
    with _life(queue) as log:
        _append(log, [b"1" * 300] * 10)
        _append(log, [b"2" * 3_000])
        log.settle(10)
        _append(log, [b"3" * 2_000])
    path = sorted(_log_path(queue).glob("*.log"))[-1]
    content = bytearray(path.read_bytes())
    assert len(content) > 3_000
    content[20 : len(make_batch([b"3" * 2_000]))] = b"\xaa" * (len(make_batch([b"3" * 2_000])) - 20)
    path.write_bytes(content)
    (finding,) = _verified(queue).findings
    assert finding.kind is FindingKind.TORN


def test_a_last_batch_whose_head_is_damaged_is_found_and_not_compacted_away(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, [b"1"], [b"2"])
        log.close()
    path = _log_path(queue) / _FIRST
    _flip(path, len(make_batch([b"1"])) + 16)
    before = path.read_bytes()
    (finding,) = _verified(queue).findings
    assert finding.kind is FindingKind.DAMAGED
    assert [each.is_left for each in compact(queue)] == [True]
    assert path.read_bytes() == before
    assert [each.is_done for each in repair(queue)] == [True]
    assert path.stat().st_size == len(make_batch([b"1"]))
    assert any(kept.read_bytes() for kept in Path(queue.quarantine).glob("*.bytes"))


def test_a_segment_that_somebody_removed_is_damage(queue: QueueFiles) -> None:
    with _life(queue) as log:
        stored = _append(log, *([b"%04d" % number * 200] for number in range(20)))
    names = sorted(path.name for path in _log_path(queue).glob("*.log"))
    gone, following = int(names[2].partition(".")[0]), int(names[3].partition(".")[0])
    (_log_path(queue) / names[2]).unlink()
    (finding,) = _verified(queue).findings
    assert finding.damage is not None
    assert (finding.kind, finding.damage[4:6]) == (FindingKind.DAMAGED, (gone, following))
    assert "in no file" in finding.message
    list(repair(queue))
    assert _verified(queue).is_clean
    assert _values(queue) == {
        offset: value for offset, value in stored.items() if not gone <= offset < following
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_repair_loses_no_batch_that_is_whole(queue: QueueFiles, seed: int) -> None:
    source = random.Random(seed)
    stored: dict[int, bytes] = {}
    places: list[tuple[Path, int, int, dict[int, bytes]]] = []
    for _ in range(2):
        with _life(queue) as log:
            for _ in range(25):
                values = [source.randbytes(source.randrange(1, 400)) for _ in range(source.randrange(1, 4))]
                new = _append(log, values)
                extent = log.segments[-1].extent
                assert extent is not None
                path = _log_path(queue) / log.segments[-1].name
                places.append((path, extent.size - len(make_batch(values)), extent.size, new))
                stored |= new
    whole = dict(stored)
    for path, start, end, new in source.sample(places, 6):
        _flip(path, source.randrange(start, end))
        whole = {offset: value for offset, value in whole.items() if offset not in new}
    assert _values(queue) == whole
    list(repair(queue))
    assert _values(queue) == whole
    assert _verified(queue).is_clean
    with _life(queue) as log:
        whole |= _append(log, [b"new"])
    assert _values(queue) == whole


def test_a_scan_of_a_log_in_use_meets_no_damage_when_files_are_used_again(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, *([b"%04d" % number * 200] for number in range(30)))
        scan = LogScan(str(_log_path(queue)), is_in_use=queue.is_in_use)
        batches = scan.batches()
        first = next(batches)
        assert first.head.base_offset == 0
        # The file that is open is settled, used again, and overwritten; others are removed.
        log.settle(12)
        _append(log, *([b"%04d" % number * 100] for number in range(30, 90)))
        log.settle(70)
        later = [batch.head.base_offset for batch in batches]
        assert scan.damages() == []
        assert later == sorted(set(later))
        assert later[-1] >= 70
        _flip(_log_path(queue) / log.segments[0].name, 100)
        scan = LogScan(str(_log_path(queue)), is_in_use=queue.is_in_use)
        list(scan.batches())
        assert len(scan.damages()) == 1


def test_a_lost_id_is_made_anew_only_if_that_is_wanted(queue: QueueFiles) -> None:
    description = Path(queue.path) / "spool.json"
    old = json.loads(description.read_text())["id"]
    for content in (None, b"{", b'{"format": 1, "id": 5}'):
        description.unlink()
        if content is not None:
            description.write_bytes(content)
        assert _kinds(_verified(queue).findings) == [FindingKind.DESCRIPTION]
        assert look_at(queue).problems
        (left,) = repair(queue)
        assert not left.is_done
        assert "--new-id" in left.action
        assert description.exists() == (content is not None)
        (done,) = repair(queue, has_new_id=True)
        assert done.is_done
        made = json.loads(description.read_text())["id"]
        assert made != old
        assert _verified(queue).is_clean
    assert (Path(queue.quarantine) / "spool.json").read_bytes() == b"{"
    assert list(repair(queue, has_new_id=True)) == []
    assert json.loads(description.read_text())["id"] == made


def test_another_format_is_left_alone(queue: QueueFiles) -> None:
    (Path(queue.path) / "spool.json").write_text(f'{{"format": 2, "id": "{uuid.uuid4()}"}}')
    for work in (
        _verified,
        lambda each: list(repair(each, has_new_id=True)),
        lambda each: list(compact(each)),
    ):
        with pytest.raises(SpoolFormatError, match="format 2"):
            work(queue)


def test_a_lost_position_is_never_guessed_ahead(queue: QueueFiles) -> None:
    with _life(queue) as log:
        stored = _append(log, *([b"%04d" % number * 200] for number in range(20)))
        log.settle(10)
    first = int(min(path.name for path in _log_path(queue).glob("*.log")).partition(".")[0])
    position = _log_path(queue) / "position"
    position.write_bytes(bytes(8_192))
    assert _kinds(_verified(queue).findings) == [FindingKind.POSITION]
    assert list(compact(queue))[-1].is_left
    (done,) = repair(queue)
    assert done.is_done
    assert look_at(queue).logs[0].position == first
    assert _verified(queue).is_clean
    assert _values(queue, waits=True) == {offset: stored[offset] for offset in range(first, 20)}

    for path in _log_path(queue).glob("*.log"):
        path.unlink()
    position.write_bytes(b"")
    (left,) = repair(queue)
    assert not left.is_done
    (done,) = repair(queue, has_new_id=True)
    assert done.is_done
    assert not position.exists()
    assert _verified(queue).is_clean


def test_a_queue_in_use_is_not_repaired(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, [b"1"])
        before = _tree(queue.path)
        for work in (repair, compact, lambda each: repair(each, is_dry=True)):
            with pytest.raises(SpoolInUseError, match=f"in use by process {os.getpid()}"):
                list(work(queue))
        assert _tree(queue.path) == before


def test_a_dry_run_tells_what_a_repair_does(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, [b"1" * 100], [b"2" * 100], [b"3" * 100], [b"4" * 100])
    path = _log_path(queue) / _FIRST
    size = len(make_batch([b"1" * 100]))
    _flip(path, size + 100)
    _flip(path, 4 * size - 2)
    (Path(queue.path) / "spool.json").unlink()
    (_log_path(queue) / "position").write_bytes(b"?")
    told: list[Repair] = list(repair(queue, has_new_id=True, is_dry=True))
    assert list(repair(queue, has_new_id=True)) == told
    assert _kinds([each.finding for each in told]) == [
        *(FindingKind.DESCRIPTION, FindingKind.POSITION, FindingKind.DAMAGED, FindingKind.TORN)
    ]


# -- compact ---


def test_compacting_frees_what_nobody_needs(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, *([b"%04d" % number * 200] for number in range(30)))
        log.settle(13)
    with _life(queue) as log:
        kept = _append(log, [b"last"])
    (_log_path(queue) / "rescued").write_bytes(bytes(100))
    waiting = _values(queue, waits=True)
    before = sum(path.stat().st_size for path in _log_path(queue).iterdir())
    freed = list(compact(queue))
    after = sum(path.stat().st_size for path in _log_path(queue).iterdir())
    assert sum(each.bytes for each in freed) == before - after > _SEGMENT
    assert _values(queue, waits=True) == waiting
    assert waiting.items() >= kept.items()
    names = {path.name for path in _log_path(queue).iterdir()}
    assert not names & {"recycled", "rescued"}
    # Every segment ends with its last batch now.
    assert after == sum((each.stat().st_size for each in _log_path(queue).glob("*.log")), start=4_096 + 28)
    assert (_log_path(queue) / f"{2 * LIFE_STEP:020}.log").stat().st_size == len(make_batch([b"last"]))
    assert list(compact(queue)) == []


def test_tools_pass_over_holes_and_lose_nothing_behind_them(queue: QueueFiles) -> None:
    with _life(queue) as log:
        log.append([[make_batch([b"0", b"1"])], [make_batch([b"5"])]], [0, 5])
        log.append([[make_batch([b"far"])]], [2 * LIFE_STEP + 7])
    wanted = {0: b"0", 1: b"1", 5: b"5", 2 * LIFE_STEP + 7: b"far"}
    assert _values(queue) == wanted
    assert _verified(queue).findings == []
    assert _verified(queue).records == 4
    list(compact(queue))
    assert _values(queue) == wanted
    assert _verified(queue).findings == []


def test_offsets_are_not_used_again_after_a_log_was_emptied(queue: QueueFiles) -> None:
    used: set[int] = set()
    for _ in range(3):
        with _life(queue) as log:
            new = set(_append(log, [b"1"], [b"2"]))
            assert not used & new
            used |= new
            log.settle(log.next_offset)
        list(compact(queue))
        assert list(_log_path(queue).glob("*.log")) == []
    # A life whose records a power cut took may have been forwarded: its name stays.
    with _life(queue, "new") as log:
        _append(log, [b"1"])
        (_log_path(queue, "new") / _FIRST).write_bytes(b"")
    list(compact(queue))
    with _life(queue, "new") as log:
        assert log.next_offset > 0


def test_a_damaged_segment_is_not_compacted_away(queue: QueueFiles) -> None:
    with _life(queue) as log:
        _append(log, [b"1"], [b"2"])
        log.settle(1)
    path = _log_path(queue) / _FIRST
    _flip(path, 2 * len(make_batch([b"1"])) - 1)
    before = path.read_bytes()
    assert [(each.bytes, each.is_left) for each in compact(queue)] == [(0, True)]
    assert path.read_bytes() == before


def test_the_quarantine_is_emptied_only_on_request(queue: QueueFiles) -> None:
    quarantine = Path(queue.quarantine)
    quarantine.mkdir()
    (quarantine / "orders-0-0-5.bytes").write_bytes(bytes(700))
    assert list(compact(queue)) == []
    assert look_at(queue).quarantine_bytes == 700
    assert [each.bytes for each in compact(queue, has_quarantine=True)] == [700]
    assert look_at(queue).quarantine_bytes == 0


# -- dead letters ---


def test_dead_letters_are_counted_read_and_removed(queue: QueueFiles) -> None:
    ids = [bytes(16) + number.to_bytes(8, "big") for number in range(5)]
    _dead_letters(
        queue, *(("orders" if number else "a", each, bytes(5_000)) for number, each in enumerate(ids))
    )
    path = queue.dead_letters
    assert count_dead_letters(path) == look_at(queue).dead_letters == {"a": 1, "orders": 4}
    letters = read_dead_letters(path, limit=2)
    assert [(each.topic, each.id) for each in letters] == [("a", ids[0]), ("orders", ids[1])]
    assert letters[1][2:] == (None, bytes(5_000), [("n", b"1"), ("m", None)], 7, "no", 8.5)
    assert [each.id for each in read_dead_letters(path, after=letters[1])] == ids[2:]
    assert [each.id for each in read_dead_letters(path, topic="orders", ids=ids[:3])] == ids[1:3]
    remove_dead_letters(path, letters)
    assert [each.id for each in read_dead_letters(path)] == ids[2:]
    size = os.stat(path).st_size
    (freed,) = compact(queue)
    assert freed.bytes == size - os.stat(path).st_size > 0
    assert [each.id for each in read_dead_letters(path)] == ids[2:]


def test_a_damaged_table_of_dead_letters_is_found(queue: QueueFiles) -> None:
    sqlite3.connect(queue.dead_letters).close()
    Path(queue.dead_letters).touch()
    assert count_dead_letters(queue.dead_letters) == {}
    assert _verified(queue).is_clean
    Path(queue.dead_letters).write_bytes(b"no table at all" * 100)
    assert _kinds(_verified(queue).findings) == [FindingKind.DEAD_LETTERS]
    assert "cannot be read" in look_at(queue).problems[0]
    (left,) = repair(queue)
    assert not left.is_done


# -- while a writer works ---


@pytest.mark.extended("a thread that writes all the time; the deterministic test above stays in the gate")
def test_no_look_at_a_log_in_use_finds_damage(queue: QueueFiles) -> None:
    batches = [make_batch([bytes([number]) * (100 + 7 * number)] * (1 + number % 5)) for number in range(50)]
    ended = threading.Event()

    def write(log: TopicLog) -> None:
        number = 0
        while not ended.is_set():
            for _ in range(20):
                log.append([[batches[number % 50]], [batches[(number + 7) % 50]]])
                number += 1
            log.sync()
            log.settle(max(0, log.next_offset - 400))

    with _life(queue) as log:
        writer = threading.Thread(target=write, args=(log,))
        writer.start()
        try:
            for _ in range(300):
                assert _verified(queue).findings == []
                assert 0 <= look_at(queue).waiting < 2_000
        finally:
            ended.set()
            writer.join()
