"""The blocking client against sockets that behave, and that do not."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aioproduce.config import ProducerConfig
from aioproduce.drivers.blocking_client import BlockingConnection, ask_any
from aioproduce.errors import BrokerConnectionError, ProtocolError, UnsupportedVersionError
from aioproduce.testing import ClusterThread
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import MetadataResponse
from aioproduce.wire.requests import encode_metadata
from tests.drivers.producing import PATIENCE, silent_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAME = b"\0\0\0\3abc"


@contextlib.contextmanager
def served(by: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port of which each connection is one call; it is closed behind it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the server is closed, or the client is
                while True:
                    connection, _ = server.accept()
                    with connection:
                        by(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def sends(*pieces: bytes, pause: float = 0.0) -> Callable[[socket.socket], None]:
    def by(connection: socket.socket) -> None:
        connection.recv(100)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)

    return by


def config_of(*servers: object, **settings: object) -> ProducerConfig:
    addresses = [f"127.0.0.1:{each}" if isinstance(each, int) else str(each) for each in servers]
    return ProducerConfig.from_mapping({"bootstrap.servers": ",".join(addresses), **settings})


def partitions_of_t(config: ProducerConfig, timeout: float = PATIENCE) -> int:
    encode = partial(encode_metadata, topics=["t"], allow_auto_topic_creation=False)
    deadline = time.monotonic() + timeout
    answer = ask_any(config, ApiKey.METADATA, lambda version, number: encode(version, number, "me"), deadline)
    assert isinstance(answer, MetadataResponse)
    return len(answer.topics[0].partitions)


def test_frames_come_in_their_order_whatever_the_pieces() -> None:
    stream = FRAME + b"\0\0\0\1d" + FRAME
    with (
        served(sends(stream[:2], stream[2:9], stream[9:], pause=0.001)) as port,
        BlockingConnection("127.0.0.1", port, PATIENCE) as connection,
    ):
        assert bytes(connection.exchange(b"?")) == b"abc"
        assert [bytes(connection.receive()) for _ in range(2)] == [b"d", b"abc"]
        with pytest.raises(BrokerConnectionError, match="closed the connection instead of answering"):
            connection.receive()


def test_bytes_that_trickle_do_not_extend_the_wait() -> None:
    with (
        served(sends(*[b"\0\0\1\0", *[b"."] * 20], pause=0.02)) as port,
        BlockingConnection("127.0.0.1", port, 0.1) as connection,
        pytest.raises(TimeoutError),
    ):
        connection.exchange(b"?")


def test_what_is_no_frame_is_refused_before_memory_is_taken() -> None:
    with (
        served(sends(b"HTTP/1.1 400")) as port,
        BlockingConnection("127.0.0.1", port, PATIENCE) as connection,
        pytest.raises(ProtocolError, match="it answers HTTP"),
    ):
        connection.exchange(b"?")


def test_what_is_no_frame_behind_one_is_told_at_once() -> None:
    with (
        served(sends(FRAME + b"HTTP/1.1 400")) as port,
        BlockingConnection("127.0.0.1", port, PATIENCE) as connection,
    ):
        connection.exchange(b"?")
        with pytest.raises(ProtocolError, match="it answers HTTP"):
            connection.receive()


def test_one_that_does_not_read_is_not_waited_for_for_ever() -> None:
    with silent_port() as address:
        host, _, port = address.rpartition(":")
        with pytest.raises(TimeoutError), BlockingConnection(host, int(port), 0.05) as connection:
            connection.send(bytes(100_000_000))


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            BlockingConnection("127.0.0.1", bound.getsockname()[1], PATIENCE)


def test_the_servers_are_asked_in_turn() -> None:
    """One that is down, one that closes, one that says nothing, one that speaks HTTP, and a broker."""
    with (
        ClusterThread(topics={"t": 3}) as cluster,
        served(lambda _: None) as closes,
        served(sends(b"HTTP/1.1 400")) as speaks_http,
        silent_port() as silent,
        socket.socket() as bound,
    ):
        bound.bind(("127.0.0.1", 0))
        config = config_of(
            bound.getsockname()[1],
            closes,
            silent,
            speaks_http,
            cluster.bootstrap_servers,
            **{"socket.connection.setup.timeout.ms": 100},
        )
        assert partitions_of_t(config) == 3


def test_the_last_servers_error_is_raised() -> None:
    with served(lambda _: None) as closes, served(sends(b"HTTP/1.1 400")) as speaks_http:
        with pytest.raises(ProtocolError):
            partitions_of_t(config_of(closes, speaks_http))
        with pytest.raises(ConnectionError):
            partitions_of_t(config_of(speaks_http, closes))


def test_all_is_over_at_the_deadline() -> None:
    with ClusterThread(topics={"t": 1}) as cluster:
        with pytest.raises(TimeoutError):
            partitions_of_t(config_of(cluster.bootstrap_servers), timeout=-1.0)
        for broker in cluster.ports:
            cluster.faults.stall(broker)
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            partitions_of_t(config_of(cluster.bootstrap_servers), timeout=0.1)
        assert time.monotonic() - began_at < PATIENCE


@pytest.mark.parametrize("versions", [(1, 1), (5, 9), (4, 60)])
def test_the_highest_version_that_both_speak_is_asked(versions: tuple[int, int]) -> None:
    with ClusterThread(1, topics={"t": 3}) as cluster:
        cluster.set_api_versions({ApiKey.METADATA: versions})
        assert partitions_of_t(config_of(cluster.bootstrap_servers)) == 3


def test_no_version_in_common() -> None:
    with ClusterThread(1, topics={"t": 3}) as cluster:
        cluster.set_api_versions({ApiKey.METADATA: (60, 61)})
        with pytest.raises(UnsupportedVersionError):
            partitions_of_t(config_of(cluster.bootstrap_servers))


def test_an_answer_to_another_request() -> None:
    body = struct.pack(">ihi", 7, 0, 0)
    with (
        served(sends(struct.pack(">i", len(body)) + body)) as port,
        pytest.raises(ProtocolError, match="answered request 7 before the earlier 0"),
    ):
        partitions_of_t(config_of(port))
