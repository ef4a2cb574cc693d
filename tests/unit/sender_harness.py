"""A Sender on a virtual clock, and the brokers that it talks to, played by hand at the level of the wire.

For the tests of the core: no event loop, no socket, no sleep. What the core sends is decoded as a broker reads
it and waits in `requests` until the test answers, loses its connection or lets time pass; what is not the point
of a test (version negotiation, metadata, producer ids) is answered at once unless the API is `held`.

Checked after every step, whatever the test is about:

1. Rest is rest: when `next_effect()` gives None nothing is left to be done, also if asked again (no lost wake-up).
2. The core comes to rest in a bounded number of effects, and `handle_timer()` leaves no timer that is due.
3. A delivery callback is called once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from aioproduce._native.stats import Windows
from aioproduce.config import ProducerConfig
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.effects import Compress, Connect, Offload, Send
from aioproduce.core.sender import Sender
from aioproduce.metrics import ProducerMetrics
from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.wire.reader import decode_request
from tests.unit.sender_wire import (
    API_VERSIONS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    PUSH_TELEMETRY,
    TOPIC,
    Request,
    Topic,
    api_versions_body,
    metadata_body,
    produce_body,
    read_batches,
    topic_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.compression import Codec
    from aioproduce.core.batching.producer_batch import ProducerBatch
    from aioproduce.core.batching.record_audit import MarkSource
    from aioproduce.core.effects import Effect
    from aioproduce.core.exchanges.telemetry import PayloadSource
    from aioproduce.records import RecordMetadata

PRODUCER_ID = 343434

_ANSWERED_BY_TESTS = frozenset({PRODUCE, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY})

_MAX_STEPS = 2000
"""Effects of one instant, and timers of one `advance()`: beyond lies a livelock."""


class NoRandom:
    """Jitter that changes nothing (a factor of 1), and always the first of equals."""

    def random(self) -> float:
        return 0.5

    def randrange(self, stop: int, /) -> int:
        return 0


class FakeRuntime:
    """An event loop's side of a delivery, without a loop."""

    def __init__(self) -> None:
        self.unobserved: list[tuple[str, int, BaseException, int]] = []

    def get_loop(self) -> NoReturn:
        raise NotImplementedError

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Any) -> None:
        callback(argument)

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> NoReturn:
        raise error

    def cancelled_error(self, message: object) -> BaseException:
        return KeyboardInterrupt(message)

    def invalid_state_error(self, message: str) -> BaseException:
        return LookupError(message)

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        self.unobserved.append((topic, partition, error, count))


@dataclass(eq=False)
class Record:
    """A record that was accepted, and what was reported of it."""

    delivery: DeliveryFuture
    accepted_at: float
    outcomes: list[tuple[RecordMetadata, BaseException | None]] = field(default_factory=list)
    settled_at: float = -1.0

    @property
    def is_done(self) -> bool:
        assert self.delivery.done() == bool(self.outcomes)
        return self.delivery.done()

    @property
    def offset(self) -> int:
        return self.delivery.result().offset

    @property
    def error(self) -> Any:
        """Why it failed; an attribute test on it is a test of its type, too."""
        return self.delivery.exception()


class SenderHarness:
    """One Sender, bootstrapped: it knows `TOPIC` and, if idempotent, has a producer id.

    Args:
        partitions: Partitions of `TOPIC`, all led by node 0 until `move()`.
        brokers: How many brokers there are, node ids from 0.
        produce_versions: What the brokers offer.
        producer_ids: What InitProducerId is answered, in turn: (producer id, epoch).
        is_bootstrapped: Whether to come to know the topic and the producer id at once.
        codec: Compression.
        random: What stands in for chance.
        telemetry: What is pushed to brokers; those in `offer_telemetry` offer it (by default all, if it is given).
        audit: Makes the marks of an audited producer; its clock says 1,000 ms for each second of `now`.
        **settings: The producer's, over `linger_ms=0`, `delivery_timeout_ms=1500`, `request_timeout_ms=1000` and
            `retry_backoff_ms=50`.
    """

    BOOTSTRAP = -1
    """The node behind `bootstrap`, an address that is no broker's own."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        brokers: int = 1,
        produce_versions: tuple[int, int] = (3, 13),
        producer_ids: Sequence[tuple[int, int]] = (
            (PRODUCER_ID, 0),
            (PRODUCER_ID + 1, 0),
            (PRODUCER_ID + 2, 0),
        ),
        is_bootstrapped: bool = True,
        codec: Codec | None = None,
        random: NoRandom | None = None,
        telemetry: PayloadSource | None = None,
        audit: MarkSource | None = None,
        **settings: Any,
    ) -> None:
        self.now = 1000.0
        self.config = ProducerConfig.from_keywords(
            **{
                "bootstrap_servers": "b0:9092",
                "linger_ms": 0,
                "delivery_timeout_ms": 1500,
                "request_timeout_ms": 1000,
                "retry_backoff_ms": 50,
                "retry_backoff_max_ms": 50,
                "reconnect_backoff_ms": 10,
                "reconnect_backoff_max_ms": 10,
                **settings,
            }
        )
        self.runtime = FakeRuntime()
        self.produce_versions = produce_versions
        self.offer_telemetry = set(range(-1, brokers)) if telemetry is not None else set()
        self.brokers = {node: (f"b{node}", 9092) for node in range(brokers)}
        self.topics = {TOPIC: Topic(topic_id_of(1), [(0, 0)] * partitions)}
        self.producer_ids = iter(producer_ids)
        self.requests: list[Request] = []
        self.history: list[Request] = []
        self.unanswered: list[Request] = []
        self.bootstrap: tuple[str, int] | None = None
        self.held: set[int] = set()
        self.down: set[int] = set()
        self.holds_closes = False
        self.holds_writable = False
        self.closing: list[int] = []
        self.unwritten: list[int] = []
        self.holds_compression = False
        self.compressing: list[Compress[ProducerBatch]] = []
        self.connections: dict[int, int] = {}
        self.records: list[Record] = []
        self.metrics = ProducerMetrics(Windows())
        self.sender = Sender(
            self.config,
            codec=codec,
            runtime=self.runtime,
            random=random or NoRandom(),
            metrics=self.metrics,
            now=self.now,
            telemetry=telemetry,
            audit=None if audit is None else (audit, lambda: int(self.now * 1000)),
        )
        if is_bootstrapped:
            self.want(TOPIC)
            self.run()
            assert self.sender.metadata.topic(TOPIC) is not None

    # -- what a producer does ---

    def want(self, topic: str) -> list[str]:
        """Wait for a topic; the list gets the topic's name when there is news of it."""
        news: list[str] = []
        self.sender.metadata_requests.await_topic(topic, lambda: news.append(topic), self.now)
        return news

    def append(
        self,
        partition: int | None = 0,
        value: bytes | None = b"v",
        *,
        topic: str = TOPIC,
        key: bytes | None = None,
    ) -> Record:
        """Accept one record; nothing is sent before `run()`."""
        view = self.sender.metadata.topic(topic)
        assert view is not None, f"{topic} is not known"
        sent = SerializedRecord(topic, key, value, None, partition, 0)
        delivery = self.sender.accumulator.append(view, sent, self.now)
        assert delivery is not None, "the buffer is full"
        record = Record(delivery, self.now)
        delivery._add_delivery_callback(lambda metadata, error: self._settled(record, metadata, error))
        self.records.append(record)
        return record

    def send(self, partition: int | None = 0, value: bytes | None = b"v", **more: Any) -> Record:
        """Accept one record and send what can be sent: with `linger_ms=0` a batch of its own."""
        record = self.append(partition, value, **more)
        self.run()
        return record

    def send_acknowledged(self, partition: int = 0, *, offset: int = 0) -> Record:
        """Send one record and have it acknowledged."""
        record = self.send(partition)
        self.acknowledge(offset=offset)
        assert record.offset == offset
        return record

    def send_each(self, count: int, partition: int = 0) -> list[Record]:
        """Send so many records, each as soon as it is appended."""
        return [self.send(partition, b"%d" % number) for number in range(count)]

    def refresh(self) -> None:
        """Make the sender fetch metadata again: a new metadata answer comes at most 0.1 s later."""
        self.sender.metadata_requests.request(self.now)
        self.advance(0.1)

    def _settled(self, record: Record, metadata: RecordMetadata, error: BaseException | None) -> None:
        record.outcomes.append((metadata, error))
        record.settled_at = self.now
        assert len(record.outcomes) == 1, "a delivery callback was called twice"

    # -- time ---

    def run(self) -> None:
        """Carry out effects until the core is at rest."""
        self._come_to_rest()
        # A fact about nothing makes the core look again: at rest it finds nothing.
        self.sender.writable(-1, self.now)
        assert self._come_to_rest() == 0, "the core had more to do and nobody would have woken it"
        timer = self.sender.next_timer()
        assert timer is None or timer > self.now or self.sender.is_closed, (
            "a timer is due and was not handled"
        )

    def _come_to_rest(self) -> int:
        self.sender.handle_timer(self.now)
        for steps in range(_MAX_STEPS):
            effect = self.sender.next_effect(self.now)
            while self.sender.settled:
                assert self.sender.settled.popleft().run_callbacks() == []
            if effect is not None:
                self._carry_out(effect)
            elif not self.sender.has_work:
                return steps
        raise AssertionError("the core does not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the core when it asked to be woken."""
        until = self.now + seconds
        for _ in range(_MAX_STEPS):
            timer = self.sender.next_timer()
            if timer is None or timer > until:
                self.now = until
                self.run()
                return
            self.now = max(self.now, timer)
            self.run()
        raise AssertionError("timers without end")

    def jump(self, seconds: float) -> None:
        """Let time pass without the core being woken: what comes next comes first."""
        self.now += seconds

    # -- the driver ---

    def _carry_out(self, effect: Effect | Offload | Compress[ProducerBatch]) -> None:
        assert not isinstance(effect, Offload), "nothing logs in here"
        if isinstance(effect, Compress):
            self.compressing.append(effect)
            if not self.holds_compression:
                self.finish_compression(run=False)
            return
        connection_id = effect.connection_id
        if isinstance(effect, Connect):
            node_id = self._node_at((effect.host, effect.port))
            if node_id is None or node_id in self.down:
                self.sender.connection_lost(connection_id, ConnectionRefusedError("refused"), self.now)
                return
            self.connections[connection_id] = node_id
            self.sender.connection_made(connection_id, self.now)
        elif isinstance(effect, Send):
            assert connection_id in self.connections, "sent on a connection that is gone"
            self._receive(connection_id, b"".join(effect.buffers))
        elif self.holds_closes:
            self.closing.append(connection_id)
        else:
            self._lose(connection_id, None)

    def _node_at(self, address: tuple[str, int]) -> int | None:
        if address == self.bootstrap:
            return self.BOOTSTRAP
        return next((node for node, its_address in self.brokers.items() if its_address == address), None)

    def _receive(self, connection_id: int, data: bytes) -> None:
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        decoded = decode_request(memoryview(data)[4:])
        request = Request(
            connection_id,
            self.connections[connection_id],
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            decoded.body,
            self.now,
        )
        if request.api == PRODUCE:
            request.batches = read_batches(decoded.body, self.topics)
        self.requests.append(request)
        self.history.append(request)
        if self.holds_writable:
            self.unwritten.append(connection_id)
        else:
            self.sender.writable(connection_id, self.now)
        if request.api == PRODUCE and decoded.body["acks"] == 0:
            self.requests.remove(request)
        self._answer_by_itself(connection_id)

    # -- the brokers ---

    @property
    def produces(self) -> list[Request]:
        """The Produce requests that wait for an answer, oldest first."""
        return [request for request in self.requests if request.api == PRODUCE]

    def places(self, partition: int = 0) -> list[tuple[int, int]]:
        """(epoch, base sequence) of a partition's batches that wait for an answer, oldest first."""
        return [
            request.batch(partition).place for request in self.produces if partition in request.partitions
        ]

    def waiting(self, api: int) -> list[Request]:
        """The requests of another API that wait for an answer."""
        return [request for request in self.requests if request.api == api]

    def count(self, api: int) -> int:
        """How many requests of an API were ever sent."""
        return sum(request.api == api for request in self.history)

    def produce(self) -> Request:
        """The one Produce request that waits for an answer."""
        (request,) = self.produces
        return request

    def reply(self, request: Request, body: Mapping[str, Any], *, run: bool = True) -> None:
        """Answer with any body; a broker answers the requests of a connection in their order."""
        assert request is self.first_of(request.connection_id), "another request is to be answered first"
        self.requests.remove(request)
        frame = encode_response(request.api, request.version, request.correlation_id, body)
        self.sender.receive_data(request.connection_id, len(frame).to_bytes(4, "big") + frame, self.now)
        self._answer_by_itself(request.connection_id)
        if run:
            self.run()

    def first_of(self, connection_id: int) -> Request | None:
        """The request that the broker answers next on a connection."""
        return next((request for request in self.requests if request.connection_id == connection_id), None)

    def acknowledge(self, request: Request | None = None, *, offset: int = 0, run: bool = True) -> None:
        """Answer a Produce request (the oldest): every batch was appended at `offset`."""
        self.answer(request, 0, offset=offset, run=run)

    def answer(
        self,
        request: Request | None = None,
        code: int = 0,
        *,
        run: bool = True,
        codes: Mapping[int, int] | None = None,
        throttle: float = 0.0,
        leaders: Mapping[int, tuple[int, int]] | None = None,
        endpoints: Sequence[int] = (),
        offsets: Mapping[int, int] | None = None,
        **fields: Any,
    ) -> None:
        """Answer a Produce request (the oldest).

        Args:
            request: Which.
            code: The error code of every partition.
            run: Whether to carry out what follows from it.
            codes: Error codes by partition, over `code`.
            throttle: Seconds of `throttle_time_ms`.
            leaders: KIP-951's hint by partition: (leader's node id, its epoch).
            endpoints: Nodes whose address goes with the hint.
            offsets: Offsets by partition, over `offset`.
            **fields: `offset`, `log_append_time`, `log_start_offset`, `error_message`, `record_errors`.
        """
        request = self.produces[0] if request is None else request
        body = produce_body(
            request,
            lambda index: (codes or {}).get(index, code),
            leaders or {},
            [(node, *self.brokers[node]) for node in endpoints],
            throttle=throttle,
            offsets=offsets or {},
            **fields,
        )
        self.reply(request, body, run=run)

    def _answer_by_itself(self, connection_id: int) -> None:
        """Answer the connection's first request if it is not for the test to answer."""
        request = self.first_of(connection_id)
        if request is None or request.api in _ANSWERED_BY_TESTS or request.api in self.held:
            return
        self.reply(request, self.own_answer(request), run=False)

    def own_answer(self, request: Request) -> Mapping[str, Any]:
        """What a request is answered that is not for the test to answer."""
        if request.api == API_VERSIONS:
            offers_telemetry = request.node_id in self.offer_telemetry
            return api_versions_body(self.produce_versions, offers_telemetry=offers_telemetry)
        if request.api == METADATA:
            return metadata_body(request, self.brokers, self.topics)
        producer_id, epoch = next(self.producer_ids)
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}

    def unhold(self, api: int) -> None:
        """Answer an API by itself again, and what of it was held."""
        self.held.discard(api)
        for connection_id in list(self.connections):
            self._answer_by_itself(connection_id)
        self.run()

    def answer_metadata(self) -> None:
        """Answer the Metadata request that waits, with what the brokers are like now."""
        (request,) = self.waiting(METADATA)
        self.reply(request, metadata_body(request, self.brokers, self.topics))

    def answer_init(self, code: int = 0, producer: tuple[int, int] = (PRODUCER_ID, 0)) -> None:
        """Answer the InitProducerId request that waits."""
        (request,) = self.waiting(INIT_PRODUCER_ID)
        producer_id, epoch = producer if code == 0 else (-1, -1)
        self.reply(request, {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch})

    def move(self, partition: int, node: int, topic: str = TOPIC) -> None:
        """Another broker (-1: none) leads a partition; the core does not know yet."""
        leaders = self.topics[topic].leaders
        leaders[partition] = (node, leaders[partition][1] + 1)

    def recreate(self, topic: str = TOPIC) -> None:
        """Delete a topic and create it again: another id, epochs from 0."""
        old = self.topics[topic]
        number = 1 if old.topic_id is None else old.topic_id.int + 1
        self.topics[topic] = Topic(topic_id_of(number), [(leader, 0) for leader, _ in old.leaders])

    # -- connections ---

    def connection_to(self, node_id: int = 0) -> int:
        """The newest connection to a node."""
        return max(number for number, node in self.connections.items() if node == node_id)

    def lose(self, node_id: int = 0, *, run: bool = True) -> None:
        """Reset every connection to a node; requests that waited there are never answered."""
        for connection_id in [number for number, node in self.connections.items() if node == node_id]:
            self._lose(connection_id, ConnectionResetError("reset"))
        if run:
            self.run()

    def finish_closes(self) -> None:
        """With `holds_closes`: the transports that were to be aborted are gone now."""
        self.holds_closes = False
        closing, self.closing = self.closing, []
        for connection_id in closing:
            self._lose(connection_id, None)
        self.run()

    def finish_writes(self) -> None:
        """With `holds_writable`: the transports hold no bytes any more."""
        self.holds_writable = False
        unwritten, self.unwritten = self.unwritten, []
        for connection_id in unwritten:
            self.sender.writable(connection_id, self.now)
        self.run()

    # -- compression workers ---

    def finish_compression(
        self, place: int = 0, *, error: BaseException | None = None, run: bool = True
    ) -> None:
        """A worker is done with a batch (the oldest); with `holds_compression` nothing else finishes one."""
        job = self.compressing.pop(place)
        if error is None:
            self.sender.compressed(job.batch, job.codec.compress(job.records), self.now)
        else:
            self.sender.compression_failed(job.batch, error, self.now)
        if run:
            self.run()

    def _lose(self, connection_id: int, error: BaseException | None) -> None:
        self.connections.pop(connection_id, None)
        self.unanswered += [request for request in self.requests if request.connection_id == connection_id]
        self.requests = [request for request in self.requests if request.connection_id != connection_id]
        self.sender.connection_lost(connection_id, error, self.now)

    # -- what holds in the end ---

    def is_closed(self) -> bool:
        """Whether the core is closed; a method, as a checker of types takes a property for constant."""
        return self.sender.is_closed

    @property
    def outstanding(self) -> int:
        """Bytes of the pool that batches hold."""
        return self.sender.pool.outstanding


def warm(**settings: Any) -> SenderHarness:
    """A harness with two partitions that have acknowledged one record each: the next sequence is 1."""
    h = SenderHarness(**settings)
    for partition in (0, 1):
        h.send_acknowledged(partition)
    return h
