"""Tokens that prove nothing: a JWT without a signature (KIP-255), which a broker takes only where it is told to.

For trials. There is one way to have one, which nobody takes by mistake: options of `sasl.jaas.config` that begin
with `unsecuredLogin`. They mean what they mean in Kafka.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.mechanism import Credential
from aioproduce.security.token import Token

_log = logging.getLogger("aioproduce")

JAAS_KEY: Final = "sasl.jaas.config"

_WORD: Final = "unsecuredLogin"
_STRING: Final = "unsecuredLoginStringClaim_"
_NUMBER: Final = "unsecuredLoginNumberClaim_"
_LIST: Final = "unsecuredLoginListClaim_"
_EXTENSION: Final = "unsecuredLoginExtension_"
_OTHERS: Final = frozenset(
    {"unsecuredLoginPrincipalClaimName", "unsecuredLoginLifetimeSeconds", "unsecuredLoginScopeClaimName"}
)


def is_asked_for(options: Mapping[str, str]) -> bool:
    """Whether the options of `sasl.jaas.config` ask for a token without a signature."""
    return any(name.startswith(_WORD) for name in options)


@final
class UnsecuredSource:
    """Makes a token of claims whenever one is wanted.

    Args:
        options: Those of `sasl.jaas.config`: `unsecuredLoginStringClaim_sub="alice"` at least.
        now: Seconds since the epoch.

    Raises:
        ConfigError: An option is not understood, or nobody's name is among them.
    """

    is_async: Final = False
    is_static: Final = False

    def __init__(self, options: Mapping[str, str], *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._extensions = _named(options, _EXTENSION)
        self._lifetime = _lifetime(options)
        self._claims = _claims(options)
        name = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
        principal = self._claims.get(name)
        if not isinstance(principal, str) or not principal:
            raise _refused(f"{_STRING}{name} is missing: it is who logs in")
        self._principal = principal
        _log.warning(
            "%s asks for tokens without a signature (%s): every client can be %r to a broker that takes them. "
            "They are for trials",
            JAAS_KEY,
            _WORD,
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


def _claims(options: Mapping[str, str]) -> dict[str, Any]:
    unknown = [
        name
        for name in options
        if name.startswith(_WORD)
        and name not in _OTHERS
        and not any(
            name.startswith(prefix) and name != prefix for prefix in (_STRING, _NUMBER, _LIST, _EXTENSION)
        )
    ]
    if unknown:
        raise _refused(f"{unknown[0]} is not one of Kafka's options ({_STRING}sub and its like)")
    claims: dict[str, Any] = {
        **_named(options, _STRING),
        **{name: _number(name, value) for name, value in _named(options, _NUMBER).items()},
        # The first letter separates: "|read|write".
        **{
            name: value[1:].split(value[0]) if len(value) > 1 else []
            for name, value in _named(options, _LIST).items()
        },
    }
    for name in ("exp", "iat"):
        if name in claims:
            raise _refused(f"the claim {name} is of the time when a token is made: leave it out")
    return claims


def _named(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _refused(f"{_NUMBER}{name} is not a number")
    return number


def _lifetime(options: Mapping[str, str]) -> int:
    """Seconds."""
    try:
        lifetime = int(options.get("unsecuredLoginLifetimeSeconds", "3600"))
    except ValueError:
        lifetime = 0
    if not 0 < lifetime < 1e9:
        raise _refused("unsecuredLoginLifetimeSeconds is not a number of seconds")
    return lifetime


def _encoded(section: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(section).encode()).decode().rstrip("=")


def _refused(why: str) -> ConfigError:
    return ConfigError(f"{JAAS_KEY}: {why}", key=JAAS_KEY)
