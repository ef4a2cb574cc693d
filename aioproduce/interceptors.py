"""The chain of interceptors around a producer (KIP-42): they see each record before and after, and cannot break it.

Called by the Producer. An interceptor is any object with `on_send(record) -> record`, or
`on_acknowledgement(metadata, error)`, or both. What one raises is logged; the record goes on as it was.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, final

from aioproduce.records import ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.errors import ProducerError

_log = logging.getLogger("aioproduce")


@final
class Interceptors:
    """Calls each interceptor in order."""

    __slots__ = ("_on_acknowledgement", "_on_send")

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_send = [each.on_send for each in interceptors if hasattr(each, "on_send")]
        self._on_acknowledgement = [
            each.on_acknowledgement for each in interceptors if hasattr(each, "on_acknowledgement")
        ]

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What each made of the record that the one before it gave."""
        for intercept in self._on_send:
            try:
                changed = intercept(record)
            except Exception:
                _log.exception("an interceptor's on_send failed; the record goes on without it")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                _log.error(
                    "an interceptor's on_send gave %s, not a ProducerRecord; the record goes on without it",
                    type(changed).__name__,
                )
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Tell each what became of a record."""
        for intercept in self._on_acknowledgement:
            try:
                intercept(metadata, error)
            except Exception:
                _log.exception("an interceptor's on_acknowledgement failed")

    def on_refused(self, record: ProducerRecord, error: ProducerError) -> None:
        """Tell each of a record that was never queued: its partition is -1 unless it was chosen."""
        partition = record.partition if isinstance(record.partition, int) else -1
        topic = record.topic if isinstance(record.topic, str) else str(record.topic)
        self.on_acknowledgement(RecordMetadata(topic, partition, -1, -1, -1, -1), error)
