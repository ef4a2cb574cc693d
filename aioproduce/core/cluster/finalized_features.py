"""The cluster's finalized features (KIP-584), as its brokers reported them.

Owned by BrokerConnections; each connection reports its broker's features. A broker may lag behind, so the report
with the highest epoch counts, as in Kafka's ApiVersions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSACTION_VERSION: Final = "transaction.version"


@final
class FinalizedFeatures:
    """The cluster's finalized feature levels.

    Attributes:
        epoch: The epoch of the known features; -1: none.
    """

    __slots__ = ("_levels", "epoch")

    def __init__(self) -> None:
        self.epoch: int = -1
        self._levels: Mapping[str, tuple[int, int]] = {}

    def told(self, levels: Mapping[str, tuple[int, int]], epoch: int) -> None:
        """Accept a broker's features if their epoch is newer."""
        if epoch > self.epoch:
            self._levels, self.epoch = levels, epoch

    @property
    def transactions(self) -> int:
        """The transaction version: 2 (KIP-890 part 2) if the feature's level is at least 2, else 1."""
        return 2 if self._levels.get(_TRANSACTION_VERSION, (0, 0))[1] >= 2 else 1
