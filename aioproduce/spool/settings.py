"""The settings of a queue on disk: one place for their names, defaults and checks.

`SpooledProducer` takes them as keyword arguments. Everything that makes one for you, a service, a blocking producer
or a logging handler, takes a `Spool`, or a path for one with the defaults.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Self, TypeAlias, final

from aioproduce.errors import ConfigError
from aioproduce.producer.input import check_topic
from aioproduce.spool.transactional_forwarder import LostPosition
from aioproduce.spool.writer_settings import FullPolicy, SyncPolicy, WriterSettings

MAX_BYTES: Final = 10 * 1024**3
SEGMENT_BYTES: Final = 16 * 1024**2
SYNC_INTERVAL_MS: Final = 200.0

SpoolLike: TypeAlias = "Spool | str | os.PathLike[str]"
"""A `Spool`, or the path of its directory."""


@final
@dataclass(frozen=True, slots=True)
class Spool:
    """A queue on disk.

    Attributes:
        directory: The queue's directory; it is made if its parent exists.
        sync: When a record is durable; as for `SpooledProducer`, as all the following.
        sync_interval_ms: For `sync="interval"`.
        max_bytes: The most bytes of the queue.
        when_full: What happens to a new record if the queue is full.
        max_age_ms: The most milliseconds that a record waits; None: no limit.
        exactly_once: Whether the cluster gets each record once, by transactions.
        lost_position: For `exactly_once`, if the cluster has forgotten which records it has.
        direct: Whether a record goes to the disk and to the cluster at a time while nothing waits.
        dead_letter_topic: Where records go that can never be sent to their topic; None: they stay in a table.
        segment_bytes: The most bytes of a file.

    Raises:
        ConfigError: if a setting is refused.
        InvalidTopicError: if `dead_letter_topic` is no name of a topic.

    Example:
        >>> Spool("/var/spool/orders", sync="interval").sync
        <SyncPolicy.INTERVAL: 'interval'>
    """

    directory: str | os.PathLike[str]
    sync: str | SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_ms: float = SYNC_INTERVAL_MS
    max_bytes: int = MAX_BYTES
    when_full: str | FullPolicy = FullPolicy.BLOCK
    segment_bytes: int = SEGMENT_BYTES
    max_age_ms: float | None = None
    exactly_once: bool = False
    lost_position: str | LostPosition = LostPosition.RESUME
    direct: bool = False
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        for name in ("sync_interval_ms", "max_bytes", "segment_bytes", "max_age_ms"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}: {value!r} is not above 0", key=name)
        if self.direct and self.exactly_once:
            raise ConfigError(
                "direct: a record that goes to the cluster before it is on disk is in no transaction with its "
                "position; leave out direct or exactly_once",
                key="direct",
            )
        if self.dead_letter_topic is not None:
            check_topic(self.dead_letter_topic)
        object.__setattr__(self, "sync", _choice("sync", self.sync, SyncPolicy))
        object.__setattr__(self, "when_full", _choice("when_full", self.when_full, FullPolicy))
        object.__setattr__(self, "lost_position", _choice("lost_position", self.lost_position, LostPosition))

    @classmethod
    def of(cls, spool: SpoolLike) -> Self:
        """Return a spool as it is, or one with the defaults for a path."""
        return spool if isinstance(spool, cls) else cls(spool)  # type: ignore[arg-type]  # the class is final

    def writer_settings(self) -> WriterSettings:
        """Return them as the writer has them."""
        return WriterSettings(
            segment_bytes=self.segment_bytes,
            max_bytes=self.max_bytes,
            sync=SyncPolicy(self.sync),
            sync_interval=self.sync_interval_ms / 1000,
            when_full=FullPolicy(self.when_full),
            max_age=inf if self.max_age_ms is None else self.max_age_ms / 1000,
        )


def _choice(name: str, value: Any, choices: type[Any]) -> Any:
    try:
        return choices(value)
    except ValueError:
        expected = ", ".join(repr(each.value) for each in choices)
        raise ConfigError(f"{name}: {value!r} is not one of {expected}", key=name) from None
