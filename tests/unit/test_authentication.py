"""The logins of one connection: the conversation, re-authentication (KIP-368), failures, time-outs.

What the broker says comes from kio; which error codes there are, from Kafka's protocol guide: 33
UNSUPPORTED_SASL_MECHANISM, 34 ILLEGAL_SASL_STATE, 58 SASL_AUTHENTICATION_FAILED.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from aioproduce.core.cluster.authentication import AUTHENTICATION_STATES, AuthenticationState
from aioproduce.core.cluster.connection_states import ConnectionState, LossCause
from aioproduce.core.state_table import StateTable
from aioproduce.errors import AuthenticationError, TokenError, UnsupportedVersionError
from aioproduce.security.mechanism import Credential, Work
from tests.askers import names
from tests.unit.connection_peer import MODERN, sasl_authenticate_response, sasl_handshake_response
from tests.unit.security_harness import SASL_AUTHENTICATE, SASL_HANDSHAKE, SecuredPeer

State = AuthenticationState
WORK = Work(lambda: b"computed")


def error_of(peer: SecuredPeer) -> Any:
    """What ended the connection, which has said so with a Close."""
    assert peer.said()[-1:] == [b"CLOSE"]
    assert peer.state.name == "CLOSING"
    return peer.connection.error


# The conversation


def test_every_transition_of_a_login() -> None:
    """The table, move by move, against the states in which the connection was seen."""
    expected = {
        (State.NEW, "begun"): State.AWAITING_CREDENTIAL,
        (State.AWAITING_CREDENTIAL, "credential"): State.AGREEING,
        (State.AWAITING_CREDENTIAL, "failed"): State.FAILED,
        (State.AGREEING, "agreed"): State.CONVERSING,
        (State.AGREEING, "failed"): State.FAILED,
        (State.CONVERSING, "computing"): State.COMPUTING,
        (State.CONVERSING, "content"): State.AUTHENTICATED,
        (State.CONVERSING, "failed"): State.FAILED,
        (State.COMPUTING, "computed"): State.CONVERSING,
        (State.COMPUTING, "failed"): State.FAILED,
        (State.AUTHENTICATED, "begun"): State.AWAITING_CREDENTIAL,
    }
    events = ("begun", "credential", "agreed", "computing", "computed", "content", "failed")
    table: StateTable[Any, Any] = AUTHENTICATION_STATES
    for state in State:
        for event in events:
            after = expected.get((state, event))
            if after is not None:
                assert table.after(state, event) is after
            else:
                with pytest.raises(Exception, match=event):
                    table.after(state, event)


def test_a_login_of_two_messages() -> None:
    peer = SecuredPeer(script=[b"hello", b"again", None]).negotiated()
    assert peer.state.name == "AUTHENTICATING"
    assert peer.authentication.state.name == "AGREEING"
    assert peer.asked() == [(SASL_HANDSHAKE, 1)]
    peer.receive(sasl_handshake_response(1))
    assert peer.authentication.state.name == "CONVERSING"
    (said,) = peer.said()
    assert said.endswith(b"\x06hello\x00")  # compact bytes: the length and one
    peer.written()
    assert not peer.connection.can_send(0.0)
    peer.receive(sasl_authenticate_response(2, b"who?"))
    assert peer.asked() == [(SASL_AUTHENTICATE, 3)]
    # An answer without an error is not enough: the mechanism says when it is over.
    assert peer.state.name == "AUTHENTICATING"
    peer.receive(sasl_authenticate_response(3, b"welcome"))
    assert peer.state.name == "READY"
    assert peer.mechanisms[0].challenges == [b"who?", b"welcome"]
    assert peer.connection.can_send(0.0)
    assert peer.authentication.again_at == inf
    assert peer.metrics.authentications.total == 1


def test_the_credential_is_there_before_the_handshake_goes() -> None:
    peer = SecuredPeer(script=[b"hello", None], is_static=False).negotiated()
    assert peer.asked() == []
    assert peer.authentication.state.name == "AWAITING_CREDENTIAL"
    peer.computed(Credential(value="secret"))
    peer.log_in(1)
    assert peer.state.name == "READY"


def test_what_blocks_is_done_elsewhere_and_may_end_the_conversation() -> None:
    peer = SecuredPeer(script=[WORK, WORK]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    assert peer.authentication.state.name == "COMPUTING"
    assert peer.asked() == []
    peer.computed(WORK)  # and more of it
    peer.computed(b"proof")
    assert peer.asked() == [(SASL_AUTHENTICATE, 2)]
    peer.receive(sasl_authenticate_response(2))
    peer.computed(None)
    assert peer.state.name == "READY"


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_late_end_is_ignored_once_the_connection_is_gone(is_closed: bool) -> None:
    peer = SecuredPeer(script=[WORK]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    ticket = peer.offloads.effects.popleft().ticket
    if is_closed:
        peer.connection.close("enough", LossCause.REQUESTED)
    else:
        peer.connection.lost(None)
    assert peer.authentication.state.name == "FAILED"
    peer.drain()
    peer.offloads.ended(ticket, b"proof", 1.0)
    assert peer.drain() == []


def test_a_credential_that_comes_when_the_connection_is_gone_is_for_others() -> None:
    peer = SecuredPeer(script=[b"hello", None], is_static=False).negotiated()
    peer.connection.lost(None)
    peer.computed(Credential(value="secret"))
    assert peer.drain() == []


# Failures


def refused(code: int, *, mechanisms: tuple[str, ...] = ()) -> AuthenticationError:
    peer = SecuredPeer(script=[b"hello", None]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1, error_code=code, mechanisms=mechanisms))
    error = error_of(peer)
    assert isinstance(error, AuthenticationError)
    return error


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are() -> None:
    error = refused(33, mechanisms=("SCRAM-SHA-512", "x\n\x1b[2J"))
    assert "it offers SCRAM-SHA-512, x??[2J" in str(error)
    assert (error.setting, error.is_transient, error.host) == ("sasl.mechanism", False, "broker")


def test_a_listener_without_logins() -> None:
    error = refused(34)
    assert (error.setting, error.is_transient) == ("security.protocol", False)


def test_any_other_error_of_the_handshake_may_pass() -> None:
    assert refused(15).is_transient


def test_a_refused_password_is_definite_and_the_credential_not_given_out_again() -> None:
    peer = SecuredPeer(script=[b"hello", None], is_static=False).negotiated()
    peer.computed(Credential(value="secret", expires_at=1e12))
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    peer.asked()
    peer.receive(sasl_authenticate_response(2, error_code=58, error_message="bad\npassword"))
    error = error_of(peer)
    assert isinstance(error, AuthenticationError)
    assert "bad?password. Check sasl.username and sasl.password" in str(error)
    assert (error.setting, error.is_transient) == ("sasl.jaas.config", False)
    assert peer.authentication.state.name == "FAILED"
    assert peer.metrics.failed_authentications.total == 1
    told: list[Any] = []
    peer.login.obtain(lambda *outcome: told.append(outcome), 0.0)
    assert told == []  # it is fetched again


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (ValueError("alice-secret"), "the client's answer failed with ValueError"),
        ("text", "the client's answer failed with str"),
        (AuthenticationError("the broker has not proved itself", mechanism="PLAIN"), "not proved itself"),
    ],
)
def test_work_that_fails_ends_the_login_without_its_text(outcome: object, text: str) -> None:
    peer = SecuredPeer(script=[WORK]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    peer.computed(outcome)
    error = error_of(peer)
    assert text in str(error)
    assert "alice-secret" not in str(error)


@pytest.mark.parametrize("at_start", [True, False])
def test_a_mechanism_that_refuses_ends_the_login(at_start: bool) -> None:
    refusal = AuthenticationError("no", mechanism="PLAIN", setting="sasl.password")
    peer = SecuredPeer(script=[refusal] if at_start else [b"hello", refusal]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    if not at_start:
        peer.asked()
        peer.receive(sasl_authenticate_response(2))
    assert error_of(peer) is refusal


def test_an_answer_of_the_broker_has_a_bound() -> None:
    peer = SecuredPeer(script=[b"hello", None]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1))
    peer.asked()
    peer.receive(sasl_authenticate_response(2, bytes(512 * 1024 + 1)))
    assert "the broker's answer has 524289 bytes" in str(error_of(peer))


def test_no_credential_ends_the_login() -> None:
    peer = SecuredPeer(script=[], is_static=False).negotiated()
    error = TokenError("endpoint gone", setting="sasl.oauthbearer.token.endpoint.url")
    peer.computed(error)
    assert error_of(peer) is error


@pytest.mark.parametrize("is_written", [True, False])
def test_a_broker_without_the_api_is_refused_whenever_its_bytes_are_gone(is_written: bool) -> None:
    """With two tasks, one to read and one to write, its versions may come before `writable`."""
    peer = SecuredPeer(script=[b"hello", None])
    if is_written:
        peer.negotiated(dict(MODERN))
    else:
        from tests.unit.connection_peer import api_versions_response

        peer.connected()
        peer.drain()
        peer.receive(api_versions_response(0, offered=MODERN))
        peer.written()
    error = error_of(peer)
    assert isinstance(error, UnsupportedVersionError)
    assert error.api == "SaslHandshake"


def test_bytes_behind_a_refusal_are_not_looked_at() -> None:
    peer = SecuredPeer(script=[b"hello", None]).negotiated()
    peer.asked()
    peer.receive(sasl_handshake_response(1, error_code=33) + b"\xff" * 40)
    assert peer.connection.cause is LossCause.SECURITY


@pytest.mark.parametrize(
    ("script", "is_static", "answers", "waits_for"),
    [
        ([], False, 0, "the credentials did not arrive"),
        ([b"hello", None], True, 0, "the broker did not continue with PLAIN"),
        ([b"hello", None], True, 1, "the broker did not continue with PLAIN"),
        ([WORK], True, 1, "the client's answer was not ready"),
    ],
)
def test_a_login_that_takes_too_long(
    script: list[Any], is_static: bool, answers: int, waits_for: str
) -> None:
    peer = SecuredPeer(script=script, is_static=is_static).negotiated()
    peer.asked()
    if answers:
        peer.tick(20.0)
        peer.receive(sasl_handshake_response(1))
        peer.asked()
    peer.tick(29.999)
    assert peer.connection.is_open
    peer.tick(30.0)
    error = error_of(peer)
    assert isinstance(error, AuthenticationError)
    assert error.is_transient
    assert f"within 30 s (request.timeout.ms): {waits_for}" in str(error)
    assert peer.authentication.state.name == "FAILED"


def test_a_connection_closed_during_the_login_is_a_failure_that_may_pass() -> None:
    peer = SecuredPeer(script=[b"hello", None]).negotiated()
    peer.connection.lost(ConnectionResetError("reset"))
    error = peer.connection.error
    assert isinstance(error, AuthenticationError)
    assert error.is_transient
    assert "the connection was closed meanwhile (reset)" in str(error)


# Again


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.85), (0.5, 0.9), (0.999, 0.9499)])
def test_it_logs_in_again_at_85_to_95_percent_of_the_session(chance: float, share: float) -> None:
    peer = SecuredPeer(script=[b"hello", None], chance=chance).ready(lifetime=100.0)
    peer.script = [b"hello", None]
    assert peer.authentication.ends_at == 100.0
    peer.tick(100 * share - 0.01)
    assert peer.asked() == []
    peer.tick(100 * share + 0.01)
    assert peer.state.name == "REAUTHENTICATING"
    peer.log_in(3, lifetime=100.0)
    assert peer.state.name == "READY"
    assert peer.authentication.ends_at == pytest.approx(100 * share + 100.01, abs=0.02)
    assert peer.metrics.reauthentications.total == 1
    assert peer.metrics.authentications.total == 1


def test_it_logs_in_again_also_where_requests_never_cease() -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=10.0)
    number = 3
    while peer.state is ConnectionState.READY:
        peer.send("more")
        peer.answer(number)
        number += 1
        peer.drain()
        peer.tick(peer.now + 0.5)
        assert peer.now < 10
    assert peer.now == 9.0


@pytest.mark.parametrize("lifetime", [0.0, -0.001, -3_600_000.0])
def test_no_lifetime_and_less_than_none_are_no_end(lifetime: float) -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=lifetime)
    assert peer.authentication.again_at == peer.authentication.ends_at == inf
    peer.tick(500.0)
    assert peer.asked() == []
    assert peer.metrics.authentications_without_end.total == 1


def test_a_session_that_has_no_end_after_all() -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=100.0)
    peer.script = [b"hello", None]
    peer.tick(90.0)
    peer.log_in(3, lifetime=0.0)
    assert peer.authentication.again_at == peer.authentication.ends_at == inf


def test_five_requests_in_flight_are_not_drained_and_new_ones_wait() -> None:
    peer = SecuredPeer(script=[b"hello", b"proof", None], is_static=False).negotiated()
    peer.computed(Credential(value="secret"))
    peer.log_in(1, lifetime=100.0)
    peer.script = [b"hello", b"proof", None]
    peer.now = 89.0
    for name in "abcde":
        peer.send(name)
    peer.drain()
    peer.tick(90.0)
    # Until the credential is there all goes on as before.
    assert peer.state.name == "READY"
    assert peer.answer(4) == ["a"]
    peer.send("f")
    peer.drain()
    peer.computed(Credential(value="secret"))
    assert peer.state.name == "REAUTHENTICATING"
    assert peer.connection.is_ready
    assert peer.asked() == [(SASL_HANDSHAKE, 10)]
    assert peer.answer(5) + peer.answer(6) == ["b", "c"]
    assert not peer.connection.can_send(90.0)
    with pytest.raises(RuntimeError):
        peer.send("too early")
    assert [*peer.answer(7), *peer.answer(8), *peer.answer(9)] == ["d", "e", "f"]
    peer.receive(sasl_handshake_response(10))
    assert peer.asked() == [(SASL_AUTHENTICATE, 11)]
    peer.receive(sasl_authenticate_response(11))
    assert peer.asked() == [(SASL_AUTHENTICATE, 12)]
    assert not peer.connection.can_send(90.0)
    peer.receive(sasl_authenticate_response(12, lifetime=100.0))
    assert peer.connection.can_send(90.0)
    peer.send("g")
    assert peer.answer(13) == ["g"]


def test_the_handshake_waits_for_the_bytes_of_a_request_to_be_gone() -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=100.0)
    peer.now = 89.0
    peer.send("a", is_written=False)
    peer.drain()
    peer.tick(90.0)
    assert peer.state.name == "REAUTHENTICATING"
    assert peer.drain() == []
    peer.written()
    assert peer.asked() == [(SASL_HANDSHAKE, 4)]


@pytest.mark.parametrize("code", [34, 58])
def test_a_failure_again_may_pass_and_gives_back_what_is_in_flight(code: int) -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=100.0)
    peer.script = [b"hello", None]
    peer.now = 89.0
    peer.send("a")
    peer.send("b")
    peer.drain()
    peer.tick(90.0)
    peer.asked()
    peer.answer(3)
    peer.answer(4)
    peer.drain()
    peer.receive(sasl_handshake_response(5, error_code=code if code == 34 else 0))
    if code == 58:
        peer.asked()
        peer.receive(sasl_authenticate_response(6, error_code=58))
    error = error_of(peer)
    assert isinstance(error, AuthenticationError)
    assert error.is_transient
    assert "cannot log in again" in str(error)
    assert peer.metrics.failed_reauthentications.total == 1
    assert peer.metrics.failed_authentications.total == 0
    assert peer.connection.lost(None) == []


def test_what_was_in_flight_when_it_failed_comes_back_in_order_without_our_own() -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=100.0)
    peer.now = 89.0
    for name in "abc":
        peer.send(name)
    peer.drain()
    peer.tick(90.0)
    peer.asked()
    assert peer.answer(3) == ["a"]
    peer.connection.close("enough", LossCause.REQUESTED)
    assert names(peer.connection.lost(None)) == ["b", "c"]


def test_the_session_ends_before_a_credential_has_come() -> None:
    peer = SecuredPeer(script=[b"hello", None], is_static=False).negotiated()
    peer.computed(Credential(value="secret"))
    peer.log_in(1, lifetime=100.0)
    peer.tick(90.0)
    assert peer.state.name == "READY"
    peer.send("a")
    assert peer.answer(3) == ["a"]
    peer.drain()
    peer.tick(99.999)
    assert peer.connection.is_open
    peer.tick(100.0)
    error = error_of(peer)
    assert isinstance(error, AuthenticationError)
    assert "has ended, and the credentials did not arrive" in str(error)
    assert error.is_transient


def test_a_timer_that_comes_after_the_session_says_why() -> None:
    peer = SecuredPeer(script=[b"hello", None]).ready(lifetime=100.0)
    peer.tick(101.0)
    assert error_of(peer) is None
    assert "there was no time to log in again" in peer.connection.reason


def test_a_request_that_times_out_meanwhile_is_no_failure_of_the_login() -> None:
    peer = SecuredPeer(script=[b"hello", None], is_static=False).negotiated()
    peer.computed(Credential(value="secret"))
    peer.log_in(1, lifetime=100.0)
    peer.now = 65.0
    peer.send("a")
    peer.drain()
    peer.tick(90.0)
    assert peer.authentication.state.name == "AWAITING_CREDENTIAL"
    peer.tick(95.0)
    assert error_of(peer) is None
    assert peer.connection.cause is LossCause.REQUEST_TIMEOUT
