"""What sending records asks of an open transaction, and tells it: the interface.

Asked by `sequences`, `exchanges.produce_requests` and `exchanges.produce_completion`, which know nothing else of
transactions; implemented by `core.transactions.records_in_transaction`.
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
        """Whether what failed is worth another attempt."""

    @property
    def has_checked_beginnings(self) -> bool:
        """Whether brokers accept sequence 0 alone as the first of a partition in it."""

    def lets_send(self, now: float) -> bool:
        """Whether records may go out at all."""

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent now."""

    def max_produce_version(self, otherwise: int | None) -> int | None:
        """The last version of Produce that may be used, where what is known of topics allows `otherwise`."""

    def produced(self, now: float) -> None:
        """A Produce request went out."""

    def answered_produce(self, now: float) -> None:
        """A Produce request is answered."""

    def is_doubtful(self) -> None:
        """The outcome of a Produce request is unknown: it may arrive late."""

    def delivery_failed(self, batch: ProducerBatch, error: DeliveryError, now: float) -> None:
        """A record of the transaction failed."""
