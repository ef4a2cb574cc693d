"""A batch of a log that was sent to the cluster, until it is settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce._native.batch_rows import BatchRows
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.spool.log_reader import Batch
    from aioproduce.spool.spooled_delivery import Outcomes


@final
@dataclass(slots=True)
class SentBatch:
    """A batch of the log that was sent, until it is settled.

    Attributes:
        batch: The batch.
        rows: Its records.
        deliveries: Their deliveries by the cluster, in their order; those of `left_out` have none.
        first: The first row that was sent.
        left_out: Rows that were not sent, since they are in the dead letters, in order.
    """

    batch: Batch
    rows: BatchRows
    deliveries: Deliveries
    first: int
    left_out: list[int]

    def row(self, index: int) -> int:
        """Return the row of a delivery."""
        row = self.first + index
        for left_out in self.left_out:
            row += left_out <= row
        return row

    def outcomes(self) -> Outcomes:
        """Return the deliveries by their rows, from `first` on."""
        return _WithGaps(self) if self.left_out else self.deliveries


@final
class _WithGaps:
    """The deliveries of a batch of which rows were not sent, as if they had been."""

    __slots__ = ("_sent",)

    def __init__(self, sent: SentBatch) -> None:
        self._sent = sent

    def __getitem__(self, index: int) -> DeliveryFuture:
        row = self._sent.first + index
        return self._sent.deliveries[index - sum(left_out < row for left_out in self._sent.left_out)]
