"""Nothing shows a secret: each kind is planted in a producer that works and in one that fails, and looked for.

1. It is looked for in all logs, warnings, reprs, copies and pickles, in every text that an object of ours holds, in
   errors with causes and locals, in metrics and in all that exports them, as it is and in other forms (`leaks`).
2. The search finds what is leaked on purpose, at each of these places.

The commands, the registry's client and constructors that refuse: `test_no_secret_shows_at_the_edges.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificates
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aioproduce import Producer
from aioproduce.cli.check import examine
from aioproduce.cli.check_view import findings_view, problem_lines
from aioproduce.cli.display import rendered
from aioproduce.dashboard import Dashboard
from aioproduce.errors import AuthenticationError, ProducerError
from aioproduce.reporters.json_lines import JsonLinesReporter
from aioproduce.reporters.opentelemetry import ProducerMeter
from aioproduce.reporters.prometheus import ProducerCollector
from aioproduce.security import plain
from aioproduce.testing import FakeCluster, FakeSecurity, FakeTls
from tests.dashboard.asgi import Exchange
from tests.drivers.producing import until
from tests.security.leaks import Shown, listening
from tests.security.oidc_server import CLIENT_ID, CLIENT_SECRET, TokenServer
from tests.security.tls_peer import encrypted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

ALICE = "alice"
PASSWORD = 'right-pä=ss\\ "wörd"-Zq7/x+K3'
WRONG = 'wrong-pä=ss\\ "wörd"-Jv5/y+M8'
KEY_PASSWORD = "key-pass phrase/Rt4+Wb9"
STORE_PASSWORD = "store-pass phrase/Hn2+Xc6"
VIEWERS_TOKEN = "token-of-viewers/Gd8+Ls1"
PATIENCE = 10.0
OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass
class World:
    """A cluster, what a producer for it is given, and what is planted in that."""

    security: FakeSecurity
    settings: Callable[[FakeCluster], dict[str, Any]]
    secrets: dict[str, str] = field(default_factory=dict)


def logging_in(mechanism: str, password: str = PASSWORD, *, is_jaas: bool = False) -> World:
    """One with a name and a password."""
    if is_jaas:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        jaas = f'{module} required username="{ALICE}" password={json.dumps(password, ensure_ascii=False)};'
        login = {"sasl_jaas_config": jaas}
    else:
        login = {"sasl_username": ALICE, "sasl_password": password}
    return World(
        FakeSecurity("SASL_PLAINTEXT", users={ALICE: PASSWORD}, mechanisms=(mechanism,)),
        lambda _: {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **login},
        {"password": password, "password of the brokers": PASSWORD},
    )


def by_token(server: TokenServer, ca_file: str, more: Mapping[str, Any], **secrets: str) -> World:
    """One that asks a token endpoint."""
    asking = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": server.url,
        "sasl_oauthbearer_token_endpoint_ca_location": ca_file,
        **more,
    }
    security = FakeSecurity(
        "SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), verify_token=lambda token: _claims(server, token)
    )
    return World(security, lambda _: asking, dict(secrets))


def _claims(server: TokenServer, token: str) -> dict[str, Any]:
    assert token in server.tokens
    return dict(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")))


def client_credentials(server: TokenServer, ca_file: str) -> World:
    more = {
        "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
    }
    return by_token(server, ca_file, more, client_secret=CLIENT_SECRET)


def jwt_bearer(server: TokenServer, ca_file: str, folder: Path, passphrase: str = KEY_PASSWORD) -> World:
    """Its assertion is signed by a key under a passphrase."""
    pem = server.key.as_pem(private=True)
    locked = encrypted(pem, KEY_PASSWORD)
    file = folder / "assertion.pem"
    file.write_text(locked)
    file.chmod(0o600)
    more = {
        "sasl_oauthbearer_jwt_retriever_class": f"{OAUTH}.JwtBearerJwtRetriever",
        "sasl_oauthbearer_assertion_private_key_file": str(file),
        "sasl_oauthbearer_assertion_private_key_passphrase": passphrase,
        "sasl_oauthbearer_assertion_claim_iss": "us",
        "sasl_oauthbearer_assertion_claim_sub": "us",
        "sasl_oauthbearer_assertion_claim_aud": "them",
    }
    return by_token(
        server, ca_file, more, passphrase=passphrase, key=line_of(pem.decode()), locked=line_of(locked)
    )


def line_of(pem: str) -> str:
    """A part of a key that no other has, on one line."""
    return pem.splitlines()[3]


def inline_key(password: str = KEY_PASSWORD) -> World:
    """Mutual TLS, with the key in the settings."""
    world = World(FakeSecurity("SSL", tls=FakeTls(client_auth="required")), lambda _: {})

    def settings(cluster: FakeCluster) -> dict[str, Any]:
        identity = cluster.client_identity("orders")
        locked = encrypted(identity.key.encode(), KEY_PASSWORD)
        world.secrets |= {
            "key": identity.key.splitlines()[1],
            "locked": line_of(locked),
            "password": password,
        }
        return {
            **trusting(cluster),
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": locked,
            "ssl_keystore_certificate_chain": identity.chain,
            "ssl_key_password": password,
        }

    world.settings = settings
    return world


def key_store(folder: Path, password: str = STORE_PASSWORD) -> World:
    """Mutual TLS, with PKCS12."""

    def settings(cluster: FakeCluster) -> dict[str, Any]:
        identity = cluster.client_identity("orders")
        key: Any = load_pem_private_key(identity.key.encode(), None)
        leaf, *others = load_pem_x509_certificates(identity.chain.encode())
        lock = BestAvailableEncryption(STORE_PASSWORD.encode())
        file = folder / "client.p12"
        file.write_bytes(serialize_key_and_certificates(b"orders", key, leaf, others, lock))
        file.chmod(0o600)
        return {**trusting(cluster), "ssl_keystore_location": str(file), "ssl_keystore_password": password}

    return World(
        FakeSecurity("SSL", tls=FakeTls(client_auth="required")), settings, {"store's password": password}
    )


def trusting(cluster: FakeCluster) -> dict[str, Any]:
    return {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": cluster.ca_certificate,
    }


async def run(world: World, server: TokenServer | None = None, *, is_good: bool, topic: str = "t") -> Shown:
    """Have a producer send one record, or fail to, and take all that is shown meanwhile."""
    shown = Shown()
    with listening(shown):
        async with FakeCluster(1, topics={"t": 1}, security=world.security) as cluster:
            cluster.subscribe_metrics(interval=0.05)
            producer = Producer(
                cluster.bootstrap_servers,
                linger_ms=0,
                max_block_ms=10_000 if is_good else 100,
                **world.settings(cluster),
            )
            await producer.start()
            try:
                async with asyncio.timeout(PATIENCE):
                    await exchange(producer, cluster, shown, is_good=is_good, topic=topic)
            finally:
                await producer.close(0)
            shown.add_object("producer", producer)
    for number, token in enumerate(server.tokens if server is not None else ()):
        world.secrets[f"token {number}"] = token.rpartition(".")[2]
    for number, (_, form) in enumerate(server.requests if server is not None else ()):
        if "assertion" in form:
            world.secrets[f"assertion {number}"] = form["assertion"].rpartition(".")[2]
    return shown


async def exchange(
    producer: Producer, cluster: FakeCluster, shown: Shown, *, is_good: bool, topic: str
) -> None:
    if is_good:
        await producer.send_and_wait("t", b"one")
        await until(lambda: len(cluster.pushed_metrics) > 0)
        assert [record.value for record in cluster.records("t")] == [b"one"]
    else:
        for attempt in (producer.check(PATIENCE), producer.send("t", b"one")):
            with pytest.raises(ProducerError) as raised:
                await attempt
            shown.add_error("error", raised.value)
    shown.add("telemetry", *(push.metrics for push in cluster.pushed_metrics))
    shown.add_object("config", producer.config)
    shown.add_object("producer", producer)
    await exports(producer, shown)
    findings = await examine(producer.config, topic, PATIENCE)
    assert bool(findings.exit_code) == (not is_good)
    shown.add(
        "check", json.dumps(findings.as_json()), rendered(findings_view(findings)), *problem_lines(findings)
    )


class Lines:
    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def write(self, text: str) -> None:
        self._shown.add("JSON lines", text)

    def flush(self) -> None:
        """Nothing is kept back."""


async def exports(producer: Producer, shown: Shown) -> None:
    """The metrics, and all that shows them elsewhere."""
    snapshot = producer.metrics()
    shown.add("metrics", snapshot, list(snapshot), json.dumps(snapshot.as_dict()))
    registry = prometheus_client.CollectorRegistry()
    registry.register(ProducerCollector(producer))
    shown.add("Prometheus", prometheus_client.generate_latest(registry))
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    ProducerMeter(producer, meter_provider=provider)
    told = reader.get_metrics_data()
    assert told is not None
    shown.add("OpenTelemetry", told.to_json())
    provider.shutdown()
    async with JsonLinesReporter(producer, Lines(shown), period=60):
        pass
    dashboard = Dashboard(producer, token=VIEWERS_TOKEN)
    dashboard.feed.sample(0.0, 0.0)
    shown.add_object("dashboard", dashboard)
    for path in ("/", "/samples", "/nowhere"):
        for headers in ({"authorization": f"Bearer {VIEWERS_TOKEN}"}, {}):
            answer = await Exchange(path, headers=headers).ask(dashboard)
            assert answer.status == (401 if not headers else 404 if path == "/nowhere" else 200)
            shown.add("dashboard", answer.body, repr(answer.headers))


PLACES = {
    "log", "warnings", "telemetry", "config", "producer", "metrics", "Prometheus", "OpenTelemetry", "JSON lines",
    "dashboard", "check",
}  # fmt: skip


def check(shown: Shown, world: World, *, is_good: bool) -> None:
    """See that nothing is shown of what was planted, and that there was something to look at."""
    assert shown.texts.keys() == PLACES | (set() if is_good else {"error"})
    empty = {where for where, texts in shown.texts.items() if not any(texts)}
    assert empty <= {"log", "warnings"} | (set() if is_good else {"telemetry"})
    assert shown.leaks({**world.secrets, "token of viewers": VIEWERS_TOKEN}) == {}


@pytest.mark.parametrize("password", [PASSWORD, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize(("mechanism", "is_jaas"), [("PLAIN", False), ("SCRAM-SHA-512", True)])
async def test_passwords(mechanism: str, is_jaas: bool, password: str) -> None:
    is_good = password == PASSWORD
    if is_good:
        asyncio.get_running_loop().set_debug(True)
    world = logging_in(mechanism, password, is_jaas=is_jaas)
    check(await run(world, is_good=is_good), world, is_good=is_good)


@pytest.mark.parametrize("how", ["none", "echo", "401"])
async def test_a_client_s_secret_and_its_tokens(token_server: TokenServer, ca_file: str, how: str) -> None:
    token_server.misbehave(how)
    world = client_credentials(token_server, ca_file)
    shown = await run(world, token_server, is_good=how == "none")
    check(shown, world, is_good=how == "none")
    assert ("token 0" in world.secrets) == (how == "none")


@pytest.mark.parametrize("passphrase", [KEY_PASSWORD, WRONG], ids=["right", "wrong"])
async def test_assertions_and_the_key_that_signs_them(
    token_server: TokenServer, ca_file: str, tmp_path: Path, passphrase: str
) -> None:
    is_good = passphrase == KEY_PASSWORD
    world = jwt_bearer(token_server, ca_file, tmp_path, passphrase)
    check(await run(world, token_server, is_good=is_good), world, is_good=is_good)
    assert ("assertion 0" in world.secrets) == is_good


@pytest.mark.parametrize("password", [KEY_PASSWORD, WRONG], ids=["right", "wrong"])
async def test_a_key_within_the_settings(password: str) -> None:
    world = inline_key(password)
    is_good = password == KEY_PASSWORD
    check(await run(world, is_good=is_good), world, is_good=is_good)
    assert "key" in world.secrets


@pytest.mark.parametrize("password", [STORE_PASSWORD, WRONG], ids=["right", "wrong"])
async def test_a_key_store(tmp_path: Path, password: str) -> None:
    world = key_store(tmp_path, password)
    is_good = password == STORE_PASSWORD
    check(await run(world, is_good=is_good), world, is_good=is_good)


# -- leaks on purpose ---

CONVERSE = plain.converse


def logs(credential: Any) -> None:
    logging.getLogger("aioproduce.core").debug(
        "sent %r", f"\0{ALICE}\0{credential.value.password.reveal()}".encode()
    )


def logs_base64(credential: Any) -> None:
    sent = f"\0{ALICE}\0{credential.value.password.reveal()}"
    logging.getLogger("elsewhere").debug("sent %s", base64.b64encode(sent.encode()).decode())


def says_half(credential: Any) -> None:
    raise AuthenticationError(f"refused: {credential.value.password.reveal()[:14]}...", mechanism="PLAIN")


def has_a_cause(credential: Any) -> None:
    try:
        raise ValueError(credential.value.password.reveal().encode().hex())
    except ValueError:
        raise AuthenticationError("refused", mechanism="PLAIN") from None


def holds_in_a_local(credential: Any) -> None:
    # A frame that is not of the tests, which are left out.
    program = (
        "def fail(user):\n    text = user.password.reveal()\n    raise error('refused', mechanism='PLAIN')\n"
    )
    names: dict[str, Any] = {"error": AuthenticationError}
    exec(compile(program, "/elsewhere.py", "exec"), names)
    names["fail"](credential.value)


@pytest.mark.parametrize(
    ("leak", "where"),
    [
        (logs, "log"),
        (logs_base64, "log"),
        (says_half, "error"),
        (has_a_cause, "error"),
        (holds_in_a_local, "error"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_what_a_login_leaks_is_found(
    monkeypatch: pytest.MonkeyPatch, leak: Callable[[Any], None], where: str
) -> None:
    def converse(host: str, credential: Any) -> Any:
        leak(credential)
        return CONVERSE(host, credential)

    monkeypatch.setattr(plain, "converse", converse)
    world = logging_in("PLAIN")

    shown = await run(world, is_good=where != "error")

    assert "password" in shown.leaks(world.secrets)[where]


async def test_what_metrics_and_attributes_leak_is_found() -> None:
    world = logging_in("PLAIN")
    plain_settings = world.settings
    named = "client-" + PASSWORD.encode().hex()  # which everything that shows metrics has as a tag
    world.settings = lambda cluster: {**plain_settings(cluster), "client_id": named}

    found = (await run(world, is_good=True)).leaks(world.secrets)

    assert found.keys() >= {"metrics", "Prometheus", "dashboard", "JSON lines", "config", "producer"}


def test_a_text_that_an_object_holds_is_found() -> None:
    shown = Shown()
    source = plain.Plain(PASSWORD)  # type: ignore[arg-type]
    shown.add_object("held", {"deep": [source]})
    assert shown.leaks({"password": PASSWORD}) == {"held": {"password"}}
