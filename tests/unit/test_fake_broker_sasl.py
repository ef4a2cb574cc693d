"""Logins at the broker model: which requests are served when, what is answered, and how connections end.

What is expected is what Apache Kafka's SaslServerAuthenticator does. SCRAM's client is scramp's, requests are made
by kio.
"""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any

import pytest

from aioproduce.testing import ClusterModel, FakeSecurity
from aioproduce.testing.fake_cluster.sasl_mechanisms import unsecured_token
from aioproduce.testing.fake_cluster.security import ClusterSecurity
from aioproduce.wire.api import ApiKey
from tests.unit.fake_broker_peer import EPOCH_MS, Peer, batch, init_producer_id, model, produce_request
from tests.unit.test_fake_broker_connections import api_versions, metadata

scramp: Any = importlib.import_module("scramp")  # which has no types

NONE, UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 0, 33, 34, 58
LOGIN = b"\0alice\0secret"


def secured(**options: Any) -> ClusterModel:
    cluster = model(topics={"t": 1})
    users = {"alice": "secret", "bob": "other"}
    ClusterSecurity(FakeSecurity("SASL_PLAINTEXT", users=users, **options), "127.0.0.1").install(cluster)
    return cluster


def handshake(mechanism: str = "PLAIN") -> Any:
    schema: Any = importlib.import_module("kio.schema.sasl_handshake.v1.request")
    return schema.SaslHandshakeRequest(mechanism=mechanism)


def token(content: bytes, version: int = 2) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.sasl_authenticate.v{version}.request")
    return schema.SaslAuthenticateRequest(auth_bytes=content)


def code(answer: Any) -> int:
    return int(answer.error_code.value)


def logged_in(cluster: ClusterModel, *, now: float = 0.0) -> Peer:
    peer = Peer(cluster, now=now)
    assert code(peer.ask(handshake(), now=now)) == NONE
    assert code(peer.ask(token(LOGIN), now=now)) == NONE
    return peer


def seconds(answer: Any) -> float:
    return float(answer.session_lifetime.total_seconds())


def tick(cluster: ClusterModel, peer: Peer, now: float) -> None:
    cluster.handle_timer(now)
    peer.drain()


# Which requests are served when


def test_versions_then_a_handshake_then_a_token_then_everything() -> None:
    peer = Peer(secured())
    offered = {
        entry.api_key: (entry.min_version, entry.max_version) for entry in peer.ask(api_versions(3)).api_keys
    }
    assert (offered[17], offered[36]) == ((1, 1), (0, 2))

    answer = peer.ask(handshake())
    assert (code(answer), answer.mechanisms) == (
        NONE,
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    )
    answer = peer.ask(token(LOGIN))
    assert (code(answer), answer.auth_bytes, seconds(answer)) == (NONE, b"", 0.0)
    assert peer.produce("t", batch(b"v")).error_code.value == NONE
    assert peer.ask(metadata("t")).topics[0].name == "t"


@pytest.mark.parametrize("request_", [metadata("t"), produce_request("t", {0: batch(b"v")}), token(LOGIN)])
@pytest.mark.parametrize("asks_versions", [False, True])
def test_before_the_handshake_nothing_else_is_answered(request_: Any, asks_versions: bool) -> None:
    cluster = secured()
    peer = Peer(cluster)
    if asks_versions:
        peer.ask(api_versions(3))
    peer.send(request_)
    closed = [peer.is_closed]
    tick(cluster, peer, 0.1)
    closed.append(peer.is_closed)
    assert (peer.answers(), closed, peer.is_reset) == ([], [False, True], False)
    assert not cluster.state.topics["t"].partitions[0].log.batches


def test_versions_are_told_once() -> None:
    cluster = secured()
    peer = Peer(cluster)
    peer.ask(api_versions(3))
    peer.send(api_versions(3))
    tick(cluster, peer, 0.1)
    assert (peer.answers(), peer.is_closed) == ([], True)


def test_versions_that_are_too_new_may_be_asked_again() -> None:
    cluster = secured()
    cluster.set_api_versions({ApiKey.API_VERSIONS: (0, 2)})
    peer = Peer(cluster)
    peer.send(api_versions(3))
    assert len(peer.frames()) == 1
    peer._asked.clear()
    assert code(peer.ask(api_versions(2))) == NONE
    assert code(peer.ask(handshake())) == NONE


@pytest.mark.parametrize(
    "request_",
    [
        metadata("t"),
        produce_request("t", {0: batch(b"v")}),
        produce_request("t", {0: batch(b"v")}, version=12),
        init_producer_id(),
        api_versions(3),
        handshake(),
    ],
)
def test_between_handshake_and_token_everything_else_is_illegal(request_: Any) -> None:
    cluster = secured()
    peer = Peer(cluster)
    peer.ask(handshake())
    answer = peer.ask(request_)
    if hasattr(answer, "responses"):
        answer = answer.responses[0].partition_responses[0]
    elif hasattr(answer, "topics"):
        answer = answer.topics[0]
    closed = [peer.is_closed]
    tick(cluster, peer, 0.1)
    assert (code(answer), [*closed, peer.is_closed]) == (ILLEGAL_STATE, [False, True])
    assert not cluster.state.topics["t"].partitions[0].log.batches


def test_produce_in_the_middle_of_logging_in_again_is_illegal() -> None:
    cluster = secured()
    peer = logged_in(cluster)
    peer.ask(handshake(), now=5.0)
    assert peer.produce("t", batch(b"v"), now=5.0).error_code.value == ILLEGAL_STATE
    tick(cluster, peer, 5.1)
    assert peer.is_closed


def test_a_mechanism_that_is_not_enabled() -> None:
    cluster = secured(mechanisms=("SCRAM-SHA-256",))
    peer = Peer(cluster)
    answer = peer.ask(handshake("PLAIN"))
    assert (code(answer), answer.mechanisms) == (UNSUPPORTED_MECHANISM, ("SCRAM-SHA-256",))
    tick(cluster, peer, 0.1)
    assert peer.is_closed


def test_a_listener_without_sasl_says_so() -> None:
    cluster = model()
    ClusterSecurity(FakeSecurity("PLAINTEXT"), "127.0.0.1").install(cluster)
    peer = Peer(cluster)
    assert code(peer.ask(handshake())) == ILLEGAL_STATE
    assert code(peer.ask(token(LOGIN))) == ILLEGAL_STATE
    assert code(peer.ask(api_versions(3))) == NONE


# Logins that fail


def test_a_wrong_password_is_answered_and_the_connection_closed_later() -> None:
    cluster = secured(failed_authentication_delay_ms=300)
    peer = Peer(cluster)
    peer.ask(handshake())
    answer = peer.ask(token(b"\0alice\0wrong"))
    assert (code(answer), answer.error_message) == (
        FAILED,
        "Authentication failed: Invalid username or password",
    )
    peer.send(token(LOGIN), now=0.1)
    closed = []
    for now in (0.1, 0.29, 0.3):
        tick(cluster, peer, now)
        closed.append(peer.is_closed)
    assert (peer.answers(), closed) == ([], [False, False, True])


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0\0",
        b"\xff\0alice\0secret",
        b"bob\0alice\0secret",
    ],
)
def test_plain_that_is_none(said: bytes) -> None:
    peer = Peer(secured())
    peer.ask(handshake())
    assert code(peer.ask(token(said))) == FAILED


def test_a_refusal_that_is_scripted() -> None:
    cluster = secured()
    cluster.faults.refuse_login("not today")
    peer = Peer(cluster)
    peer.ask(handshake())
    assert peer.ask(token(LOGIN)).error_message == "not today"
    logged_in(cluster)


def test_an_answer_that_is_late() -> None:
    cluster = secured()
    cluster.faults.delay_answers(2.0, api=ApiKey.SASL_AUTHENTICATE, times=1)
    peer = Peer(cluster)
    peer.ask(handshake())
    peer.send(token(b"\0alice\0wrong"))
    tick(cluster, peer, 1.9)
    assert peer.answers() == []
    tick(cluster, peer, 2.0)
    assert code(peer.answers()[0]) == FAILED
    assert peer.is_closed


# SCRAM, by another client


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_scram_with_scramp(mechanism: str, password: str) -> None:
    cluster = secured(scram_iterations=4096)
    client = scramp.ScramClient([mechanism], "alice", password)
    peer = Peer(cluster)
    assert code(peer.ask(handshake(mechanism))) == NONE
    first = peer.ask(token(client.get_client_first().encode()))
    assert code(first) == NONE
    client.set_server_first(first.auth_bytes.decode())
    final = peer.ask(token(client.get_client_final().encode()))
    if password == "wrong":
        assert code(final) == FAILED
        assert final.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + mechanism
        )
    else:
        assert code(final) == NONE
        client.set_server_final(final.auth_bytes.decode())
        assert cluster.connections[0].login is not None
        assert cluster.connections[0].login.principal == "alice"


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace("c=biws", "c=eSws"),
        lambda final: final.replace(",r=", ",r=x"),
        lambda final: final[:-4] + "AAA=",
        lambda final: final.split(",p=")[0],
        lambda final: final.split(",p=")[0] + ",p=",
        lambda final: final.split(",p=")[0] + ",p=é",
        lambda _: "",
    ],
)
def test_scram_with_a_final_message_that_is_changed(change: Any) -> None:
    client = scramp.ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    peer = Peer(secured())
    peer.ask(handshake("SCRAM-SHA-256"))
    client.set_server_first(peer.ask(token(client.get_client_first().encode())).auth_bytes.decode())
    assert code(peer.ask(token(change(client.get_client_final()).encode()))) == FAILED


@pytest.mark.parametrize(
    "said",
    ["", "y,,n=alice,r=abc", "n,,n=alice", "n,a=bob,n=alice,r=abc", "n,,n=a=b,r=abc", "n,,n=carol,r=a"],
)
def test_scram_with_a_first_message_that_is_none(said: str) -> None:
    peer = Peer(secured())
    peer.ask(handshake("SCRAM-SHA-256"))
    assert code(peer.ask(token(said.encode()))) == FAILED


# OAUTHBEARER


def bearer(said: str, *more: str) -> bytes:
    return "".join(("n,,\x01auth=Bearer ", said, "\x01", *(f"{each}\x01" for each in more), "\x01")).encode()


def jwt(lifetime: float = 60.0, **claims: Any) -> str:
    return unsecured_token("alice", issued_at=EPOCH_MS / 1000, lifetime=lifetime, **claims)


def test_a_token_ends_its_session_and_brings_extensions() -> None:
    cluster = secured()
    peer = Peer(cluster)
    peer.ask(handshake("OAUTHBEARER"), now=10.0)
    answer = peer.ask(token(bearer(jwt(60.0), "logicalCluster=lkc-1")), now=10.0)
    assert (code(answer), seconds(answer)) == (NONE, 50.0)
    login = cluster.connections[0].login
    assert login is not None
    assert (login.principal, login.extensions) == ("alice", {"logicalCluster": "lkc-1"})
    assert peer.produce("t", batch(b"v"), now=60.0).error_code.value == NONE
    peer.send(metadata("t"), now=60.01)
    assert (peer.answers(), peer.is_closed) == ([], True)


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "said",
    [
        jwt(-1.0),
        "",
        "a.b",
        "a.b.c",
        f"{_encoded({'alg': 'RS256'})}.{_encoded({'sub': 'alice', 'exp': 9e12})}.c2ln",
        f"{_encoded({'alg': 'none'})}.{_encoded({'exp': 9e12})}.",
        f"{_encoded([])}.{_encoded([])}.",
        f"{_encoded({'alg': 'none'})}.{_encoded({'sub': 'alice', 'exp': float('nan')})}.",
        f"{_encoded({'alg': 'none'})}.{_encoded({'sub': 'alice', 'exp': 10**400})}.",
        base64.urlsafe_b64encode(b"[" * 30_000).decode() + "..",
    ],
    ids=range(10),
)
def test_a_token_that_is_no_good_is_refused_in_two_steps(said: str) -> None:
    peer = Peer(secured())
    peer.ask(handshake("OAUTHBEARER"))
    answer = peer.ask(token(bearer(said)))
    assert (code(answer), json.loads(answer.auth_bytes)) == (NONE, {"status": "invalid_token"})
    assert code(peer.ask(token(b"\x01"))) == FAILED


def test_a_verifier_of_ones_own() -> None:
    def verify(said: str) -> dict[str, Any]:
        if said != "opaque":
            raise ValueError(said)
        return {"sub": "service", "exp": EPOCH_MS / 1000 + 5}

    cluster = secured(verify_token=verify)
    peer = Peer(cluster)
    peer.ask(handshake("OAUTHBEARER"))
    assert seconds(peer.ask(token(bearer("opaque")))) == 5.0


# Sessions (KIP-368)


def test_the_lifetime_of_a_session_is_told_and_kept() -> None:
    cluster = secured(connections_max_reauth_ms=3000)
    peer = Peer(cluster)
    peer.ask(handshake())
    assert seconds(peer.ask(token(LOGIN, 1))) == 3.0
    assert peer.produce("t", batch(b"v"), now=3.0).error_code.value == NONE
    peer.send(produce_request("t", {0: batch(b"w")}), now=3.01)
    assert (peer.answers(), peer.is_closed) == ([], True)
    assert len(cluster.state.topics["t"].partitions[0].log.batches) == 1


def test_who_logs_in_again_goes_on() -> None:
    cluster = secured(connections_max_reauth_ms=3000)
    peer = logged_in(cluster)
    assert code(peer.ask(handshake(), now=2.7)) == NONE
    assert seconds(peer.ask(token(LOGIN), now=2.8)) == 3.0
    assert peer.produce("t", batch(b"v"), now=5.8).error_code.value == NONE
    login = cluster.connections[0].login
    assert login is not None
    assert login.logins == 2


def test_requests_that_were_sent_with_the_handshake_are_answered_before_it() -> None:
    peer = logged_in(secured())
    peer.send(produce_request("t", {0: batch(b"v")}), now=5.0)
    peer.send(metadata("t"), now=5.0)
    peer.send(handshake(), now=5.0)
    produced, described, greeted = peer.answers()
    assert produced.responses[0].partition_responses[0].error_code.value == NONE
    assert described.topics[0].name == "t"
    assert code(greeted) == NONE


def test_a_session_that_is_over_can_be_renewed() -> None:
    cluster = secured(connections_max_reauth_ms=3000)
    peer = logged_in(cluster)
    assert code(peer.ask(handshake(), now=4.0)) == NONE
    assert code(peer.ask(token(LOGIN), now=4.0)) == NONE
    assert peer.produce("t", batch(b"v"), now=4.0).error_code.value == NONE


def test_a_second_renewal_within_a_second_is_refused_and_the_session_goes_on() -> None:
    peer = logged_in(secured())
    peer.ask(handshake(), now=0.1)
    peer.ask(token(LOGIN), now=0.1)
    assert code(peer.ask(handshake(), now=1.0)) == ILLEGAL_STATE
    assert code(peer.ask(token(LOGIN), now=1.0)) == ILLEGAL_STATE
    assert peer.produce("t", batch(b"v"), now=1.0).error_code.value == NONE
    assert code(peer.ask(handshake(), now=1.1)) == NONE


def test_nobody_becomes_somebody_else() -> None:
    cluster = secured()
    peer = logged_in(cluster)
    peer.ask(handshake(), now=5.0)
    answer = peer.ask(token(b"\0bob\0other"), now=5.0)
    assert code(answer) == FAILED
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    tick(cluster, peer, 5.1)
    assert peer.is_closed


def test_nor_logs_in_again_by_another_mechanism() -> None:
    peer = logged_in(secured())
    assert code(peer.ask(handshake("SCRAM-SHA-256"), now=5.0)) == NONE
    answer = peer.ask(token(b"n,,n=alice,r=abc"), now=5.0)
    assert code(answer) == FAILED
    assert "not supported for re-authentication" in answer.error_message


@pytest.mark.parametrize("announced", [-5000, 0, 1])
def test_a_lifetime_is_announced_as_the_test_has_it(announced: int) -> None:
    peer = Peer(secured(session_lifetime_ms=announced))
    peer.ask(handshake())
    assert seconds(peer.ask(token(LOGIN))) == announced / 1000
    assert peer.produce("t", batch(b"v"), now=1000.0).error_code.value == NONE


def test_sessions_are_ended_by_a_fault() -> None:
    cluster = secured()
    peer = logged_in(cluster)
    cluster.faults.end_sessions()
    peer.send(metadata("t"))
    assert (peer.answers(), peer.is_closed) == ([], True)


# What users ask for


@pytest.mark.parametrize(
    "options",
    [{"protocol": "TLS"}, {"mechanisms": ("GSSAPI",)}, {"mechanisms": ()}],
)
def test_what_is_not_kafkas_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"choose from"):
        FakeSecurity(**options)
