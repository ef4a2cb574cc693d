"""The matrix: every transport with every mechanism, on each of our loops, against a real Kafka.

`python -m tests.integration.security_table` makes `docs/reference/security-matrix.md` of a run's results.

1. The keys are those of a Java client's `.properties` file, with which Java's own client has passed
   (`test_secured_kafka.py`).
2. What was written is read back by librdkafka, over plaintext.
"""

from __future__ import annotations

import itertools
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.integration.securely import CLIENTS, PAIRS, RECORDS, send, send_idle_send
from tests.secured import kdc
from tests.secured.cells import CELLS, MSK, NONE, OIDC, Cell
from tests.secured.listeners import LISTENERS

if TYPE_CHECKING:
    from tests.secured.kafka import SecuredKafka

pytest.importorskip("aioproduce.security.making", reason="the producer has no security yet")

IN_GATE = [
    (Cell("tls1.2", NONE), "trio"),
    (Cell("mutual", NONE), "blocking"),
    (Cell("tls1.2", "PLAIN"), "asyncio"),
    (Cell("tls1.3", "SCRAM-SHA-256"), "uvloop"),
    (Cell("mutual", "SCRAM-SHA-512"), "trio"),
    (Cell("plaintext", "OAUTHBEARER"), "blocking"),
    (Cell("tls1.3", OIDC), "asyncio"),
    (Cell("tls1.3", "GSSAPI"), "trio"),
    (Cell("tls1.2", MSK), "uvloop"),
]
"""Each transport, mechanism and loop at least once."""
EXTENDED = pytest.mark.extended("each transport, mechanism and loop stays in the gate once")


def prepare(cell: Cell, cluster: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The keys of our producer, and what else its process needs; skips where the machine lacks it."""
    if cell.mechanism == "GSSAPI":
        if cluster.kdc is None:
            pytest.skip(str(kdc.why_not()))
        if find_spec("gssapi") is None:
            pytest.skip(f"{kdc.NO_KDC}the package gssapi is not installed")
        for name, value in cluster.kdc.environment.items():
            monkeypatch.setenv(name, value)
    keys = cell.keys(cluster)
    if cell.mechanism == OIDC:
        keys["sasl.oauthbearer.token.endpoint.ca.location"] = str(cluster.certificates.ca)
    if cell.mechanism == MSK:
        signer = pytest.importorskip(
            "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", reason="AWS's signer is not installed"
        )

        def sign(region: str, *_: object, **__: object) -> tuple[str, int]:
            assert region == "eu-west-1"
            return cluster.tokens.token(), int((time.time() + 900) * 1000)

        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        monkeypatch.setattr(signer, "generate_auth_token", sign)
    return keys


@pytest.mark.parametrize(
    ("cell", "client"),
    [
        pytest.param(*each, marks=() if each in IN_GATE else EXTENDED)
        for each in itertools.product(CELLS, CLIENTS)
    ],
    ids=str,
)
def test_records_arrive(
    secured1: SecuredKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch, cell: Cell, client: str
) -> None:
    keys = prepare(cell, secured1, monkeypatch)
    secured1.create_topic(topic_name, partitions=3)
    told = send(client, keys, topic_name)
    found = {(each.partition, each.offset): (each.key, each.value) for each in secured1.read_back(topic_name)}
    assert len(found) == RECORDS
    assert [found[each.partition, each.offset] for each in told] == PAIRS


@pytest.mark.parametrize(
    ("mechanism", "client"),
    [
        pytest.param(*each, marks=() if each == ("SCRAM-SHA-512", "asyncio") else EXTENDED)
        for each in itertools.product([NONE, "PLAIN", "SCRAM-SHA-512", OIDC], CLIENTS)
    ],
)
def test_a_connection_closed_for_want_of_use_is_made_and_logged_in_anew(
    secured1: SecuredKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch, mechanism: str, client: str
) -> None:
    keys = prepare(Cell("tls1.3", mechanism), secured1, monkeypatch)
    secured1.create_topic(topic_name, partitions=3)
    told = send_idle_send(client, keys, topic_name)
    found = {(each.partition, each.offset): (each.key, each.value) for each in secured1.read_back(topic_name)}
    assert [found[each.partition, each.offset] for each in told] == PAIRS


@pytest.mark.extended("three more users for each mechanism with passwords")
@pytest.mark.parametrize("user", ["fish", "umlauts", "long"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", CLIENTS)
def test_an_odd_password_logs_in(
    secured1: SecuredKafka, topic_name: str, client: str, mechanism: str, user: str
) -> None:
    secured1.create_topic(topic_name, partitions=3)
    send(client, Cell("tls1.3", mechanism).keys(secured1, user), topic_name)
    assert sorted((each.key, each.value) for each in secured1.read_back(topic_name)) == sorted(PAIRS)


def test_every_cell_has_a_listener() -> None:
    assert {cell.listener for cell in CELLS} <= {*LISTENERS, "CLIENTS"}
