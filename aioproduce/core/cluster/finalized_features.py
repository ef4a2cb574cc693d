"""What the whole cluster has agreed on (KIP-584), as far as its brokers have told.

Owned by BrokerConnections; each connection tells it what its broker said. Brokers may lag behind: what came with
the highest epoch counts, as in Kafka's ApiVersions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSACTION_VERSION: Final = "transaction.version"


@final
class FinalizedFeatures:
    """The levels of features.

    Attributes:
        epoch: Of the agreement that is known; -1: none.
    """

    __slots__ = ("_levels", "epoch")

    def __init__(self) -> None:
        self.epoch: int = -1
        self._levels: Mapping[str, tuple[int, int]] = {}

    def told(self, levels: Mapping[str, tuple[int, int]], epoch: int) -> None:
        """A broker said what it knows; without an epoch it knows nothing."""
        if epoch > self.epoch:
            self._levels, self.epoch = levels, epoch

    @property
    def transactions(self) -> int:
        """How transactions are ended: 2 (KIP-890 part 2) where the feature's level is that, else 1."""
        return 2 if self._levels.get(_TRANSACTION_VERSION, (0, 0))[1] >= 2 else 1
