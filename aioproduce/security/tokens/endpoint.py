"""Tokens from a token endpoint, as OAuth 2.0 has it (RFC 6749): Kafka's `sasl.oauthbearer.token.endpoint.url`.

`grants` says what is asked, `bounded_post` asks it, and this module reads the answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.security.tokens.bounded_post import URL_KEY, Answer, TokenEndpoint
from aioproduce.security.tokens.checking import credential_of
from aioproduce.security.tokens.trouble import Trouble, given, printable

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret
    from aioproduce.security.mechanism import Credential
    from aioproduce.security.tokens.grants import Grant, Request

# What RFC 6749 calls them (5.2), and what else there is in the wild, as Kafka reads it.
_COMPLAINTS: Final = (("error", "error_description"), ("errorCode", "errorSummary"))
# It is about who asks, and not about where: 400 is invalid_grant, invalid_scope and their like.
_ABOUT_THE_CLIENT: Final = frozenset({400, 401, 403})


@final
class EndpointSource:
    """Asks a token endpoint whenever a token is wanted.

    Args:
        endpoint: Where.
        grant: With what.
        extensions: SASL extensions to send with each token.
        now: Seconds since the epoch.
    """

    is_async: Final = False
    is_static: Final = False

    def __init__(
        self,
        endpoint: TokenEndpoint,
        grant: Grant,
        *,
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = endpoint
        self._grant = grant
        self._extensions = extensions or {}
        self._now = now

    def fetch(self) -> Credential:
        """Ask for a token. It blocks, for the time-outs of the endpoint at most.

        Raises:
            TokenError: The endpoint cannot be reached, refused, or gave nothing of use.
        """
        return given(self._asked())

    def _asked(self) -> Credential | Trouble:
        request = self._grant.request()
        if isinstance(request, Trouble):
            return request
        # Before it is asked: the lifetime that it tells has begun by the time that it tells it.
        asked_at = self._now()
        answer = self._endpoint.post(request)
        if isinstance(answer, Trouble):
            return answer
        return self._read(answer, request, asked_at)

    def _read(self, answer: Answer, request: Request, asked_at: float) -> Credential | Trouble:
        what = f"the token endpoint {self._endpoint}"
        if 300 <= answer.status < 400:
            where = printable(answer.location, request.secrets())
            return Trouble(
                f"{what} answered {answer.status}, a redirect to {where!r}, which is not followed, as the client's "
                "secret would go there: give the URL where tokens are",
                URL_KEY,
            )
        answered = _json_object(answer.body)
        if answer.status not in (200, 201):
            return self._refused(answer, answered, request.secrets())
        if not _is_json(answer.content_type) or answered is None:
            kind = printable(answer.content_type or "no content type", request.secrets())
            return Trouble(
                f"{what} answered what is not a JSON object ({kind}): is that a token endpoint?", URL_KEY
            )
        token = answered.get("access_token") or answered.get("id_token")
        if token is None:
            return Trouble(f"{what} answered without an access_token: is that a token endpoint?", URL_KEY)
        return credential_of(
            token.strip() if isinstance(token, str) else token,
            now=asked_at,
            what=what,
            setting=URL_KEY,
            expires_in=answered.get("expires_in"),
            extensions=self._extensions,
        )

    def _refused(
        self, answer: Answer, answered: Mapping[str, Any] | None, secrets: tuple[Secret, ...]
    ) -> Trouble:
        said = [
            printable(answered[key], secrets)
            for pair in _COMPLAINTS
            for key in pair
            if answered is not None and key in answered
        ]
        complaint = ", ".join(said) or "no explanation"
        is_ours = answer.status in _ABOUT_THE_CLIENT
        remedy = (
            f"check {self._grant.setting}"
            if is_ours
            else "check the URL, and look at the log of the endpoint"
        )
        return Trouble(
            f"the token endpoint {self._endpoint} answered {answer.status} ({complaint}): {remedy}",
            self._grant.setting if is_ours else URL_KEY,
        )


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        answered = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answered if isinstance(answered, dict) else None


def _is_json(content_type: str) -> bool:
    """Whether it says that it is JSON, or nothing at all, which some endpoints do."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or kind.endswith(("/json", "+json"))
