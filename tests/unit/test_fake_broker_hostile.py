"""No bytes from a client bring the broker model down: they are answered, or the connection is closed."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import lz4.frame
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproduce.testing import ClusterModel
from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS
from aioproduce.testing.fake_cluster.codecs import MAX_DECOMPRESSED_BYTES, decompress
from aioproduce.testing.fake_cluster.failures import InvalidBatchError
from aioproduce.testing.fake_cluster.record_batch import decode_records, read_header
from tests.unit.fake_broker_peer import Peer, batch, model, produce_request, tampered
from tests.wire_oracle import entities, request_class, request_frame

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(read: Callable[[], object]) -> int:
    """The code of the refusal, 0 if there was none; any other exception comes through."""
    try:
        read()
    except InvalidBatchError as refused:
        return refused.code
    return 0


QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def cluster() -> ClusterModel:
    return model(2, topics={"t": 2, "u": 1})


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    peer = Peer(cluster())
    peer.send_bytes(content)
    peer.frames()


@QUICK
@given(
    st.sampled_from(sorted(BROKER_VERSIONS)),
    st.integers(-1, 20),
    st.binary(max_size=200),
)
def test_any_body(api: int, version: int, body: bytes) -> None:
    peer = Peer(cluster())
    frame = struct.pack(">hhih", api, version, 1, -1) + body
    peer.send_bytes(struct.pack(">i", len(frame)) + frame)
    peer.frames()


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (int(api), version)
        for api, (lowest, highest) in sorted(BROKER_VERSIONS.items())
        for version in range(lowest, highest + 1)
    ],
)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_well_formed_request(api: int, version: int, data: st.DataObject) -> None:
    """The answer, where there is one, is read by kio: every version of every API can be written."""
    peer = Peer(cluster())
    request: Any = data.draw(entities(request_class(api, version)))
    peer.send(request)
    for at in (1.0, 1e12):
        peer.cluster.handle_timer(at)
    assert len(peer.answers()) <= 1


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_hostile_length_closes_the_connection(length: int) -> None:
    peer = Peer(cluster())
    peer.send_bytes(struct.pack(">i", length))
    assert peer.is_closed


def test_what_came_whole_before_a_hostile_length_is_served() -> None:
    peer = Peer(model(topics={"t": 1}))
    request = request_frame(produce_request("t", {0: batch(b"v")}), 1)
    peer.send_bytes(request + struct.pack(">i", -5))

    assert peer.is_closed
    assert len(peer.cluster.state.require_partition("t", 0).log.batches) == 1


@QUICK
@given(st.binary(max_size=150))
def test_any_records(content: bytes) -> None:
    answer = Peer(model(topics={"t": 1})).produce("t", content)
    assert answer.error_code.value in (2, 10, 76, 87)


@QUICK
@given(
    st.sampled_from(range(5)),
    st.integers(0, 200),
    st.integers(0, 255),
)
def test_any_changed_byte_with_a_right_checksum(codec: int, position: int, byte: int) -> None:
    """What passes can be read back or is refused on reading; nothing else comes out."""
    content = batch(b"abc", b"def", codec=codec, key=b"key", headers=(("name", b"value"),))
    changed = tampered(content, ">B", 21 + position % (len(content) - 21), byte)
    small = model(topics={"t": 1})
    answer = Peer(small).produce("t", changed)
    codes = [
        refusal(lambda kept=kept: decode_records(kept.header, kept.content))  # type: ignore[misc]
        for kept in small.state.require_partition("t", 0).log.batches
    ]
    assert codes in ([], [0], [76], [87])
    assert not codes or answer.error_code.value == 0


@QUICK
@given(st.integers(0, 7), st.binary(max_size=100))
def test_any_compressed_bytes(codec: int, content: bytes) -> None:
    assert refusal(lambda: decompress(codec, content)) in (0, 76, 87)


@pytest.mark.parametrize(
    "compress",
    [
        (1, lambda zeros: zlib.compress(zeros, 1, wbits=31)),
        (3, lz4.frame.compress),
        (4, lambda zeros: bytes(cramjam.zstd.compress(zeros, level=1))),
    ],
    ids=["gzip", "lz4", "zstd"],
)
def test_a_decompression_bomb_is_refused(compress: tuple[int, Callable[[bytes], bytes]]) -> None:
    codec, bomb = compress[0], compress[1](bytes(MAX_DECOMPRESSED_BYTES + 1))

    assert refusal(lambda: decompress(codec, bomb)) == 87


def test_a_snappy_bomb_is_refused() -> None:
    # A raw block whose preamble announces 4 GiB - 1.
    with pytest.raises(InvalidBatchError):
        decompress(2, b"\xff\xff\xff\xff\x0f" + b"\x00" * 20)


def test_a_record_count_is_not_believed() -> None:
    header = read_header(tampered(batch(b"v"), ">i", 57, 2**31 - 1))
    with pytest.raises(InvalidBatchError):
        decode_records(header, batch(b"v"))
