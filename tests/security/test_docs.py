"""The programs and the `.properties` files of docs/how-to/security.md, as they stand there.

A program runs against a `FakeCluster` that wants just what it brings. In its text only addresses are replaced: the
broker's, and the token endpoint's with the CA of that one. Kerberos needs a realm, which the matrix on a real
Kafka has (`tests/integration/test_security_matrix_kafka.py`): that program is configured, and ready to log in.
"""

from __future__ import annotations

import base64
import logging
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from joserfc import jwt

import aioproduce
from aioproduce.config import ProducerConfig, load_properties, producer_config
from aioproduce.security.making import make_security
from aioproduce.testing import FakeCluster, FakeSecurity, FakeTls
from tests.security.oidc_server import CLIENT_SECRET, SUBJECT, TokenServer

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "security.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (.*?)\n(.*?)```", PAGE, re.DOTALL))
FILES = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
BROKERS = re.compile(r'"(?:kafka\.example\.com:9093|b-1\.demo[\w.-]*:9098)"')
RUN = "asyncio.run(main())\n"
PASSWORD = "alice-secret"
KEY_PASSWORD = "letmein"

LOGINS: Mapping[str, str] = MappingProxyType(
    {
        "PLAIN": "PLAIN",
        "SCRAM, with a password that may change while the program runs": "SCRAM-SHA-512",
        "OAUTHBEARER by client credentials": "OAUTHBEARER",
        "OAUTHBEARER by client credentials with a signed assertion": "OAUTHBEARER",
        "OAUTHBEARER by jwt-bearer": "OAUTHBEARER",
        "OAUTHBEARER with a token provider of one's own": "OAUTHBEARER",
        "AWS MSK with IAM: pip install 'aioproduce[msk-iam]'": "OAUTHBEARER",
    }
)
TLS: Mapping[str, str] = MappingProxyType(
    {
        "One's own CA, over TLS": "none",
        "Mutual TLS": "required",
        "An SSLContext of one's own, for what Kafka has no key for: a revocation list, say": "none",
    }
)
KERBEROS = "GSSAPI: pip install 'aioproduce[gssapi]'"
ERRORS = "Hear at the start what is wrong"
GRANTS: Mapping[str, str] = MappingProxyType(
    {
        "OAUTHBEARER by client credentials": "client_credentials",
        "OAUTHBEARER by client credentials with a signed assertion": "client_credentials",
        "OAUTHBEARER by jwt-bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
    }
)


def test_every_program_of_the_page_is_tried() -> None:
    assert PROGRAMS.keys() == {*LOGINS, *TLS, KERBEROS, ERRORS}
    assert PAGE.count("```python") == len(PROGRAMS)
    assert PAGE.count("```properties") == len(FILES) == 7
    assert all(program.endswith(RUN) for program in PROGRAMS.values())


@pytest.fixture(autouse=True)
def surroundings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ca_file: str,
    rsa_key_file: str,
    token_server: TokenServer,
) -> None:
    """What the programs find: files in their folder, variables, a library of the user's company."""
    monkeypatch.chdir(tmp_path)
    Path("idp.pem").write_text(Path(ca_file).read_text())
    Path("private-key.pem").write_text(Path(rsa_key_file).read_text())
    Path("private-key.pem").chmod(0o600)
    Path("password.txt").write_text(f"{PASSWORD}\n")
    for name, value in {
        "KAFKA_PASSWORD": PASSWORD,
        "KEY_PASSWORD": KEY_PASSWORD,
        "CLIENT_SECRET": CLIENT_SECRET,
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIAMADEUP",
        "AWS_SECRET_ACCESS_KEY": "made-up",
    }.items():
        monkeypatch.setenv(name, value)

    async def fetch() -> SimpleNamespace:
        ends = int(time.time()) + 600
        return SimpleNamespace(token=token_server.sign({"sub": SUBJECT, "exp": ends}), expires_at=ends)

    company = ModuleType("my_company")
    company.identity = SimpleNamespace(fetch=fetch)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_company", company)


def write_identity(cluster: FakeCluster) -> None:
    """The client's key, encrypted, with its certificates."""
    identity = cluster.client_identity("orders")
    key = load_pem_private_key(identity.key.encode(), None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
    )
    file = Path("client.pem")
    file.write_text(encrypted.decode() + identity.chain)
    file.chmod(0o600)


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


async def run(name: str, cluster: FakeCluster, token_server: TokenServer) -> None:
    write("ca.pem", cluster.ca_certificate)
    program = PROGRAMS[name].removesuffix(RUN)
    trust = "" if "ca.pem" in program else ', ssl_truststore_location="ca.pem"'
    program, count = BROKERS.subn(f'"{cluster.bootstrap_servers}"{trust}', program)
    assert count == 1
    program = program.replace(
        '"https://idp.example.com/token"',
        f'"{token_server.url}", sasl_oauthbearer_token_endpoint_ca_location="idp.pem"',
    )
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(program, "docs/how-to/security.md", "exec"), names)
    await names["main"]()


@pytest.mark.parametrize("name", TLS)
async def test_programs_over_tls(name: str, token_server: TokenServer) -> None:
    security = FakeSecurity("SSL", tls=FakeTls(client_auth=TLS[name]))
    async with FakeCluster(1, security=security) as cluster:
        if TLS[name] == "required":
            write_identity(cluster)
        await run(name, cluster, token_server)
        assert [record.value for record in cluster.records("orders")] == [b"42"]


@pytest.mark.parametrize("name", LOGINS)
async def test_programs_that_log_in(name: str, token_server: TokenServer) -> None:
    seen: list[Mapping[str, Any]] = []

    def verify(token: str) -> Mapping[str, Any]:
        claims = signed_url(token) if "MSK" in name else jwt.decode(token, token_server.key).claims
        seen.append(claims)
        return claims

    security = FakeSecurity(users={"alice": PASSWORD}, mechanisms=(LOGINS[name],), verify_token=verify)
    async with FakeCluster(1, security=security) as cluster:
        await run(name, cluster, token_server)
        assert [record.value for record in cluster.records("orders")] == [b"42"]
    assert bool(seen) == (LOGINS[name] == "OAUTHBEARER")
    grants = {form["grant_type"] for _, form in token_server.requests}
    assert grants == ({GRANTS[name]} if name in GRANTS else set())
    asserted = any("assertion" in field for _, form in token_server.requests for field in form)
    assert asserted == ("assertion" in name or "jwt-bearer" in name)


def signed_url(token: str) -> dict[str, Any]:
    """What AWS's brokers read of a token: a signed URL."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    return {"sub": query["X-Amz-Credential"].partition("/")[0], "exp": int(time.time()) + 900}


@pytest.mark.parametrize(
    ("password", "says"),
    [(PASSWORD, ""), ("another", "login refused at 127.0.0.1: look at sasl.jaas.config")],
    ids=["right", "wrong"],
)
async def test_what_is_wrong_is_told_at_the_start(
    password: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    token_server: TokenServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", password)
    security = FakeSecurity(users={"alice": PASSWORD}, mechanisms=("SCRAM-SHA-512",))
    async with FakeCluster(1, security=security) as cluster:
        await run(ERRORS, cluster, token_server)
    told = capsys.readouterr().out
    assert told.startswith(says)
    assert bool(told) == bool(says)
    assert password not in told


async def test_kerberos_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Built(Exception):
        pass

    def build(*arguments: Any, **settings: Any) -> None:
        raise Built(ProducerConfig.from_keywords(bootstrap_servers=arguments[0], **settings))

    monkeypatch.setattr(aioproduce, "Producer", build)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(PROGRAMS[KERBEROS].removesuffix(RUN), "docs/how-to/security.md", "exec"), names)
    with pytest.raises(Built) as caught:
        await names["main"]()
    config: ProducerConfig = caught.value.args[0]
    assert (config.sasl_mechanism, config.sasl_kerberos_service_name) == ("GSSAPI", "kafka")
    pytest.importorskip("gssapi", reason="no Kerberos: the package gssapi is not installed")
    made = make_security(config)
    assert made is not None
    assert made.sasl is not None


@pytest.mark.parametrize("text", FILES, ids=lambda text: text.partition("\n")[0].strip("# "))
def test_properties(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_config, "_warned", set())
    file = tmp_path / "client.properties"
    file.write_text(text)
    config = ProducerConfig.from_mapping(load_properties(file))
    made = make_security(config)
    assert made is not None
    assert (made.sasl is not None) == config.security_protocol.startswith("SASL")
    assert (made.channels is not None) == config.security_protocol.endswith("SSL")
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == ("unsecuredLogin" in text)
