"""The commands over SASL_SSL, with settings as users give them: by `-X`, by a file, by the environment; and `dev`.

The commands run in this process, and the cluster in a thread of its own: a process each would cost ten times as
much.
"""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aioproduce.cli.app import app
from aioproduce.cli.dev_access import make_access
from aioproduce.errors import ConfigError
from aioproduce.testing import ClusterThread, FakeSecurity
from aioproduce.wire.api import ApiKey
from tests.cli.command import finish, run_cli, start_cli

PASSWORD = 'right "\\ Пароль'
WRONG = "hidden-from-all"
SEND, CHECK = ("send", "t", __file__, "--json"), ("check", "t", "--json")
PERF = ("perf", "--topic", "t", "--num-records", "1", "--record-size", "10", "--json")
TOP = ("top", "--once", "--topic", "t", "--rate", "50")


@pytest.fixture(scope="module")
def secured() -> Iterator[ClusterThread]:
    security = FakeSecurity(users={"alice": PASSWORD}, failed_authentication_delay_ms=0)
    with ClusterThread(1, topics={"t": 1}, security=security, auto_create_topics=False) as cluster:
        yield cluster


def settings_of(cluster: ClusterThread, mechanism: str, directory: Path) -> dict[str, str]:
    given = cluster.client_settings(mechanism=mechanism, directory=directory)
    return {"bootstrap.servers": cluster.bootstrap_servers, **given}


def by_options(settings: dict[str, str], _: Path) -> tuple[list[str], dict[str, str]]:
    return [part for key, value in settings.items() for part in ("-X", f"{key}={value}")], {}


def by_file(settings: dict[str, str], directory: Path) -> tuple[list[str], dict[str, str]]:
    """What Java's `Properties` reads so: ISO-8859-1, backslashes doubled, the rest as units of UTF-16."""
    path = directory / "client.properties"
    lines = (f"{key} = {value}\n".replace("\\", "\\\\") for key, value in settings.items())
    path.write_bytes("".join(lines).encode("ascii", "backslashreplace"))
    return ["--config", str(path)], {}


def by_environment(settings: dict[str, str], directory: Path) -> tuple[list[str], dict[str, str]]:
    """The secret in a file, as it comes into a container."""
    secret = directory / "jaas"
    secret.write_text(settings.pop("sasl.jaas.config") + "\n")
    variables = {"AIOPRODUCE_" + key.replace(".", "_").upper(): value for key, value in settings.items()}
    return [], {**variables, "AIOPRODUCE_SASL_JAAS_CONFIG_FILE": str(secret)}


@pytest.mark.parametrize(
    ("command", "give", "mechanism"),
    [
        (SEND, by_options, "SCRAM-SHA-256"),
        (SEND, by_environment, "OAUTHBEARER"),
        (PERF, by_file, "SCRAM-SHA-512"),
        (PERF, by_environment, "PLAIN"),
        (TOP, by_file, "PLAIN"),
        (CHECK, by_environment, "SCRAM-SHA-256"),
        (CHECK, by_options, "PLAIN"),
    ],
)
def test_it_is_let_in(
    command: tuple[str, ...], give: Any, mechanism: str, secured: ClusterThread, tmp_path: Path
) -> None:
    before = len(secured.records("t"))
    options, environment = give(settings_of(secured, mechanism, tmp_path), tmp_path)

    outcome = CliRunner().invoke(app, [*command, *options], env=environment)

    assert outcome.exit_code == 0, outcome.output
    if command is CHECK:
        steps = {step["step"]: step["text"] for step in json.loads(outcome.stdout)["trials"][0]["steps"]}
        assert steps["tls"].startswith("TLSv1.3")
        assert steps["login"].startswith(f"{mechanism} as alice")
    else:
        assert len(secured.records("t")) > before


@pytest.mark.parametrize(
    ("command", "give", "code"),
    [(SEND, by_file, 4), (PERF, by_file, 4), (TOP, by_options, 4), (CHECK, by_environment, 4)],
)
def test_a_wrong_password_is_one_line_after_one_attempt(
    command: tuple[str, ...], give: Any, code: int, secured: ClusterThread, tmp_path: Path
) -> None:
    settings = settings_of(secured, "SCRAM-SHA-256", tmp_path)
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].partition(" username=")[0] + (
        f' username="alice" password="{WRONG}";'
    )
    options, environment = give(settings, tmp_path)
    before = logins(secured)

    outcome = CliRunner().invoke(app, [*command, *options], env=environment)

    assert outcome.exit_code == code
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("error: ")
    assert "SASL_AUTHENTICATION_FAILED" in line
    assert "sasl.password" in line
    assert WRONG not in outcome.output
    assert 1 <= logins(secured) - before <= 2


def logins(cluster: ClusterThread) -> int:
    return cluster.requests.count(ApiKey.SASL_HANDSHAKE)


async def test_dev_writes_what_clients_need(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    process = await start_cli(
        *("dev", "--port", "0", "--brokers", "1", "--tls", "--sasl", "scram-sha-256"),
        *("--write-config", str(path), "--json"),
    )
    assert process.stdout is not None
    told = json.loads(await process.stdout.readline())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (told["security_protocol"], told["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-256")
    assert (told["user"], told["config_file"]) == ("developer", str(path))
    assert told["made_password"] in path.read_text()

    sent = await run_cli("send", "orders", "--config", str(path), "--json", stdin=b"1\n2\n")
    assert (sent.code, sent.json["acknowledged"]) == (0, 2), sent.err

    process.send_signal(signal.SIGINT)
    assert (await finish(process)).code == 0


@pytest.mark.extended("starts two processes")
async def test_what_dev_tells_people_and_leaves_behind() -> None:
    process = await start_cli(
        "dev", "--port", "0", "--sasl", "PLAIN", "--user", "José", "--password", PASSWORD
    )
    assert process.stdout is not None
    text = ""
    while "A topic is created" not in text:
        text += (await process.stdout.readline()).decode()
    facts = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    assert (facts["security"], facts["user"]) == ("SASL_PLAINTEXT PLAIN", "José")
    assert PASSWORD not in text
    path = Path(facts["clients' settings"])
    assert f"send orders --config {path}" in text

    sent = await run_cli("send", "orders", "--config", str(path), stdin=b"1\n")
    assert sent.code == 0, sent.err

    process.send_signal(signal.SIGTERM)
    outcome = await finish(process)
    assert outcome.code == 0
    assert outcome.err == (
        "warning: --sasl PLAIN without --tls sends the password unencrypted: add --tls, or use SCRAM\n"
    )
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"user": "alice"}, "give --sasl as well"),
        ({"mechanism": "OAUTHBEARER", "password": "x"}, "leave --password out"),
        ({"mechanism": "PLAIN", "password": ""}, "must not be empty"),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, str], told: str) -> None:
    options: dict[str, Any] = {
        "has_tls": False,
        "mechanism": None,
        "user": None,
        "password": None,
        "path": None,
    }
    with pytest.raises(ConfigError, match=told):
        make_access(**{**options, **given})


def test_a_file_of_another_s_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("acks=all\n")
    path.chmod(0o644)

    outcome = CliRunner().invoke(app, ["dev", "--port", "0", "--write-config", str(path)])

    assert outcome.exit_code == 2
    assert "not from `aioproduce dev`" in outcome.stderr
    assert path.read_text() == "acks=all\n"
    outcome = CliRunner().invoke(app, ["dev", "--port", "0", "--write-config", str(tmp_path / "no" / "x")])
    assert outcome.exit_code == 2
    assert "cannot be written: No such file" in outcome.stderr
    assert [*tmp_path.iterdir()] == [path]
