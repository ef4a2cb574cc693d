"""JWTs without a signature (KIP-255), which prove nothing and which brokers accept only if configured to.

They are for tests. Only options of `sasl.jaas.config` that begin with `unsecuredLogin` enable them, so nobody does
so by mistake. The options have Kafka's meaning.
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
    """Creates a token from claims on each fetch.

    Args:
        asked: The claims of `sasl.jaas.config`: at least `unsecuredLoginStringClaim_sub="alice"`.
        extensions: SASL extensions to send with each token, in addition to its own.
        now: Returns the seconds since the epoch.

    Raises:
        ConfigError: If the user's name is missing, or if a claim is one that is set when a token is created.
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
                raise _refused(f"the claim {name} is set when a token is created: leave it out")
        principal = self._claims.get(asked.principal_claim)
        if not isinstance(principal, str) or not principal:
            raise _refused(f"unsecuredLoginStringClaim_{asked.principal_claim} is missing: it names the user")
        self._principal = principal
        _log.warning(
            "%s enables tokens without a signature (unsecuredLogin*): every client can be %r to a broker that "
            "accepts them. They are for tests",
            JAAS_KEY,
            principal,
        )

    def fetch(self) -> Credential:
        """Return a token with the current time."""
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
