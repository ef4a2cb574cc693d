"""The position of a log's forwarder: everything before it is settled, and need not be sent again.

The file has two slots, each in a page of its own, and they are written in turn. A power cut can damage the slot
that is being written, and never the one before it. So a move needs neither a rename nor a sync of the directory.
The first move makes another file, and so does one after an error: nothing is known about what the old file holds
on disk.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

from crc32c import crc32c

if TYPE_CHECKING:
    from aioproduce.spool.disk import Disk, File

NAME: Final = "position"
_NEW_NAME: Final = "position.new"
_MAGIC: Final = b"aiopos01"
_DROPS_ALONE: Final = b"aiodrp01"
_SLOT: Final = struct.Struct(">8sQq")
_CRC: Final = struct.Struct(">I")
_PLACES: Final = (0, 4096)
_SLOT_SIZE: Final = 64


@final
class Position:
    """The position of one log, on disk.

    Args:
        disk: The disk.
        directory: The log's directory.

    Attributes:
        offset: The durable position; None if no slot could be read.
        is_settled: Whether records before it were settled; drops alone may have moved it.
    """

    __slots__ = ("_directory", "_disk", "_file", "_turn", "is_settled", "offset")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._turn = 0
        self.offset: int | None = None
        self.is_settled: bool = False
        self._file: File | None = None
        try:
            file = disk.open(f"{directory}/{NAME}")
        except FileNotFoundError:
            return
        try:
            for place in _PLACES:
                slot = _read_slot(file.read(place, _SLOT_SIZE))
                if slot is not None and slot[0] > self._turn:
                    self._turn, self.offset, self.is_settled = slot
        finally:
            file.close()

    @property
    def is_durable(self) -> bool:
        """Whether `offset` is on disk for sure: what an earlier process wrote may be seen, and not be durable."""
        return self._file is not None

    def move(self, offset: int, *, is_settled: bool = True) -> None:
        """Make another position durable.

        Args:
            offset: The position.
            is_settled: Whether records before it were settled, and not only dropped.

        Raises:
            OSError: if that failed. The old position or the new one is on disk, and `offset` is the old one.
        """
        turn = self._turn + 1
        if self._file is None:
            self._file = self._replaced(turn, offset, is_settled=is_settled)
        else:
            try:
                _write_slot(self._file, turn, offset, is_settled=is_settled)
            except OSError:
                self.close()  # nothing is known about this file: the next move makes another one
                self._turn = turn
                raise
        self._turn, self.offset, self.is_settled = turn, offset, is_settled

    def _replaced(self, turn: int, offset: int, *, is_settled: bool) -> File:
        file = self._disk.create(f"{self._directory}/{_NEW_NAME}")
        try:
            _write_slot(file, turn, offset, is_settled=is_settled)
            self._disk.rename(f"{self._directory}/{_NEW_NAME}", f"{self._directory}/{NAME}")
            self._disk.sync_directory(self._directory)
        except OSError:
            file.close()
            raise
        return file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_slot(file: File, turn: int, offset: int, *, is_settled: bool) -> None:
    slot = _SLOT.pack(_MAGIC if is_settled else _DROPS_ALONE, turn, offset)
    file.write(_PLACES[turn % len(_PLACES)], [slot + _CRC.pack(crc32c(slot))])
    file.sync()


def _read_slot(content: bytes) -> tuple[int, int, bool] | None:
    """Return turn, offset and `is_settled` of a slot; None if it is damaged, or was never written."""
    if len(content) < _SLOT.size + _CRC.size:
        return None
    magic, turn, offset = _SLOT.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _SLOT.size)
    if magic not in (_MAGIC, _DROPS_ALONE) or crc32c(content[: _SLOT.size]) != crc:
        return None
    return turn, offset, magic == _MAGIC
