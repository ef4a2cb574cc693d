"""The same settings in Kafka's own client and here: what both ask a token endpoint for, and what brokers accept."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import RSAKey

from aioproduce.config.secret import Secret
from aioproduce.security.jaas import UnsecuredClaims
from aioproduce.security.tokens.assertion import FileAssertion, SignedAssertion
from aioproduce.security.tokens.bounded_post import TokenEndpoint
from aioproduce.security.tokens.endpoint import EndpointSource
from aioproduce.security.tokens.grants import ClientAssertion, ClientSecret, Grant, JwtBearer
from aioproduce.security.tokens.unsecured import UnsecuredSource
from tests.kafka_tools import KafkaTools
from tests.security.oidc_server import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    ISSUER,
    SUBJECT,
    TokenServer,
    running_server,
)

pytestmark = pytest.mark.extended("a JVM compiles its program in 5 s of processor time")

ORACLE = Path(__file__).with_name("TokenOracle.java")
CLIENT = "sasl.oauthbearer.client.credentials.client"
SCOPE = "kafka api://x/.default"


@pytest.fixture
def plain_server() -> Iterator[TokenServer]:
    with running_server(is_plain=True) as server:
        yield server


def java(
    kafka_tools: KafkaTools, server: TokenServer, *commands: list[str], files: Sequence[str] = ()
) -> list[str]:
    """What Kafka's classes say to each command, a line each."""
    flags = (
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.url},{server.jwks_url}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={','.join(files)}",
    )
    done = subprocess.run(
        kafka_tools.command(str(ORACLE), *("\t".join(command) for command in commands), jvm_flags=flags),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "jdk.compiler" in done.stderr:
        pytest.skip(f"no Kafka to compare with: {kafka_tools.install.java} is a runtime alone; install a JDK")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def claims_of(jwt: str) -> dict[str, Any]:
    found = json.loads(base64.urlsafe_b64decode(jwt.split(".")[1] + "=="))
    assert isinstance(found, dict)
    return found


def asked(server: TokenServer, grant: Grant) -> None:
    endpoint = TokenEndpoint(url=server.url, is_http_allowed=True)
    EndpointSource(endpoint, grant).fetch()


def test_both_clients_ask_for_the_same(
    kafka_tools: KafkaTools, plain_server: TokenServer, tmp_path: Path
) -> None:
    rsa_key_file = str(tmp_path / "key.pem")
    # Kafka reads the newer shape of PEM alone.
    key = RSAKey.generate_key(2048).private_key
    assert key is not None
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path(rsa_key_file).write_bytes(pem)
    (tmp_path / "assertion.jwt").write_text(plain_server.sign({"iss": "me"}) + "\n")
    (tmp_path / "template.json").write_text(
        '{"header": {"kid": "k"}, "payload": {"iss": "t", "n": [1, true]}}'
    )
    url = f"sasl.oauthbearer.token.endpoint.url={plain_server.url}"
    secret = [f"{CLIENT}.id={CLIENT_ID}", f"{CLIENT}.secret={CLIENT_SECRET}", url]
    scope = f"sasl.oauthbearer.scope={SCOPE}"
    made = [
        f"sasl.oauthbearer.assertion.private.key.file={rsa_key_file}",
        "sasl.oauthbearer.assertion.claim.iss=me",
        "sasl.oauthbearer.assertion.claim.sub=alice",
        "sasl.oauthbearer.assertion.claim.aud=idp",
        "sasl.oauthbearer.assertion.claim.exp.seconds=600",
        f"sasl.oauthbearer.assertion.template.file={tmp_path / 'template.json'}",
    ]
    file = f"sasl.oauthbearer.assertion.file={tmp_path / 'assertion.jwt'}"

    java(
        kafka_tools,
        plain_server,
        ["ask", "ClientCredentials", *secret],
        ["ask", "ClientCredentials", *secret, scope, "sasl.oauthbearer.header.urlencode=true"],
        ["ask", "ClientCredentials", *secret, scope, file],
        ["ask", "JwtBearer", url, scope, file],
        ["ask", "JwtBearer", url, *made],
        files=[str(tmp_path / name) for name in ("assertion.jwt", "template.json", "key.pem")],
    )
    theirs, plain_server.requests = plain_server.requests, []

    pair = (CLIENT_ID, Secret(CLIENT_SECRET))
    from_file = FileAssertion(path=str(tmp_path / "assertion.jwt"))
    asked(plain_server, ClientSecret(*pair))
    asked(plain_server, ClientSecret(*pair, scope=SCOPE, is_url_encoded=True))
    asked(plain_server, ClientAssertion(from_file, client_id=CLIENT_ID, scope=SCOPE))
    asked(plain_server, JwtBearer(from_file, scope=SCOPE))
    signed = SignedAssertion(
        private_key_file=rsa_key_file,
        issuer="me",
        subject="alice",
        audience="idp",
        exp_seconds=600,
        template_file=str(tmp_path / "template.json"),
    )
    asked(plain_server, JwtBearer(signed))
    ours = plain_server.requests

    names = ("authorization", "content-type", "accept", "cache-control")
    for (their_headers, their_form), (our_headers, our_form) in zip(theirs[:4], ours[:4], strict=True):
        assert {name: our_headers.get(name) for name in names} == {
            name: their_headers.get(name) for name in names
        }
        assert our_form == their_form
    their_jwt, our_jwt = theirs[4][1].pop("assertion"), ours[4][1].pop("assertion")
    assert ours[4][1] == theirs[4][1]
    assert decoded_header(our_jwt) == decoded_header(their_jwt)
    their_claims, our_claims = claims_of(their_jwt), claims_of(our_jwt)
    later = our_claims["iat"] - their_claims["iat"]
    assert 0 <= later < 120
    assert our_claims == {
        **their_claims,
        **{name: their_claims[name] + later for name in ("iat", "exp", "nbf")},
    }


def decoded_header(jwt: str) -> object:
    return json.loads(base64.urlsafe_b64decode(jwt.split(".")[0] + "=="))


def test_brokers_accept_the_tokens(kafka_tools: KafkaTools, plain_server: TokenServer) -> None:
    plain_server.misbehave("none")
    token = plain_server.answer()["access_token"]
    options = {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginListClaim_scope": "|read|write"}
    asked = UnsecuredClaims(strings={"sub": "alice"}, lists={"scope": ("read", "write")})
    ours = UnsecuredSource(asked).fetch()

    verified, theirs, read = java(
        kafka_tools,
        plain_server,
        [
            "verify",
            token,
            f"sasl.oauthbearer.jwks.endpoint.url={plain_server.jwks_url}",
            f"sasl.oauthbearer.expected.audience={AUDIENCE}",
            f"sasl.oauthbearer.expected.issuer={ISSUER}",
        ],
        ["unsecured", *(f"{name}={value}" for name, value in options.items())],
        ["read", ours.value.value.reveal()],
    )

    assert verified == SUBJECT
    principal, scope, lifetime = read.split("\t")
    assert (principal, set(scope[1:-1].split(", "))) == ("alice", {"read", "write"})
    assert ours.expires_at is not None
    # Java keeps milliseconds.
    assert abs(int(lifetime) / 1000 - ours.expires_at) < 0.01
    expected = claims_of(theirs)
    actual = claims_of(ours.value.value.reveal())
    assert {**actual, "iat": 0, "exp": 0} == {**expected, "iat": 0, "exp": 0}
    assert actual["exp"] - actual["iat"] == pytest.approx(expected["exp"] - expected["iat"])
    assert decoded_header(ours.value.value.reveal()) == decoded_header(theirs)
