"""No secret shows, whatever goes well or wrong: one net over everything that a user, a log or a chart may see.

Each case makes a producer with secrets of one kind against a `FakeCluster` and lets it succeed or fail. The
`Witness` collects the log of every logger at DEBUG, the errors with their causes and their frames' locals, and what
producer, configuration, metrics, dashboard and telemetry say; then it looks for each secret in each form. That it
would find one is tested as well: secrets are planted in each of those places.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import logging
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aioproduce import Producer
from aioproduce.config import ProducerConfig
from aioproduce.config.secret import Secret
from aioproduce.dashboard import Dashboard
from aioproduce.errors import AuthenticationError, ProducerError
from aioproduce.serializers import SchemaRegistryClient
from aioproduce.testing import FakeCluster, FakeSchemaRegistry, FakeSecurity, FakeTls, token_for
from tests.dashboard.asgi import Exchange
from tests.drivers.producing import until
from tests.security.oidc_server import CLIENT_ID, CLIENT_SECRET, running_server

pytest.importorskip("opentelemetry.proto", reason="needs the extra aioproduce[telemetry]")

_TESTS = str(Path(__file__).parents[1])

PASSWORD = "pä=ss-w0rd+of/alice"
WRONG = "wr0ng-w0rd+of/alice"
KEY_PASSWORD = "opens-the-key/of+alice"
REGISTRY_PASSWORD = "registry-w0rd+of/alice"
DASHBOARD_TOKEN = "dashboard-token-of-alice"


class Witness(logging.Handler):
    """All that was shown, by the place where it was."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.shown: list[tuple[str, str]] = []

    def see(self, place: str, *texts: object) -> None:
        self.shown += [(place, text if isinstance(text, str) else repr(text)) for text in texts]

    def emit(self, record: logging.LogRecord) -> None:
        told = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.see("log", record.getMessage(), record.__dict__, told)

    def see_object(self, place: str, value: object) -> None:
        """An object in every way in which it may be printed, stored or copied."""
        self.see(place, repr(value), str(value), f"{value}", getattr(value, "__dict__", None))
        for name in dir(value):
            if not name.startswith("_"):
                with contextlib.suppress(ProducerError, RuntimeError):
                    self.see(f"{place}.{name}", repr(getattr(value, name)))
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            try:
                made: object = way(value)
            except Exception as error:
                self.see_error(error)
            else:
                self.see(f"{place} by {way.__name__}", made.hex() if isinstance(made, bytes) else made)
                if isinstance(made, bytes):
                    self.see(f"{place} pickled", made.decode("latin-1"), made.decode("utf-8", "replace"))

    def see_error(self, error: BaseException) -> None:
        """An error, its causes and contexts, with the locals of all frames but those of the tests."""
        seen: set[int] = set()
        links: list[BaseException | None] = [error]
        while links:
            link = links.pop()
            if link is None or id(link) in seen:
                continue
            seen.add(id(link))
            told = traceback.TracebackException.from_exception(link, capture_locals=True)
            told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(_TESTS)]
            self.see("error", str(link), repr(link), repr(link.args), getattr(link, "__dict__", {}))
            self.see("frames", *told.format(chain=False))
            links += [link.__cause__, link.__context__]

    def leaks(self, secrets: list[str]) -> list[str]:
        """Where a secret was shown."""
        found = []
        for secret in secrets:
            assert len(secret) > 6, "too short to be looked for"
            encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
            forms = {
                secret,
                quote(secret),
                quote(secret, safe=""),
                quote_plus(secret),
                repr(secret)[1:-1],
                encoded,
            }
            forms |= {repr(secret.encode())[2:-1], secret.encode().hex()}
            for place, text in self.shown:
                found += [
                    f"{place}: {text[max(0, text.find(form) - 200) :][:400]}"
                    for form in forms
                    if form in text
                ]
        return found


@pytest.fixture
def witness() -> Iterator[Witness]:
    handler = Witness()
    root = logging.getLogger()
    level = root.level
    names = [name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)]
    levels = {name: logging.getLogger(name).level for name in names}
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


# -- what a producer does ---


async def work(
    witness: Witness, cluster: FakeCluster, config: ProducerConfig, *, fails: bool, topic: str = "t"
) -> None:
    """Everything that shows something, while it goes well or does not."""
    witness.see_object("config", config)
    producer = Producer(config)
    witness.see_object("producer before start", producer)
    dashboard = Dashboard(producer, token=DASHBOARD_TOKEN, interval=0.01)
    witness.see_object("dashboard", dashboard)
    errors: list[BaseException] = []
    if fails:
        try:
            await producer.start(require_broker=True)
        except ProducerError as error:
            errors.append(error)
        assert errors, "it was to fail"
        await producer.close()
        producer = Producer(config)
        dashboard = Dashboard(producer, token=DASHBOARD_TOKEN, interval=0.01)
    else:
        cluster.subscribe_metrics(interval=0.1)
    async with producer:
        for call in (producer.check(1.0, tries_each_once=True), producer.send_and_wait(topic, b"value")):
            try:
                witness.see("answer", await call)
            except ProducerError as error:
                errors.append(error)
        if not fails:
            assert not errors, errors
            await until(lambda: bool(cluster.pushed_metrics))
        dashboard.feed.sample(1.0, 1.0)
        header = {"authorization": f"Bearer {DASHBOARD_TOKEN}"}
        answer = await Exchange("/samples", headers=header).ask(dashboard)
        assert answer.status == 200
        refused = await Exchange("/samples", headers={"authorization": f"Bearer {WRONG}"}).ask(dashboard)
        witness.see("dashboard", answer.body.decode(), refused.body.decode(), refused.headers)
        snapshot = producer.metrics()
        witness.see("metrics", repr(snapshot), snapshot.as_dict())
        witness.see_object("producer", producer)
    witness.see(
        "telemetry", *(repr(push) + push.metrics.decode("latin-1") for push in cluster.pushed_metrics)
    )
    for each in errors:
        witness.see_error(each)


# -- the kinds of secrets, and what goes wrong with them ---


@dataclass(frozen=True)
class Case:
    """A producer's settings beside the cluster's own, and what is secret in them.

    `settings` is called with the cluster; a value of `None` takes a setting away.
    """

    name: str
    security: Callable[[], FakeSecurity]
    settings: Callable[[FakeCluster], dict[str, Any]]
    secrets: Callable[[FakeCluster], list[str]] = lambda _: [PASSWORD, WRONG]
    fails: bool = False
    cut: str = ""


def users(protocol: str = "SASL_SSL", **more: Any) -> Callable[[], FakeSecurity]:
    return lambda: FakeSecurity(protocol, users={"alice": PASSWORD}, failed_authentication_delay_ms=1, **more)


def named(mechanism: str, password: str, **more: Any) -> Callable[[FakeCluster], dict[str, Any]]:
    return lambda _: {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": None,
        "sasl.username": "alice",
        "sasl.password": password,
        **more,
    }


def jaas(mechanism: str, password: str) -> Callable[[FakeCluster], dict[str, Any]]:
    def settings(cluster: FakeCluster) -> dict[str, Any]:
        made = dict(cluster.client_settings(mechanism=mechanism))
        made["sasl.jaas.config"] = (
            made["sasl.jaas.config"].replace("\\u00e4", "ä").replace(PASSWORD, password)
        )
        assert password in made["sasl.jaas.config"]
        return made

    return settings


TOKEN = token_for("alice")


def provided(provider: object) -> Callable[[FakeCluster], dict[str, Any]]:
    return lambda _: {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": None,
        "sasl.oauthbearer.token.provider": provider,
    }


def give_token() -> str:
    return TOKEN


def raise_with_token() -> str:
    raise RuntimeError(f"the token {TOKEN} was refused")


def refuse_all(token: str) -> dict[str, Any]:
    raise ValueError(f"no good: {token}")


_identities: dict[int, tuple[str, str]] = {}


def identity_of(cluster: FakeCluster) -> tuple[str, str]:
    """A chain, and a key that a password opens; of a cluster always the same."""
    if id(cluster) not in _identities:
        made = cluster.client_identity("alice")
        key: Any = load_pem_private_key(made.key.encode(), None)
        encryption = BestAvailableEncryption(KEY_PASSWORD.encode())
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
        _identities[id(cluster)] = made.chain, locked
    return _identities[id(cluster)]


def keyed(password: str | None, *, breaks: bool = False) -> Callable[[FakeCluster], dict[str, Any]]:
    def settings(cluster: FakeCluster) -> dict[str, Any]:
        chain, key = identity_of(cluster)
        return {
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key.replace("\n", "\nAAAA", 1) if breaks else key,
            "ssl.key.password": password,
        }

    return settings


def key_secrets(cluster: FakeCluster) -> list[str]:
    lines = identity_of(cluster)[1].splitlines()
    return [KEY_PASSWORD, WRONG, lines[2], lines[2][8:40]]


MUTUAL = users("SSL", tls=FakeTls(client_auth="required"))
TOKENS = [TOKEN, TOKEN.split(".")[1]]

CASES = [
    Case("PLAIN", users(), named("PLAIN", PASSWORD)),
    Case("SCRAM", users(), named("SCRAM-SHA-512", PASSWORD)),
    Case("jaas", users("SASL_PLAINTEXT"), jaas("SCRAM-SHA-256", PASSWORD)),
    Case("token", users(), provided(give_token), lambda _: TOKENS),
    Case("inline key with a password", MUTUAL, keyed(KEY_PASSWORD), key_secrets),
    Case("PLAIN, wrong", users(), named("PLAIN", WRONG), fails=True),
    Case("SCRAM-SHA-256, wrong", users(), named("SCRAM-SHA-256", WRONG), fails=True),
    Case("SCRAM-SHA-512, wrong", users(), named("SCRAM-SHA-512", WRONG), fails=True),
    Case("jaas, wrong", users("SASL_PLAINTEXT"), jaas("PLAIN", WRONG), fails=True),
    Case("mechanism not offered", users(mechanisms=("PLAIN",)), named("SCRAM-SHA-256", PASSWORD), fails=True),
    Case("token refused", users(verify_token=refuse_all), provided(give_token), lambda _: TOKENS, fails=True),
    Case("provider raises", users(), provided(raise_with_token), lambda _: TOKENS, fails=True),
    Case("provider gives bytes", users(), provided(TOKEN.encode), lambda _: TOKENS, fails=True),
    Case("key password wrong", MUTUAL, keyed(WRONG), key_secrets, fails=True),
    Case("key password missing", MUTUAL, keyed(None), key_secrets, fails=True),
    Case("key broken", MUTUAL, keyed(KEY_PASSWORD, breaks=True), key_secrets, fails=True),
    Case(
        "certificate of another authority",
        users(tls=FakeTls(certificate="unknown authority")),
        named("PLAIN", PASSWORD),
        fails=True,
    ),
    Case(
        "TLS to a listener without",
        users("SASL_PLAINTEXT"),
        named("PLAIN", PASSWORD, **{"security.protocol": "SASL_SSL"}),
        fails=True,
    ),
    Case(
        "a listener with TLS, without",
        users(),
        named(
            "PLAIN", PASSWORD, **{"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.certificates": None}
        ),
        fails=True,
    ),
    Case("nobody listens", users(), named("PLAIN", PASSWORD), fails=True, cut="stop"),
    Case("handshakes are cut", users(), named("PLAIN", PASSWORD), fails=True, cut="handshake"),
]


IN_THE_GATE = ("PLAIN", "jaas", "token", "SCRAM-SHA-512, wrong", "token refused", "key password wrong")


def config_of(cluster: FakeCluster, settings: dict[str, Any]) -> ProducerConfig:
    base: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "orders",
        "max.block.ms": 700,
        "delivery.timeout.ms": 700,
        "request.timeout.ms": 500,
        "linger.ms": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        **cluster.client_settings(),
        **settings,
    }
    if "ssl.keystore.key" not in settings:
        base = {key: value for key, value in base.items() if not key.startswith("ssl.keystore")}
    return ProducerConfig.from_mapping({key: value for key, value in base.items() if value is not None})


def seen_quietly(witness: Witness, case: Case, topic: str = "t") -> list[str]:
    """Let it happen; give the secrets that it has."""

    async def main() -> list[str]:
        async with FakeCluster(1, topics={topic: 1}, security=case.security()) as cluster:
            config = config_of(cluster, case.settings(cluster))
            if case.cut == "stop":
                await cluster.stop_broker(next(iter(cluster.ports)))
            elif case.cut == "handshake":
                cluster.faults.cut_handshakes(times=1000)
            await work(witness, cluster, config, fails=case.fails, topic=topic)
            return [*case.secrets(cluster), DASHBOARD_TOKEN]

    return asyncio.run(main())


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=() if case.name in IN_THE_GATE else pytest.mark.extended("the gate has one of each kind"),
        )
        for case in CASES
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_secret_shows(witness: Witness, case: Case) -> None:
    secrets = seen_quietly(witness, case)
    assert witness.leaks(secrets) == []
    places = {place for place, _ in witness.shown}
    assert {"log", "config", "producer", "dashboard", "metrics", "error"} <= places
    assert "frames" in places
    assert case.fails or "telemetry" in places


@pytest.mark.parametrize("is_right", [True, False])
def test_no_client_secret_shows(witness: Witness, tmp_path: Path, is_right: bool) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with running_server(certificate=ca.issue_cert("localhost")) as endpoint:
        case = Case(
            "client secret",
            users(verify_token=lambda _: {"sub": "alice", "exp": time.time() + 3600}),
            lambda _: {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": None,
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
                "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET if is_right else WRONG,
                "sasl.oauthbearer.token.endpoint.ca.location": str(tmp_path / "ca.pem"),
            },
            fails=not is_right,
        )
        seen_quietly(witness, case)
        assert endpoint.requests
    pairs = [base64.b64encode(f"{CLIENT_ID}:{one}".encode()).decode() for one in (CLIENT_SECRET, WRONG)]
    assert witness.leaks([CLIENT_SECRET, WRONG, *pairs]) == []


@pytest.mark.parametrize("way", ["basic", "basic, wrong", "bearer", "bearer, wrong", "nobody listens"])
def test_no_credential_of_a_registry_shows(witness: Witness, way: str) -> None:
    given: dict[str, Any] = (
        {"bearer_token": Secret(TOKEN)}
        if way.startswith("bearer")
        else {"basic_auth": ("alice", REGISTRY_PASSWORD)}
    )
    wanted: dict[str, Any] = (
        {"bearer_token": TOKEN} if way.startswith("bearer") else {"basic_auth": ("alice", REGISTRY_PASSWORD)}
    )
    if way.endswith("wrong"):
        wanted = {"basic_auth": ("alice", "another")}

    async def main(url: str) -> None:
        async with SchemaRegistryClient(url, retries=1, backoff=0, **given) as registry:
            witness.see("registry", repr(registry), str(vars(registry)))
            try:
                witness.see("answer", await registry.subjects())
            except ProducerError as error:
                witness.see_error(error)
            assert (way in ("basic", "bearer")) == any(place == "answer" for place, _ in witness.shown)

    with FakeSchemaRegistry(**wanted) as fake:
        url = "http://127.0.0.1:1" if way == "nobody listens" else fake.url
        asyncio.run(main(url))
    pair = base64.b64encode(f"alice:{REGISTRY_PASSWORD}".encode()).decode()
    assert witness.leaks([REGISTRY_PASSWORD, TOKEN, pair]) == []


# -- the test of the test: a leak that is planted is found ---


def test_a_secret_that_shows_itself_is_found(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secret, "__repr__", lambda self: f"Secret({self.reveal()})")
    config = ProducerConfig.from_mapping(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    )
    witness.see_object("config", config)
    assert witness.leaks([PASSWORD])


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_secret_in_metrics_is_found_in_each_place(witness: Witness) -> None:
    topic = "a-topic-as-secret"
    seen_quietly(witness, CASES[0], topic)
    found = {leak.partition(":")[0] for leak in witness.leaks([topic])}
    assert {"metrics", "dashboard", "telemetry", "answer"} <= found


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_secret_in_an_error_of_the_core_is_found(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    made = AuthenticationError.__init__

    def leaking(self: AuthenticationError, message: str, **more: Any) -> None:
        made(self, f"{message} ({WRONG})", **more)

    monkeypatch.setattr(AuthenticationError, "__init__", leaking)
    (case,) = (case for case in CASES if case.name == "PLAIN, wrong")
    seen_quietly(witness, case)
    places = {leak.partition(":")[0] for leak in witness.leaks([WRONG])}
    assert {"log", "error"} <= places


@pytest.mark.parametrize("form", [str, quote, lambda text: base64.b64encode(text.encode()).decode()])
def test_a_secret_in_the_log_is_found(witness: Witness, form: Callable[[str], str]) -> None:
    logging.getLogger("some.library").debug("sent %s", form(PASSWORD))
    assert witness.leaks([PASSWORD])


@pytest.mark.parametrize("is_cause", [True, False])
def test_a_secret_in_a_frame_is_found(witness: Witness, is_cause: bool) -> None:
    program = f"def fetch():\n    held = {PASSWORD!r}\n    raise ValueError('trouble')\n"
    names: dict[str, Any] = {}
    exec(compile(program, "/elsewhere.py", "exec"), names)
    try:
        names["fetch"]()
    except ValueError as error:
        outer = ProducerError("it failed")
        if is_cause:
            outer.__cause__ = error
        else:
            outer.__context__ = error
            outer.__suppress_context__ = True
        witness.see_error(outer)
    assert witness.leaks([PASSWORD])


def test_a_secret_that_is_pickled_is_found(witness: Witness) -> None:
    witness.see_object("settings", {"sasl.password": PASSWORD})
    places = {leak.partition(":")[0] for leak in witness.leaks([PASSWORD])}
    assert {"settings pickled", "settings by copy"} <= places
