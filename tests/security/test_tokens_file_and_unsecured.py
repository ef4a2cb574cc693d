"""Tokens of a file, and tokens that prove nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TokenError
from aioproduce.security.credentials import Token
from aioproduce.security.jaas import OAuthBearerLogin, parse
from aioproduce.security.tokens.file import FileSource, path_of
from aioproduce.security.tokens.unsecured import UnsecuredSource
from tests.security.leaks import check_error

URL = "sasl.oauthbearer.token.endpoint.url"
JAAS = "sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
NOW = 1_700_000_000.5


class TestFile:
    def test_it_is_read_anew_each_time(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        source = FileSource(str(path), extensions={"pool": "p"})
        for token in ("token-1", "token-2"):
            path.write_text(f"{token}\n")
            value = source.fetch().value
            assert isinstance(value, Token)
            assert value.value.reveal() == token
            assert value.extensions == {"pool": "p"}

    def test_a_jwt_tells_its_end(self, tmp_path: Path) -> None:
        # {"exp": 1000, "sub": "a"}
        (tmp_path / "token").write_text("e30.eyJleHAiOiAxMDAwLCAic3ViIjogImEifQ.c2ln")
        source = FileSource(str(tmp_path / "token"), now=lambda: 1000.0)
        assert (source.fetch().expires_at, source.fetch().principal) == (1000, "a")
        late = FileSource(str(tmp_path / "token"), now=lambda: 1031.0)
        with pytest.raises(TokenError) as raised:
            late.fetch()
        assert "expired 31 s ago" in check_error(raised.value, [(tmp_path / "token").read_text()], URL)

    @pytest.mark.parametrize("content", [None, "", "two tokens", "root:x:0:0:root:/root:/bin/bash\n"])
    def test_a_file_without_a_token(self, tmp_path: Path, content: str | None) -> None:
        if content is not None:
            (tmp_path / "token").write_text(content)
        with pytest.raises(TokenError) as raised:
            FileSource(str(tmp_path / "token")).fetch()
        check_error(raised.value, ["two tokens", "/bin/bash"], URL)

    def test_the_path_of_a_url(self) -> None:
        assert path_of("file:///var/run/to%20ken") == "/var/run/to ken"
        assert path_of("file:/var/run/token") == "/var/run/token"
        assert path_of("file://localhost/token") == "/token"
        for url in ("https://localhost/token", "file://host/token", "file:token", "/token", ""):
            with pytest.raises(ConfigError) as raised:
                path_of(url)
            assert raised.value.key == URL


def asked(options: dict[str, str]) -> UnsecuredSource:
    """The source of these options, by way of `sasl.jaas.config`."""
    quoted = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    login = parse(Secret(f"{MODULE} required {quoted};"))
    assert isinstance(login, OAuthBearerLogin)
    assert login.unsecured is not None
    return UnsecuredSource(login.unsecured, now=lambda: NOW)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def sections(source: UnsecuredSource) -> tuple[dict[str, Any], dict[str, Any]]:
    value = source.fetch().value
    assert isinstance(value, Token)
    header, claims, signature = value.value.reveal().split(".")
    assert signature == ""
    return decoded(header), decoded(claims)


def decoded(section: str) -> dict[str, Any]:
    found = json.loads(base64.urlsafe_b64decode(section + "=="))
    assert isinstance(found, dict)
    return found


class TestUnsecured:
    def test_kip_255s_own_example(self, caplog: pytest.LogCaptureFixture) -> None:
        options = {
            "unsecuredLoginStringClaim_sub": "thePrincipalName",
            "unsecuredLoginListClaim_scope": "|scopeValue1|scopeValue2",
            "unsecuredLoginLifetimeSeconds": "60",
            "unsecuredLoginExtension_traceId": "123",
        }
        source = asked(options)
        credential = source.fetch()
        source.fetch()

        assert sections(source) == (
            {"alg": "none"},
            {"sub": "thePrincipalName", "scope": ["scopeValue1", "scopeValue2"], "iat": NOW, "exp": NOW + 60},
        )
        assert credential.value.extensions == {"traceId": "123"}
        assert (credential.expires_at, credential.begins_at) == (NOW + 60, NOW)
        assert credential.principal == "thePrincipalName"
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "without a signature" in caplog.text

    def test_numbers_another_principal_and_the_hour(self) -> None:
        options = {
            "unsecuredLoginPrincipalClaimName": "who",
            "unsecuredLoginStringClaim_who": 'a "quoted" \\ näme',
            "unsecuredLoginNumberClaim_level": "7",
            "unsecuredLoginListClaim_none": "",
            "unsecuredLoginListClaim_dots": ".a.b.",
            "clientId": "of another kind",
        }
        source = asked(options)
        _, claims = sections(source)
        assert claims == {
            "who": 'a "quoted" \\ näme',
            "level": 7.0,
            "none": [],
            "dots": ["a", "b", ""],
            "iat": NOW,
            "exp": NOW + 3600,
        }

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"unsecuredLoginLifetimeSeconds": "60"}, "unsecuredLoginStringClaim_sub is missing"),
            ({"unsecuredLoginStringClaim_sub": ""}, "unsecuredLoginStringClaim_sub is missing"),
            ({"unsecuredLoginNumberClaim_sub": "5"}, "unsecuredLoginStringClaim_sub is missing"),
            ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_exp": "5"}, "claim exp"),
            (
                {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_x": "five"},
                "not a valid number",
            ),
            (
                {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_x": "nan"},
                "not a valid number",
            ),
            (
                {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "1h"},
                "LifetimeSeconds",
            ),
            (
                {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "-1"},
                "LifetimeSeconds",
            ),
            ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginStringClaim": "b"}, "option"),
            ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginStringClaim_": "b"}, "option"),
        ],
    )
    def test_options_that_are_not_understood(self, options: dict[str, str], said: str) -> None:
        with pytest.raises(ConfigError) as raised:
            asked(options)
        assert raised.value.key == JAAS
        assert said in str(raised.value)

    def test_nobody_has_one_by_mistake(self) -> None:
        login = parse(Secret(f"{MODULE} required clientId=a scope=b;"))
        assert isinstance(login, OAuthBearerLogin)
        assert login.unsecured is None
