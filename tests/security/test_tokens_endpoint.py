"""Tokens from a token endpoint over real HTTPS: what is asked, what is made of the answer, what goes wrong.

1. An error names the setting to look at and what to do, and shows no secret anywhere.
2. Asking ends within its time-outs, whatever the endpoint does.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc.jwk import RSAKey

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TokenError
from aioproduce.security.credentials import Token
from aioproduce.security.mechanism import Credential
from aioproduce.security.tokens.assertion import FileAssertion
from aioproduce.security.tokens.bounded_post import TokenEndpoint
from aioproduce.security.tokens.endpoint import EndpointSource
from aioproduce.security.tokens.grants import (
    ClientAssertion,
    ClientSecret,
    Grant,
    JwtBearer,
    client_credentials,
)
from tests.security.leaks import check_error, check_log
from tests.security.oidc_server import CLIENT_ID, CLIENT_SECRET, SUBJECT, TokenServer, running_server

URL = "sasl.oauthbearer.token.endpoint.url"
CA = "sasl.oauthbearer.token.endpoint.ca.location"
PROXY = "sasl.oauthbearer.token.endpoint.proxy"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
BASIC = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
SECRETS = [CLIENT_SECRET, BASIC]


def secret_grant(**given: Any) -> ClientSecret:
    return ClientSecret(CLIENT_ID, Secret(CLIENT_SECRET), **given)


def source_of(
    server: TokenServer,
    ca_file: str | None,
    grant: Grant | None = None,
    *,
    timeout: float = 5.0,
    extensions: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.time,
) -> EndpointSource:
    endpoint = TokenEndpoint(
        url=server.url,
        ca_location=ca_file,
        is_http_allowed=server.scheme == "http",
        connect_timeout=timeout,
        read_timeout=timeout,
    )
    return EndpointSource(endpoint, grant or secret_grant(), extensions=extensions, now=now)


def failure(source: EndpointSource) -> TokenError:
    with pytest.raises(TokenError) as raised:
        source.fetch()
    return raised.value


def token_of(credential: Credential) -> Token:
    assert isinstance(credential.value, Token)
    return credential.value


class TestAsking:
    def test_a_secret_goes_into_the_header_and_gives_a_token(
        self, token_server: TokenServer, ca_file: str, rsa_key: RSAKey
    ) -> None:
        source = source_of(
            token_server, ca_file, extensions={"logicalCluster": "lkc-1"}, now=lambda: 1_000_000.0
        )

        credential = source.fetch()

        headers, form = token_server.requests[0]
        assert headers["authorization"] == f"Basic {BASIC}"
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        assert headers["accept"] == "application/json"
        assert form == {"grant_type": "client_credentials"}
        token = token_of(credential)
        assert token.value.reveal() == token_server.tokens[0]
        assert token.extensions == {"logicalCluster": "lkc-1"}
        assert credential.expires_at == 1_003_600
        assert credential.principal == SUBJECT
        signed, _, signature = token.value.reveal().rpartition(".")
        rsa_key.public_key.verify(
            base64.urlsafe_b64decode(signature + "=="), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
        )

    def test_both_parts_are_quoted_where_that_is_asked_for(
        self, token_server: TokenServer, ca_file: str
    ) -> None:
        source_of(token_server, ca_file, secret_grant(is_url_encoded=True)).fetch()

        headers, _ = token_server.requests[0]
        pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
        # As java.net.URLEncoder writes it.
        assert pair == "producer-1:s3cret%2Fwith%2Bletters%3Dof%3Aall%3Bkinds"

    def test_blanks_around_id_and_secret_are_dropped_as_kafka_does(
        self, token_server: TokenServer, ca_file: str
    ) -> None:
        source_of(
            token_server, ca_file, ClientSecret(f" {CLIENT_ID}\n", Secret(f"{CLIENT_SECRET}\n"))
        ).fetch()

        assert token_server.requests[0][0]["authorization"] == f"Basic {BASIC}"

    @pytest.mark.parametrize(
        ("scope", "asked"),
        [
            ("a b/.default", {"scope": "a b/.default"}),
            ("  ", {}),
            (None, {}),
            ("a+b&c=d", {"scope": "a+b&c=d"}),
        ],
    )
    def test_a_scope_arrives_as_it_is(
        self, token_server: TokenServer, ca_file: str, scope: str | None, asked: dict[str, str]
    ) -> None:
        source_of(token_server, ca_file, secret_grant(scope=scope)).fetch()

        assert token_server.requests[0][1] == {"grant_type": "client_credentials", **asked}

    def test_an_assertion_takes_the_place_of_the_secret(
        self, token_server: TokenServer, ca_file: str, tmp_path: Path
    ) -> None:
        assertion = token_server.sign({"iss": "me"})
        path = tmp_path / "assertion.jwt"
        path.write_text(assertion + "\n")
        grant = ClientAssertion(FileAssertion(path=str(path)), client_id=CLIENT_ID, scope="produce")

        source_of(token_server, ca_file, grant).fetch()

        headers, form = token_server.requests[0]
        assert "authorization" not in headers
        # RFC 7523, section 2.2.
        assert form == {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": assertion,
            "client_id": CLIENT_ID,
            "scope": "produce",
        }

    def test_a_jwt_is_a_grant_of_its_own(
        self, token_server: TokenServer, ca_file: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "assertion.jwt"
        path.write_text(token_server.sign({"iss": "me"}))

        source_of(token_server, ca_file, JwtBearer(FileAssertion(path=str(path)))).fetch()

        # RFC 7523, section 2.1.
        assert token_server.requests[0][1] == {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": path.read_text(),
        }

    def test_an_assertion_comes_before_a_secret(self, caplog: pytest.LogCaptureFixture) -> None:
        assertion = FileAssertion(path="/nowhere")

        grant = client_credentials(
            client_id=CLIENT_ID, client_secret=Secret(CLIENT_SECRET), assertion=assertion, scope=None
        )

        assert isinstance(grant, ClientAssertion)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        check_log(caplog, SECRETS)

    @pytest.mark.parametrize(
        ("client_id", "secret", "key"),
        [
            (None, Secret("password"), "sasl.oauthbearer.client.credentials.client.id"),
            (" ", Secret("password"), "sasl.oauthbearer.client.credentials.client.id"),
            ("id", None, SECRET),
            ("id", Secret(""), SECRET),
            ("a:b", Secret("password"), "sasl.oauthbearer.client.credentials.client.id"),
        ],
    )
    def test_without_id_or_secret_nothing_is_made(
        self, client_id: str | None, secret: Secret | None, key: str
    ) -> None:
        with pytest.raises(ConfigError) as raised:
            client_credentials(client_id=client_id, client_secret=secret, assertion=None)
        assert raised.value.key == key
        assert "password" not in str(raised.value)


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "hint"),
        [
            ("file:///etc/passwd", "FileJwtRetriever"),
            ("FILE:/etc/passwd", "FileJwtRetriever"),
            ("http://localhost/token", "sasl.oauthbearer.allow.http"),
            ("ftp://localhost/token", "https"),
            ("https:///token", "host"),
            ("https://localhost:99999/token", "not a URL"),
            ("https://localhost:0/token", "host"),
            ("localhost/token", "https"),
            ("", "https"),
            ("https://me:letmein@localhost/token", "client.secret"),
            ("https://localhost/to ken", "spaces"),
            ("https://localhost/\r\nX-Injected: 1", "spaces"),
            ("https://bücher.test/token", "xn--"),
            ("https://[::1/token", "not a URL"),
        ],
    )
    def test_what_is_never_asked_is_refused_at_once(self, url: str, hint: str) -> None:
        with pytest.raises(ConfigError) as raised:
            TokenEndpoint(url=url)
        assert raised.value.key == URL
        assert hint in str(raised.value)
        assert "letmein" not in str(raised.value)

    def test_http_is_asked_where_that_is_allowed(self, rsa_key: RSAKey) -> None:
        with running_server(is_plain=True, key=rsa_key) as server:
            assert source_of(server, None).fetch().principal == SUBJECT

    def test_a_query_is_sent_and_not_shown(self, token_server: TokenServer, ca_file: str) -> None:
        endpoint = TokenEndpoint(url=f"{token_server.url}?key=hidden-in-query", ca_location=ca_file)
        EndpointSource(endpoint, secret_grant()).fetch()
        token_server.misbehave("500")

        check_error(failure(EndpointSource(endpoint, secret_grant())), ["hidden-in-query"], URL)


class TestEnvironment:
    """What the environment or a file of the user's has to say about HTTP is not listened to."""

    def test_proxies_and_certificates_of_the_environment_are_not_used(
        self, token_server: TokenServer, ca_file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        (tmp_path / ".netrc").write_text("machine localhost login other password other-password")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        source_of(token_server, ca_file).fetch()
        assert token_server.requests[0][0]["authorization"] == f"Basic {BASIC}"

        monkeypatch.setenv("SSL_CERT_FILE", ca_file)
        check_error(failure(source_of(token_server, None)), SECRETS, CA)

    def test_a_proxy_that_is_asked_for_is_used(self, token_server: TokenServer, ca_file: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as proxy:
            proxy.settimeout(5)
            endpoint = TokenEndpoint(
                url=token_server.url,
                ca_location=ca_file,
                proxy=f"http://127.0.0.1:{proxy.getsockname()[1]}",
                connect_timeout=0.2,
                read_timeout=0.2,
            )
            failure(EndpointSource(endpoint, secret_grant()))
            connection, _ = proxy.accept()
            with connection:
                assert connection.recv(4096).startswith(b"CONNECT localhost:")

    def test_a_proxy_with_tls_is_trusted_by_the_same_authorities(
        self, token_server: TokenServer, ca_file: str, localhost_certificate: trustme.LeafCert
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        localhost_certificate.configure_cert(context)
        with proxy_that_answers(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", context) as (port, asked):
            endpoint = TokenEndpoint(
                url=token_server.url, ca_location=ca_file, proxy=f"https://localhost:{port}"
            )
            failure(EndpointSource(endpoint, secret_grant()))
        assert asked[0].startswith(f"CONNECT localhost:{token_server.port} ".encode())

    def test_a_proxy_that_refuses_is_named(self, token_server: TokenServer, ca_file: str) -> None:
        refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        with proxy_that_answers(refusal) as (port, asked):
            endpoint = TokenEndpoint(
                url=token_server.url, ca_location=ca_file, proxy=f"http://127.0.0.1:{port}"
            )
            message = check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, PROXY)
        assert "407" in message
        assert BASIC.encode() not in asked[0]
        assert token_server.requests == []

    def test_a_proxy_that_is_not_there_is_named(self, token_server: TokenServer, ca_file: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        endpoint = TokenEndpoint(url=token_server.url, ca_location=ca_file, proxy=f"http://127.0.0.1:{port}")
        assert PROXY in check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, URL)


@contextlib.contextmanager
def proxy_that_answers(
    answer: bytes, context: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """A proxy that says one thing to the first who asks: its port, and what it is asked."""
    asked: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.settimeout(10)
        with connection if context is None else context.wrap_socket(connection, server_side=True) as peer:
            asked.append(peer.recv(4096))
            peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            thread.join()


class TestCertificates:
    def test_an_unknown_authority_is_refused(self, token_server: TokenServer) -> None:
        message = check_error(failure(source_of(token_server, None)), SECRETS, CA)
        assert "CERTIFICATE_VERIFY_FAILED" in message
        assert token_server.requests == []

    def test_another_authority_is_refused(self, token_server: TokenServer, tmp_path: Path) -> None:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))

        check_error(failure(source_of(token_server, str(tmp_path / "other.pem"))), SECRETS, CA)
        assert token_server.requests == []

    def test_another_host_is_refused(self, authority: trustme.CA, ca_file: str, rsa_key: RSAKey) -> None:
        with running_server(certificate=authority.issue_cert("other.test"), key=rsa_key) as server:
            message = check_error(failure(source_of(server, ca_file)), SECRETS, CA)
        assert "ostname mismatch" in message
        assert server.requests == []

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_a_file_without_authorities(
        self, token_server: TokenServer, tmp_path: Path, content: str | None
    ) -> None:
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content)
        assert str(path) in check_error(failure(source_of(token_server, str(path))), SECRETS, CA)

    def test_https_to_a_port_of_http(self, ca_file: str, rsa_key: RSAKey) -> None:
        with running_server(is_plain=True, key=rsa_key) as server:
            endpoint = TokenEndpoint(url=server.url.replace("http:", "https:"), ca_location=ca_file)
            check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, URL)

    def test_http_to_a_port_of_https(self, token_server: TokenServer) -> None:
        endpoint = TokenEndpoint(url=token_server.url.replace("https:", "http:"), is_http_allowed=True)
        check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, URL)


class TestMisbehaviour:
    @pytest.mark.parametrize(
        ("how", "setting", "said"),
        [
            ("redirect", URL, "https://elsewhere.test/token"),
            ("html", URL, "text/html"),
            ("not-json", URL, "not answer with a JSON object"),
            ("list", URL, "not answer with a JSON object"),
            ("deep", URL, "not answer with a JSON object"),
            ("no-token", URL, "without an access_token"),
            ("number-token", URL, "of type int"),
            ("empty-token", URL, "without an access_token"),
            ("bad-letters", URL, "characters"),
            ("bad-expires-in", URL, "expires_in"),
            ("expired", URL, "expired 36"),
            ("clock-ahead", URL, "not valid for another 3"),
            ("401", SECRET, "answered 401 (invalid_client, xxx"),
            ("500", URL, "answered 500 (no explanation)"),
            ("echo", SECRET, "answered 400 (invalid_request, you sent <hidden>"),
            ("not-http", URL, "not give an HTTP answer"),
            ("cut", URL, "not give an HTTP answer"),
            ("huge", URL, "more than 1048576 bytes"),
        ],
    )
    def test_each_is_named_and_shows_no_secret(
        self,
        token_server: TokenServer,
        ca_file: str,
        caplog: pytest.LogCaptureFixture,
        how: str,
        setting: str,
        said: str,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        token_server.misbehave(how)

        error = failure(source_of(token_server, ca_file))

        assert len(token_server.requests) == 1
        assert said in check_error(error, [*SECRETS, *token_server.tokens], setting)
        check_log(caplog, [*SECRETS, *token_server.tokens])

    @pytest.mark.parametrize("how", ["hang", "slow", "slow-headers"])
    def test_the_time_is_bounded_whatever_comes(
        self, token_server: TokenServer, ca_file: str, how: str
    ) -> None:
        token_server.misbehave(how)
        source = source_of(token_server, ca_file, timeout=0.3)
        started = time.monotonic()

        message = check_error(failure(source), SECRETS, URL)

        assert "did not send a complete answer within" in message
        assert time.monotonic() - started < 4.5  # the endpoint goes on for 5 s

    def test_what_an_endpoint_repeats_of_an_assertion_is_hidden(
        self, token_server: TokenServer, ca_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        assertion = token_server.sign({"iss": "me"})
        (tmp_path / "assertion.jwt").write_text(assertion)
        token_server.misbehave("401")
        grant = JwtBearer(FileAssertion(path=str(tmp_path / "assertion.jwt")))

        error = failure(source_of(token_server, ca_file, grant))

        check_error(error, [assertion], "sasl.oauthbearer.assertion.file")
        check_log(caplog, [assertion])

    def test_a_wrong_secret(self, token_server: TokenServer, ca_file: str) -> None:
        grant = ClientSecret(CLIENT_ID, Secret("wrong-password"))

        message = check_error(failure(source_of(token_server, ca_file, grant)), ["wrong-password"], SECRET)

        assert "401 (invalid_client, who [31m is that?)" in message

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        endpoint = TokenEndpoint(url=f"https://localhost:{port}/token")

        assert "refused" in check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, URL)

    def test_a_host_that_is_not_there(self) -> None:
        endpoint = TokenEndpoint(url="https://nowhere.invalid/token")
        check_error(failure(EndpointSource(endpoint, secret_grant())), SECRETS, URL)

    def test_it_recovers_by_itself(self, token_server: TokenServer, ca_file: str) -> None:
        source = source_of(token_server, ca_file)
        token_server.misbehave("500")
        failure(source)
        token_server.misbehave("none")
        assert source.fetch().principal == SUBJECT

    def test_success_shows_nothing_in_the_log_either(
        self, token_server: TokenServer, ca_file: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        credential = source_of(token_server, ca_file).fetch()
        assert "httpcore2" in {record.name.partition(".")[0] for record in caplog.records}
        check_log(caplog, [*SECRETS, *token_server.tokens])
        assert token_server.tokens[0] not in repr(credential) + repr(credential.value)


class TestExpiry:
    def test_what_the_endpoint_tells_holds_as_a_text_too(
        self, token_server: TokenServer, ca_file: str
    ) -> None:
        token_server.misbehave("text-expires-in")
        assert source_of(token_server, ca_file, now=lambda: 5000.0).fetch().expires_at == 8600

    def test_else_the_jwt_tells_it(self, token_server: TokenServer, ca_file: str) -> None:
        token_server.misbehave("no-expires-in")

        credential = source_of(token_server, ca_file).fetch()

        payload = token_server.tokens[0].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
        assert credential.expires_at == claims["exp"]
        assert credential.begins_at is not None
        # When it was asked for, where that was before the endpoint's clock told it.
        assert claims["iat"] - 30 < credential.begins_at <= claims["iat"]

    def test_else_it_is_unknown(self, token_server: TokenServer, ca_file: str) -> None:
        token_server.misbehave("no-expiry")
        assert source_of(token_server, ca_file).fetch().expires_at is None

    def test_a_token_need_not_be_a_jwt(self, token_server: TokenServer, ca_file: str) -> None:
        token_server.misbehave("opaque")

        credential = source_of(token_server, ca_file, now=lambda: 5000.0).fetch()

        assert token_of(credential).value.reveal() == "opaque-token-1"
        assert (credential.expires_at, credential.principal) == (8600, "")

    def test_an_id_token_is_taken_where_there_is_no_other(
        self, token_server: TokenServer, ca_file: str
    ) -> None:
        token_server.misbehave("id-token")
        assert token_of(source_of(token_server, ca_file).fetch()).value.reveal() == token_server.tokens[0]


def test_the_quoting_of_the_oracle_is_that_of_the_standard_library() -> None:
    assert urllib.parse.quote_plus(CLIENT_SECRET) == "s3cret%2Fwith%2Bletters%3Dof%3Aall%3Bkinds"
