"""Whether a text is a bearer token that is of use now, and until when.

Whoever has got a token makes its `Credential` here: the rules are the same, whatever the source. A JWT is decoded
and not verified, for that is the broker's business, and a token need not be a JWT at all.

1. An expiry that the source tells holds. If it tells none, the `exp` of the JWT does. If there is none either, the
   expiry is unknown: the token is held until the broker's session ends (KIP-368) or a login fails, then fetched
   anew.
2. Clocks differ: a token counts as expired, or as not yet valid, when it is so by more than 30 s.
3. A lifetime in seconds needs no clock but ours. Where one is told, the moments in the JWT, which are of another
   clock, are not looked at: a host whose clock is wrong can log in.
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
"""Seconds that clocks may differ by; `sasl.oauthbearer.clock.skew.seconds` of brokers has this default."""

# RFC 6750, section 2.1.
_B64TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# As seconds this is the year 5138; as milliseconds it is 1973.
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
    """A credential with this token, if it is of use now.

    Args:
        token: A str or a Secret; anything else is trouble.
        now: Seconds since the epoch.
        what: Who gave it, as the start of a sentence: `"the token endpoint https://..."`.
        setting: Which setting to name.
        expires_in: What the source tells, as seconds from now on (a text of a number will do); `None`: nothing.
        expires_at: What it tells otherwise, in seconds since the epoch; `None`: nothing.
        begins_at: Likewise, since when it is of use.
        principal: Whose it is; empty: the `sub` of the JWT, if it has one.
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
                f"{what} gave a token whose {name} is of type {type(moment).__name__}, or out of range: it is a "
                f"number of seconds since the epoch{_hint(moment)}",
                setting,
            )
    ends, begins = seconds_of(expires_at), seconds_of(begins_at)
    if ends is not None and ends < now - CLOCK_SKEW:
        return Trouble(
            f"{what} gave a token that expired {now - ends:.0f} s ago: is it an old one, or is a clock wrong, "
            "here or there?",
            setting,
        )
    not_before = None if expires_in is not None else seconds_of(claims.get("nbf"))
    usable_from = max(begins or 0.0, not_before or 0.0)
    if usable_from > now + CLOCK_SKEW:
        return Trouble(
            f"{what} gave a token that is not valid for another {usable_from - now:.0f} s: is a clock wrong, "
            "here or there?",
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
    """The claims of a JWT, which is not verified; none where it is not one."""
    sections = jwt.reveal().split(".")
    claims = section_of(sections[1]) if len(sections) == 3 else None
    return {} if claims is None else claims


def section_of(encoded: str) -> dict[str, Any] | None:
    """The JSON object that a section of a JWT holds; None where it holds none."""
    try:
        decoded = json.loads(
            base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        )
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def seconds_of(moment: object) -> float | None:
    """Seconds since the epoch; None for what is not a number of them."""
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        return None
    # NaN is not in any range.
    return float(moment) if 0 <= moment < _IN_MILLISECONDS else None


def _lifetime(expires_in: object) -> float | None:
    """Seconds; None for what is not a number of them. Some endpoints tell it as a text, "3599"."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, (int, float, str)):
        return None
    try:
        seconds = float(expires_in)
    except (ValueError, OverflowError):
        return None
    # NaN is not in any range, and ten years are as good as for ever.
    return min(seconds, _TEN_YEARS) if seconds > 0 else None


def _in_the_past(moment: object, now: float) -> float | None:
    """A moment that the refreshing can be reckoned from: not of the future, as another clock may have it."""
    seconds = seconds_of(moment)
    return None if seconds is None else min(seconds, now)


def _hint(moment: object) -> str:
    if isinstance(moment, (int, float)) and _IN_MILLISECONDS <= moment < math.inf:
        return " (milliseconds? divide by 1000)"
    return ""


def _flaw_of(token: object) -> str | None:
    """What is wrong with it, in words that do not show it."""
    if isinstance(token, (bytes, bytearray)):
        return "bytes for a token: decode them, a token is a str"
    if not isinstance(token, (str, Secret)):
        return f"no token but an object of type {type(token).__name__}: a token is a str"
    if not token:
        return "an empty token"
    if not _B64TOKEN.fullmatch(token.reveal() if isinstance(token, Secret) else token):
        return "a token with letters that RFC 6750 does not allow (a line break, a space, quotes, 'Bearer '?)"
    return None
