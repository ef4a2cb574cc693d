"""Settings from environment variables: names, files with secrets, and variables of somebody else's."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from aioproduce.config import KEYS, ProducerConfig, Secret, load_environment
from aioproduce.errors import ConfigError

SECRET = "hunter2-do-not-show"
# As Confluent's and Apache's images, Kubernetes (of a service called kafka) and brokers' settings have them.
OTHERS = """
KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_JMX_PORT KAFKA_JMX_OPTS KAFKA_LOG4J_OPTS KAFKA_JVM_PERFORMANCE_OPTS
KAFKA_VERSION KAFKA_HOME KAFKA_GC_LOG_OPTS KAFKA_DEBUG KAFKA_PORT KAFKA_PORT_9092_TCP
KAFKA_PORT_9092_TCP_ADDR KAFKA_SERVICE_HOST KAFKA_SERVICE_PORT KAFKA_SERVICE_PORT_TCP_CLIENT KAFKA_BROKER_ID
KAFKA_NODE_ID KAFKA_ADVERTISED_LISTENERS KAFKA_LISTENERS KAFKA_LISTENER_SECURITY_PROTOCOL_MAP
KAFKA_INTER_BROKER_LISTENER_NAME KAFKA_ZOOKEEPER_CONNECT KAFKA_SSL_KEYSTORE_FILENAME
KAFKA_SSL_KEYSTORE_CREDENTIALS KAFKA_SSL_KEY_CREDENTIALS KAFKA_SSL_TRUSTSTORE_FILENAME
KAFKA_SSL_TRUSTSTORE_CREDENTIALS KAFKA_SSL_CLIENT_AUTH KAFKA_SASL_ENABLED_MECHANISMS
KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL KAFKA_SECURITY_INTER_BROKER_PROTOCOL KAFKA_LOG_DIRS
KAFKA_AUTO_CREATE_TOPICS_ENABLE KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR KAFKA_PROCESS_ROLES
KAFKA_TRANSACTION_STATE_LOG_MIN_ISR KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS KAFKA_TOPIC KAFKA_GROUP_ID
""".split()  # noqa: SIM905


def refused(environ: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_environment(environ={"KAFKA_BOOTSTRAP_SERVERS": "a:1", **environ})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_each_key_has_a_variable() -> None:
    environ = {f"KAFKA_{key.keyword.upper()}": key.name for key in KEYS.values()}
    assert load_environment(environ=environ) == {name: name for name in KEYS}


def test_settings_are_read_as_strings_and_keywords_go_before_them() -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "KAFKA_LINGER_MS": "20", "KAFKA_SECURITY_PROTOCOL": "ssl"}
    made = ProducerConfig.from_environment(environ=environ, linger_ms=7)
    assert (made.bootstrap_servers, made.linger, made.security_protocol) == ((("a", 1),), 0.007, "SSL")
    assert refused({"KAFKA_LINGER_MS": "soon"}).key == "linger.ms"


def test_the_process_has_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_BOOTSTRAP_SERVERS", "b:2")
    assert ProducerConfig.from_environment("STREAM_").bootstrap_servers == (("b", 2),)


def test_variables_of_others_are_left_alone() -> None:
    assert (
        load_environment(environ=dict.fromkeys(OTHERS, SECRET) | {"LINGER_MS": "7", "kafka_linger_ms": "7"})
        == {}
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("KAFKA_SECURTY_PROTOCOL", "KAFKA_SECURITY_PROTOCOL"),
        ("KAFKA_SASL_PASWORD", "KAFKA_SASL_PASSWORD"),
        ("KAFKA_SASL_PASWORD_FILE", "KAFKA_SASL_PASSWORD"),
        ("KAFKA_BOOTSTRAP_SERVER", "KAFKA_BOOTSTRAP_SERVERS"),
        ("KAFKA_SSL_TRUSTSTORE_LOCTION", "KAFKA_SSL_TRUSTSTORE_LOCATION"),
    ],
)
def test_what_is_nearly_a_key_is_a_typing_error(written: str, meant: str) -> None:
    error = refused({written: SECRET})
    assert (error.key, error.suggestion) == (written, meant)
    assert f"{written} is not a key: did you mean {meant}?" in str(error)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_may_be_in_a_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(f" pä=ss\n{SECRET} {end}".encode())
    made = ProducerConfig.from_environment(
        environ={
            "KAFKA_BOOTSTRAP_SERVERS": "a:1",
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SASL_MECHANISM": "PLAIN",
            "KAFKA_SASL_USERNAME": "me",
            "KAFKA_SASL_PASSWORD_FILE": str(path),
        }
    )
    assert made.sasl_password == Secret(f" pä=ss\n{SECRET} ")
    assert SECRET not in repr(made)


def test_a_key_that_ends_so_is_a_path_itself(tmp_path: Path) -> None:
    name = "KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE"
    assert load_environment(environ={name: "/a.jwt"}) == {"sasl.oauthbearer.assertion.file": "/a.jwt"}
    path = tmp_path / "path"
    path.write_text("/b.jwt\n")
    assert load_environment(environ={f"{name}_FILE": str(path)}) == {
        "sasl.oauthbearer.assertion.file": "/b.jwt"
    }


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(SECRET.encode() + b"\xff")
    large = tmp_path / "large"
    large.write_bytes(b"x" * (2**20 + 1))
    for path, words in (
        (tmp_path / "absent", "No such file"),
        (tmp_path, "Is a directory"),
        (broken, "not UTF-8"),
        (large, "more than 1048576 bytes"),
    ):
        text = str(refused({"KAFKA_SASL_PASSWORD_FILE": os.fspath(path)}))
        assert "KAFKA_SASL_PASSWORD_FILE" in text
        assert words in text


def test_a_value_and_a_file_of_it() -> None:
    for names in (("", "_FILE"), ("_FILE", "")):
        environ = {f"KAFKA_SASL_PASSWORD{end}": os.devnull for end in names}
        assert refused(environ).key == "sasl.password"
