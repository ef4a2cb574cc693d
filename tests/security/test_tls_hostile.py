"""Peers that mean no good: whatever they send, memory and time are bounded, and it is a TlsError that says so."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
import trustme

from aioproduce.errors import TlsError
from aioproduce.security.tls import TlsChannel
from tests.security.tls13_records import ALERT, HANDSHAKE, ServerRecords
from tests.security.tls_peer import HOST, VERSIONS, Peer, made, server_context, shake, trusting


@pytest.fixture
def hostile(
    ca: trustme.CA, broker: trustme.LeafCert, tmp_path: Path
) -> tuple[TlsChannel, Peer, ServerRecords]:
    """An established channel, and the hand-written records of its server."""
    context = server_context(broker, version="TLSv1.3")
    context.num_tickets = 0
    context.keylog_filename = str(tmp_path / "keys")
    channel, peer = made(trusting(ca)).open(HOST), Peer(context)
    shake(channel, peer)
    assert channel.describe() == "TLSv1.3, TLS_AES_256_GCM_SHA384"
    return channel, peer, ServerRecords(tmp_path / "keys", sent=0)


def test_records_by_hand_are_read(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, peer, records = hostile
    assert channel.receive(records.record(b"one")) == b"one"
    assert channel.receive(records.key_update(is_requested=True) + records.record(b"two")) == b"two"
    channel.send([b"under the new key"])
    peer.receive(channel.outgoing())
    assert peer.received == b"under the new key"


def flood(channel: TlsChannel, pieces: list[bytes], most: int) -> TlsError:
    """Send pieces without end: an error comes in time, and memory stays."""
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(TlsError) as caught:  # noqa: PT012 - which piece it is does not matter
            for piece in pieces:
                assert channel.receive(piece) == b""
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun < 5.0
    assert len(channel.outgoing()) <= most
    return caught.value


@pytest.mark.parametrize(
    "most", [16_384, pytest.param(None, marks=pytest.mark.extended("takes 4 s to write the records"))]
)
def test_key_updates_without_end(
    hostile: tuple[TlsChannel, Peer, ServerRecords], most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _, records = hostile
    if most is not None:
        monkeypatch.setattr("aioproduce.security.tls._MAX_SILENT", most)
    count = (most or 300_000) // 25
    updates = [records.key_update(is_requested=True) for _ in range(count)]
    pieces = [b"".join(updates[at : at + 50]) for at in range(0, len(updates), 50)]
    assert flood(channel, pieces, 300_000).reason == "flood"


def test_a_key_update_now_and_then_is_no_flood(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, _, records = hostile
    for _ in range(6):
        for _ in range(50):
            assert channel.receive(records.key_update(is_requested=False) * 1) == b""
        large = records.record(bytes(16_000))
        assert channel.receive(large[:-1]) == b""
        assert len(channel.receive(large[-1:])) == 16_000


def test_tickets_without_end(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, _, records = hostile
    ticket = struct.pack(">II", 7200, 1) + b"\1n" + struct.pack(">H", 900) + bytes(900) + b"\0\0"
    message = b"\x04" + len(ticket).to_bytes(3) + ticket
    assert flood(channel, [records.record(message, HANDSHAKE) for _ in range(400)], 0).reason == "flood"


def test_records_of_nothing(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, _, records = hostile
    error = flood(channel, [records.record(b"") for _ in range(20_000)], 100)
    assert error.reason in ("flood", "damaged")  # OpenSSL counts them itself, and from 3.2 on does not say so


def test_a_handshake_message_of_16_mb(ca: trustme.CA) -> None:
    channel = made(trusting(ca)).open(HOST)
    channel.start()
    channel.outgoing()
    body = b"\x02\xff\xff\xff" + bytes(16_380)  # there is no larger length
    first = b"\x16\x03\x03\x40\x00" + body
    more = b"\x16\x03\x03\x40\x00" + bytes(16_384)
    assert flood(channel, [first] + [more] * 6_000, 100).reason == "oversized message"


def test_warnings_and_hello_requests_without_end(ca: trustme.CA) -> None:
    for record in (b"\x15\x03\x03\0\2\1\x5a", b"\x16\x03\x03\0\4\0\0\0\0"):
        channel = made(trusting(ca)).open(HOST)
        channel.start()
        flood(channel, [record * 100] * 3_000, 300_000)


def test_one_byte_records(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, _, records = hostile
    wire = b"".join(records.record(b"%d" % (number % 10)) for number in range(2_000))
    got = b"".join(channel.receive(wire[at : at + 7]) for at in range(0, len(wire), 7))
    assert got == b"0123456789" * 200


def test_renegotiation_is_refused(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    """TLS 1.2: the server's request comes encrypted; OpenSSL's command line sends it (`test_tls_openssl`)."""
    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker, version="TLSv1.2"))
    shake(channel, peer)
    with pytest.raises(TlsError):
        channel.receive(b"\x16\x03\x03\0\4\0\0\0\0")  # in the clear, after the handshake


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end(ca: trustme.CA, broker: trustme.LeafCert, version: str) -> None:
    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker, version=version))
    shake(channel, peer)
    last = peer.say(b"last words")
    assert channel.receive(last[:-1]) == b""
    was_ended = channel.is_ended  # a connection that ends here is truncated
    assert not was_ended
    assert channel.receive(last[-1:] + peer.close() + b"\x17\x03\x03\0\5after") == b"last words"
    assert channel.is_ended
    assert channel.receive(b"anything at all") == b""


def test_the_end_in_the_handshake(ca: trustme.CA) -> None:
    channel = made(trusting(ca)).open(HOST)
    channel.start()
    with pytest.raises(TlsError) as caught:
        channel.receive(b"\x15\x03\x03\0\2\1\0")
    assert caught.value.reason == "closed during handshake"
    with pytest.raises(TlsError):
        channel.send([b"x"])


def test_nothing_is_sent_before_the_handshake(ca: trustme.CA) -> None:
    channel = made(trusting(ca)).open(HOST)
    channel.start()
    with pytest.raises(TlsError) as caught:
        channel.send([b"too early"])
    assert caught.value.reason == "not established"


def test_an_alert_in_the_middle(hostile: tuple[TlsChannel, Peer, ServerRecords]) -> None:
    channel, _, records = hostile
    with pytest.raises(TlsError) as caught:
        channel.receive(records.record(b"\2\x50", ALERT))
    assert caught.value.reason == "TLSV1_ALERT_INTERNAL_ERROR"


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_were_changed(ca: trustme.CA, broker: trustme.LeafCert, version: str) -> None:
    chance = random.Random(20)
    for _ in range(20):
        channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker, version=version))
        shake(channel, peer)
        wire = bytearray(peer.say(b"acknowledged"))
        wire[chance.randrange(5, len(wire))] ^= 1 << chance.randrange(8)
        with pytest.raises(TlsError) as caught:
            channel.receive(wire)
        assert caught.value.reason == "damaged"
