"""Tokens from an OAuth 2.0 token endpoint (RFC 6749): Kafka's `sasl.oauthbearer.token.endpoint.url`.

`grants` creates the request, `bounded_post` sends it, and this module reads the answer.
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

# The names of RFC 6749 (5.2), and others that are in use and that Kafka reads.
_COMPLAINTS: Final = (("error", "error_description"), ("errorCode", "errorSummary"))
# These mean that the client is refused, and not that the URL is wrong: 400 is invalid_grant, invalid_scope etc.
_ABOUT_THE_CLIENT: Final = frozenset({400, 401, 403})


@final
class EndpointSource:
    """Requests a token from the endpoint on each fetch.

    Args:
        endpoint: The endpoint.
        grant: The grant to request it with.
        extensions: SASL extensions to send with each token.
        now: Returns the seconds since the epoch.
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
        """Request a token. It blocks, at most for the endpoint's timeouts.

        Raises:
            TokenError: If the endpoint cannot be reached, refuses, or does not return a usable token.
        """
        return given(self._asked())

    def _asked(self) -> Credential | Trouble:
        request = self._grant.request()
        if isinstance(request, Trouble):
            return request
        # Taken before the request: the token's lifetime has begun by the time the answer arrives.
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
                f"{what} answered {answer.status}, a redirect to {where!r}, which is not followed because "
                "the client's secret would go there: set the URL of the endpoint itself",
                URL_KEY,
            )
        answered = _json_object(answer.body)
        if answer.status not in (200, 201):
            return self._refused(answer, answered, request.secrets())
        if not _is_json(answer.content_type) or answered is None:
            kind = printable(answer.content_type or "no content type", request.secrets())
            return Trouble(
                f"{what} did not answer with a JSON object ({kind}): is it a token endpoint?", URL_KEY
            )
        token = answered.get("access_token") or answered.get("id_token")
        if token is None:
            return Trouble(f"{what} answered without an access_token: is it a token endpoint?", URL_KEY)
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
        remedy = f"check {self._grant.setting}" if is_ours else "check the URL and the endpoint's log"
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
    """Return whether the type is JSON, or missing, as some endpoints omit it."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or kind.endswith(("/json", "+json"))
