"""`ClusterModel`: any bytes from any clients, in any slices, with time and brokers that go down in between.

1. No fact raises: bytes are answered, or the connection is closed.
2. Of a connection that is closed nothing is heard any more.
3. What is sent is whole frames, and the answers of a connection come in the order of its requests.
4. What is asked for costs the model no more than a moment: timers come to an end, and nothing grows without bound.

The input is a list of steps: a byte says which, those after it are its arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aioproduce.errors import ProtocolError
from aioproduce.testing import ClusterModel
from aioproduce.testing.fake_cluster.cluster_apis import BROKER_VERSIONS
from aioproduce.testing.fake_cluster.effects import Close, Send
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.reader import decode_request_header
from tests.fuzz import peer
from tests.fuzz.target import Source, Target
from tests.unit.fake_broker_peer import batch, model

APIS = tuple(BROKER_VERSIONS)
RAW, REQUEST, TIME, OPEN, LEAVE, BROKER = range(6)
MOST_TIMERS = 2000


class Client:
    """One connection from its client's side."""

    def __init__(self, cluster: ClusterModel, broker: int, now: float) -> None:
        self.connection_id = cluster.connection_opened(broker, now)
        self.is_open = True
        self.sent = FrameReader(100 << 20)
        self.received = FrameReader(1 << 24)
        self.asked: list[int] = []
        self.number = 0

    def note(self, data: bytes) -> None:
        """What goes out, read as a broker reads it."""
        try:
            frames = self.sent.feed(data)
            self.asked += [decode_request_header(frame).correlation_id for frame in frames]
        except ProtocolError:
            return

    def heard(self, data: bytes) -> None:
        assert self.is_open, "something came after the end"
        for frame in self.received.feed(data):
            (number,) = struct.unpack_from(">i", frame)
            # Requests without an answer (acks=0) lie in between.
            assert number in self.asked, "an answer that nobody asked for, or out of order"
            del self.asked[: self.asked.index(number) + 1]
        assert self.received.buffered == 0


class Clients:
    """A cluster of two brokers, and who talks to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = model(2, topics={"t": 2, "u": 1})
        self.clients = [Client(self.cluster, 0, self.now)]
        self.is_stopped = False

    def step(self, source: Source) -> None:
        client = self.clients[-1]
        match source.below(6):
            case 0:
                self.send(client, source.take(source.byte()))
            case 1:
                self.send(client, self.request(client, source))
            case 2:
                self.advance(source.byte() / 4)
            case 3 if len(self.clients) < 6:
                self.clients.append(Client(self.cluster, source.below(2), self.now))
            case 4 if client.is_open and len(self.clients) > 1:
                client.is_open = False
                self.cluster.connection_closed(client.connection_id, self.now)
                self.clients.insert(0, self.clients.pop())
            case 5:
                self.is_stopped = not self.is_stopped
                if self.is_stopped:
                    self.cluster.broker_stopped(1, self.now)
                else:
                    self.cluster.broker_started(1, self.now)

    def request(self, client: Client, source: Source) -> bytes:
        """A frame with a header that is right, and whatever comes next as its body."""
        api = APIS[source.below(len(APIS))]
        lowest, highest = BROKER_VERSIONS[api]
        version = lowest + source.below(highest - lowest + 1)
        client.number += 1
        tags = b"\0" if peer.has_request_tags(api, version) else b""
        body = source.take(source.byte())
        return peer.framed(struct.pack(">hhih", api, version, client.number, -1) + tags + body)

    def send(self, client: Client, data: bytes) -> None:
        if not client.is_open:
            return
        client.note(data)
        self.cluster.receive_data(client.connection_id, data, self.now)

    def take_effects(self) -> None:
        of_id = {client.connection_id: client for client in self.clients}
        effects = self.cluster.effects
        while effects:
            effect = effects.popleft()
            client = of_id[effect.connection_id]
            if isinstance(effect, Close):
                assert client.is_open, "closed twice"
                client.is_open = False
            elif isinstance(effect, Send):
                client.heard(effect.data)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(MOST_TIMERS):
            at = self.cluster.next_timer()
            if at is None or at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            self.cluster.handle_timer(self.now)
            self.take_effects()
        raise AssertionError("timers without end")


def run(data: bytes) -> None:
    clients = Clients()
    source = Source(data)
    while source:
        clients.step(source)
        clients.take_effects()
    clients.advance(3600.0)
    for client in clients.clients:
        assert not client.is_open or client.sent.error is None, "garbage was left open"


def seeds() -> Iterator[bytes]:
    for place, api in enumerate(APIS):
        lowest, highest = BROKER_VERSIONS[api]
        for version in {lowest, (lowest + highest) // 2, highest}:
            for body in peer.request_bodies(api, version):
                if len(body) < 256:
                    step = bytes([REQUEST, place, version - lowest, len(body)]) + body
                    yield step + bytes([TIME, 40]) + step
    content = batch(b"v")
    produce = (
        struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, len(content)) + content
    )
    step = bytes([REQUEST, 0, 0, len(produce)]) + produce
    yield step + step + bytes([BROKER]) + step + bytes([BROKER, OPEN, 1]) + step
    yield bytes([RAW, 20]) + bytes(20) + bytes([OPEN, 1, LEAVE])


TARGETS = {"fake_cluster": Target(run, seeds)}
