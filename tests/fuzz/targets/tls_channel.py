"""`TlsChannel`: whatever a broker sends, in any slices, and with its bytes changed.

1. `receive()` and `send()` raise nothing but TlsError; from the first one on each call raises it, with its reason.
2. What is received is what the server has sent, from the beginning, in order: changed bytes never become plaintext.
3. After `is_ended` nothing comes any more.
4. What waits to be written stays in proportion to what came.

The input: how the server is (its version of TLS; whether it asks for a certificate), then steps of a kind and its
arguments. OpenSSL's own randomness gives the server other bytes in each run; the four hold whatever they are.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import cache

import trustme

from aioproduce.config.secret import Secret
from aioproduce.errors import TlsError
from aioproduce.security.key_files import TrustStore
from aioproduce.security.tls import TlsChannels, TlsSettings
from tests.fuzz.target import Source, Target

HOST = "broker.example"
PASS, CHANGE, DROP, REPEAT, INSERT, SAY, SEND, END, SLICE = range(9)


@cache
def world() -> tuple[TlsChannels, tuple[ssl.SSLContext, ...]]:
    """The client's channels, and the servers: made once."""
    ca = trustme.CA()
    leaf = ca.issue_cert(HOST)
    servers = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for mode in (ssl.CERT_NONE, ssl.CERT_REQUIRED):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            leaf.configure_cert(context)
            context.minimum_version = context.maximum_version = version
            context.verify_mode = mode
            servers.append(context)
    trusted = TrustStore(certificates=Secret(ca.cert_pem.bytes().decode()))
    channels = TlsChannels(TlsSettings(truststore=trusted), wall_clock=lambda: 0.0)
    channels.prepare()
    return channels, tuple(servers)


class Server:
    """A broker's side; what it has to say is taken from `wire`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.is_established = False
        self.said = b""

    def step(self, data: bytes = b"", *, say: bytes = b"", is_end: bool = False) -> None:
        self.incoming.write(data)
        try:
            if not self.is_established:
                self.tls.do_handshake()
                self.is_established = True
            if say:
                self.tls.write(say)
                self.said += say
            if is_end:
                self.tls.unwrap()
            self.tls.read(1 << 16)
        except ssl.SSLError:
            return  # it has gone; the client is what is tried


class Conversation:
    """One channel and its server, and what must hold of them."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.server = Server(context)
        self.channel = world()[0].open(HOST)
        self.reason: str | None = None
        self.got = b""
        self.came = 0
        self.channel.start()
        self.server.step(self.channel.outgoing())

    def failed(self, error: TlsError) -> None:
        """The first one stays."""
        assert self.reason in (None, error.reason)
        self.reason = error.reason

    def receive(self, data: bytes) -> None:
        """The client gets these bytes."""
        was_over = self.channel.is_ended or self.reason is not None
        self.came += len(data)
        try:
            found = self.channel.receive(data)
        except TlsError as error:
            self.failed(error)
            return
        assert self.reason is None, "a channel that failed goes on"
        assert not (was_over and found)
        self.got += found

    def send(self, pieces: list[bytes]) -> None:
        """The client sends."""
        try:
            self.channel.send(pieces)
        except TlsError as error:
            if error.reason != "not established":
                self.failed(error)
            return
        assert self.channel.is_established

    def carry(self, limit: int) -> None:
        """The server gets what the client has written."""
        written = self.channel.outgoing()
        assert len(written) <= limit
        self.server.step(written)
        assert self.server.said.startswith(self.got)


def run(data: bytes) -> None:
    source = Source(data)
    both = Conversation(world()[1][source.below(4)])
    while source:
        kind, count = source.below(9), source.byte()
        limit = 4096 + 2 * both.came
        if kind == SAY:
            both.server.step(say=bytes([count]) * (1 + 100 * source.byte()))
        elif kind == END:
            both.server.step(is_end=True)
        elif kind == SEND:
            size = 100 * source.byte()
            both.send([b"h" * count, bytes(size)])
            limit += 2 * (count + size)
        else:
            for piece in wire(kind, count, source, both.server):
                both.receive(piece)
            limit = 4096 + 2 * both.came
        both.carry(limit)


def wire(kind: int, count: int, source: Source, server: Server) -> list[bytes]:
    """What comes to the client in a step."""
    if kind == INSERT:
        return [source.take(count % 32)]
    said = server.outgoing.read(1 << count % 16)
    if kind == CHANGE and said:
        place = source.byte() % len(said)
        return [said[:place], bytes([said[place] ^ (1 << source.below(8))]), said[place + 1 :]]
    if kind == SLICE:
        return [said[at : at + 1] for at in range(len(said))]
    return {DROP: [], REPEAT: [said, said]}.get(kind, [said])


def seeds() -> Iterator[bytes]:
    handshake = bytes([PASS, 15, PASS, 15])
    for server in range(4):
        begin = bytes([server]) + handshake
        yield begin + bytes(
            [SAY, 65, 1, PASS, 15, SEND, 3, 200, SAY, 66, 255, SLICE, 15, END, 0, PASS, 15, PASS, 15]
        )
        yield begin + bytes([SAY, 65, 1, CHANGE, 15, 9, 3, PASS, 15])
        yield begin + bytes([SAY, 65, 1, REPEAT, 15, SEND, 1, 1])
        yield begin + bytes([SAY, 65, 3, DROP, 3, PASS, 15])
        yield bytes([server, SLICE, 15, SLICE, 15, SAY, 67, 1, PASS, 4, PASS, 15])
        yield bytes([server, SEND, 1, 1, CHANGE, 15, 70, 1])
    for start in (
        b"HTTP/1.1 400",
        b"\0\0\0\x0c\0\0\0\1",
        b"\x15\x03\x01\0\2\2\x28",
        b"\x15\x03\x03\0\2\1\0",
        b"\x16\x03\3",
    ):
        yield bytes([1, INSERT, len(start)]) + start + handshake


TARGETS = {"tls_channel": Target(run, seeds)}
