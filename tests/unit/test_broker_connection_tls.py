"""One connection with a channel: its handshake, what it says by itself, its ends and its failures.

The channel is a scripted one (`security_harness`), so that each byte on the wire is known: `{` and `}` stand around
what is encrypted.
"""

from __future__ import annotations

import pytest

from aioproduce.core.cluster.connection_states import CONNECTION_STATES, ConnectionState, LossCause
from aioproduce.errors import TlsError
from tests.askers import names
from tests.unit.connection_peer import api_versions_response, init_producer_id_response
from tests.unit.security_harness import WITH_SASL, ScriptedChannel, SecuredPeer

State = ConnectionState


def secured(*, fails: str = "") -> SecuredPeer:
    return SecuredPeer(channel=ScriptedChannel(fails=fails))


def test_the_states_that_security_added() -> None:
    for state, event, after in (
        (State.CONNECTING, "connected for TLS", State.ENCRYPTING),
        (State.ENCRYPTING, "encrypted", State.NEGOTIATING),
        (State.NEGOTIATING, "negotiated for a login", State.AUTHENTICATING),
        (State.AUTHENTICATING, "authenticated", State.READY),
        (State.READY, "logging in again", State.REAUTHENTICATING),
        (State.REAUTHENTICATING, "authenticated", State.READY),
    ):
        assert CONNECTION_STATES.after(state, event) is after  # type: ignore[arg-type]
        for other in set(State) - {state, State.AUTHENTICATING, State.REAUTHENTICATING}:
            with pytest.raises(Exception, match=event):
                CONNECTION_STATES.after(other, event)  # type: ignore[arg-type]
    for state in (State.ENCRYPTING, State.AUTHENTICATING, State.REAUTHENTICATING):
        assert CONNECTION_STATES.after(state, "closed by us") is State.CLOSING
        assert CONNECTION_STATES.after(state, "lost") is State.CLOSED


def test_nothing_is_said_in_plaintext_and_the_first_question_comes_with_the_handshakes_end() -> None:
    peer = secured().connected()
    assert peer.state.name == "ENCRYPTING"
    assert peer.said() == [b"HELLO"]
    peer.written()
    peer.receive(b"HELLO")
    assert peer.state.name == "NEGOTIATING"
    (said,) = peer.said()
    assert said.startswith(b"DONE{")
    assert said.endswith(b"}")
    peer.written()
    peer.receive(api_versions_response(0, offered=WITH_SASL))
    assert peer.state.name == "READY"


def test_the_handshake_waits_for_its_own_bytes_to_be_gone() -> None:
    """At most one Send is outstanding, of the handshake's too."""
    peer = secured().connected()
    peer.drain()
    peer.receive(b"HELLO")
    assert peer.drain() == []
    peer.written()
    assert peer.said() == [b"DONE"]
    peer.written()
    (said,) = peer.said()
    assert said.startswith(b"{")


def test_own_words_of_the_channel_wait_for_a_request_and_a_request_for_them() -> None:
    peer = secured().ready()
    assert peer.channel is not None
    peer.send("a", is_written=False)
    assert len(peer.said()) == 1
    peer.channel.own = b"KEYUPDATE"
    peer.receive(b"")
    assert peer.drain() == []
    peer.written()
    assert peer.said() == [b"KEYUPDATE"]
    assert not peer.connection.can_send(0.0)
    peer.written()
    assert peer.connection.can_send(0.0)
    assert peer.answer(1) == ["a"]


def test_own_words_go_at_once_where_nothing_is_outstanding_and_with_the_next_request_otherwise() -> None:
    peer = secured().ready()
    assert peer.channel is not None
    peer.channel.own = b"KEYUPDATE"
    peer.receive(b"")
    assert peer.said() == [b"KEYUPDATE"]
    peer.written()
    peer.channel.own = b"KEYUPDATE"
    peer.send("a")
    (said,) = peer.said()
    assert said.startswith(b"KEYUPDATE{")


def test_without_an_answer_a_request_is_done_when_its_own_bytes_are_gone() -> None:
    peer = secured().ready()
    assert peer.channel is not None
    peer.send("a", expects_response=False, is_written=False)
    peer.drain()
    peer.channel.own = b"KEYUPDATE"
    peer.receive(b"")
    assert peer.connection.pending_count == 1
    assert names(peer.connection.writable(1.0)) == ["a"]
    assert peer.said() == [b"KEYUPDATE"]
    assert peer.connection.writable(2.0) == []


def test_buffers_are_encrypted_when_send_returns() -> None:
    peer = secured().ready()
    buffer = bytearray(b"\0\0\0\x01x")
    peer.connection.send(22, lambda *_: [buffer], None, 0.0)  # type: ignore[arg-type]
    buffer[:] = bytes(5)
    assert peer.said() == [b"{\0\0\0\x01x}"]


# Ends


def test_close_notify_at_rest_is_ordinary() -> None:
    peer = secured().ready()
    peer.receive(b"BYE")
    assert peer.said() == [b"CLOSE"]
    assert peer.connection.cause is LossCause.CLOSED_AT_REST
    assert peer.connection.error is None


def test_close_notify_with_requests_in_flight_gives_them_back() -> None:
    peer = secured().ready()
    peer.send("a")
    peer.send("b")
    peer.drain()
    assert peer.receive(init_producer_id_response(1) + b"BYE") == ["a"]
    assert peer.said() == [b"CLOSE"]
    assert peer.connection.cause is LossCause.DISCONNECTED
    assert names(peer.connection.lost(None)) == ["b"]


def test_a_close_during_the_handshake_asks_whether_it_is_a_listener_with_tls() -> None:
    peer = secured().connected()
    peer.connection.lost(None)
    error = peer.connection.error
    assert isinstance(error, TlsError)
    assert (error.reason, error.setting, error.is_transient) == (
        "closed during handshake",
        "security.protocol",
        True,
    )


def test_a_handshake_that_takes_too_long() -> None:
    peer = secured().connected()
    peer.drain()
    peer.tick(10.0)
    assert peer.said() == [b"CLOSE"]
    assert peer.connection.cause is LossCause.SETUP_TIMEOUT
    assert "did not finish the TLS handshake within 10 s" in peer.connection.reason


# Failures


@pytest.mark.parametrize("call", ["open", "start"])
def test_a_channel_that_does_not_come_about(call: str) -> None:
    peer = secured(fails=call).connected()
    assert peer.said() == ([b"ALERT", b"CLOSE"] if call == "start" else [b"CLOSE"])
    error = peer.connection.error
    assert isinstance(error, TlsError)
    assert (error.reason, error.host, error.port) == (call, "broker", 9092)
    assert peer.connection.cause is LossCause.SECURITY


def test_the_peer_is_told_why_before_the_connection_is_closed() -> None:
    peer = secured().connected()
    assert peer.channel is not None
    peer.drain()
    peer.written()
    peer.channel.fails = "receive"
    peer.receive(b"garbage")
    assert peer.said() == [b"ALERT", b"CLOSE"]
    peer.written()
    assert peer.receive(b"more") == []
    assert peer.drain() == []


def test_the_alert_is_left_out_where_other_bytes_are_on_their_way() -> None:
    peer = secured().ready()
    assert peer.channel is not None
    peer.send("a", is_written=False)
    peer.drain()
    peer.channel.fails = "receive"
    peer.receive(b"garbage")
    assert peer.said() == [b"CLOSE"]
    assert names(peer.connection.lost(None)) == ["a"]


def test_what_cannot_be_encrypted_comes_back_and_the_peer_is_told() -> None:
    peer = secured().ready()
    assert peer.channel is not None
    peer.channel.fails = "send"
    peer.send("a", is_written=False)
    assert peer.said() == [b"ALERT", b"CLOSE"]
    assert isinstance(peer.connection.error, TlsError)
    assert names(peer.connection.lost(None)) == ["a"]


def test_a_first_question_that_cannot_be_encrypted_leaves_nothing_to_be_read() -> None:
    peer = secured().connected()
    assert peer.channel is not None
    peer.drain()
    peer.written()
    peer.channel.fails = "send"
    assert peer.receive(b"HELLO" + api_versions_response(0)) == []
    assert peer.said()[-1] == b"CLOSE"
    assert peer.state.name == "CLOSING"


def test_tls_where_none_is_expected_is_named() -> None:
    peer = SecuredPeer().connected()
    peer.receive(b"\x15\x03\x03\x00\x02\x02\x46")
    error = peer.connection.error
    assert isinstance(error, TlsError)
    assert (error.reason, error.setting, error.is_transient) == (
        "TLS not expected",
        "security.protocol",
        False,
    )
