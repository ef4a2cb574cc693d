"""Providers of the user's own: everything that they may give, and everything else that they do."""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import json
import logging
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from aiokafka.abc import AbstractTokenProvider

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TokenError
from aioproduce.security.credentials import Token, UserPassword
from aioproduce.security.mechanism import Credential
from aioproduce.security.tokens.provider import StaticSource, TokenProvider, UserPasswordProvider
from tests.security.leaks import check_error, check_log

KEY = "sasl.oauthbearer.token.provider"
CREDENTIALS = "sasl.credentials.provider"
NOW = 1_700_000_000.0
TOKEN = "abc-token-1"


def jwt_of(**claims: Any) -> str:
    sections = [{"alg": "RS256"}, claims]
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in sections
        )
        + ".c2ln"
    )


def fetched(source: TokenProvider | UserPasswordProvider) -> Credential:
    credential = source.fetch()
    if source.is_async:
        assert not isinstance(credential, Credential)

        async def wait() -> Credential:
            return await credential

        return asyncio.run(wait())
    assert isinstance(credential, Credential)
    return credential


def gives(value: object) -> TokenProvider:
    return TokenProvider(lambda: value, now=lambda: NOW)


def error_of(source: TokenProvider | UserPasswordProvider) -> TokenError:
    with pytest.raises(TokenError) as raised:
        fetched(source)
    return raised.value


class AccessToken(NamedTuple):
    """As azure-identity has it."""

    token: str
    expires_on: int


class TestShapes:
    @pytest.mark.parametrize(
        ("gave", "expires_at"),
        [
            (TOKEN, None),
            (Secret(TOKEN), None),
            ((TOKEN, NOW + 60), NOW + 60),
            ((Secret(TOKEN), None), None),
            (AccessToken(TOKEN, int(NOW) + 60), NOW + 60),
            ({"access_token": TOKEN}, None),
            ({"access_token": TOKEN, "expires_in": 60}, NOW + 60),
            ({"access_token": TOKEN, "expires_in": 3600, "expires_at": NOW + 60}, NOW + 60),
            (SimpleNamespace(value=TOKEN, expires_at=NOW + 60), NOW + 60),
            (SimpleNamespace(value=TOKEN), None),
            (Token(value=Secret(TOKEN)), None),
        ],
    )
    def test_each_gives_the_token_and_its_end(self, gave: object, expires_at: float | None) -> None:
        credential = fetched(gives(gave))

        assert credential.value == Token(value=Secret(TOKEN))
        assert credential.expires_at == expires_at

    def test_an_object_may_tell_more(self) -> None:
        gave = SimpleNamespace(
            value=Secret(TOKEN),
            expires_at=NOW + 60,
            begins_at=NOW - 5,
            principal="alice",
            extensions={"pool": "p"},
        )

        credential = fetched(
            TokenProvider(lambda: gave, extensions={"cluster": "c", "pool": "x"}, now=lambda: NOW)
        )

        assert (credential.expires_at, credential.begins_at, credential.principal) == (
            NOW + 60,
            NOW - 5,
            "alice",
        )
        assert credential.value.extensions == {"cluster": "c", "pool": "p"}

    def test_a_jwt_tells_its_own_end_and_whose_it_is(self) -> None:
        credential = fetched(gives(jwt_of(exp=NOW + 100, iat=NOW - 50, sub="alice")))
        assert (credential.expires_at, credential.begins_at, credential.principal) == (
            NOW + 100,
            NOW - 50,
            "alice",
        )

    def test_what_the_provider_tells_wins_over_the_jwt(self) -> None:
        assert fetched(gives((jwt_of(exp=NOW + 100), NOW + 60))).expires_at == NOW + 60

    @pytest.mark.parametrize(
        "claims", [{"exp": "soon"}, {"exp": True}, {"exp": 1e300}, {"nbf": "later", "exp": []}]
    )
    def test_claims_that_are_no_moments(self, claims: dict[str, Any]) -> None:
        if "exp" in claims:
            assert "expiry" in check_error(error_of(gives(jwt_of(**claims))), [jwt_of(**claims)], KEY)

    @pytest.mark.parametrize("token", ["a.b.c", "a.!.c", "....", jwt_of()[:-1], "a." + "WzFd" + ".c"])
    def test_a_token_that_only_looks_like_a_jwt(self, token: str) -> None:
        if "!" in token:
            check_error(error_of(gives(token)), [token], KEY)
        else:
            assert fetched(gives(token)).expires_at is None


class TestKinds:
    def test_a_coroutine_function_is_awaited_and_others_are_called(self) -> None:
        async def provide() -> str:
            await asyncio.sleep(0)
            return TOKEN

        class Called:
            async def __call__(self) -> str:
                return TOKEN

        class Theirs(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return TOKEN

        class Sync:
            def token(self) -> tuple[str, float]:
                return TOKEN, NOW + 60

        for provider, is_async in (
            (provide, True),
            (functools.partial(provide), True),
            (Called(), True),
            (Theirs(), True),
            (Sync(), False),
            (lambda: TOKEN, False),
        ):
            source = TokenProvider(provider, now=lambda: NOW)
            assert source.is_async is is_async
            assert not source.is_static
            assert fetched(source).value.value.reveal() == TOKEN

    def test_a_function_that_gives_a_coroutine_is_told_to_be_one(self) -> None:
        async def provide() -> str:
            raise AssertionError("it is never begun")

        message = check_error(error_of(TokenProvider(lambda: provide())), [], KEY)
        assert "async def" in message

    @pytest.mark.parametrize("provider", ["a token", None, 17])
    def test_what_cannot_be_called(self, provider: object) -> None:
        for kind, key in ((TokenProvider, KEY), (UserPasswordProvider, CREDENTIALS)):
            with pytest.raises(ConfigError) as raised:
                kind(provider)
            assert raised.value.key == key


class TestOfNoUse:
    @pytest.mark.parametrize(
        ("gave", "said"),
        [
            (b"abc-token-1", "bytes"),
            (bytearray(b"abc-token-1"), "bytes"),
            ("", "empty"),
            (Secret(""), "empty"),
            ("abc-token-1\n", "characters"),
            ("Bearer abc-token-1", "characters"),
            ("abc-token-1\x01x=y", "characters"),
            ("abc-tökén-1", "characters"),
            (None, "of type NoneType"),
            (17, "of type int"),
            ((), "a tuple of 0"),
            ((TOKEN, NOW, "principal", {}), "a tuple of 4"),
            ((None, NOW), "of type NoneType"),
            ({}, "of type NoneType"),
            ({"token": TOKEN}, "of type NoneType"),
            ({"access_token": TOKEN, "expires_in": "soon"}, "expires_in"),
            ({"access_token": TOKEN, "expires_in": 0}, "expires_in"),
            ({"access_token": TOKEN, "expires_in": 10**400}, "expires_in"),
            ((TOKEN, NOW - 31), "expired 31 s ago"),
            ((TOKEN, NOW * 1000), "divide by 1000"),
            ((TOKEN, 10**400), "divide by 1000"),
            ((TOKEN, math.nan), "out of range"),
            ((TOKEN, math.inf), "out of range"),
            ((TOKEN, -1), "out of range"),
            ((TOKEN, True), "of type bool"),
            ((TOKEN, "soon"), "of type str"),
            (SimpleNamespace(value=TOKEN, begins_at=NOW + 31), "not valid for another 31 s"),
            (SimpleNamespace(value=Secret(TOKEN), begins_at="x"), "beginning is of type str"),
        ],
    )
    def test_each_is_named(self, gave: object, said: str) -> None:
        assert said in check_error(error_of(gives(gave)), [TOKEN], KEY)

    def test_clocks_may_differ_by_half_a_minute(self) -> None:
        assert fetched(gives((TOKEN, NOW - 29))).expires_at == NOW - 29
        assert fetched(gives(jwt_of(exp=NOW + 100, nbf=NOW + 29))).expires_at == NOW + 100
        assert "expired 31" in check_error(error_of(gives(jwt_of(exp=NOW - 31))), [], KEY)
        assert "not valid for another 31" in check_error(
            error_of(gives(jwt_of(exp=NOW + 100, nbf=NOW + 31))), [], KEY
        )


class TestRaising:
    @pytest.mark.parametrize("make", [TokenProvider, UserPasswordProvider])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_its_kind_and_its_place_are_told_and_not_its_text(
        self,
        make: Callable[[object], TokenProvider | UserPasswordProvider],
        is_async: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.DEBUG)

        def refuse() -> object:
            password = "letmein-letmein"
            try:
                raise KeyError(password)
            except KeyError as error:
                raise ValueError(f"login with {password} failed") from error

        async def refuse_later() -> object:
            await asyncio.sleep(0)
            return refuse()

        source = make(refuse_later if is_async else refuse)
        message = check_error(
            error_of(source), ["letmein-letmein"], KEY if make is TokenProvider else CREDENTIALS
        )

        assert "ValueError in refuse (test_tokens_provider.py:" in message
        check_log(caplog, ["letmein-letmein"])

    def test_one_that_gives_a_hostile_object(self) -> None:
        class Hostile:
            @property
            def value(self) -> str:
                raise RuntimeError("letmein-letmein")

        check_error(error_of(gives(Hostile())), ["letmein-letmein"], KEY)

    def test_cancelling_gets_through(self) -> None:
        async def hang() -> str:
            await asyncio.Event().wait()
            return TOKEN

        async def main() -> None:
            credential = TokenProvider(hang).fetch()
            assert inspect.isawaitable(credential)
            task = asyncio.ensure_future(credential)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())


class TestUserPassword:
    def test_a_name_and_a_password(self) -> None:
        async def provide() -> tuple[str, Secret]:
            return "alice", Secret("pä=ss,wörd")

        for provider in (provide, lambda: ("alice", "pä=ss,wörd")):
            credential = fetched(UserPasswordProvider(provider))
            assert credential.value == UserPassword(username="alice", password=Secret("pä=ss,wörd"))
            assert credential.principal == "alice"
            assert credential.expires_at is None
            assert "pä=ss" not in repr(credential) + repr(credential.value)

    @pytest.mark.parametrize(
        ("gave", "said"),
        [
            (("alice", b"letmein"), "password of type bytes"),
            ((b"alice", "letmein"), "username of type bytes"),
            (("alice", ""), "empty password"),
            (("alice", Secret("")), "empty password"),
            (("", "letmein"), "empty username"),
            (("alice",), "a tuple (username, password)"),
            ("letmein", "of type str"),
            (None, "of type NoneType"),
            ({"username": "alice", "password": "letmein"}, "of type dict"),
        ],
    )
    def test_anything_else_is_named(self, gave: object, said: str) -> None:
        source = UserPasswordProvider(lambda: gave)
        assert said in check_error(error_of(source), ["letmein"], CREDENTIALS)


def test_what_never_changes_is_asked_once() -> None:
    credential = Credential(value=UserPassword(username="alice", password=Secret("letmein")))
    source = StaticSource(credential)
    assert source.is_static
    assert not source.is_async
    assert source.fetch() is credential
