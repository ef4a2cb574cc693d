"""The order of a topic's records, although the disk refused some of them.

The sender submits a refused batch again. What is behind it was submitted before the sender was told, and must not
overtake it. So the writer refuses that, too, until it gets batches of a sender that knows of every refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aioproduce.spool.topic_log import PossiblyStoredError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.spool.writer_messages import Append


@final
class Refusals:
    """The refusals of all topics of one writer. A batch whose `told` is None is in no order with others."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, OSError]] = {}  # how many there were, and the last one, by topic

    def admit(self, topic: str, group: Sequence[Append]) -> list[Append]:
        """Refuse what is behind a refused batch of which its sender was not told yet; return the rest."""
        count, error = self._last.get(topic, (0, None))
        first = next(
            (at for at, each in enumerate(group) if each.told is not None and each.told < count), None
        )
        if error is None or first is None:
            return [*group]
        behind = [append for append in group[first:] if append.told is not None]
        for append in behind:
            append.error = error
        self.refuse(topic, behind, error)
        return [append for append in group if append.error is None]

    def refuse(self, topic: str, group: Sequence[Append], error: OSError) -> None:
        """Count a refusal of those of a group that have an error after which their sender submits them again."""
        refused = [
            append
            for append in group
            if append.told is not None and append.error and not isinstance(append.error, PossiblyStoredError)
        ]
        if refused:
            count = self._last.get(topic, (0, error))[0] + 1
            self._last[topic] = count, error
            for append in refused:
                append.refusals = count
