"""The listeners of the secured Kafka: which transport, which mechanisms, and the broker's properties for each.

1. One TLS version a listener: what gets through has spoken it, whatever the client's own settings say.
2. `..._SASL` takes every mechanism but tokens that are signed, which are for `..._JWKS` alone: a listener has one
   way to look at the tokens of OAUTHBEARER.
3. `REAUTH` and `REAUTH_JWKS` end a session after `REAUTH_SECONDS`.
4. The listeners in `UNSOUND` show a certificate that no client may accept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.secured import kdc
from tests.security import oidc_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.secured.certificates import Certificates
    from tests.secured.kdc import Kdc

# A session is renewed at 85 to 95 % of its time. On a busy machine the rest of two seconds was once too short.
REAUTH_SECONDS: Final = 4

FISH: Final = "\N{LATIN SMALL LIGATURE FI}sh"
UMLAUTS: Final = "pä=ss,wörd"
LONG: Final = ("0123456789abcdef" * 16)[:255]
PASSWORDS: Final = {"alice": "alice-secret", "fish": FISH, "umlauts": UMLAUTS, "long": LONG}
"""The users, of PLAIN and of both kinds of SCRAM."""

_LOGIN: Final = "org.apache.kafka.common.security"
_VALIDATOR: Final = f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True)
class Listener:
    """What a listener is.

    Attributes:
        tls: The one version of TLS that it speaks, or both with a comma; empty: none.
        leaf: The certificate that it shows.
        client_certificate: Whether it wants one: `none`, `requested` or `required`.
        sasl: Whether who connects must log in.
        is_jwks: Whether OAUTHBEARER alone is taken, and its tokens must be signed.
        session: Seconds after which a client must log in again; 0: never.
    """

    tls: str = ""
    leaf: str = "broker"
    client_certificate: str = "none"
    sasl: bool = False
    is_jwks: bool = False
    session: int = 0

    @property
    def protocol(self) -> str:
        """Its security protocol, as Kafka calls it."""
        if self.sasl:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"


_BOTH: Final = "TLSv1.2,TLSv1.3"
_TRANSPORTS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("", "none"),
    "TLS12": ("TLSv1.2", "requested"),
    "TLS13": ("TLSv1.3", "requested"),
    "MUTUAL": (_BOTH, "required"),
}


def _of_matrix() -> Iterator[tuple[str, Listener]]:
    for transport, (tls, client_certificate) in _TRANSPORTS.items():
        if transport:
            yield transport, Listener(tls, client_certificate=client_certificate)
        for end in ("SASL", "JWKS"):
            name = f"{transport}_{end}".removeprefix("_")
            is_jwks = end == "JWKS"
            yield name, Listener(tls, client_certificate=client_certificate, sasl=True, is_jwks=is_jwks)


UNSOUND: Final = ("expired", "early", "stranger", "alone", "forgotten", "revoked")
"""The leaves of `Certificates` that no client may accept; each has a listener of its name, in capitals."""

LISTENERS: Final[Mapping[str, Listener]] = {
    **dict(_of_matrix()),
    "REAUTH": Listener(_BOTH, sasl=True, session=REAUTH_SECONDS),
    "REAUTH_JWKS": Listener(_BOTH, sasl=True, is_jwks=True, session=REAUTH_SECONDS),
    **{leaf.upper(): Listener(_BOTH, leaf=leaf) for leaf in UNSOUND},
}


def settings(
    listeners: Mapping[str, Listener], certificates: Certificates, jwks: Path, realm: Kdc | None
) -> dict[str, str]:
    """The broker's properties for these listeners, escaped as a `.properties` file wants them."""
    found: dict[str, str] = {}
    for name, listener in listeners.items():
        prefix = f"listener.name.{name.lower()}."
        own = {"num.network.threads": "1"}
        if listener.tls:
            own |= _tls(listener, certificates)
        if listener.sasl:
            own |= _sasl(listener, jwks, realm)
        found |= {prefix + key: _escaped(value) for key, value in own.items()}
    return found


def _tls(listener: Listener, certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.enabled.protocols": listener.tls,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.leaves[listener.leaf].pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": listener.client_certificate,
    }


def _sasl(listener: Listener, jwks: Path, realm: Kdc | None) -> dict[str, str]:
    unsecured = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required"
    if listener.is_jwks:
        own = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{unsecured};",
            "oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
            "oauthbearer.sasl.oauthbearer.expected.audience": oidc_server.AUDIENCE,
            "oauthbearer.sasl.oauthbearer.expected.issuer": oidc_server.ISSUER,
        }
    else:
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        scram = f"{_LOGIN}.scram.ScramLoginModule required;"
        own = {
            "plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};",
            "scram-sha-256.sasl.jaas.config": scram,
            "scram-sha-512.sasl.jaas.config": scram,
            "oauthbearer.sasl.jaas.config": f"{unsecured};",
        }
        if realm is not None:
            own["gssapi.sasl.jaas.config"] = (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
                f' keyTab="{realm.broker_keytab}" principal="{kdc.BROKER}@{kdc.REALM}";'
            )
            own["sasl.kerberos.service.name"] = kdc.BROKER.partition("/")[0]
        own["sasl.enabled.mechanisms"] = ",".join(
            key.partition(".")[0].upper() for key in own if key.endswith(".sasl.jaas.config")
        )
    if listener.session:
        own["connections.max.reauth.ms"] = str(listener.session * 1000)
    return own


def _escaped(value: str) -> str:
    """Java reads the file as Latin-1, with backslashes that escape."""
    coded = value.replace("\\", "\\\\").encode("utf-16-be")
    units = (int.from_bytes(coded[place : place + 2], "big") for place in range(0, len(coded), 2))
    return "".join(chr(unit) if unit < 0x7F else f"\\u{unit:04x}" for unit in units)
