"""The signed JWT that authenticates a client, read from a file or created here: `sasl.oauthbearer.assertion.*`.

Its content and precedence are as in Kafka 4.3 (KIP-1139, KIP-1258): claims of the template file override those of
the configuration, and the current `iat`, `exp`, `nbf` and `jti` override both.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, MissingExtraError
from aioproduce.security.tokens.checking import CLOCK_SKEW, claims_of, seconds_of, section_of
from aioproduce.security.tokens.text_file import read_text, warn_if_world_readable
from aioproduce.security.tokens.trouble import Trouble

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

_log = logging.getLogger("aioproduce")

FILE_KEY: Final = "sasl.oauthbearer.assertion.file"
ISS_KEY: Final = "sasl.oauthbearer.assertion.claim.iss"
ALGORITHM_KEY: Final = "sasl.oauthbearer.assertion.algorithm"
PRIVATE_KEY_KEY: Final = "sasl.oauthbearer.assertion.private.key.file"
PASSPHRASE_KEY: Final = "sasl.oauthbearer.assertion.private.key.passphrase"
TEMPLATE_KEY: Final = "sasl.oauthbearer.assertion.template.file"


class Assertion(Protocol):
    """The source of an assertion.

    Attributes:
        setting: Kafka's key to check if the assertion is refused.
    """

    @property
    def setting(self) -> str: ...  # noqa: D102

    def create(self) -> Secret | Trouble:
        """Return an assertion that is valid now, or why there is none. It blocks to read files."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FileAssertion:
    """An assertion that another program has signed, read from its file each time.

    Attributes:
        path: The file with the JWT.
        now: Seconds since the epoch.
    """

    path: str
    now: Callable[[], float] = time.time
    setting: str = field(default=FILE_KEY, init=False)

    def create(self) -> Secret | Trouble:
        """Return the content of the file, if it is a JWT that has not expired."""
        text = read_text(self.path, FILE_KEY)
        if isinstance(text, Trouble):
            return text
        flaw = _flaw_of_jwt(text)
        if flaw is not None:
            return Trouble(
                f"{self.path} {flaw}: it must hold one signed JWT, header.payload.signature", FILE_KEY
            )
        ends = seconds_of(claims_of(Secret(text)).get("exp"))
        if ends is not None and ends < self.now() - CLOCK_SKEW:
            return Trouble(
                f"the assertion in {self.path} expired {self.now() - ends:.0f} s ago: have it renewed in "
                "time by the program that writes it",
                FILE_KEY,
            )
        return Secret(text)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAssertion:
    """An assertion that is created and signed here each time, from files that are also read each time.

    Attributes:
        private_key_file: A private key in PEM.
        passphrase: The key's passphrase, if it is encrypted.
        algorithm: RS256 or ES256, in any case.
        audience: The claim `aud`.
        issuer: The claim `iss`.
        subject: The claim `sub`.
        exp_seconds: Seconds after now until which it is valid.
        nbf_seconds: Seconds before now since which it is valid.
        is_jti_included: Whether each assertion has its own id.
        template_file: A JSON object with objects `header` and `payload`, both optional.
        now: Returns the seconds since the epoch.
        new_id: Returns a new id.

    Raises:
        ConfigError: If there is no key file, or if the algorithm is neither of the two.
    """

    private_key_file: str | None
    passphrase: Secret | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    exp_seconds: int = 300
    nbf_seconds: int = 60
    is_jti_included: bool = False
    template_file: str | None = None
    now: Callable[[], float] = time.time
    new_id: Callable[[], object] = uuid.uuid4
    setting: str = field(default=PRIVATE_KEY_KEY, init=False)

    def __post_init__(self) -> None:
        if not self.private_key_file:
            raise ConfigError(
                f"{PRIVATE_KEY_KEY} is missing: assertions are signed with it", key=PRIVATE_KEY_KEY
            )
        if self.algorithm.upper() not in ("RS256", "ES256"):
            raise ConfigError(f"{ALGORITHM_KEY} must be RS256 or ES256", key=ALGORITHM_KEY)
        with MissingExtraError.unless_installed(
            "SASL OAUTHBEARER with assertions", extra="oauth", name="joserfc"
        ):
            import joserfc  # noqa: F401
        warn_if_world_readable(self.private_key_file, PRIVATE_KEY_KEY)

    def create(self) -> Secret | Trouble:
        """Return an assertion with the current time."""
        template = self._template()
        if isinstance(template, Trouble):
            return template
        header, claims = template
        key = _private_key(str(self.private_key_file), self.passphrase, self._algorithm)
        if isinstance(key, Trouble):
            return key
        return self._signed(
            {**header, "alg": self._algorithm, "typ": "JWT"},
            {**self._configured(), **claims, **self._of_now()},
            key,
        )

    @property
    def _algorithm(self) -> Literal["RS256", "ES256"]:
        return "ES256" if self.algorithm.upper() == "ES256" else "RS256"

    def _configured(self) -> dict[str, Any]:
        claims = {"aud": self.audience, "iss": self.issuer, "sub": self.subject}
        return {name: value for name, value in claims.items() if value is not None}

    def _of_now(self) -> dict[str, Any]:
        now = int(self.now())
        claims: dict[str, Any] = {"iat": now, "exp": now + self.exp_seconds, "nbf": now - self.nbf_seconds}
        return {**claims, "jti": str(self.new_id())} if self.is_jti_included else claims

    def _template(self) -> tuple[Mapping[str, Any], Mapping[str, Any]] | Trouble:
        if self.template_file is None:
            return {}, {}
        text = read_text(self.template_file, TEMPLATE_KEY)
        if isinstance(text, Trouble):
            return text
        try:
            template = json.loads(text)
        except (ValueError, RecursionError) as error:
            where = (
                f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
            )
            return Trouble(f"{self.template_file} is not JSON ({where})", TEMPLATE_KEY)
        header, payload = (
            (template.get("header", {}), template.get("payload", {}))
            if isinstance(template, dict)
            else (0, 0)
        )
        if not isinstance(header, dict) or not isinstance(payload, dict):
            return Trouble(
                f"{self.template_file} is not a JSON object with objects header and payload", TEMPLATE_KEY
            )
        return header, payload

    def _signed(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], key: RSAKey | ECKey
    ) -> Secret | Trouble:
        from joserfc import jws

        # The claims of a template are the user's concern, and may be any.
        registry = jws.JWSRegistry(algorithms=[self._algorithm], strict_check_header=False)
        try:
            return Secret(
                jws.serialize_compact(dict(header), json.dumps(claims).encode(), key, registry=registry)
            )
        except Exception as error:
            # The error's frames hold the key. The only possible cause left is the template's header (`crit`, `kid:
            # 1`).
            return Trouble(
                f"the assertion cannot be signed ({type(error).__name__}): check the header of the template",
                TEMPLATE_KEY,
            )


def assertion_of(
    file: str | None, issuer: str | None, signed: Callable[[], SignedAssertion]
) -> Assertion | None:
    """Return the configured assertion in Kafka's order: a file, else one signed here; None if neither is set.

    Args:
        file: `sasl.oauthbearer.assertion.file`.
        issuer: `sasl.oauthbearer.assertion.claim.iss`, which requests an assertion that is signed here.
        signed: Creates the source of signed assertions.
    """
    if file:
        if issuer:
            _log.warning("%s is used and %s is ignored: remove one of the two", FILE_KEY, ISS_KEY)
        return FileAssertion(path=file)
    return signed() if issuer else None


def _flaw_of_jwt(text: str) -> str | None:
    sections = text.split(".")
    if len(sections) != 3 or not all(sections):
        return "does not have three sections"
    if section_of(sections[0]) is None or section_of(sections[1]) is None:
        return "does not have JSON in its sections"
    return None


def _private_key(path: str, passphrase: Secret | None, algorithm: str) -> RSAKey | ECKey | Trouble:
    """Return the signing key, or what is wrong with it: an error raised here could hold the passphrase."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from joserfc.jwk import ECKey, RSAKey

    pem = read_text(path, PRIVATE_KEY_KEY)
    if isinstance(pem, Trouble):
        return pem
    is_encrypted = "ENCRYPTED" in pem
    if is_encrypted and not passphrase:
        return Trouble(f"the private key in {path} is encrypted: set {PASSPHRASE_KEY}", PASSPHRASE_KEY)
    try:
        key = load_pem_private_key(
            pem.encode(), passphrase.reveal().encode() if is_encrypted and passphrase else None
        )
    except Exception as error:
        remedy = (
            "is the passphrase right?" if is_encrypted else "use a key in PEM, -----BEGIN PRIVATE KEY-----"
        )
        return Trouble(
            f"the private key in {path} cannot be used ({type(error).__name__}): {remedy}",
            PASSPHRASE_KEY if is_encrypted else PRIVATE_KEY_KEY,
        )
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        if key.key_size < 2048:
            return Trouble(
                f"the private key in {path} has {key.key_size} bits: RS256 needs 2048 (RFC 7518)",
                PRIVATE_KEY_KEY,
            )
        return RSAKey.import_key(key)
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        return ECKey.import_key(key)
    wanted = "an RSA key" if algorithm == "RS256" else "an EC key on the curve P-256"
    return Trouble(
        f"the private key in {path} does not fit {ALGORITHM_KEY}={algorithm}: use {wanted}", ALGORITHM_KEY
    )
