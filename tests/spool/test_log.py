"""The log of a topic on a real file system: segments, positions, damage."""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c

from aioproduce.spool.batch_head import holes, is_whole, read_head
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.log_reader import Batch, LogReader
from aioproduce.spool.position import Position
from aioproduce.spool.quarantine import Damage, Quarantine
from aioproduce.spool.reading_thread import ReadingThread
from aioproduce.spool.segments import LIFE_STEP, find_segments
from aioproduce.spool.topic_log import PossiblyStoredError, TopicLog
from tests.drivers.spool_disks import BrokenDisk
from tests.spool.batches import make_batch, read_values

_SEGMENT = 4_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a log."""
    return tmp_path / "orders-0"


def _open(directory: Path, *, keeps: bool = True) -> TopicLog:
    return TopicLog(FileSystem(), str(directory), _SEGMENT, keeps=keeps)


def _append(log: TopicLog, *groups: list[bytes]) -> None:
    batches = [[make_batch(group)] for group in groups]
    while batches:
        del batches[: log.append(batches)]
    log.sync()


def _reader(directory: Path, offset: int = 0) -> LogReader:
    disk = FileSystem()
    return LogReader(disk, str(directory), offset, Quarantine(disk, str(directory.parent / "quarantine")))


def _read(directory: Path, log: TopicLog, offset: int = 0, most: int = 1_000) -> list[tuple[int, bytes]]:
    reader = _reader(directory, offset)
    found: list[tuple[int, bytes]] = []
    while batches := reader.read_cached(log.snapshot(), most) or reader.read(log.snapshot(), most):
        for batch in batches:
            assert is_whole(batch.content, batch.head)
            found += read_values(batch.content)
    reader.close()
    assert not reader.damages
    return found


def test_records_are_read_in_order_over_many_segments(directory: Path) -> None:
    log = _open(directory)
    values = [b"%03d" % number * 50 for number in range(200)]
    for start in range(0, 200, 5):
        _append(log, values[start : start + 3], values[start + 3 : start + 5])
    assert len(log.segments) > 5
    assert all(path.stat().st_size <= _SEGMENT for path in directory.glob("*.log"))
    assert _read(directory, log) == list(enumerate(values))
    log.close()
    assert _read(directory, _open(directory)) == list(enumerate(values))


@pytest.mark.parametrize("parts", [0, 1, 3, 8])
def test_what_is_in_memory_is_read_without_a_disk_and_the_rest_with_one(directory: Path, parts: int) -> None:
    """The page cache may have any part of what is wanted."""
    log = _open(directory)
    values = [b"%03d" % number * 50 for number in range(200)]
    for start in range(0, 200, 5):
        _append(log, values[start : start + 3], values[start + 3 : start + 5])
    disk = _PartlyCached(parts)
    reader = LogReader(disk, str(directory), 0, Quarantine(disk, str(directory.parent / "quarantine")))
    reads = {"cached": 0, "read": 0}
    found: list[tuple[int, bytes]] = []
    while True:
        reader.pass_over(7)
        before = reader.offset
        if batches := reader.read_cached(log.snapshot(), 2_000):
            reads["cached"] += 1
        else:
            assert reader.offset == before
            batches = reader.read(log.snapshot(), 2_000)
            reads["read"] += 1
        if not batches:
            break
        found += [row for batch in batches for row in read_values(batch.content)]
    reader.close()
    assert found == list(enumerate(values))[5:]  # the batch that has offset 7 begins with 5
    assert not reader.damages
    assert reader.read_cached(log.snapshot(), 2_000) == []
    assert (reads["cached"] > 0) == (parts > 1)
    assert reads["read"] >= len(log.segments)  # where a file ends, somebody has to look for the next one


def test_no_more_small_batches_than_take_the_loop_a_moment_are_read_in_its_thread(directory: Path) -> None:
    log = _open(directory)
    _append(log, *([b"%d" % number] for number in range(40)))
    disk = _PartlyCached(8)
    reader = LogReader(disk, str(directory), 0, Quarantine(disk, str(directory.parent / "quarantine")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioproduce.spool.log_reader._MOST_CACHED", 8)
        assert len(reader.read(log.snapshot(), 1)) == 1
        offsets = [
            [batch.head.base_offset for batch in reader.read_cached(log.snapshot(), 9_000)] for _ in range(5)
        ]
    assert offsets == [list(range(start, min(start + 8, 40))) for start in range(1, 40, 8)]
    reader.close()


def test_damage_is_left_to_the_read_that_may_wait(directory: Path, tmp_path: Path) -> None:
    log = _open(directory)
    _append(log, [b"0" * 100], [b"1" * 100], [b"2" * 100])
    log.close()
    (path,) = directory.glob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    log = _open(directory)
    disk = _PartlyCached(8)
    reader = LogReader(disk, str(directory), 0, Quarantine(disk, str(tmp_path / "quarantine")))
    assert [batch.head.base_offset for batch in reader.read(log.snapshot(), 1)] == [0]
    assert reader.read_cached(log.snapshot(), 2_000) == []
    assert not (tmp_path / "quarantine").exists()
    assert [batch.head.base_offset for batch in reader.read(log.snapshot(), 2_000)] == [2]
    assert [damage.first_offset for damage in reader.damages] == [1]


def test_the_files_of_a_disk_are_read_without_a_wait_where_linux_can_tell(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = FileSystem().create(path)
    file.write(0, [bytes(range(256))])
    found = bytes(file.read_cached(100, 1_000))
    assert found in {b"", bytes(range(100, 256))}  # none where the file system cannot tell
    assert bytes(file.read_cached(300, 10)) == b""
    file.close()
    assert bytes(file.read_cached(0, 10)) == b""


def test_a_reader_that_a_thread_uses_is_left_alone() -> None:
    is_in, may_go = threading.Event(), threading.Event()

    looks: list[str] = []

    def read(_segments: object, _most: int) -> list[Batch]:
        is_in.set()
        assert may_go.wait(30)
        return []

    def read_cached(_segments: object, _most: int) -> list[Batch]:
        looks.append("cached")
        return []

    reading = ReadingThread(cast("LogReader", SimpleNamespace(read=read, read_cached=read_cached)))
    thread = threading.Thread(target=reading.read, args=([], 1))
    thread.start()
    assert is_in.wait(30)
    assert reading.read_cached([], 1) == []
    assert looks == []
    may_go.set()
    thread.join()
    assert reading.read_cached([], 1) == []
    assert looks == ["cached"]


class _PartlyCached(FileSystem):
    """A disk of whose files some eighths of what is wanted are in memory."""

    def __init__(self, parts: int) -> None:
        self._parts = parts

    def open(self, path: str) -> Any:
        file = super().open(path)

        def read_cached(offset: int, size: int) -> bytes:
            return file.read(offset, size * self._parts // 8)

        return SimpleNamespace(
            read=file.read, read_cached=read_cached, close=file.close, size=os.stat(path).st_size
        )


def test_a_batch_larger_than_a_segment_has_one_of_its_own(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"x" * 3 * _SEGMENT], [b"2"])
    assert [value[:1] for _, value in _read(directory, log)] == [b"1", b"x", b"2"]


def test_each_life_begins_with_offsets_that_nobody_used(directory: Path) -> None:
    for life in range(3):
        log = _open(directory)
        assert log.life_begins_at == 2 * life * LIFE_STEP
        _append(log, [b"%d" % life])
    assert _read(directory, log) == [(0, b"0"), (2 * LIFE_STEP, b"1"), (4 * LIFE_STEP, b"2")]


def test_opening_writes_nothing(directory: Path) -> None:
    _append(_open(directory), [b"1"])
    before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    _open(directory)
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_settled_segments_are_removed_and_one_is_used_again(directory: Path) -> None:
    log = _open(directory)
    for number in range(30):
        _append(log, [b"%02d" % number * 200])
    stored = log.stored_bytes
    assert stored == sum(segment.extent.size for segment in log.segments if segment.extent)
    first = log.segments[0].name
    inode = (directory / first).stat().st_ino
    log.settle(20)
    assert log.stored_bytes < stored
    assert not (directory / first).exists()
    assert (directory / "recycled").stat().st_ino == inode
    for number in range(30, 45):
        _append(log, [b"%02d" % number * 200])
    assert inode in {path.stat().st_ino for path in directory.glob("*.log")}
    assert _read(directory, log, 20) == [(number, b"%02d" % number * 200) for number in range(20, 45)]


def test_a_full_queue_drops_the_active_segment_too(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1", b"2"])
    log.settle(2)
    assert log.stored_bytes > 0
    log.drop_active()
    assert log.stored_bytes == 0
    _append(log, [b"3"])
    assert _read(directory, log, log.position) == [(2, b"3")]


def test_the_position_survives_the_damage_of_one_slot(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1", b"2", b"3"])
    log.settle(1)
    log.settle(2)
    file = directory / "position"
    content = bytearray(file.read_bytes())
    newest = max(range(0, len(content), 4096), key=lambda place: content[place + 8 : place + 16])
    content[newest + 20] ^= 1
    file.write_bytes(content)
    assert Position(FileSystem(), str(directory)).offset == 1
    file.write_bytes(b"")
    assert _open(directory).position == 0
    os.unlink(file)
    assert _open(directory).position == 0


def test_damage_in_the_middle_is_kept_and_passed(directory: Path, tmp_path: Path) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"2"], [b"3"])
    path = directory / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    place = content.index(b"2", 70)
    content[place] ^= 1
    path.write_bytes(content)
    reader = _reader(directory)
    found = [read_values(batch.content)[0][1] for batch in reader.read(log.snapshot(), 10_000)]
    found += [read_values(batch.content)[0][1] for batch in reader.read(log.snapshot(), 10_000)]
    assert found == [b"1", b"3"]
    (damage,) = reader.damages
    assert (damage.first_offset, damage.next_offset, damage.is_tail) == (1, 2, False)
    stem = f"orders-0-00000000000000000000-{damage.start}"
    report = json.loads((tmp_path / "quarantine" / f"{stem}.json").read_text())
    assert (report["start"], report["end"]) == (damage.start, damage.end)
    assert "1 records from offset 1 on" in report["what"]
    kept = (tmp_path / "quarantine" / f"{stem}.bytes").read_bytes()
    assert kept == bytes(content[damage.start : damage.end])
    assert damage.start < place < damage.end


def test_an_offset_that_was_changed_is_damage(directory: Path) -> None:
    """Kafka's checksum does not cover it; the log's own does."""
    log = _open(directory)
    _append(log, [b"1"], [b"2"])
    path = directory / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[7] = 9
    path.write_bytes(content)
    assert read_head(bytes(content)) is None
    reader = _reader(directory)
    assert [batch.head.base_offset for batch in reader.read(log.snapshot(), 10_000)] == [1]


def test_a_half_written_batch_of_an_earlier_life_is_no_damage_in_the_middle(directory: Path) -> None:
    _append(_open(directory), [b"1"], [b"2" * 100])
    path = directory / "00000000000000000000.log"
    size = path.read_bytes().rindex(b"2" * 50)
    os.truncate(path, size)
    log = _open(directory)
    _append(log, [b"3"])
    reader = _reader(directory)
    found = []
    while batches := reader.read(log.snapshot(), 10_000):
        found += [read_values(batch.content)[0][1] for batch in batches]
    assert found == [b"1", b"3"]
    assert [damage.is_tail for damage in reader.damages] == [True]


def test_a_segment_that_somebody_removed_is_reported(directory: Path) -> None:
    log = _open(directory)
    for number in range(20):
        _append(log, [b"%02d" % number * 200])
    gone = log.segments[1]
    (directory / gone.name).unlink()
    again = _open(directory)
    reader = _reader(directory)
    found = []
    while batches := reader.read(again.snapshot(), 10_000):
        found += [batch.head.base_offset for batch in batches]
    (damage,) = reader.damages
    assert damage.first_offset == gone.base_offset
    assert sorted([*found, *range(damage.first_offset, damage.next_offset)]) == list(range(20))


def test_other_files_in_a_log_are_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "notes.txt").write_text("mine")
    (directory / "1.log").write_text("no segment")
    log = _open(directory)
    _append(log, [b"1"])
    assert [segment.base_offset for segment in find_segments(FileSystem(), str(directory))] == [0]
    assert (directory / "notes.txt").read_text() == "mine"


def test_offsets_of_no_record_are_a_hole_and_no_damage(directory: Path) -> None:
    log = _open(directory)
    assert log.append([[make_batch([b"0", b"1"])], [make_batch([b"5"])]], [0, 5]) == 2
    assert log.append([[make_batch([b"6"])]]) == 1
    log.sync()
    wanted = [(0, b"0"), (1, b"1"), (5, b"5"), (6, b"6")]
    assert _read(directory, log) == wanted
    assert _read(directory, log, most=1) == wanted
    assert _read(directory, log, offset=3) == wanted[2:]
    log.close()
    again = _open(directory)
    assert _read(directory, again) == wanted
    assert again.drop_oldest() == (0, LIFE_STEP * 2, 4)
    again.remove_settled()


def test_a_hole_at_the_beginning_of_a_segment_is_no_damage(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"0" * 3_900])
    assert log.append([[make_batch([b"7"])]], [7]) == 1
    log.sync()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert _read(directory, log, offset=1) == [(7, b"7")]
    log.settle(8)
    log.append([[make_batch([b"9"])]], [9])
    assert _read(directory, log, offset=8) == [(9, b"9")]


def test_a_hole_of_billions_of_offsets_lets_the_next_life_begin_behind_it(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"0"])
    far = 7 * LIFE_STEP
    assert log.append([[make_batch([b"1"])], [make_batch([b"2"])]], [far, far + LIFE_STEP]) == 1
    assert log.append([[make_batch([b"2"])]], [far + LIFE_STEP]) == 1
    log.sync()
    wanted = [(0, b"0"), (far, b"1"), (far + LIFE_STEP, b"2")]
    assert _read(directory, log) == wanted
    assert [segment.base_offset for segment in log.segments] == [0, far, far + LIFE_STEP]
    again = _open(directory)  # the process was killed
    assert again.next_offset > far + LIFE_STEP
    _append(again, [b"3"])
    assert [value for _, value in _read(directory, again)] == [b"0", b"1", b"2", b"3"]


def test_a_hole_is_what_a_reader_of_the_format_expects_of_an_empty_batch() -> None:
    """The fields are those of "Record Batch" in Kafka's protocol guide, at their places."""
    (content,) = holes(5, 8)
    assert struct.unpack_from(">qi", content) == (5, len(content) - 12)
    magic, crc, attributes, last_delta = struct.unpack_from(">bIhi", content, 16)
    assert (magic, crc, attributes, last_delta) == (2, crc32c(content[21:]), 0, 2)
    assert struct.unpack_from(">i", content, 57) == (0,)
    head = read_head(content)
    assert head is not None
    assert (head.base_offset, head.end_offset, head.record_count, head.size) == (5, 8, 0, 61)
    assert read_head(content[:57] + struct.pack(">i", 1)) is None  # one record with three offsets


def test_what_a_segment_that_was_given_up_had_is_not_called_durable(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokenDisk, "failures", failures := dict[str, list[int]]())
    log = TopicLog(BrokenDisk(), str(directory), _SEGMENT, keeps=True)
    batch = make_batch([b"." * 1_200])
    assert log.append([[batch], [batch], [batch]]) == 3
    failures["sync"] = [errno.EIO] * 10
    with pytest.raises(OSError, match="Input/output error"):
        log.append([[batch]])  # it ends the segment, whose sync fails, and so does its rescue
    with pytest.raises(PossiblyStoredError):
        log.sync()
    failures.clear()
    assert log.append([[batch]]) == 1
    log.sync()
    assert log.next_offset == 4


def test_records_of_a_damaged_segment_are_dropped_and_counted(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"0", b"1"], [b"2"])
    path = directory / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[16] = 0  # no batch begins here any more
    path.write_bytes(content)
    assert log.drop_oldest() == (0, 3, 3)
    log.remove_settled()


@pytest.mark.parametrize("is_rolled", [False, True])
def test_damaged_records_of_an_earlier_process_are_not_dropped_in_silence(
    directory: Path, is_rolled: bool
) -> None:
    log = _open(directory)
    _append(log, [b"0", b"1"], [b"2"])
    if is_rolled:
        log.seal()
        _append(log, [b"3"])
    path = directory / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[16] = 0  # no batch begins here any more
    path.write_bytes(content)
    again = _open(directory)
    _, _, count = again.drop_oldest()
    # The next segment's name tells how many there were; without one, it is known that there were some.
    assert count == (3 if is_rolled else 1)


def test_a_log_whose_records_were_only_dropped_has_settled_none(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"2"])
    log.drop_oldest()
    again = _open(directory)
    assert [log.has_settled, again.has_settled] == [False, False]
    assert again.position == 2
    _append(again, [b"3"])
    again.settle(again.next_offset)
    assert [again.has_settled, _open(directory).has_settled] == [True, True]
    _append(again, [b"4"])
    again.drop_oldest()
    assert _open(directory).has_settled


def test_a_removed_file_is_the_oldest_and_dropped(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"2"])
    log.seal()
    _append(log, [b"3"])
    (directory / f"{0:020}.log").unlink()
    assert log.oldest_written_at() == -inf
    assert log.drop_oldest() == (0, 2, 2)
    with pytest.raises(FileNotFoundError):
        log.remove_settled()
    assert log.oldest_written_at() > 0
    assert [segment.base_offset for segment in log.segments] == [2]


def test_what_is_settled_is_removed_also_from_a_sealed_log(directory: Path) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"2"])
    log.settle(2)
    log.seal()
    assert log.stored_bytes > 0
    log.drop_active()
    assert log.stored_bytes == 0
    assert not list(directory.glob("*.log"))


def test_nothing_is_passed_over_that_could_not_be_dropped(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(directory)
    _append(log, [b"1"])

    def refuse(position: Position, offset: int, *, is_settled: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Position, "move", refuse)
        with pytest.raises(OSError, match="No space"):
            log.drop_oldest()
    assert (log.dropped_to, log.position) == (0, 0)
    assert log.drop_oldest() == (0, 1, 1)
    assert (log.dropped_to, log.position) == (1, 1)


@pytest.mark.parametrize("broken", [0, 9, 16, 18, 25])
def test_a_last_batch_whose_head_is_damaged_is_told_and_kept(directory: Path, broken: int) -> None:
    log = _open(directory)
    _append(log, [b"1"], [b"2" * 50])
    log.close()
    path = directory / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    first = len(make_batch([b"1"]))
    content[first + broken] ^= 0x40
    path.write_bytes(content)
    again = _open(directory)
    reader = _reader(directory)
    assert [batch.head.base_offset for batch in reader.read(again.snapshot(), 10_000)] == [0]
    assert reader.read(again.snapshot(), 10_000) == []
    (damage,) = reader.damages
    assert (damage.start, damage.end, damage.first_offset) == (first, len(content), 1)
    (kept,) = (directory.parent / "quarantine").glob("*.bytes")
    assert kept.read_bytes() == content[first:]


def _recycled(directory: Path) -> tuple[TopicLog, Path]:
    """Return a log whose last file has a first use behind what was written since."""
    log = _open(directory)
    _append(log, [b"1" * 300] * 10)
    _append(log, [b"2" * 3_000])
    log.settle(10)
    assert (directory / "recycled").exists()
    _append(log, [b"3" * 2_000])
    assert not (directory / "recycled").exists()
    path = sorted(directory.glob("*.log"))[-1]
    assert path.stat().st_size > 3_000
    return log, path


def test_what_a_file_had_before_it_was_used_again_is_no_damage(directory: Path) -> None:
    """Its process was killed; the one old batch is half overwritten."""
    _recycled(directory)
    again = _open(directory)
    reader = _reader(directory, 10)
    found = [batch.head.base_offset for _ in range(3) for batch in reader.read(again.snapshot(), 10_000)]
    assert found == [10, 11]
    assert reader.damages == []


@pytest.mark.parametrize("left", range(63))
def test_the_end_of_a_file_that_is_used_again_is_no_damage_wherever_the_new_batches_end(
    directory: Path, left: int
) -> None:
    log = _open(directory)
    _append(log, [b"1" * 300] * 10)
    _append(log, [b"2" * 3_000])
    log.settle(10)
    room = (directory / "recycled").stat().st_size
    empty = len(make_batch([b"x" * 2_900])) - 2_900
    _append(log, [b"3" * (room - empty - left)])
    path = sorted(directory.glob("*.log"))[-1]
    assert path.stat().st_size == room
    reader = _reader(directory, 10)
    again = _open(directory)
    found = [batch.head.base_offset for _ in range(3) for batch in reader.read(again.snapshot(), 10_000)]
    assert found == [10, 11]
    assert reader.damages == []


@pytest.mark.parametrize("broken", [0, 9, 16, 18, 25])
def test_damage_is_told_also_in_a_file_that_was_used_again(directory: Path, broken: int) -> None:
    _, path = _recycled(directory)
    content = bytearray(path.read_bytes())
    content[broken] ^= 0x40
    path.write_bytes(content)
    again = _open(directory)
    reader = _reader(directory, 10)
    assert [batch.head.base_offset for batch in reader.read(again.snapshot(), 10_000)] == [10]
    assert reader.read(again.snapshot(), 10_000) == []
    (damage,) = reader.damages
    assert damage.first_offset == 11


def test_damage_of_a_topic_with_a_long_name_is_kept(tmp_path: Path) -> None:
    disk = FileSystem()
    log = str(tmp_path / f"{'t' * 249}-0")
    damage = Damage(log, "00000000000000000000.log", 123_456_789, 123_456_799, 0, 1, is_tail=False)
    other = damage._replace(directory=str(tmp_path / f"{'t' * 248}u-0"))
    for each in (damage, other):
        Quarantine(disk, str(tmp_path / "quarantine")).keep(each, b"damaged")
    assert len(list((tmp_path / "quarantine").glob("*.bytes"))) == 2
