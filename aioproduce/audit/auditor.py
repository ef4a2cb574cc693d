"""The Auditor: what one gives a producer so that loss can be proved from the log and the marks alone.

    async with Producer("localhost:9092", interceptors=[Auditor()]) as producer:
        ...

It stands among the interceptors and is none: the producer recognizes it by `begin_audit`, numbers the records
itself as it writes them (`_native/record_numbers`), counts their outcomes by batches (`core/record_audit`) and
publishes what `make()` here gives (`core/audit_marks`).

Invariants:

1. Each start of a producer has an id of its own, from the system's random source: no seed and no fork repeats it.
2. An Auditor may serve one producer after the other, or several; what it tells is of the one that began last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.audit.errors import MarkError
from aioproduce.audit.mark import DEFAULT_AUDIT_TOPIC, MAX_FAILED_RANGES, Mark
from aioproduce.audit.stamp import PRODUCER_ID_SIZE
from aioproduce.errors import ConfigError
from aioproduce.producer.input import check_topic

if TYPE_CHECKING:
    from aioproduce.core.batching.record_audit import Account, RecordAudit

_HEARTBEAT_MS: Final = 10_000


@final
class Auditor:
    """Numbers each record of a producer, and publishes what was given out and what failed.

    Args:
        topic: Where marks go; it must exist, unless the cluster makes topics as they are asked for.
        heartbeat_ms: Milliseconds from mark to mark, while anything changes; 0 for none but the closing one.
        run: What each mark tells beside that, as JSON can hold it: the name of a job, say.

    Raises:
        InvalidTopicError: Kafka refuses such a name.
        ConfigError: the interval is negative, or JSON cannot hold `run`.

    Example:
        >>> producer = Producer("localhost:9092", interceptors=[Auditor(heartbeat_ms=1_000)])
    """

    __slots__ = ("_last", "heartbeat_ms", "run", "topic")

    def __init__(
        self,
        topic: str = DEFAULT_AUDIT_TOPIC,
        *,
        heartbeat_ms: int = _HEARTBEAT_MS,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        check_topic(topic)
        if type(heartbeat_ms) is not int or heartbeat_ms < 0:
            raise ConfigError(
                f"heartbeat_ms is a whole number of milliseconds from 0 on, not {heartbeat_ms!r}"
            )
        try:
            kept = json.loads(json.dumps(dict(run or {})))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"run is published as JSON, which cannot hold it: {error}") from error
        self.topic: Final = topic
        self.heartbeat_ms: Final = heartbeat_ms
        self.run: Final[Mapping[str, Any]] = MappingProxyType(kept)
        self._last: _Start | None = None

    def __repr__(self) -> str:
        return f"<Auditor to {self.topic} every {self.heartbeat_ms} ms>"

    def begin_audit(self, client_id: str) -> _Start:
        """A producer starts; for the producer."""
        self._last = _Start(self, client_id)
        return self._last

    # -- of the producer that began last ---

    @property
    def producer_id(self) -> bytes | None:
        """The id in its records' stamps, 16 bytes; None before it started."""
        return None if self._last is None else self._last.producer_id

    @property
    def numbered(self) -> int:
        """How many records have a number."""
        return 0 if self._last is None or self._last.audit is None else self._last.audit.given

    @property
    def acknowledged(self) -> int:
        """How many of those were acknowledged."""
        return 0 if self._last is None or self._last.audit is None else self._last.audit.acknowledged

    @property
    def failed(self) -> int:
        """How many of those failed."""
        return 0 if self._last is None or self._last.audit is None else self._last.audit.failed

    def mark(self, at: int = 0) -> Mark:
        """What a heartbeat would tell now; `at` in milliseconds since the epoch.

        Raises:
            MarkError: no producer has started with this Auditor.
        """
        if self._last is None or self._last.audit is None:
            raise MarkError("there is nothing to tell: no producer has started with this Auditor")
        return self._last.mark(self._last.audit.account(MAX_FAILED_RANGES), at, is_closing=False)


@final
class _Start:
    """One start of a producer: a `MarkSource`."""

    __slots__ = ("_auditor", "_client_id", "audit", "heartbeat", "producer_id", "topic")

    def __init__(self, auditor: Auditor, client_id: str) -> None:
        self._auditor = auditor
        self._client_id = client_id
        self.topic = auditor.topic
        self.heartbeat = auditor.heartbeat_ms / 1000 or float("inf")
        self.producer_id = os.urandom(PRODUCER_ID_SIZE)
        self.audit: RecordAudit | None = None

    def begin(self, audit: RecordAudit) -> None:
        self.audit = audit

    def make(self, account: Account, at: int, *, is_closing: bool) -> tuple[bytes, bytes]:
        mark = self.mark(account, at, is_closing=is_closing)
        return mark.key, mark.to_json()

    def mark(self, account: Account, at: int, *, is_closing: bool) -> Mark:
        return Mark(
            kind="closing" if is_closing else "heartbeat",
            producer_id=self.producer_id,
            next=account.next,
            acknowledged=account.acknowledged,
            failed=account.failed,
            failed_more=account.failed_more,
            topics=account.topics,
            at=max(at, 0),
            client_id=self._client_id,
            run=self._auditor.run,
        )
