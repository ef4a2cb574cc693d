"""The Auditor, with which loss can be proved from the log and the marks alone.

    async with Producer("localhost:9092", interceptors=[Auditor()]) as producer:
        ...

It is passed as an interceptor but is not one: the producer recognizes it by `begin_audit`, numbers the records
itself as it writes them (`_native/record_numbers`), counts their outcomes by batch (`core/record_audit`) and
publishes what `make()` returns (`core/audit_marks`).

Invariants:

1. Each start of a producer has its own id, from the system's random source: no seed and no fork repeats it.
2. An Auditor may serve several producers, one after the other or at once; it reports the one that began last.
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
    """Numbers each record of a producer, and publishes which numbers were assigned and which failed.

    Args:
        topic: The topic for marks. It must exist, unless the cluster creates topics automatically.
        heartbeat_ms: Milliseconds between marks while anything changes; 0 for only the closing mark.
        run: A JSON object that is added to each mark, e.g. the name of a job.

    Raises:
        InvalidTopicError: If Kafka does not allow the topic's name.
        ConfigError: If the interval is negative, or if `run` cannot be encoded as JSON.

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
                f"heartbeat_ms must be a whole number of milliseconds from 0 on, not {heartbeat_ms!r}"
            )
        try:
            kept = json.loads(json.dumps(dict(run or {})))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"run cannot be encoded as JSON: {error}") from error
        self.topic: Final = topic
        self.heartbeat_ms: Final = heartbeat_ms
        self.run: Final[Mapping[str, Any]] = MappingProxyType(kept)
        self._last: _Start | None = None

    def __repr__(self) -> str:
        return f"<Auditor to {self.topic} every {self.heartbeat_ms} ms>"

    def begin_audit(self, client_id: str) -> _Start:
        """Return the audit of a starting producer; called by the producer."""
        self._last = _Start(self, client_id)
        return self._last

    # -- of the producer that began last ---

    @property
    def producer_id(self) -> bytes | None:
        """The id in its records' stamps, 16 bytes; None before it started."""
        return None if self._last is None else self._last.producer_id

    @property
    def numbered(self) -> int:
        """How many records were numbered."""
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
        """Return the mark that a heartbeat would publish now; `at` is in milliseconds since the epoch.

        Raises:
            MarkError: If no producer has started with this Auditor.
        """
        if self._last is None or self._last.audit is None:
            raise MarkError("there is no mark: no producer has started with this Auditor")
        return self._last.mark(self._last.audit.account(MAX_FAILED_RANGES), at, is_closing=False)


@final
class _Start:
    """One start of a producer: a `MarkSource`."""

    __slots__ = ("_auditor", "_client_id", "audit", "heartbeat", "producer_id", "topic")

    def __init__(self, auditor: Auditor, client_id: str) -> None:
        self._auditor = auditor
        self._client_id = client_id
        self.topic: str = auditor.topic
        self.heartbeat: float = auditor.heartbeat_ms / 1000 or float("inf")
        self.producer_id: bytes = os.urandom(PRODUCER_ID_SIZE)
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
