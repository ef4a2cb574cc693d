"""Our producer is refused by a real Kafka, or refuses it: a typed error within a second, whatever is wrong.

1. `start(require_broker=True)` raises at once: it does not wait for `max.block.ms`, which is far longer here.
2. The error names the setting to look at, and no secret.
3. What librdkafka says of the same listeners is in `test_secured_kafka.py`.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import AuthenticationError, ProducerError, TlsError
from tests.gate.marks import others_extended
from tests.secured.cells import NONE, OIDC, Cell, client_certificate_keys, mechanism_keys
from tests.secured.listeners import PASSWORDS, UNSOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.secured.kafka import SecuredKafka

pytest.importorskip("aioproduce.security.making", reason="the producer has no security yet")

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

# The bound of the project. The machine of a test run may be busy; the producer's own deadlines begin at 10 s.
SOON = 1.0
WRONG = "not-the-password"

TLS = Cell("tls1.3", NONE)
LOGIN = Cell("tls1.3", "SCRAM-SHA-256")


def password(cluster: SecuredKafka, mechanism: str) -> dict[str, str]:
    """The keys of a login with a wrong password."""
    keys = mechanism_keys(cluster, mechanism)
    keys["sasl.jaas.config"] = keys["sasl.jaas.config"].replace(PASSWORDS["alice"], WRONG)
    assert WRONG in keys["sasl.jaas.config"]
    return keys


async def refusal(keys: Mapping[str, Any]) -> ProducerError:
    """The error of a start with these keys, which comes in time."""
    begun = time.monotonic()
    with pytest.raises(ProducerError) as raised:
        await Producer({**keys, "max.block.ms": "30000"}).start(require_broker=True)
    took = time.monotonic() - begun
    assert took < SOON, f"{took:.2f} s until {raised.value!r}"
    said = f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"
    assert not [secret for secret in (WRONG, *PASSWORDS.values()) if secret in said]
    return raised.value


@pytest.mark.scenario(18, "K")
@pytest.mark.parametrize(
    "mechanism",
    others_extended(
        ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        keep=["SCRAM-SHA-256"],
        reason="one kind of password stays in the gate",
    ),
)
async def test_a_wrong_password(secured1: SecuredKafka, mechanism: str) -> None:
    error = await refusal(Cell("tls1.3", mechanism).keys(secured1) | password(secured1, mechanism))
    assert isinstance(error, AuthenticationError)
    assert error.mechanism == mechanism
    assert error.setting is not None
    assert error.setting.startswith("sasl.")


async def test_an_unknown_user(secured1: SecuredKafka) -> None:
    keys = LOGIN.keys(secured1)
    keys["sasl.jaas.config"] = keys["sasl.jaas.config"].replace('"alice"', '"nobody"')
    error = await refusal(keys)
    assert isinstance(error, AuthenticationError)


async def test_a_mechanism_that_the_listener_does_not_take(secured1: SecuredKafka) -> None:
    """The error names what it does take."""
    error = await refusal(LOGIN.keys(secured1) | {"bootstrap.servers": secured1.listener("TLS13_JWKS")})
    assert isinstance(error, AuthenticationError)
    assert error.setting == "sasl.mechanism"
    assert "OAUTHBEARER" in str(error)


async def test_a_token_that_nobody_signed(secured1: SecuredKafka) -> None:
    keys = Cell("tls1.3", "OAUTHBEARER").keys(secured1)
    error = await refusal(keys | {"bootstrap.servers": secured1.listener("TLS13_JWKS")})
    assert isinstance(error, AuthenticationError)


@pytest.mark.extended("an unsigned token stays in the gate")
async def test_a_wrong_client_secret(secured1: SecuredKafka) -> None:
    """The token endpoint refuses, and no broker is asked."""
    keys = Cell("tls1.3", OIDC).keys(secured1)
    keys["sasl.oauthbearer.token.endpoint.ca.location"] = str(secured1.certificates.ca)
    keys["sasl.oauthbearer.client.credentials.client.secret"] = WRONG
    error = await refusal(keys)
    assert "sasl.oauthbearer" in str(error)


@pytest.mark.scenario(17, "K")
@pytest.mark.parametrize(
    "leaf",
    others_extended(
        [leaf for leaf in UNSOUND if leaf != "revoked"],
        keep=["expired", "stranger"],
        reason="two bad certificates stay in the gate",
    ),
)
async def test_a_bad_certificate_of_the_broker(secured1: SecuredKafka, leaf: str) -> None:
    error = await refusal(TLS.keys(secured1) | {"bootstrap.servers": secured1.listener(leaf.upper())})
    assert isinstance(error, TlsError)
    named = {
        "expired": "expired",
        "early": "not yet valid",
        "stranger": "localhost",
        "alone": "self-signed",
        "forgotten": "ssl.truststore",
    }
    assert named[leaf] in f"{error} {error.reason} {error.setting}".lower().replace(
        "self signed", "self-signed"
    )


async def test_a_revoked_certificate_of_the_broker(secured1: SecuredKafka) -> None:
    """Lists of revoked certificates are for a context of the user's own: Kafka has no key for them."""
    context = ssl.create_default_context(cafile=secured1.certificates.ca)
    context.load_verify_locations(secured1.certificates.crl)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    keys: dict[str, Any] = {"security.protocol": "SSL", "ssl.context": context}
    error = await refusal(keys | {"bootstrap.servers": secured1.listener("REVOKED")})
    assert isinstance(error, TlsError)
    assert "revoked" in f"{error} {error.reason}".lower()
    async with Producer(keys | {"bootstrap.servers": secured1.listener("TLS13")}) as producer:
        await producer.check()


@pytest.mark.parametrize(
    "leaf",
    others_extended(
        ["", "expired", "early", "alone", "forgotten"],
        keep=["", "expired"],
        reason="a missing token and an expired one stay in the gate",
    ),
)
async def test_a_bad_certificate_of_the_client(secured1: SecuredKafka, leaf: str) -> None:
    """With TLS 1.3 the broker says so only when the client's handshake is done already."""
    keys = TLS.keys(secured1) | {"bootstrap.servers": secured1.listener("MUTUAL")}
    error = await refusal(keys | (client_certificate_keys(secured1, leaf) if leaf else {}))
    assert isinstance(error, TlsError)
    assert "ssl.keystore" in f"{error} {error.setting}"


@pytest.mark.parametrize(
    ("cell", "listener", "named"),
    [
        pytest.param(Cell("plaintext", NONE), "TLS13", "security.protocol", id="plaintext to TLS"),
        pytest.param(TLS, "SASL", "security.protocol", id="TLS to plaintext"),
        pytest.param(Cell("plaintext", NONE), "SASL", "security.protocol", id="no login where one is needed"),
        pytest.param(LOGIN, "TLS13", "security.protocol", id="a login where there is none"),
    ],
)
async def test_the_wrong_protocol(secured1: SecuredKafka, cell: Cell, listener: str, named: str) -> None:
    error = await refusal(cell.keys(secured1) | {"bootstrap.servers": secured1.listener(listener)})
    assert named in f"{error} {getattr(error, 'setting', '')}"
