"""Who may see the dashboard and the metrics: tokens, TLS, and addresses that others reach."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import httpx
import prometheus_client
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aioproduce.config.secret import Secret
from aioproduce.dashboard import Dashboard, serve
from aioproduce.errors import ConfigError
from aioproduce.reporters.prometheus import MetricsServer
from aioproduce.security.http_access import HttpAccess
from tests.cli.command import run_cli
from tests.dashboard.asgi import Exchange
from tests.dashboard.scripted import ScriptedSource
from tests.security.hidden import everything_told
from tests.security.http_files import HttpFiles, written

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a-token-of-some-length"
# By `printf 'anybody:a-token-of-some-length' | base64`.
AS_PASSWORD = "Basic YW55Ym9keTphLXRva2VuLW9mLXNvbWUtbGVuZ3Ro"


@pytest.fixture
def files(tmp_path: Path) -> HttpFiles:
    return written(tmp_path)


@pytest.mark.parametrize(
    "header",
    [f"Bearer {TOKEN}", f"bearer {TOKEN}", AS_PASSWORD, AS_PASSWORD.replace("Basic", "basic")],
)
def test_the_token_lets_in(header: str) -> None:
    assert HttpAccess(TOKEN).allows(header)
    assert HttpAccess(Secret(TOKEN)).allows(header.encode())


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic ",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Token {TOKEN}",
        "Basic !!!!",
        "Basic YW55Ym9keQ==",
        "Basic YW55Ym9keTp3cm9uZw==",
        "Bearer \u00e4",
        b"Bearer \xff\xfe",
        "Bearer " + "x" * 100_000,
    ],
    ids=str,
)
def test_nothing_else_does(header: str | bytes | None) -> None:
    assert not HttpAccess(TOKEN).allows(header)


@pytest.mark.parametrize("token", ["", "short", "with a space", "with\nlines-and-more", "t\u00f6ken-of-mine"])
def test_a_token_that_is_no_good_is_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 8 characters") as raised:
        HttpAccess(Secret(token))
    assert not token or token not in everything_told(raised.value, ours_only=True)


# -- the dashboard ---


@pytest.mark.parametrize("path", ["/", "/samples", "/events", "/static/dashboard.js", "/nowhere"])
async def test_a_mounted_dashboard_says_nothing_without_the_token(path: str) -> None:
    dashboard = Dashboard(ScriptedSource(), token=TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong-token"}):
        refused = await Exchange(path, headers=headers).ask(dashboard)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        assert b"scripted" not in refused.body
    let_in = await Exchange(path, method="HEAD", headers={"authorization": AS_PASSWORD}).ask(dashboard)
    assert let_in.status == (404 if path == "/nowhere" else 200)


async def test_a_dashboard_over_tls_with_a_token(files: HttpFiles) -> None:
    async with serve(
        ScriptedSource(), port=0, token=Secret(TOKEN), certificate=files.certificate, key=files.key
    ) as server:
        assert server.url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=files.trusting) as client:
            assert (await client.get(server.url)).status_code == 401
            assert (await client.get(server.url, auth=("me", TOKEN))).status_code == 200
            headers = {"Authorization": f"Bearer {TOKEN}"}
            samples = (await client.get(f"{server.url}samples", headers=headers)).json()
            assert samples["run"] == server.dashboard.feed.run
        async with httpx.AsyncClient(verify=ssl.create_default_context()) as other:
            with pytest.raises(httpx.ConnectError):
                await other.get(server.url)


async def test_an_address_that_others_reach_wants_a_token_or_a_word() -> None:
    with pytest.raises(ConfigError, match="allow_anonymous"):
        async with serve(ScriptedSource(), host="0.0.0.0", port=0):
            pass
    async with (
        serve(ScriptedSource(), host="0.0.0.0", port=0, token=TOKEN) as server,
        httpx.AsyncClient() as client,
    ):
        assert (await client.get(server.url)).status_code == 401


def test_the_commands_know_tokens_and_words(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        named = ("--token-file", str(tmp_path / "token"))
        async with serve(ScriptedSource(), port=0, interval=0.01, token=TOKEN) as server:
            refused = await run_cli("top", "--once", server.url)
            assert (refused.code, "--token-file" in refused.err) == (2, True), refused
            shown = await run_cli("top", "--once", *named, server.url)
            assert (shown.code, shown.err) == (0, "")
        refused = await run_cli("dashboard", "--demo", "--host", "0.0.0.0", "--port", "0")
        assert (refused.code, "--allow-anonymous" in refused.err) == (2, True), refused
        gone = await run_cli("dashboard", "--demo", "--token-file", "/nowhere/token")
        assert (gone.code, "/nowhere/token cannot be read" in gone.err) == (2, True), gone

    asyncio.run(main())


# -- metrics ---


def scraped(url: str, authorization: str | None = None, trusting: ssl.SSLContext | None = None) -> int:
    request = urllib.request.Request(url)
    if authorization is not None:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=30, context=trusting) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        refused = error
    with refused:
        assert b"# TYPE" not in refused.read()
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        return refused.code


def test_metrics_with_a_token() -> None:
    with MetricsServer(0, "127.0.0.1", registry=prometheus_client.CollectorRegistry(), token=TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        headers = [None, "Bearer wrong-token", f"Bearer {TOKEN}", AS_PASSWORD]
        assert [scraped(url, header) for header in headers] == [401, 401, 200, 200]


def test_metrics_over_tls_while_another_client_says_nothing(files: HttpFiles) -> None:
    with (
        MetricsServer(0, "127.0.0.1", token=TOKEN, certificate=files.certificate, key=files.key) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        url = f"https://localhost:{server.port}/metrics"
        assert scraped(url, f"Bearer {TOKEN}", files.trusting) == 200
        assert scraped(url, None, files.trusting) == 401


def test_metrics_that_others_see_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    registry = prometheus_client.CollectorRegistry()
    with MetricsServer(0, registry=registry, allow_anonymous=True), MetricsServer(0, "127.0.0.1"):
        assert caplog.records == []
    with MetricsServer(0, token=TOKEN, registry=registry):
        assert caplog.records == []
    with MetricsServer(0, registry=registry) as server:
        assert caplog.messages == [
            f"everyone who can reach port {server.port} of 0.0.0.0 can read the metrics: set a token for "
            "MetricsServer, listen on 127.0.0.1, or set allow_anonymous=True"
        ]
        assert caplog.records[0].levelno == logging.WARNING


# -- key files ---


def test_key_files_that_are_no_good(files: HttpFiles, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = written(other)
    for certificate, key in (
        ("/nowhere/server.pem", None),
        (files.certificate, None),
        (files.certificate, stranger.key),
    ):
        with pytest.raises(ConfigError, match="cannot be loaded") as raised:
            MetricsServer(0, "127.0.0.1", certificate=certificate, key=key)
        assert certificate in str(raised.value)


def test_an_encrypted_key_never_asks_on_the_terminal(files: HttpFiles, tmp_path: Path) -> None:
    with open(files.key, "rb") as opened:
        key = load_pem_private_key(opened.read(), None)
    locked = tmp_path / "locked.key"
    encryption = BestAvailableEncryption(b"opens-the-key")
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    with pytest.raises(ConfigError, match="key_password"):
        MetricsServer(0, "127.0.0.1", certificate=files.certificate, key=locked)
    wrong = Secret("wrong-for-the-key")
    with pytest.raises(ConfigError, match="cannot be loaded") as raised:
        MetricsServer(0, "127.0.0.1", certificate=files.certificate, key=locked, key_password=wrong)
    assert "wrong-for-the-key" not in everything_told(raised.value, ours_only=True)
    right = Secret("opens-the-key")
    MetricsServer(0, "127.0.0.1", certificate=files.certificate, key=locked, key_password=right).close()
