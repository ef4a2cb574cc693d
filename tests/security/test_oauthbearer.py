r"""OAUTHBEARER against the bytes of RFC 7628 and Kafka's own patterns (OAuthBearerClientInitialResponse)."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.config.secret import Secret
from aioproduce.errors import AuthenticationError
from aioproduce.security.credentials import Token
from aioproduce.security.mechanism import Credential
from aioproduce.security.oauthbearer import OAuthBearer, converse
from tests.security.hidden import everything_told

# The patterns of Kafka's oauthbearer.internals.OAuthBearerClientInitialResponse.
KAFKA = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<kvpairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
KAFKA_AUTH = re.compile(r"(?P<scheme>[\w]+)[ ]+(?P<token>[-_~+/\.a-zA-Z0-9]+([=]*))")


def kafka_reads(message: bytes) -> tuple[str, dict[str, str]]:
    found = KAFKA.fullmatch(message.decode())
    assert found is not None
    pairs = dict(pair.split("=", 1) for pair in found["kvpairs"].split("\x01")[:-1])
    auth = KAFKA_AUTH.fullmatch(pairs.pop("auth"))
    assert auth is not None
    assert auth["scheme"].lower() == "bearer"
    return auth["token"], pairs


def conversation(token: str, extensions: dict[str, str] | None = None) -> OAuthBearer:
    return converse("broker", Credential(value=Token(Secret(token), extensions or {})))


def test_the_bytes() -> None:
    # RFC 7628, section 4.1, without its host and port.
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    assert (
        conversation(token).start()
        == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    assert (
        conversation("a.b.c", {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}).start()
        == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01identityPoolId=pool-1\x01\x01"
    )


@given(
    st.from_regex(r"[A-Za-z0-9\-._~+/]+=*", fullmatch=True),
    st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda key: key != "auth"),
        st.from_regex(r"[\x20-\x7e\t\r\n]+", fullmatch=True),
        max_size=4,
    ),
)
def test_kafka_reads_it(token: str, extensions: dict[str, str]) -> None:
    assert kafka_reads(conversation(token, extensions).start()) == (token, extensions)


def test_an_empty_challenge_is_a_login() -> None:
    client = conversation("a.b.c")
    client.start()
    assert client.step(b"") is None
    assert client.refusal == ""


def test_a_refusal_is_owed_one_byte_and_kept() -> None:
    client = conversation("a.b.c")
    client.start()
    # What OAuthBearerSaslServer sends.
    assert (
        client.step(b'{"status":"invalid_token","scope":"read write","openid-configuration":"x"}') == b"\x01"
    )
    assert client.refusal == "status invalid_token, scope read write"
    with pytest.raises(AuthenticationError, match="refused the token: status invalid_token"):
        client.step(b"")


HOSTILE = {
    "not JSON": (b"\xff\x00", "an answer that is not JSON"),
    "not an object": (b"[1]", "an answer that is not a JSON object"),
    "nothing in it": (b"{}", "no status"),
    "another type": (b'{"status": {"a": 1}, "scope": 5}', "no status"),
    "too long": (b" " * 5000, "5,000 bytes, which is too long"),
    "nested": (b"[" * 4000, "an answer that is not JSON"),
    "control characters": (json.dumps({"status": "\x1b[31m\nred\u202e"}).encode(), "status ?[31m?red?"),
    "the token": (b'{"status": "no correct-horse here"}', "status no <hidden> here"),
    "half a surrogate": (b'{"status": "\\ud800"}', "status ?"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_refusal_says_is_bounded_and_printable(name: str) -> None:
    challenge, said = HOSTILE[name]
    client = conversation("correct-horse")
    client.start()
    assert client.step(challenge) == b"\x01"
    assert client.refusal == said
    with pytest.raises(AuthenticationError) as refused:
        client.step(b"more")
    assert refused.value.mechanism == "OAUTHBEARER"
    assert "horse" not in everything_told(refused.value, ours_only=True)


def test_a_long_status_is_cut() -> None:
    client = conversation("a")
    client.step(json.dumps({"status": "x" * 1000}).encode())
    assert len(client.refusal) == 200


@pytest.mark.parametrize(
    "token",
    ["", "correct horse", "correct-horse\x01", "correct-horse\n", "correct=horse", "=", "p\u00e4", '"horse"'],
)
def test_a_token_that_no_header_carries(token: str) -> None:
    with pytest.raises(AuthenticationError, match=r"sasl\.oauthbearer\.token\.provider") as refused:
        conversation(token).start()
    assert "horse" not in everything_told(refused.value, ours_only=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auth", "Bearer x"),
        ("", "x"),
        ("a1", "x"),
        ("a=b", "x"),
        ("\u00e4", "x"),
        ("a\n", "x"),
        ("a", ""),
        ("a", "x\x01b=c"),
        ("a", "p\u00e4"),
        ("a", "\0"),
        ("a", "\x7f"),
    ],
)
def test_an_extension_that_cannot_be_sent(key: str, value: str) -> None:
    with pytest.raises(AuthenticationError, match="extension 2 of the token") as refused:
        conversation("horse", {"good": "x", key: value}).start()
    assert refused.value.setting == "sasl.oauthbearer.extensions"
    assert "horse" not in everything_told(refused.value, ours_only=True)


def test_a_repr_shows_no_token() -> None:
    token = Token(Secret("correct-horse"), {"a": "b"})
    assert "horse" not in f"{token!r} {OAuthBearer(token)!r} {Credential(value=token)!r}"
