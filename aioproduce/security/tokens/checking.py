"""Checks whether a text is a bearer token that is valid now, and until when.

Every source creates its `Credential` here, so that the rules are the same for all. A JWT is decoded but not
verified, because that is the broker's task, and a token need not be a JWT at all.

1. The source's expiry counts. If there is none, the `exp` of the JWT counts. If there is none either, the expiry is
   unknown: the token is kept until the broker's session ends (KIP-368) or a login fails, and then fetched again.
2. Clocks differ: a token counts as expired, or as not yet valid, only beyond 30 s.
3. A lifetime in seconds needs only our clock. If the source reports one, the instants in the JWT are ignored, which
   come from another clock: a host whose clock is wrong can still log in.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from aioproduce.config.secret import Secret
from aioproduce.security.credentials import Token
from aioproduce.security.mechanism import Credential
from aioproduce.security.tokens.trouble import Trouble

CLOCK_SKEW: Final = 30.0
"""Seconds that clocks may differ by, the default of brokers' `sasl.oauthbearer.clock.skew.seconds`."""

# RFC 6750, section 2.1.
_B64TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# In seconds this is the year 5138; in milliseconds it is 1973.
_IN_MILLISECONDS: Final = 1e11
_TEN_YEARS: Final = 315_360_000.0


def credential_of(
    token: object,
    *,
    now: float,
    what: str,
    setting: str,
    expires_in: object = None,
    expires_at: object = None,
    begins_at: object = None,
    principal: str = "",
    extensions: Mapping[str, str] | None = None,
) -> Credential | Trouble:
    """Return a credential with this token, if it is valid now.

    Args:
        token: A str or a Secret; anything else is trouble.
        now: Seconds since the epoch.
        what: The source, as the start of a sentence: `"the token endpoint https://..."`.
        setting: The setting to name.
        expires_in: The source's lifetime in seconds from now, possibly as text; `None`: not reported.
        expires_at: The source's expiry in seconds since the epoch; `None`: not reported.
        begins_at: The source's start of validity in seconds since the epoch; `None`: not reported.
        principal: The user's name; empty: the `sub` of the JWT, if it has one.
        extensions: SASL extensions to send with it.
    """
    flaw = _flaw_of(token)
    if flaw is not None:
        return Trouble(f"{what} gave {flaw}", setting)
    secret = token if isinstance(token, Secret) else Secret(str(token))
    claims = claims_of(secret)
    if expires_in is not None:
        lifetime = _lifetime(expires_in)
        if lifetime is None:
            return Trouble(f"{what} gave a token whose expires_in is not a number of seconds", setting)
        expires_at = now + lifetime
    elif expires_at is None:
        expires_at = claims.get("exp")
        if begins_at is None:
            begins_at = _in_the_past(claims.get("iat"), now)
    for name, moment in (("expiry", expires_at), ("beginning", begins_at)):
        if moment is not None and seconds_of(moment) is None:
            return Trouble(
                f"{what} gave a token whose {name} is of type {type(moment).__name__}, or out of range: it "
                f"must be a number of seconds since the epoch{_hint(moment)}",
                setting,
            )
    ends, begins = seconds_of(expires_at), seconds_of(begins_at)
    if ends is not None and ends < now - CLOCK_SKEW:
        return Trouble(
            f"{what} gave a token that expired {now - ends:.0f} s ago: is it an old one, or is a clock wrong, "
            "on this machine or there?",
            setting,
        )
    not_before = None if expires_in is not None else seconds_of(claims.get("nbf"))
    usable_from = max(begins or 0.0, not_before or 0.0)
    if usable_from > now + CLOCK_SKEW:
        return Trouble(
            f"{what} gave a token that is not valid for another {usable_from - now:.0f} s: is a clock wrong, "
            "on this machine or there?",
            setting,
        )
    subject = claims.get("sub")
    return Credential(
        value=Token(value=secret, extensions=extensions or {}),
        expires_at=ends,
        begins_at=begins,
        principal=principal or (subject if isinstance(subject, str) else ""),
    )


def claims_of(jwt: Secret) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying it; none if it is not a JWT."""
    sections = jwt.reveal().split(".")
    claims = section_of(sections[1]) if len(sections) == 3 else None
    return {} if claims is None else claims


def section_of(encoded: str) -> dict[str, Any] | None:
    """Return the JSON object in a section of a JWT, or None if there is none."""
    try:
        decoded = json.loads(
            base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        )
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def seconds_of(moment: object) -> float | None:
    """Return seconds since the epoch, or None if the value is not a number of seconds."""
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        return None
    # NaN is outside every range.
    return float(moment) if 0 <= moment < _IN_MILLISECONDS else None


def _lifetime(expires_in: object) -> float | None:
    """Return seconds, or None if the value is not a number. Some endpoints send a text, "3599"."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, (int, float, str)):
        return None
    try:
        seconds = float(expires_in)
    except (ValueError, OverflowError):
        return None
    # NaN is outside every range, and ten years count as forever.
    return min(seconds, _TEN_YEARS) if seconds > 0 else None


def _in_the_past(moment: object, now: float) -> float | None:
    """Return an instant from which to compute the refresh: not in the future, where another clock may put it."""
    seconds = seconds_of(moment)
    return None if seconds is None else min(seconds, now)


def _hint(moment: object) -> str:
    if isinstance(moment, (int, float)) and _IN_MILLISECONDS <= moment < math.inf:
        return " (milliseconds? divide by 1000)"
    return ""


def _flaw_of(token: object) -> str | None:
    """Return what is wrong with the token, without showing it."""
    if isinstance(token, (bytes, bytearray)):
        return "a token as bytes: decode them, a token must be a str"
    if not isinstance(token, (str, Secret)):
        return f"an object of type {type(token).__name__} as token: a token must be a str"
    if not token:
        return "an empty token"
    if not _B64TOKEN.fullmatch(token.reveal() if isinstance(token, Secret) else token):
        return (
            "a token with characters that RFC 6750 does not allow (a line break, a space, quotes, 'Bearer '?)"
        )
    return None
