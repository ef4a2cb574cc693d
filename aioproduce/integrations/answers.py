"""The HTTP answers for errors, and what they say about the record: the same for every framework.

The body is a problem document (RFC 9457) with one additional member, `outcome`. It reports what happened to the
record, for clients that must decide whether to send it again.

Invariants:

1. `not_written` is used only if it is certain that the record is not in the log and never will be. If there is any
   doubt, the outcome is `unknown`.
2. An answer does not tell clients anything about the cluster: addresses and names are only in the log.
3. `Retry-After` is sent only if the request can be repeated without a duplicate.
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
    errors.SpoolFullError,
    errors.SpoolStorageError,
)
"""The errors that have an answer. Others are faults of the service or of its set-up (a denied topic, a value that
cannot be serialized), for which the framework answers 500."""


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the client.

    Attributes:
        status: The HTTP status.
        title: One line about what happened.
        outcome: What happened to the record.
        retry_after: Seconds after which to repeat the request; `None` if it must not simply be repeated.
    """

    status: int
    title: str
    outcome: Outcome
    retry_after: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, without `Content-Type`."""
        headers = dict(NOT_STORED)
        if self.retry_after is not None:
            # HTTP requires whole seconds.
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
    """Return the answer to an error.

    Args:
        error: The exception of a send.
        retry_after: Seconds after which clients may repeat the request.
        unknown_status: The status if the outcome is unknown: 504, or 202.

    Returns:
        `None` for an error that does not concern the client; the framework then answers 500.

    Example:
        >>> answer_for(NotStartedError("..."), retry_after=1, unknown_status=504).status
        503
    """
    if isinstance(error, errors.OutcomeUnknownError):
        return Answer(unknown_status, "The record was accepted but not acknowledged in time", "unknown")
    if isinstance(error, errors.PartialSendError):
        return Answer(unknown_status, "Some of the records were accepted and some were not", "unknown")
    if isinstance(error, errors.DeliveryError):
        if error.possibly_written:
            return Answer(unknown_status, "The record was not acknowledged but may be written", "unknown")
        if error.retriable:
            return Answer(503, "The record could not be written", "not_written", retry_after)
        return Answer(502, "The record was refused", "not_written")
    if isinstance(error, errors.SpoolStorageError) and error.possibly_stored:
        return Answer(unknown_status, "The record could not be stored but may be written", "unknown")
    if isinstance(error, errors.InvalidDeadlineError):
        return Answer(400, f"The header {error.header} must be a number of seconds above 0", "not_written")
    if isinstance(error, errors.RecordTooLargeError):
        return Answer(413, "The record is too large", "not_written")
    if isinstance(error, ANSWERED):
        return Answer(503, "The record cannot be accepted now", "not_written", retry_after)
    return None


def health_document(service: ProducerService, health: Health, word: str) -> dict[str, object]:
    """Return the content of a health route: whether the service is `word` ("ready", "live"), and its counts.

    For `"ready"`, it also has the ages of the oldest record and of the oldest waiting `send()`, in seconds; for a
    service with a queue on disk also its `SpoolHealth`.
    """
    waits: dict[str, object] = {
        "oldest_record_age": round(health.oldest_record_age, 3),
        "oldest_send_wait": round(health.oldest_send_wait, 3),
        "silent_brokers": health.silent_brokers,
    }
    if health.spool is not None:
        waits["spool"] = health.spool.as_dict()
    return {
        "status": word if health.is_well else f"not {word}",
        "reasons": health.reasons,
        "outstanding_records": service.outstanding_records,
        **(waits if word == "ready" else {}),
        **service.counts().as_dict(),
    }
