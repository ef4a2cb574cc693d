"""Shows that the secured Kafka is what the security tests take it for, with clients that are not ours.

If one of these fails, no other security test says anything about our producer.

1. Each listener takes what it is to take: librdkafka and, where its wheels lack the mechanism, Java's console
   producer write records, which are read back by the plaintext listener.
2. Each listener refuses what it is to refuse, by librdkafka's account.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.gate.marks import others_extended
from tests.secured import kdc
from tests.secured.cells import CELLS, MSK, NONE, TRANSPORTS, Cell, for_librdkafka
from tests.secured.kafka import SecuredKafka
from tests.secured.listeners import PASSWORDS, UNSOUND

if TYPE_CHECKING:
    from pathlib import Path

# Far above what any of it takes: a bound for a hang, not a budget.
PATIENCE = 60.0

PAIRS = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(20)]


class Judge:
    """What librdkafka says of a listener."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.errors: list[str] = []
        quiet = {"log_level": 0, "error_cb": lambda error: self.errors.append(error.str())}
        # It is to say at once what it thinks, and not to hide a second failure like the first one.
        self._settings = settings | quiet | {"reconnect.backoff.max.ms": 100, "log.connection.close": True}

    def write(self, topic: str) -> None:
        """Write `PAIRS`."""
        producer = Producer(self._settings | {"delivery.timeout.ms": int(PATIENCE * 1000)})
        told: list[KafkaError | None] = []
        for key, value in PAIRS:
            producer.produce(topic, value, key, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(PATIENCE) == 0, self.errors
        assert told == [None] * len(PAIRS)

    def refusal(self) -> str:
        """Why it has no connection."""
        admin = AdminClient(self._settings)
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1.5)
        admin.poll(0)
        return "\n".join(self.errors)


def test_the_users_passwords_are_what_they_are_said_to_be() -> None:
    assert PASSWORDS["fish"].encode() == b"\xef\xac\x81sh"
    assert len(PASSWORDS["long"].encode()) == 255
    assert set("ä=,") < set(PASSWORDS["umlauts"])


@pytest.mark.parametrize(
    "cell",
    others_extended(
        [cell for cell in CELLS if cell.mechanism not in ("GSSAPI", MSK)],
        keep=[Cell("tls1.3", "SCRAM-SHA-256"), Cell("mutual", "OIDC"), Cell("tls1.2", "OAUTHBEARER")],
        reason="three listeners of eleven, each with another mechanism, stay in the gate",
    ),
    ids=str,
)
def test_librdkafka_writes(secured1: SecuredKafka, topic_name: str, cell: Cell) -> None:
    secured1.create_topic(topic_name, partitions=3)
    judge = Judge(for_librdkafka(cell, secured1))
    judge.write(topic_name)
    assert sorted((record.key, record.value) for record in secured1.read_back(topic_name)) == sorted(PAIRS)
    assert judge.errors == []


@pytest.mark.extended("three listeners with librdkafka stay in the gate")
@pytest.mark.parametrize("user", ["fish", "umlauts", "long"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_writes_with_an_odd_password(
    secured1: SecuredKafka, topic_name: str, mechanism: str, user: str
) -> None:
    secured1.create_topic(topic_name)
    Judge(for_librdkafka(Cell("plaintext", mechanism), secured1, user)).write(topic_name)
    assert sorted((record.key, record.value) for record in secured1.read_back(topic_name)) == sorted(PAIRS)


@pytest.mark.extended("starts a JVM for each case; three listeners with librdkafka stay in the gate")
@pytest.mark.parametrize(
    "cell",
    [
        *(Cell(transport, "GSSAPI") for transport in TRANSPORTS),
        Cell("tls1.3", "PLAIN"),
        Cell("mutual", NONE),
        Cell("plaintext", "OAUTHBEARER"),
    ],
    ids=str,
)
def test_java_writes(secured1: SecuredKafka, topic_name: str, tmp_path: Path, cell: Cell) -> None:
    """With the very keys of `Cell.keys()`, which our own producer gets as well."""
    need_kdc(cell, secured1)
    secured1.create_topic(topic_name, partitions=3)
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in cell.keys(secured1).items()))
    command = secured1.tools.command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", cell.bootstrap_servers(secured1), "--topic", topic_name),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        *("--command-config", str(config)),
    )
    if secured1.kdc is not None:
        command.insert(1, f"-Djava.security.krb5.conf={secured1.kdc.config}")
    lines = b"".join(b"%s|%s\n" % pair for pair in PAIRS)
    subprocess.run(command, input=lines, check=True, capture_output=True, timeout=PATIENCE)
    assert sorted((record.key, record.value) for record in secured1.read_back(topic_name)) == sorted(PAIRS)


def need_kdc(cell: Cell, cluster: SecuredKafka) -> None:
    """Skip a cell of GSSAPI where there is no Kerberos."""
    if cell.mechanism == "GSSAPI" and cluster.kdc is None:
        pytest.skip(str(kdc.why_not()))


REFUSALS: dict[str, tuple[Cell, str, dict[str, Any], str]] = {
    # name: cell, listener, further settings, a part of what librdkafka says
    "wrong password": (
        Cell("tls1.3", "PLAIN"),
        "TLS13_SASL",
        {"sasl.password": "wrong"},
        "Authentication failed",
    ),
    "wrong password of SCRAM": (
        Cell("plaintext", "SCRAM-SHA-512"),
        "SASL",
        {"sasl.password": "wrong"},
        "Authentication failed",
    ),
    "disabled mechanism": (Cell("plaintext", "PLAIN"), "JWKS", {}, "mechanism"),
    "unsigned token": (Cell("plaintext", "OAUTHBEARER"), "JWKS", {}, "invalid_token"),
    "no client certificate": (Cell("tls1.2", NONE), "MUTUAL", {}, "alert number"),
    "plaintext to TLS": (Cell("plaintext", NONE), "TLS13", {}, "brokers are down"),
    "TLS to plaintext": (Cell("tls1.3", NONE), "CLIENTS", {}, "SSL handshake failed"),
    "no login": (Cell("plaintext", NONE), "SASL", {}, "brokers are down"),
    "a login where there is none": (Cell("tls1.3", "PLAIN"), "TLS13", {}, "not valid in current SASL state"),
    **{leaf: (Cell("tls1.3", NONE), leaf.upper(), {}, "certificate verify failed") for leaf in UNSOUND},
}


@pytest.mark.extended("waits a second for each case; refusals of our producer stay in the gate")
@pytest.mark.parametrize("name", REFUSALS)
def test_librdkafka_is_refused(secured1: SecuredKafka, name: str) -> None:
    cell, listener, further, said = REFUSALS[name]
    servers = secured1.bootstrap_servers if listener == "CLIENTS" else secured1.listener(listener)
    settings = for_librdkafka(cell, secured1) | {"bootstrap.servers": servers} | further
    if name == "revoked":
        settings["ssl.crl.location"] = str(secured1.certificates.crl)
    assert said in Judge(settings).refusal()


@pytest.mark.extended("three listeners with librdkafka stay in the gate")
@pytest.mark.parametrize("leaf", ["expired", "early", "alone", "forgotten"])
def test_a_bad_client_certificate_is_refused(secured1: SecuredKafka, leaf: str) -> None:
    pem = str(secured1.certificates.leaves[leaf].pem)
    files = {"ssl.certificate.location": pem, "ssl.key.location": pem}
    assert "alert" in Judge(for_librdkafka(Cell("mutual", NONE), secured1) | files).refusal()
