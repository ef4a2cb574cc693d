"""Which HTTP answer an error is, and what it says of the record: the same for every framework.

The body is a problem document (RFC 9457) with one member of ours, `outcome`: what became of the record, for a
client that has to decide whether to send it again.

Invariants:

1. `not_written` is said only where it is certain that the record is not in the log and never will be. Wherever
   a doubt is left it is `unknown`.
2. An answer tells clients nothing of the cluster: addresses and names are for the log.
3. `Retry-After` comes with what may be repeated without a duplicate, and with nothing else.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from aioproduce import errors

if TYPE_CHECKING:
    from aioproduce.integrations.service import ProducerService
    from aioproduce.integrations.service_values import Health

Outcome: TypeAlias = Literal["not_written", "unknown"]

CONTENT_TYPE: Final = "application/problem+json"
NOT_STORED: Final = {"Cache-Control": "no-store"}

ANSWERED: Final[tuple[type[errors.ProducerError], ...]] = (
    errors.BackgroundFullError,
    errors.DeliveryError,
    errors.InvalidDeadlineError,
    errors.MaxBlockTimeoutError,
    errors.NotStartedError,
    errors.OutcomeUnknownError,
    errors.PartialSendError,
    errors.ProducerClosedError,
    errors.RecordTooLargeError,
    errors.SenderDiedError,
)
"""The errors that have an answer. Others are bugs of the service or of its set-up (a topic that is denied, a
value that cannot be serialized): the framework's 500."""


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What to tell the client.

    Attributes:
        status: The HTTP status.
        title: What happened, in a line.
        outcome: What became of the record.
        retry_after: Seconds until it is worth asking again; `None` where the request must not just be repeated.
    """

    status: int
    title: str
    outcome: Outcome
    retry_after: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, `Content-Type` left out."""
        headers = dict(NOT_STORED)
        if self.retry_after is not None:
            # Whole seconds, as HTTP wants it.
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        return headers

    @property
    def body(self) -> bytes:
        """The problem document."""
        document: dict[str, object] = {"title": self.title, "status": self.status, "outcome": self.outcome}
        if self.retry_after is not None:
            document["retry_after"] = self.retry_after
        return json.dumps(document).encode()


def answer_for(error: BaseException, *, retry_after: float, unknown_status: int) -> Answer | None:
    """The answer to an error.

    Args:
        error: What a send raised.
        retry_after: Seconds that clients are asked to wait.
        unknown_status: The status where the outcome is unknown: 504, or 202.

    Returns:
        `None` for an error that is no client's business: the framework's own answer, 500, then.

    Example:
        >>> answer_for(NotStartedError("..."), retry_after=1, unknown_status=504).status
        503
    """
    if isinstance(error, errors.OutcomeUnknownError):
        return Answer(unknown_status, "The record was accepted, and not acknowledged in time", "unknown")
    if isinstance(error, errors.PartialSendError):
        return Answer(unknown_status, "Some of the records were accepted, and some were not", "unknown")
    if isinstance(error, errors.DeliveryError):
        if error.possibly_written:
            return Answer(unknown_status, "The record was not acknowledged, and may be written", "unknown")
        if error.retriable:
            return Answer(503, "The record could not be written", "not_written", retry_after)
        return Answer(502, "The record was refused", "not_written")
    if isinstance(error, errors.InvalidDeadlineError):
        return Answer(400, f"The header {error.header} must be a number of seconds above 0", "not_written")
    if isinstance(error, errors.RecordTooLargeError):
        return Answer(413, "The record is too large", "not_written")
    if isinstance(error, ANSWERED):
        return Answer(503, "The record cannot be accepted now", "not_written", retry_after)
    return None


def health_document(service: ProducerService, health: Health, word: str) -> dict[str, object]:
    """What a health route tells of a service: whether it is `word` ("ready", "live"), and its counts.

    Where it is `"ready"`, also how old the oldest record and the oldest waiting `send()` are, in seconds.
    """
    waits: dict[str, object] = {
        "oldest_record_age": round(health.oldest_record_age, 3),
        "oldest_send_wait": round(health.oldest_send_wait, 3),
        "silent_brokers": health.silent_brokers,
    }
    return {
        "status": word if health.is_well else f"not {word}",
        "reasons": health.reasons,
        "outstanding_records": service.outstanding_records,
        **(waits if word == "ready" else {}),
        **service.counts().as_dict(),
    }
