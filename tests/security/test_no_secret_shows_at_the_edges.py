"""Nothing shows a secret where settings are taken or refused: constructors, the commands, the registry's client.

The producer itself, and that the search finds what is leaked: `test_no_secret_shows.py`.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest

from aioproduce import Producer
from aioproduce.blocking import BlockingProducer
from aioproduce.cli import main
from aioproduce.config import ProducerConfig
from aioproduce.config.secret import hides_arguments
from aioproduce.dashboard import Dashboard
from aioproduce.errors import ConfigError, SchemaRegistryError
from aioproduce.reporters.prometheus import MetricsServer
from aioproduce.serializers import SchemaRegistryClient
from aioproduce.testing import ClusterThread, FakeSecurity
from tests.security.leaks import Shown, listening
from tests.security.oidc_server import CLIENT_ID, CLIENT_SECRET, TokenServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PASSWORD = 'pä=ss\\ "wörd"-Zq7/x+K3'
TOKEN = "token-of-viewers/Gd8+Ls1"
SERVERS = "127.0.0.1:1"
SECRETS = {"password": PASSWORD, "token": TOKEN}
MAPPING: dict[str, Any] = {"bootstrap.servers": SERVERS, "sasl.password": PASSWORD}
KEYWORDS: dict[str, Any] = {"sasl_password": PASSWORD}


def registry(**settings: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient("http://127.0.0.1:1", **settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Producer(SERVERS, **KEYWORDS),
        lambda: Producer(MAPPING),
        lambda: Producer(SERVERS, **KEYWORDS, **dict[str, Any](sasl_username="alice", sasl_mechanism="NONE")),
        lambda: Producer(SERVERS, **dict[str, Any](sasl_pasword=PASSWORD)),  # misspelled
        lambda: Producer(ProducerConfig.from_mapping({"bootstrap.servers": SERVERS}), **KEYWORDS),
        lambda: Producer(SERVERS, **dict[str, Any](sasl_password=PASSWORD.encode())),
        lambda: BlockingProducer(SERVERS, **KEYWORDS),
        lambda: BlockingProducer(MAPPING),
        lambda: ProducerConfig.from_keywords(bootstrap_servers=SERVERS, **KEYWORDS),
        lambda: ProducerConfig.from_mapping({**MAPPING, "linger.ms": "soon"}),
        lambda: ProducerConfig.from_mapping({"bootstrap.servers": SERVERS, "sasl.jaas.config": PASSWORD, "a": 1}),
        lambda: ProducerConfig.from_environment(environ={"KAFKA_SASL_PASSWORD": PASSWORD, "KAFKA_ACKS": "some"}),
        lambda: registry(basic_auth=("me", PASSWORD), bearer_token=TOKEN),
        lambda: registry(basic_auth=("me", PASSWORD), timeout=0),
        lambda: registry(bearer_token=TOKEN, colour="red"),
        lambda: Dashboard([], token=TOKEN),
        lambda: Dashboard([], token=f"{TOKEN} \n"),
        lambda: MetricsServer(0, registry=prometheus_client.CollectorRegistry(), token=f"{TOKEN} \n"),
    ],
)  # fmt: skip
def test_a_constructor_that_refuses(make: Callable[[], object]) -> None:
    shown = Shown()
    with listening(shown), pytest.raises((ConfigError, TypeError, ValueError)) as raised:
        make()
    shown.add_error("error", raised.value)
    assert shown.leaks(SECRETS) == {}


def test_what_is_hidden_is_the_arguments_alone() -> None:
    @hides_arguments
    def refuse(error: Exception) -> None:
        held = error
        raise held

    with pytest.raises(ConfigError, match="why") as refused:
        refuse(ConfigError("why", key="the.key"))
    assert refused.value.key == "the.key"
    names = [frame.name for frame in refused.traceback]
    assert names == [test_what_is_hidden_is_the_arguments_alone.__name__, "call"]
    assert not refused.traceback[-1].frame.f_locals.keys() & {"args", "kwargs"}
    # A bug's frames stay.
    with pytest.raises(KeyError) as failed:
        refuse(KeyError("bug"))
    assert failed.traceback[-1].name == "refuse"


def test_a_producer_that_was_not_made_is_printed() -> None:
    kinds: list[Any] = [Producer, BlockingProducer]
    for kind in kinds:
        assert repr(kind.__new__(kind)) == f"<{kind.__name__}, not made>"


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (("check", "--json"), ()),
        (("check",), ()),
        (("check",), ("-X", f"sasl.pasword={PASSWORD}")),
        (("send", "t"), ("-X", f"ssl.keystore.key={PASSWORD}")),
        (("send", "t"), ("-X", "sasl.mechanism=NONE")),
        (("send", "t"), ("-X", PASSWORD)),
    ],
)
def test_commands_that_fail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: tuple[str, ...], more: tuple[str, ...]
) -> None:
    settings = tmp_path / "client.properties"
    escaped = PASSWORD.replace("\\", "\\\\").encode("latin-1").decode("latin-1")
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username=alice\nsasl.password={escaped}\n",
        encoding="latin-1",
    )
    shown = Shown()
    security = FakeSecurity("SASL_PLAINTEXT", users={"alice": "another"})
    with ClusterThread(1, topics={"t": 1}, security=security) as cluster, listening(shown):
        arguments = (*command, "--config", str(settings), "-b", cluster.bootstrap_servers, *more)
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    assert ended.value.code not in (0, None)
    out, err = capfd.readouterr()
    shown.add("output", out, err)
    assert out + err
    assert shown.leaks(SECRETS) == {}


async def test_a_registry_that_repeats_what_it_was_sent(token_server: TokenServer, ca_file: str) -> None:
    token_server.misbehave("echo")
    shown = Shown()
    context = ssl.create_default_context(cafile=ca_file)
    url = token_server.url.removesuffix("/token")
    with listening(shown):
        async with SchemaRegistryClient(
            url, basic_auth=(CLIENT_ID, CLIENT_SECRET), ssl_context=context, retries=0
        ) as client:
            with pytest.raises(SchemaRegistryError) as raised:
                await client.latest("t-value")
            shown.add_error("error", raised.value)
            shown.add_object("client", client)
    assert shown.leaks({"password": CLIENT_SECRET}) == {}
