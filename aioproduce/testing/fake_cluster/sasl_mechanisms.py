"""The broker's side of PLAIN, SCRAM and OAUTHBEARER.

Created by `sasl_server`: one conversation per connection and login. On purpose it shares no code with
`aioproduce.security`: the client is checked by another implementation, as by a real broker.

Invariants:
1. Any bytes lead to a challenge or a `LoginRefusedError`, nothing else.
2. Passwords are used as their UTF-8, as in Kafka, without SASLprep (RFC 4013).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Sequence

Claims: TypeAlias = Mapping[str, Any]
TokenVerifier: TypeAlias = Callable[[str], Claims]
"""Returns the claims of a token, of which `sub` and `exp` are read; raises ValueError if the token is not valid."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_NONCE_BYTES: Final = 18
_SALT_BYTES: Final = 16
_LATEST: Final = 2.0**40
"""In seconds since the epoch. A lifetime beyond this does not fit the protocol's milliseconds."""
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class LoginRefusedError(Exception):
    """A login was refused.

    Args:
        text: The broker's error message; `None`: Kafka's general message.
    """

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or "invalid credentials")
        self.text = text


class Conversation(Protocol):
    """One login.

    Attributes:
        principal: The logged-in user; `None` before the login is complete.
        expires_at: When the credentials expire, in seconds since the epoch; `None`: never.
    """

    principal: str | None
    expires_at: float | None

    def step(self, response: bytes) -> bytes:
        """Answer the client.

        Raises:
            LoginRefusedError: If the login is refused.
        """


@final
@dataclass(slots=True, repr=False)
class Users:
    """The users with passwords, and their SCRAM credentials.

    Args:
        passwords: By name.
        random: Returns this many random bytes.
        iterations: Of PBKDF2.
    """

    passwords: dict[str, str]
    random: Callable[[int], bytes]
    iterations: int = 4096
    _salted: dict[tuple[str, str], tuple[bytes, bytes]] = field(default_factory=dict)

    def set(self, name: str, password: str) -> None:
        """Add a user, or change a password."""
        self.remove(name)
        self.passwords[name] = password

    def remove(self, name: str) -> None:
        """Remove a user if it exists."""
        self.passwords.pop(name, None)
        for mechanism in SCRAM_HASHES:
            self._salted.pop((mechanism, name), None)

    def salted(self, mechanism: str, name: str) -> tuple[bytes, bytes]:
        """Return a salt and the salted password (RFC 5802).

        Raises:
            LoginRefusedError: If the user does not exist.
        """
        if name not in self.passwords:
            raise LoginRefusedError
        if (mechanism, name) not in self._salted:
            salt = self.random(_SALT_BYTES)
            password = self.passwords[name].encode()
            self._salted[mechanism, name] = (
                salt,
                hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password, salt, self.iterations),
            )
        return self._salted[mechanism, name]


@final
@dataclass(slots=True, repr=False)
class PlainConversation:
    """RFC 4616."""

    _users: Users
    principal: str | None = None
    expires_at: float | None = None

    def step(self, response: bytes) -> bytes:
        """Check the only message."""
        parts = _text(response).split("\0")
        if len(parts) != 3 or not all(parts[1:]):
            raise LoginRefusedError("Authentication failed: Invalid SASL/PLAIN response")
        authorization, name, password = parts
        expected = self._users.passwords.get(name)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        if authorization not in ("", name):
            raise LoginRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = name
        return b""


_CLIENT_FIRST: Final = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authorization>(?:[^=,]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<name>(?:[^=,]|=2C|=3D)+),r=(?P<nonce>[!-+\--~]+)(?:,[^,]+)*)"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[^,]+)*),p=(?P<proof>[^,]+)"
)


@final
@dataclass(slots=True, repr=False)
class ScramConversation:
    """RFC 5802 without channel binding."""

    _mechanism: str
    _users: Users
    principal: str | None = None
    expires_at: float | None = None
    _first: re.Match[str] | None = None
    _server_first: str = ""
    _nonce: str = ""

    def step(self, response: bytes) -> bytes:
        """Answer the client's first message, then check its proof."""
        return self._begin(_text(response)) if self._first is None else self._end(_text(response))

    def _begin(self, message: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(message)
        if first is None or first["authorization"] not in (None, first["name"]):
            raise LoginRefusedError
        salt, _ = self._users.salted(self._mechanism, _name(first))
        own = base64.b64encode(self._users.random(_NONCE_BYTES)).decode()
        self._first = first
        self._nonce = first["nonce"] + own
        self._server_first = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={self._users.iterations}"
        return self._server_first.encode()

    def _end(self, message: str) -> bytes:
        assert self._first is not None
        final = _CLIENT_FINAL.fullmatch(message)
        if final is None or self.principal is not None:
            raise LoginRefusedError
        binding, proof = _base64(final["binding"]), _base64(final["proof"])
        if binding != self._first["gs2"].encode() or final["nonce"] != self._nonce:
            raise LoginRefusedError
        algorithm = SCRAM_HASHES[self._mechanism]
        name = _name(self._first)
        _, salted = self._users.salted(self._mechanism, name)
        said = f"{self._first['bare']},{self._server_first},{final['without_proof']}".encode()
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        signature = hmac.digest(stored_key, said, algorithm)
        shown = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        if not hmac.compare_digest(shown, client_key):
            raise LoginRefusedError
        self.principal = name
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        return b"v=" + base64.b64encode(hmac.digest(server_key, said, algorithm))


_BEARER: Final = re.compile(
    r"n,(?:a=(?P<authorization>[^,]*))?,\x01(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01"
)
_BEARER_FIELD: Final = re.compile(r"(?<=\x01)([A-Za-z]+)=([\x21-\x7e \t\r\n]*)(?=\x01)")


@final
@dataclass(slots=True, repr=False)
class BearerConversation:
    """RFC 7628: a token, and the extensions of KIP-342.

    Attributes:
        extensions: What the client sent in addition to the token.
    """

    _verify: TokenVerifier
    _wall_time: Callable[[], float]
    principal: str | None = None
    expires_at: float | None = None
    extensions: dict[str, str] = field(default_factory=dict)
    _has_failed: bool = False

    def step(self, response: bytes) -> bytes:
        """Check the token; after a refused one, accept the byte with which the client ends the exchange."""
        if self._has_failed:
            raise LoginRefusedError(_INVALID_TOKEN.decode())
        first = _BEARER.fullmatch(_text(response))
        if first is None:
            raise LoginRefusedError
        fields = dict(_BEARER_FIELD.findall(first[0]))
        kind, _, token = fields.pop("auth", "").partition(" ")
        self.extensions = fields
        try:
            if kind.lower() != "bearer":
                raise ValueError("not a bearer token")
            claims = self._verify(token)
            principal, expires_at = str(claims["sub"]), float(claims["exp"])
            # NaN fails both comparisons.
            if not self._wall_time() < expires_at < _LATEST or first["authorization"] not in (
                None,
                "",
                principal,
            ):
                raise ValueError("expired, or somebody else's")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self._has_failed = True
            return _INVALID_TOKEN
        self.principal, self.expires_at = principal, expires_at
        return b""


def unsecured_claims(token: str) -> Claims:
    """Return the claims of an unsigned JWT (`alg` is `none`), as accepted by Kafka's own unsecured validator.

    Raises:
        ValueError: If it is not such a token.
    """
    header, claims, signature = _decoded(token.split("."))
    if header.get("alg") != "none" or signature:
        raise ValueError("the token has a signature")
    return claims


def unsecured_token(subject: str, *, issued_at: float, lifetime: float = 3600.0, **claims: Any) -> str:
    """Return an unsigned JWT.

    Args:
        subject: The user.
        issued_at: In seconds since the epoch.
        lifetime: In seconds.
        **claims: Further claims.
    """
    payload = {"sub": subject, "iat": issued_at, "exp": issued_at + lifetime, **claims}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, payload))
    return "".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() + "." for part in parts)


def _decoded(parts: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], str]:
    if len(parts) != 3:
        raise ValueError("a JWT has three parts")
    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2]
    )
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise ValueError("a JWT is made of JSON objects")
    return header, claims, parts[2]


def _text(response: bytes) -> str:
    try:
        return bytes(response).decode()
    except UnicodeDecodeError:
        raise LoginRefusedError from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefusedError from None


def _name(first: re.Match[str]) -> str:
    return first["name"].replace("=2C", ",").replace("=3D", "=")
