"""`aioproduce check`: which step fails, what it says, and the exit code, against a cluster that is secured."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from aioproduce.cli.check import Findings, examine
from aioproduce.cli.check_view import findings_view, problem_lines
from aioproduce.cli.display import rendered
from aioproduce.config import ProducerConfig
from aioproduce.testing import FakeCluster, FakeSecurity
from aioproduce.testing.fake_cluster.security import FakeTls
from tests.cli.command import run_cli

SECRET = "hidden-from-all"


def _unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


async def _check(
    settings: dict[str, str], servers: str, topic: str | None = None, timeout: float = 5.0
) -> Findings:
    config = ProducerConfig.from_mapping({**settings, "bootstrap.servers": servers})
    return await examine(config, topic, timeout)


def _failed_at(findings: Findings) -> tuple[str, int, str | None]:
    failure = findings.failures[0].failure
    assert failure is not None
    return failure.name, int(findings.exit_code), failure.setting


async def test_every_step_of_a_login_over_tls() -> None:
    security = FakeSecurity(
        users={"alice": SECRET}, mechanisms=("SCRAM-SHA-256",), connections_max_reauth_ms=60_000
    )
    async with FakeCluster(3, topics={"t": 6}, security=security) as cluster:
        findings = await _check(cluster.client_settings(), cluster.bootstrap_servers, "t")

        assert findings.exit_code == 0
        assert findings.brokers == {node: f"127.0.0.1:{port}" for node, port in cluster.ports.items()}
        assert len(findings.trials) == 3
        steps = {step.name: step.text for step in findings.trials[0].steps}
        assert list(steps) == ["resolve", "connect", "tls", "versions", "login", "metadata", "authorize"]
        assert steps["resolve"] == "127.0.0.1"
        assert steps["tls"].startswith("TLSv1.3, TLS_")
        assert "certificate CN=aioproduce test broker until " in steps["tls"]
        assert "SCRAM-SHA-256 as alice, for a session of 60 s" in steps["login"]
        assert steps["authorize"] == "may write to topic 't', 6 partition(s)"
        shown = rendered(findings_view(findings)) + json.dumps(findings.as_json())
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("certificate", "words"),
    [("expired", "expired"), ("wrong host", "127.0.0.1"), ("unknown authority", "ssl.truststore")],
)
async def test_a_certificate_that_is_refused(certificate: str, words: str) -> None:
    security = FakeSecurity("SSL", tls=FakeTls(certificate=certificate))
    async with FakeCluster(1, security=security) as cluster:
        findings = await _check(cluster.client_settings(), cluster.bootstrap_servers)

    name, code, _ = _failed_at(findings)
    assert (name, code) == ("tls", 3)
    assert words in next(problem_lines(findings))


@pytest.mark.parametrize(
    ("spoken", "expected", "failed_at"),
    [
        ("SSL", {"security.protocol": "PLAINTEXT"}, ("tls", 3, "security.protocol")),
        ("PLAINTEXT", {"security.protocol": "SSL"}, ("tls", 3, "security.protocol")),
        ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, ("login", 4, "security.protocol")),
        (
            "PLAINTEXT",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": SECRET,
            },
            ("login", 4, "security.protocol"),
        ),
    ],
)
async def test_another_protocol_than_the_listener_s(
    spoken: str, expected: dict[str, str], failed_at: tuple[str, int, str]
) -> None:
    async with FakeCluster(1, security=FakeSecurity(spoken)) as cluster:
        assert _failed_at(await _check(expected, cluster.bootstrap_servers)) == failed_at


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"sasl.password": SECRET}, "sasl.jaas.config"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl.mechanism"),
    ],
)
async def test_a_login_that_is_refused(changed: dict[str, str], setting: str) -> None:
    security = FakeSecurity("SASL_PLAINTEXT", mechanisms=("PLAIN",), users={"alice": "right"})
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "right",
    }
    async with FakeCluster(1, security=security) as cluster:
        findings = await _check(settings | changed, cluster.bootstrap_servers)

    assert _failed_at(findings) == ("login", 4, setting)
    assert SECRET not in "".join(problem_lines(findings))


@pytest.mark.parametrize("may_describe", [False, True])
async def test_a_topic_that_is_denied(cluster: FakeCluster, may_describe: bool) -> None:
    cluster.deny_topic("t", may_describe=may_describe)

    findings = await _check({}, cluster.bootstrap_servers, "t")

    assert _failed_at(findings) == ("authorize", 5, None)
    assert "Write" in next(problem_lines(findings))


async def test_a_topic_that_is_not_there_is_not_created() -> None:
    async with FakeCluster(1) as cluster:
        findings = await _check({}, cluster.bootstrap_servers, "nowhere")

        assert _failed_at(findings)[:2] == ("metadata", 1)
        assert "nowhere" not in cluster.topics


async def test_a_closed_port_and_a_name_without_address() -> None:
    closed = await _check({}, f"127.0.0.1:{_unused_port()}")
    unknown = await _check({}, "no-such-host.invalid:9092")

    assert _failed_at(closed) == ("connect", 1, "bootstrap.servers")
    assert _failed_at(unknown) == ("resolve", 1, "bootstrap.servers")


async def test_a_bootstrap_server_that_is_down_is_a_warning(cluster: FakeCluster) -> None:
    down = f"127.0.0.1:{_unused_port()}"

    findings = await _check({}, f"{down},{cluster.bootstrap_servers}")

    assert findings.exit_code == 0
    assert [line.split(" fails")[0] for line in problem_lines(findings)] == [f"warning: {down}"]


async def test_a_peer_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        findings = await _check({}, f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)

    assert _failed_at(findings)[:2] == ("versions", 1)
    assert "within 0.3 s (--timeout)" in next(problem_lines(findings))


async def test_the_command(tmp_path: Path) -> None:
    async with FakeCluster(1, security=FakeSecurity(users={"alice": "right"})) as cluster:
        settings = cluster.client_settings(directory=tmp_path, mechanism="PLAIN")
        wrong = {**settings, "sasl.jaas.config": settings["sasl.jaas.config"].replace("right", SECRET)}
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in wrong.items()))
        outcome = await run_cli("check", "-b", cluster.bootstrap_servers, "--config", str(path), "--json")

    assert outcome.code == 4
    answer: dict[str, Any] = outcome.json
    assert (answer["is_reachable"], answer["exit_code"]) == (False, 4)
    assert answer["trials"][0]["failed_at"] == "login"
    assert [step["is_done"] for step in answer["trials"][0]["steps"]] == [True] * 4 + [False]
    assert "fails at login: cannot log in" in outcome.err
    assert SECRET not in outcome.out + outcome.err


async def test_a_broker_that_metadata_names_and_that_is_not_there(cluster: FakeCluster) -> None:
    cluster.faults.freeze_metadata(0)
    gone = f"127.0.0.1:{cluster.ports[2]}"
    await cluster.stop_broker(2)

    findings = await _check({}, f"127.0.0.1:{cluster.ports[0]}")

    assert [trial.address for trial in findings.failures] == [gone]
    assert _failed_at(findings) == ("connect", 1, "advertised.listeners")
    shown = rendered(findings_view(findings))
    assert f"127.0.0.1:{cluster.ports[1]} (broker 1): every step done in " in shown
    assert f"{gone} (broker 2)" in shown
