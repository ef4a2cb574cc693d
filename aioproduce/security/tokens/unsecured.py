"""Tokens that prove nothing: a JWT without a signature (KIP-255), which a broker takes only where it is told to.

For trials. There is one way to have one, which nobody takes by mistake: options of `sasl.jaas.config` that begin
with `unsecuredLogin`. They mean what they mean in Kafka.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.credentials import Token
from aioproduce.security.mechanism import Credential

if TYPE_CHECKING:
    from aioproduce.security.jaas import UnsecuredClaims

_log = logging.getLogger("aioproduce")

JAAS_KEY: Final = "sasl.jaas.config"


@final
class UnsecuredSource:
    """Makes a token of claims whenever one is wanted.

    Args:
        asked: The claims that `sasl.jaas.config` names: `unsecuredLoginStringClaim_sub="alice"` at least.
        extensions: SASL extensions to send with each token, besides its own.
        now: Seconds since the epoch.

    Raises:
        ConfigError: Nobody's name is among them, or one is of the time when a token is made.
    """

    is_async: Final = False
    is_static: Final = False

    def __init__(
        self,
        asked: UnsecuredClaims,
        *,
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._extensions = {**(extensions or {}), **asked.extensions}
        self._lifetime = asked.lifetime
        self._claims: dict[str, Any] = {
            **asked.strings,
            **asked.numbers,
            **{name: list(values) for name, values in asked.lists.items()},
        }
        for name in ("exp", "iat"):
            if name in self._claims:
                raise _refused(f"the claim {name} is of the time when a token is made: leave it out")
        principal = self._claims.get(asked.principal_claim)
        if not isinstance(principal, str) or not principal:
            raise _refused(f"unsecuredLoginStringClaim_{asked.principal_claim} is missing: it is who logs in")
        self._principal = principal
        _log.warning(
            "%s asks for tokens without a signature (unsecuredLogin*): every client can be %r to a broker that "
            "takes them. They are for trials",
            JAAS_KEY,
            principal,
        )

    def fetch(self) -> Credential:
        """A token of now."""
        now = self._now()
        claims = {"exp": now + self._lifetime, "iat": now, **self._claims}
        return Credential(
            value=Token(
                value=Secret(f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."), extensions=self._extensions
            ),
            expires_at=now + self._lifetime,
            begins_at=now,
            principal=self._principal,
        )


def _encoded(section: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(section).encode()).decode().rstrip("=")


def _refused(why: str) -> ConfigError:
    return ConfigError(f"{JAAS_KEY}: {why}", key=JAAS_KEY)
