"""Bugs on purpose in the log, which the power cuts must notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproduce.spool import log_reader, position, topic_log
from aioproduce.spool.topic_log import TopicLog


def _no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicLog, "_sync_names", lambda self: None)


def _unlink_before_cursor(patch: pytest.MonkeyPatch) -> None:
    def settle(self: TopicLog, new: int) -> None:
        while len(self.segments) > 1 and self.segments[1].base_offset <= new:
            self._disk.unlink(f"{self._directory}/{self.segments.popleft().name}")
        self._position.move(new)

    patch.setattr(TopicLog, "settle", settle)


def _no_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicLog, "_undo", lambda self, file, error: None)


def _sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    def sync(self: TopicLog) -> None:
        if self._file is not None and self.unsynced_bytes:
            try:
                self._file.sync()
            except OSError:
                self._file.sync()
            self._is_durable()

    patch.setattr(TopicLog, "sync", sync)


def _no_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_reader, "is_whole", lambda batch, head: len(batch) == head.size)
    patch.setattr(topic_log, "is_whole", lambda batch, head: len(batch) == head.size)


def _slot_not_alternated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(position, "_PLACES", (0, 0))


def _no_seal_of_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("aioproduce.spool.batch_head._seal", lambda offset, length, crc: 0)


def _offsets_begin_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_log, "next_life", lambda after: after + 1)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no directory sync": _no_directory_sync,
    "unlink before cursor": _unlink_before_cursor,
    "no truncation at ENOSPC": _no_truncation,
    "sync tried again": _sync_tried_again,
    "checksum not looked at": _no_checksum,
    "slot not alternated": _slot_not_alternated,
    "offset not in the checksum": _no_seal_of_offsets,
    "offsets begin again after a restart": _offsets_begin_again,
}
