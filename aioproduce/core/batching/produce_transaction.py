"""The interface between an open transaction and the code that sends its records.

Called by `sequences`, `exchanges.produce_requests` and `exchanges.produce_completion`, which know nothing else
about transactions; implemented by `core.transactions.records_in_transaction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.errors import DeliveryError
    from aioproduce.records import TopicPartition


class ProduceTransaction(Protocol):
    """The open transaction of a transactional producer, as its records see it."""

    @property
    def is_open_for_retries(self) -> bool:
        """Whether a failed batch may be retried."""

    @property
    def has_checked_beginnings(self) -> bool:
        """Whether brokers accept only sequence 0 as a partition's first in this transaction."""

    def lets_send(self, now: float) -> bool:
        """Return whether any records may be sent now."""

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch of this partition may be sent now."""

    def max_produce_version(self, otherwise: int | None) -> int | None:
        """Return the highest usable version of Produce, given that the topics allow `otherwise`."""

    def produced(self, now: float) -> None:
        """Note that a Produce request was sent."""

    def answered_produce(self, now: float) -> None:
        """Note that a Produce request was answered."""

    def is_doubtful(self) -> None:
        """Note that the outcome of a Produce request is unknown: it may arrive late."""

    def delivery_failed(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        """Note that records of the transaction failed."""
