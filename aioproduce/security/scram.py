r"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) without SASLprep, as in Kafka.

Kafka's `ScramFormatter` hashes a password's plain UTF-8. A library that prepares it first, as the RFC requires,
fails for `"\ufb01sh"`.

1. The login succeeds only after the server's signature was compared with ours.
2. The size of the broker's message and its number of iterations are checked before they are used.
3. PBKDF2 never runs in the conversation itself. It is `Work`, done once per password, salt and iteration count: the
   resulting keys are cached for a few of them.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, final

from aioproduce.errors import AuthenticationError
from aioproduce.security.mechanism import Answer, Work

if TYPE_CHECKING:
    from aioproduce.security.credentials import UserPassword
    from aioproduce.security.mechanism import Credential

NonceSource: TypeAlias = Callable[[int], bytes]
"""Returns this number of random bytes: `secrets.token_bytes`."""

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Name of the mechanism -> hashlib's name."""

MIN_ITERATIONS: Final = 4096
"""Kafka's own minimum. Its maximum is 16,384."""

MAX_ITERATIONS: Final = 1_000_000
"""About a second of PBKDF2, the most that a broker may cost a client."""

_MAX_MESSAGE: Final = 4096
_NONCE_BYTES: Final = 24
_GS2_HEADER: Final = "n,,"
"""No channel binding, and no other identity to act as."""

_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_EXTENSIONS: Final = rb"(?:,[A-Za-ln-z]=[^\0,]+)*"
"""Extensions that may be ignored; `m=` marks one that must be understood."""

_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>(?!,)%b),i=(?P<iterations>[1-9][0-9]{0,9})%b"
    % (_BASE64, _EXTENSIONS)
)
_SERVER_FINAL: Final = re.compile(rb"v=(?P<signature>(?!,)%b)%b" % (_BASE64, _EXTENSIONS))
_SERVER_ERROR: Final = re.compile(rb"e=([ -+\--~]{1,100})%b" % _EXTENSIONS)


@final
class _Keys:
    """ClientKey and ServerKey of one password, salt and iteration count, derived on first use.

    Args:
        fingerprint: The identity of these inputs. The cache compares it; it does not reveal anything.
    """

    __slots__ = ("client_key", "lock", "server_key")

    def __init__(self, fingerprint: bytes) -> None:  # noqa: ARG002
        self.lock = Lock()
        self.client_key = b""
        self.server_key = b""

    def derive(self, digest: str, user: UserPassword, salt: bytes, iterations: int) -> None:
        """Derive the keys. It takes milliseconds; others that need the same keys wait for them."""
        with self.lock:
            if not self.client_key:
                self.client_key, self.server_key = _derive(digest, user, salt, iterations)


def _derive(digest: str, user: UserPassword, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac(digest, user.password.reveal().encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", digest), hmac.digest(salted, b"Server Key", digest)


_keys_of: Final = lru_cache(maxsize=8)(_Keys)
_FINGERPRINT_KEY: Final = secrets.token_bytes(32)


def _fingerprint(digest: str, user: UserPassword, salt: bytes, iterations: int) -> bytes:
    """Return a hash with a key of this process; it includes the pid, so that a forked child shares no lock."""
    return hashlib.blake2b(
        repr(
            (os.getpid(), digest, user.username.encode(), user.password.reveal().encode(), salt, iterations)
        ).encode(),
        key=_FINGERPRINT_KEY,
    ).digest()


@final
class Scram:
    """One login conversation.

    Args:
        mechanism: A key of `DIGESTS`.
        user: The credential.
        nonce: Returns random bytes.
        token_auth: Whether `user` is a delegation token: its id, with its HMAC as the password.
    """

    __slots__ = (
        "_digest",
        "_first",
        "_is_final",
        "_keys",
        "_mechanism",
        "_nonce",
        "_server_signature",
        "_user",
    )

    def __init__(
        self, mechanism: str, user: UserPassword, nonce: NonceSource, *, token_auth: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._user = user
        self._nonce = b64encode(nonce(_NONCE_BYTES)).decode()
        name = user.username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}" + (",tokenauth=true" if token_auth else "")
        self._server_signature = b""
        self._is_final = False

    def start(self) -> bytes:
        """Return the client-first-message.

        Raises:
            AuthenticationError: If the name or the password is empty, or cannot be encoded.
        """
        self._user.check(self._mechanism)
        return (_GS2_HEADER + self._first).encode()

    def step(self, challenge: bytes) -> Answer:
        """Return the client-final-message, as `Work` if the keys are not known yet; then `None`.

        Raises:
            AuthenticationError: If the broker reports an error, does not know the password, asks for too many or
                too few iterations, or sends a message that is not SCRAM.
        """
        if len(challenge) > _MAX_MESSAGE:
            raise self._malformed(f"{len(challenge):,} bytes, but the limit is {_MAX_MESSAGE:,}")
        if error := _SERVER_ERROR.fullmatch(challenge):
            raise AuthenticationError(
                f"the broker refused {self._mechanism}: {error[1].decode()}; check sasl.username, sasl.password,"
                " and that the user has credentials of this mechanism",
                mechanism=self._mechanism,
                setting="sasl.password",
            )
        if self._is_final:
            self._verify(challenge)
            return None
        return self._prove(challenge)

    def _prove(self, challenge: bytes) -> Answer:
        found = _SERVER_FIRST.fullmatch(challenge)
        if found is None:
            raise self._malformed(
                "an invalid server-first-message, or one with an unknown mandatory extension"
            )
        nonce = found["nonce"].decode()
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._malformed("a nonce that does not begin with the client's")
        iterations = int(found["iterations"])
        if iterations > MAX_ITERATIONS:
            raise self._malformed(f"{iterations:,} iterations, but the limit is {MAX_ITERATIONS:,}")
        if iterations < MIN_ITERATIONS:
            raise AuthenticationError(
                f"the broker stores this user's password with {iterations:,} iterations, which is too weak: "
                "create the credentials again with kafka-configs.sh --alter --add-config "
                f"'{self._mechanism}=[iterations={MIN_ITERATIONS},password=...]' (sasl.mechanism)",
                mechanism=self._mechanism,
                setting="sasl.mechanism",
            )
        self._is_final = True
        of = self._digest, self._user, binascii.a2b_base64(found["salt"]), iterations
        keys = _keys_of(_fingerprint(*of))
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        message = b",".join((self._first.encode(), challenge, without_proof.encode()))

        def finish() -> bytes:
            keys.derive(*of)
            return self._final(keys, message, without_proof)

        return finish() if keys.client_key else Work(finish, what=self._mechanism)

    def _final(self, keys: _Keys, message: bytes, without_proof: str) -> bytes:
        stored_key = hashlib.new(self._digest, keys.client_key).digest()
        signature = hmac.digest(stored_key, message, self._digest)
        self._server_signature = hmac.digest(keys.server_key, message, self._digest)
        proof = bytes(mine ^ theirs for mine, theirs in zip(keys.client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        found = _SERVER_FINAL.fullmatch(challenge)
        if found is None:
            raise self._malformed("an invalid server-final-message")
        # Before the client-final-message our signature is empty, and an empty one of the broker must not match it.
        if not self._server_signature or not hmac.compare_digest(
            self._server_signature, binascii.a2b_base64(found["signature"])
        ):
            raise AuthenticationError(
                "the broker has not proved that it knows the password: it is not the broker that"
                " bootstrap.servers should name, or its stored credentials are damaged",
                mechanism=self._mechanism,
                setting="bootstrap.servers",
            )

    def _malformed(self, what: str) -> AuthenticationError:
        return AuthenticationError(
            f"the broker answered {self._mechanism} with {what}; see its log, and check that sasl.mechanism is"
            " the listener's",
            mechanism=self._mechanism,
            setting="sasl.mechanism",
        )


def converse_by(
    mechanism: str, nonce: NonceSource, *, token_auth: bool = False
) -> Callable[[str, Credential], Scram]:
    """Return the factory of login conversations, for `Sasl.converse`; a credential's value is a `UserPassword`.

    Args:
        mechanism: `"SCRAM-SHA-256"` or `"SCRAM-SHA-512"`.
        nonce: Returns random bytes: `secrets.token_bytes`.
        token_auth: Whether the credentials are delegation tokens (`tokenauth=true` of ScramLoginModule).
    """

    def converse(_host: str, credential: Credential) -> Scram:
        return Scram(mechanism, credential.value, nonce, token_auth=token_auth)

    return converse
