"""Log lines about accepted records that are lost: each names their count, their topics and the remedy.

Called by the ProducerLife when a producer ends without an orderly close: its event loop ends, `close()` is
cancelled, or the interpreter exits.

Invariants:

1. Each such end logs one line, for any number of topics. `DeliveryReports` then logs no single batches.
2. No record is counted twice as an unobserved failure. A record that somebody still reads is not counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.producer.delivery_reports import DeliveryReports

_log = logging.getLogger("aioproduce")

_MOST_TOPICS: Final = 10
"""Topics that a line names; the line counts the others."""

_REMEDY: Final = "use `async with producer:`, or await producer.close()"


@final
@dataclass(frozen=True, slots=True)
class LostRecords:
    """Accepted records without an outcome, at one instant.

    Attributes:
        by_topic: Number of records by topic.
        sent: Number of records that were sent at least once; they may be in the log.
    """

    by_topic: Counter[str]
    sent: int

    @classmethod
    def of(cls, batches: Iterable[ProducerBatch]) -> Self:
        """Count the records of these batches that have no outcome yet."""
        by_topic: Counter[str] = Counter()
        sent = 0
        for batch in batches:
            if not batch.result.is_done:
                by_topic[batch.topic] += batch.record_count
                sent += batch.record_count if batch.attempts else 0
        return cls(by_topic, sent)

    @property
    def count(self) -> int:
        """Number of records."""
        return self.by_topic.total()

    def __str__(self) -> str:
        if not self.count:
            return "No accepted record is lost."
        named = self.by_topic.most_common(_MOST_TOPICS)
        topics = ", ".join(f"{count} of {topic!r}" for topic, count in named)
        others = len(self.by_topic) - len(named)
        if others:
            rest = self.count - sum(count for _, count in named)
            topics += f", {rest} of {others} other topics"
        text = f"{self.count} accepted record(s) were not acknowledged and are lost: {topics}."
        if self.sent:
            text += f" {self.sent} of them were sent before, and may be in the log."
        return text


@final
class LossReports:
    """Reports the lost records of one producer.

    Args:
        client_id: The producer's `client.id`.
        reports: The reports of single failures.
        is_silent: Whether to log nothing, because the producer sends no records of users.
    """

    __slots__ = ("_client_id", "_is_silent", "_reports")

    def __init__(self, client_id: str, reports: DeliveryReports, *, is_silent: bool) -> None:
        self._client_id = client_id
        self._reports = reports
        self._is_silent = is_silent

    def loop_ended(self, why: str, lost: LostRecords) -> None:
        """Report that the event loop ended, or cancelled its tasks, under the open producer."""
        log = _log.error if lost.count else _log.warning
        text = "producer %r was left open: %s. %s Close a producer before its loop ends: " + _REMEDY
        self._tell(log, text, why, lost)

    def close_cancelled(self, lost: LostRecords) -> None:
        """Report that `close()` was cancelled; it then waits for nothing."""
        text = (
            "close() of producer %r was cancelled and gave up. %s Let close() end: it takes at most "
            "delivery.timeout.ms, and close(timeout) at most that long"
        )
        if lost.count:
            self._tell(_log.error, text, lost)

    def process_ends(self, lost: LostRecords) -> None:
        """Report that the interpreter exits while the producer is open."""
        text = (
            "the process ends, and producer %r is still open. %s Close it before the process ends: " + _REMEDY
        )
        if lost.count:
            self._tell(_log.error, text, lost)

    def _tell(self, log: Callable[..., None], text: str, *what: object) -> None:
        if not (self._is_silent or self._reports.is_told):
            log(text, self._client_id, *what)
        self._reports.is_told = True
