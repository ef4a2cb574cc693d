"""The channel against `openssl s_server` over a socket: key updates, renegotiation, clients' certificates."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import trustme

from aioproduce.errors import TlsError
from aioproduce.security.tls import TlsChannel, TlsSettings
from tests.security.tls_peer import HOST, made, pem, trusting, with_file


class Link:
    """A channel on a blocking socket."""

    def __init__(self, channel: TlsChannel, connection: socket.socket, typed: IO[bytes]) -> None:
        self.channel, self.connection, self.typed = channel, connection, typed

    def flush(self) -> None:
        self.connection.sendall(self.channel.outgoing())

    def until(self, is_done: Callable[[], bool]) -> bytes:
        """Carry bytes until something is so, or the server closes."""
        got = b""
        while not is_done():
            data = self.connection.recv(65_536)
            if not data:
                break
            try:
                got += self.channel.receive(data)
            finally:
                self.flush()
        return got

    def type(self, text: bytes) -> None:
        """A command or a line, as a person would at s_server."""
        self.typed.write(text)
        self.typed.flush()


@contextmanager
def s_server(
    folder: Path, broker: trustme.LeafCert, *options: str
) -> Iterator[Callable[[TlsSettings], Link]]:
    (folder / "broker.pem").write_text(pem(broker))
    server = subprocess.Popen(
        ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", "broker.pem", *options],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        port = 0
        for line in server.stdout:
            if line.startswith(b"ACCEPT"):
                port = int(line.rpartition(b":")[2])
                break
        connections: list[socket.socket] = []

        def connect(settings: TlsSettings) -> Link:
            assert server.stdin is not None
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            connections.append(connection)
            link = Link(made(settings).open(HOST), connection, server.stdin)
            link.channel.start()
            link.flush()
            link.until(lambda: link.channel.is_established)
            return link

        try:
            yield connect
        finally:
            for connection in connections:
                connection.close()
            server.kill()


def test_key_updates_of_openssl(tmp_path: Path, ca: trustme.CA, broker: trustme.LeafCert) -> None:
    with s_server(tmp_path, broker, "-tls1_3") as connect:
        link = connect(trusting(ca))
        got = b""
        for line in (b"one\n", b"two\n"):
            link.type(line)
            while not got.endswith(line):
                got += link.channel.receive(link.connection.recv(65_536))
            link.type(b"K\n")
            assert link.channel.receive(link.connection.recv(65_536)) == b""
            link.channel.send([b"under the next key"])
            link.flush()
        assert got == b"one\ntwo\n"


def test_renegotiation_is_refused(tmp_path: Path, ca: trustme.CA, broker: trustme.LeafCert) -> None:
    with s_server(tmp_path, broker, "-tls1_2") as connect:
        link = connect(trusting(ca))
        assert link.channel.describe().startswith("TLSv1.2")
        link.type(b"r\n")
        assert link.channel.receive(link.connection.recv(65_536)) == b""
        answer = link.channel.outgoing()
        assert answer[:1] == b"\x15", "an alert: no_renegotiation"
        assert link.channel.is_established


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_clients_certificates(
    tmp_path: Path, ca: trustme.CA, broker: trustme.LeafCert, client: trustme.LeafCert, version: str
) -> None:
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    options = (version, "-Verify", "3", "-verify_return_error", "-CAfile", "ca.pem", "-www")
    with s_server(tmp_path, broker, *options) as connect:
        store = with_file(tmp_path / "client.pem", pem(client))
        link = connect(trusting(ca, keystore=store))
        link.channel.send([b"GET / HTTP/1.0\r\n\r\n"])
        link.flush()
        page = link.until(lambda: link.channel.is_ended)
        assert b"200 ok" in page
        assert b"Client certificate" in page
        link.connection.close()  # s_server has one client at a time
        with pytest.raises(TlsError) as caught:
            connect(trusting(ca)).until(lambda: False)
        assert caught.value.reason == "peer requires a client certificate"
