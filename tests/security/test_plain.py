"""PLAIN against the grammar of RFC 4616, and Kafka's way to take it apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.config.secret import Secret
from aioproduce.errors import AuthenticationError
from aioproduce.security.credentials import UserPassword
from aioproduce.security.mechanism import Credential
from aioproduce.security.plain import Plain, converse
from tests.security.hidden import everything_told

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def said(username: str, password: str) -> bytes:
    conversation = converse("broker", Credential(value=UserPassword(username, Secret(password))))
    answer = conversation.start()
    assert conversation.step(b"") is None  # type: ignore[func-returns-value]
    return answer


def test_the_example_of_the_rfc() -> None:
    assert said("tim", "tanstaaftanstaaf") == b"\0tim\0tanstaaftanstaaf"


@pytest.mark.parametrize("password", ["\ufb01sh", "p\u00e4=ss,w\u00f6rd", "x" * 255])
def test_passwords_go_as_utf8_unprepared(password: str) -> None:
    assert said("al,i=ce", password) == b"\0al,i=ce\0" + password.encode()


@given(NAMES, NAMES)
def test_kafka_takes_it_apart(username: str, password: str) -> None:
    # PlainSaslServer.extractTokens(): authzid, authcid, password between NULs, each UTF-8.
    authzid, authcid, passwd = said(username, password).decode().split("\0")
    assert (authzid, authcid, passwd) == ("", username, password)


@pytest.mark.parametrize(
    ("username", "password", "setting", "what"),
    [
        ("", "correct-horse", "sasl.username", "is empty"),
        ("al\0ice", "correct-horse", "sasl.username", "NUL"),
        ("al\ud800ice", "correct-horse", "sasl.username", "surrogate"),
        ("alice", "", "sasl.password", "is empty"),
        ("alice", "correct-\0horse", "sasl.password", "NUL"),
        ("alice", "correct-\ud800horse", "sasl.password", "surrogate"),
    ],
)
def test_what_cannot_be_sent_is_refused(username: str, password: str, setting: str, what: str) -> None:
    conversation = Plain(UserPassword(username, Secret(password)))
    with pytest.raises(AuthenticationError, match=what) as refused:
        conversation.start()
    assert (refused.value.mechanism, refused.value.setting) == ("PLAIN", setting)
    assert setting in str(refused.value)
    assert "horse" not in everything_told(refused.value, ours_only=True)


def test_a_repr_shows_no_password() -> None:
    user = UserPassword("alice", Secret("correct-horse"))
    assert "horse" not in f"{user!r} {Plain(user)!r} {Credential(value=user)!r}"
