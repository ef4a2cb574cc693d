"""The cells of the matrix: a transport and a mechanism, its listener, and the keys that a client needs for it.

The keys are Kafka's own (Java's), as a `.properties` file would have them; `for_librdkafka` says the same in
librdkafka's words, written down here by hand and not by our own translation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.secured import kdc
from tests.secured.certificates import STORE_PASSWORD
from tests.secured.listeners import LISTENERS, PASSWORDS
from tests.security import oidc_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.secured.kafka import SecuredKafka

TRANSPORTS: Final[Mapping[str, str]] = {
    "plaintext": "",
    "tls1.2": "TLS12",
    "tls1.3": "TLS13",
    "mutual": "MUTUAL",
}
"""Names of the matrix, and how the names of their listeners begin."""

NONE: Final = "none"
OIDC: Final = "OIDC"
MSK: Final = "MSK"
MECHANISMS: Final = (NONE, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", OIDC, "GSSAPI", MSK)
"""`OAUTHBEARER` is the unsecured token, and `OIDC` the signed one that a token endpoint gives. `MSK` is AWS's
login, whose tokens only AWS's brokers understand: its signer is a stand-in, which gives a token of
the OIDC server."""

_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to be connected."""

    transport: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.transport}-{self.mechanism}"

    @property
    def listener(self) -> str:
        """The name of its listener; `CLIENTS` is the harness' own."""
        end = {NONE: "", OIDC: "JWKS", MSK: "JWKS"}.get(self.mechanism, "SASL")
        return "_".join(part for part in (TRANSPORTS[self.transport], end) if part) or "CLIENTS"

    def bootstrap_servers(self, cluster: SecuredKafka) -> str:
        """Where a client of this cell begins."""
        return cluster.bootstrap_servers if self.listener == "CLIENTS" else cluster.listener(self.listener)

    def keys(self, cluster: SecuredKafka, user: str = "alice") -> dict[str, str]:
        """What a Java client of this cell has in its `.properties` file."""
        found = {"bootstrap.servers": self.bootstrap_servers(cluster)}
        if self.listener != "CLIENTS":
            found["security.protocol"] = LISTENERS[self.listener].protocol
        found |= transport_keys(cluster, self.transport)
        if self.mechanism != NONE:
            found |= mechanism_keys(cluster, self.mechanism, user)
        return found


CELLS: Final = tuple(Cell(*names) for names in itertools.product(TRANSPORTS, MECHANISMS))


def transport_keys(cluster: SecuredKafka, transport: str) -> dict[str, str]:
    """Kafka's `ssl.*`: TLS 1.2 trusts a PEM file, TLS 1.3 a PKCS12 store; mutual shows a PKCS12 store."""
    if transport == "plaintext":
        return {}
    files = cluster.certificates
    found = {"ssl.truststore.location": str(files.ca), "ssl.truststore.type": "PEM"}
    if transport == "tls1.3":
        found = {
            "ssl.truststore.location": str(files.ca_pkcs12),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": STORE_PASSWORD,
        }
    if transport == "mutual":
        found |= client_certificate_keys(cluster, "client")
    return found


def client_certificate_keys(cluster: SecuredKafka, leaf: str) -> dict[str, str]:
    """Kafka's `ssl.keystore.*` for a leaf as a PKCS12 store."""
    return {
        "ssl.keystore.location": str(cluster.certificates.leaves[leaf].pkcs12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }


def mechanism_keys(cluster: SecuredKafka, mechanism: str, user: str = "alice") -> dict[str, str]:
    """Kafka's `sasl.*`."""
    if mechanism == "PLAIN":
        return _login(mechanism, f"{_LOGIN}.plain.PlainLoginModule", username=user, password=PASSWORDS[user])
    if mechanism.startswith("SCRAM"):
        return _login(mechanism, f"{_LOGIN}.scram.ScramLoginModule", username=user, password=PASSWORDS[user])
    if mechanism == "OAUTHBEARER":
        module = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule"
        return _login(mechanism, module, unsecuredLoginStringClaim_sub=user)
    if mechanism == OIDC:
        return _login("OAUTHBEARER", f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule") | {
            "sasl.oauthbearer.token.endpoint.url": cluster.tokens.url,
            "sasl.oauthbearer.client.credentials.client.id": oidc_server.CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": oidc_server.CLIENT_SECRET,
        }
    if mechanism == "GSSAPI":
        assert cluster.kdc is not None
        keys = {"keyTab": str(cluster.kdc.user_keytab), "principal": f"{kdc.USER}@{kdc.REALM}"}
        module = "com.sun.security.auth.module.Krb5LoginModule"
        found = _login(mechanism, module, useKeyTab="true", storeKey="true", **keys)
        return found | {"sasl.kerberos.service.name": kdc.BROKER.partition("/")[0]}
    assert mechanism == MSK
    return _login("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule") | {
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    }


def _login(mechanism: str, module: str, **options: str) -> dict[str, str]:
    words = "".join(f' {name}="{value}"' for name, value in options.items())
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required{words};"}


def for_librdkafka(cell: Cell, cluster: SecuredKafka, user: str = "alice") -> dict[str, Any]:
    """The settings of a librdkafka client of a cell; it has no GSSAPI in its wheels."""
    found: dict[str, Any] = {"bootstrap.servers": cell.bootstrap_servers(cluster)}
    files = cluster.certificates
    if cell.listener != "CLIENTS":
        found["security.protocol"] = LISTENERS[cell.listener].protocol
    if cell.transport != "plaintext":
        found["ssl.ca.location"] = str(files.ca)
    if cell.transport == "mutual":
        found["ssl.certificate.location"] = found["ssl.key.location"] = str(files.leaves["client"].pem)
    match cell.mechanism:
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
            login = {"sasl.username": user, "sasl.password": PASSWORDS[user]}
            found |= {"sasl.mechanism": cell.mechanism, **login}
        case "OAUTHBEARER":
            found |= {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": f"principal={user}",
            }
        case "OIDC":
            found |= {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": oidc_server.CLIENT_ID,
                "sasl.oauthbearer.client.secret": oidc_server.CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": cluster.tokens.url,
                "https.ca.location": str(files.ca),
            }
    return found
