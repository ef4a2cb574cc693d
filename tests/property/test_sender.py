"""The Sender against brokers that do anything that brokers do, in any order, and an oracle that reads their logs.

The logs are the broker model's (`aioproduce.testing`), which was held against a real Kafka: sequences, epochs, the
window of five batches. What goes wrong is drawn: answers with and without an append before them, lost connections,
requests that a broker processes after their connection is gone, leaders that move, brokers that are down, time that
passes unnoticed; metadata that comes late, or says that a topic cannot be had at present; bytes that stay in the
transport; facts about connections that are gone; and, where batches are compressed in other threads, when each of
these is done, in which order, or that it fails. Close and abort come at any moment, and more than once.

What must hold (DESIGN.md's invariants, at the level of the core):

1. Every accepted record is settled once, at its deadline at the latest.
2. Acknowledged records are in the log, at the offset that was told; with idempotence once, in the order of
   sending.
3. What failed with `possibly_written=False` is not in the log, also not later.
4. The pool is whole again when every connection is gone.
5. Flushes and waits for memory end as `sender_application` has it.

And when the trouble is over, the next record of each partition is acknowledged: nothing is stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aioproduce.records import TopicPartition
from aioproduce.testing.fake_cluster.failures import RefusedError
from aioproduce.testing.fake_cluster.log import PartitionLog, TopicConfig
from aioproduce.wire import error_codes as codes
from tests.property.sender_application import Application
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import INIT_PRODUCER_ID, METADATA, PRODUCE, TOPIC, Topic, topic_id_of
from tests.unit.stored_codec import LONG, SHORT, StoredCodec

if TYPE_CHECKING:
    from tests.unit.sender_harness import Record
    from tests.unit.sender_wire import Request

OTHER = "other"
PLACES = [
    TopicPartition(TOPIC, 0),
    TopicPartition(TOPIC, 1),
    TopicPartition(TOPIC, 2),
    TopicPartition(OTHER, 3),
]
"""Each partition number once: the harness answers by them. The second topic's others stay empty."""
BROKERS = 2
DELIVERY_TIMEOUT = 1.5

BEFORE_APPEND = [
    codes.NOT_ENOUGH_REPLICAS,
    codes.LEADER_NOT_AVAILABLE,
    codes.CORRUPT_MESSAGE,
    codes.INVALID_RECORD,
    codes.TOPIC_AUTHORIZATION_FAILED,
]
AFTER_APPEND = [
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    codes.REQUEST_TIMED_OUT,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.KAFKA_STORAGE_ERROR,
    codes.UNKNOWN_SERVER_ERROR,
    codes.DUPLICATE_SEQUENCE_NUMBER,
    999,
]
WELL, REFUSE, AFTERWARDS = "appended", "refused", "appended, and an error"

any_fate = st.one_of(
    st.just((WELL, 0)),
    st.sampled_from(BEFORE_APPEND).map(lambda code: (REFUSE, code)),
    st.sampled_from(AFTER_APPEND).map(lambda code: (AFTERWARDS, code)),
)
pipe_fate = st.sampled_from(
    [
        (WELL, 0),
        (REFUSE, codes.NOT_ENOUGH_REPLICAS),
        (REFUSE, codes.INVALID_RECORD),
        (AFTERWARDS, codes.REQUEST_TIMED_OUT),
    ]
)
any_fates = st.lists(any_fate, min_size=len(PLACES), max_size=len(PLACES))
any_place = st.sampled_from(PLACES)
some_sizes = st.lists(st.sampled_from([0, 0, 90]), min_size=1, max_size=3)
ALL_WELL = [(WELL, 0)] * len(PLACES)
PASSING_INIT_CODES = [
    codes.COORDINATOR_NOT_AVAILABLE,
    codes.COORDINATOR_LOAD_IN_PROGRESS,
    codes.REQUEST_TIMED_OUT,
]


class SenderMachine(RuleBasedStateMachine):
    """Appends, faults and time in any order."""

    idempotent = True
    acks: int | str = "all"
    never_after_append: frozenset[int] = frozenset()

    @initialize(
        in_flight=st.sampled_from([1, 2, 5, 5]),
        retries=st.sampled_from([1, 3, 2**31 - 1]),
        linger_ms=st.sampled_from([0, 0, 20]),
        max_message_bytes=st.sampled_from([1_000_000, 220]),
        epoch=st.sampled_from([0, 0, 32766]),
        is_warm=st.sampled_from([False, False, True]),
        compression=st.sampled_from([None, None, SHORT, 0.4e-3, LONG, LONG]),
        batches_in_memory=st.sampled_from([3, 2000]),
        produce_version=st.sampled_from([13, 12, 8]),
    )
    def start(
        self,
        in_flight: int,
        retries: int,
        linger_ms: int,
        max_message_bytes: int,
        epoch: int,
        is_warm: bool,
        compression: float | None,
        batches_in_memory: int,
        produce_version: int,
    ) -> None:
        # A new producer id cannot fence what was sent under the old one and is still on its way.
        self.has_stragglers = epoch == 0
        self.has_retries = retries > 3
        self.h = SenderHarness(
            partitions=3,
            brokers=BROKERS,
            produce_versions=(3, produce_version),
            codec=None if compression is None else StoredCodec(compression),
            producer_ids=[(number, epoch if number == 0 else 0) for number in range(1000)],
            enable_idempotence=self.idempotent,
            acks=self.acks,
            max_in_flight_requests_per_connection=in_flight,
            retries=retries,
            linger_ms=linger_ms,
            delivery_timeout_ms=int(DELIVERY_TIMEOUT * 1000),
            metadata_max_age_ms=700,
            buffer_memory=batches_in_memory * 16384,
        )
        self.h.topics[OTHER] = Topic(topic_id_of(99), [(1, 0)] * 4)
        self.h.want(OTHER)
        self.h.run()
        config = TopicConfig(max_message_bytes=max_message_bytes)
        self.logs = {place: PartitionLog(config) for place in PLACES}
        self.app = Application(self.h, PLACES)
        self.is_closing = False
        self.is_aborted = False
        self.overslept = 0.0
        self.silent_until: dict[int, float] = {}
        self.looked_at = 0
        self.h.holds_compression = True
        if is_warm:
            self.recover()

    # -- the producer ---

    @precondition(lambda self: not self.is_closing)
    @rule(
        place=any_place,
        key=st.sampled_from([None, None, b"a", b"b"]),
        is_together=st.booleans(),
        sizes=some_sizes,
        is_chained=st.sampled_from([False, False, True]),
    )
    def append(
        self, place: TopicPartition, key: bytes | None, is_together: bool, sizes: list[int], is_chained: bool
    ) -> None:
        if place.topic == OTHER:
            key = None  # the choice would be among all of its partitions
        for size in sizes:
            self.app.send(place, b"." * size, key=key, is_chained=is_chained)
            if not is_together:
                self.h.run()
        self.h.run()

    @precondition(lambda self: self.app.waits)
    @rule(choice=st.integers(0, 5), may_give_up=st.booleans())
    def end_a_wait_for_memory(self, choice: int, may_give_up: bool) -> None:
        self.app.end_wait(choice, may_give_up=may_give_up)
        self.h.run()

    @rule()
    def flush(self) -> None:
        self.app.flush()
        self.h.run()

    @rule(seconds=st.sampled_from([0.03, 0.4]))
    def oversleep(self, seconds: float) -> None:
        """The loop is blocked: what comes next comes before any timer that is due."""
        self.overslept += seconds
        self.h.jump(seconds)

    @rule(seconds=st.sampled_from([0.005, 0.06]))
    def wait(self, seconds: float) -> None:
        self.h.advance(seconds)

    @precondition(lambda self: not self.is_closing)
    @rule()
    def recover(self) -> None:
        """The trouble is over: what is accepted now is acknowledged soon, and nothing is stuck before it.

        With few retries it may have used them up, if it came into a batch that waited already.
        """
        records: list[Record] = []
        self.heal()
        for topic in (TOPIC, OTHER):
            if self.h.sender.metadata.topic(topic) is None:
                self.h.want(topic)
                self.serve(0.3)
        for place in PLACES:
            assert self.h.sender.metadata.topic(place.topic) is not None, "the topic is not known again"
            self.make_room()
            record = self.app.send(place)
            assert record is not None, "the memory of what is over is not back"
            records.append(record)
            self.h.run()
        self.serve(0.9)
        assert all(record.is_done for record in records)
        if self.has_retries:
            assert [record.error for record in records] == [None] * len(PLACES)

    def make_room(self) -> None:
        """What is in the way is sent, or fails at its deadline at the latest."""
        until = self.h.now + DELIVERY_TIMEOUT
        while not self.app.has_room and self.h.now < until:
            self.serve(0.1)

    # -- compression workers ---

    @precondition(lambda self: self.h.compressing)
    @rule(choice=st.integers(0, 5), is_failing=st.sampled_from([False] * 5 + [True]))
    def finish_compression(self, choice: int, is_failing: bool) -> None:
        self.h.finish_compression(
            choice % len(self.h.compressing), error=MemoryError() if is_failing else None
        )

    @precondition(lambda self: self.h.compressing)
    @rule()
    def finish_all_compression(self) -> None:
        while self.h.compressing:
            self.h.finish_compression()

    # -- the brokers ---

    def process(
        self, request: Request, fates: list[tuple[str, int]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """What a broker does with a request: (error codes, offsets) by partition."""
        answered: dict[int, int] = {}
        offsets: dict[int, int] = {}
        for topic_partition, batch in request.batches.items():
            partition = topic_partition.partition
            fate, code = fates[partition]
            leader, epoch = self.h.topics[topic_partition.topic].leaders[partition]
            if fate == REFUSE or code in self.never_after_append:
                answered[partition] = code
            elif leader != request.node_id:
                answered[partition] = codes.NOT_LEADER_OR_FOLLOWER
            else:
                try:
                    appended = self.logs[topic_partition].append(
                        batch.content, produce_version=request.version, leader_epoch=epoch, wall_ms=0
                    )
                except RefusedError as refusal:
                    answered[partition] = refusal.code
                else:
                    answered[partition] = code
                    offsets[partition] = appended.base_offset
        return answered, offsets

    def next_request(self, choice: int) -> Request | None:
        firsts = [
            request
            for request in (self.h.first_of(connection_id) for connection_id in self.h.connections)
            if request is not None and request.api == PRODUCE
        ]
        return firsts[choice % len(firsts)] if firsts else None

    def answer_with(self, choice: int, fates: list[tuple[str, int]], throttle: float = 0.0) -> None:
        request = self.next_request(choice)
        if request is not None:
            self.forget_stragglers(request.node_id)
            answered, offsets = self.process(request, fates)
            if throttle and request.version >= 6:  # since then the client keeps the silence (KIP-219)
                self.silent_until[request.connection_id] = self.h.now + throttle
            leaders = {
                place.partition: self.h.topics[place.topic].leaders[place.partition]
                for place in request.batches
                if answered[place.partition] == codes.NOT_LEADER_OR_FOLLOWER
                and self.h.topics[place.topic].leaders[place.partition][0] >= 0
            }
            self.h.answer(
                request,
                codes=answered,
                offsets=offsets,
                throttle=throttle,
                leaders=leaders,
                endpoints=[node for node, _ in leaders.values()],
            )

    @precondition(lambda self: self.next_request(0) is not None)
    @rule(choice=st.integers(0, 3), fates=any_fates)
    def answer(self, choice: int, fates: list[tuple[str, int]]) -> None:
        self.answer_with(choice, fates)

    @precondition(lambda self: self.next_request(0) is not None)
    @rule(choice=st.integers(0, 3), code=st.sampled_from([*BEFORE_APPEND, codes.NOT_ENOUGH_REPLICAS]))
    def refuse(self, choice: int, code: int) -> None:
        self.answer_with(choice, [(REFUSE, code)] * len(PLACES))

    @precondition(lambda self: self.next_request(0) is not None)
    @rule(choice=st.integers(0, 3), throttle=st.sampled_from([0.0, 0.0, 0.1]))
    def acknowledge(self, choice: int, throttle: float) -> None:
        self.answer_with(choice, ALL_WELL, throttle)

    @precondition(lambda self: self.next_request(0) is not None)
    @rule(choice=st.integers(0, 3), is_limit_lowered=st.sampled_from([False, False, True]))
    def append_and_reset(self, choice: int, is_limit_lowered: bool = False) -> None:
        """The broker has it and the client does not know; what it has may be too large when it comes again."""
        request = self.next_request(choice)
        if request is not None:
            self.forget_stragglers(request.node_id)
            self.process(request, ALL_WELL)
            if is_limit_lowered:
                self.limit_batches(220)
            self.h.lose(request.node_id)
            self.h.unanswered.remove(request)

    @precondition(lambda self: not self.is_closing)
    @rule(
        place=any_place,
        burst=st.lists(pipe_fate, min_size=2, max_size=4),
        is_lost=st.booleans(),
        seconds=st.sampled_from([0.0, 0.06]),
    )
    def fill_the_pipe(
        self, place: TopicPartition, burst: list[tuple[str, int]], is_lost: bool, seconds: float
    ) -> None:
        """Several requests on their way, each with a fate of its own; the answer to the last may be lost."""
        for _ in burst:
            self.app.send(place)
            self.h.run()
        for number, fate in enumerate(burst):
            if is_lost and number == len(burst) - 1:
                self.append_and_reset(0)
            else:
                self.answer_with(0, [fate] * len(PLACES))
        self.h.advance(seconds)

    @precondition(lambda self: not self.is_closing)
    @rule(place=any_place, choice=st.integers(0, 3))
    def lose_the_answer_to_a_large_batch(self, place: TopicPartition, choice: int) -> None:
        self.limit_batches(1_000_000)
        for _ in range(3):
            self.app.send(place, b"." * 90)
        self.h.run()
        if self.next_request(0) is not None:
            self.append_and_reset(choice, is_limit_lowered=True)

    @precondition(
        lambda self: self.has_stragglers and any(request.api == PRODUCE for request in self.h.unanswered)
    )
    @rule(choice=st.integers(0, 3))
    def process_a_straggler(self, choice: int) -> None:
        """A request of a connection that is gone was in the broker's queue; each connection's in their order."""
        firsts: dict[int, Request] = {}
        for request in self.h.unanswered:
            if request.api == PRODUCE:
                firsts.setdefault(request.connection_id, request)
        if firsts:
            request = list(firsts.values())[choice % len(firsts)]
            self.h.unanswered.remove(request)
            self.process(request, ALL_WELL)

    def limit_batches(self, size: int) -> None:
        for log in self.logs.values():
            log.config = TopicConfig(max_message_bytes=size)

    def forget_stragglers(self, node: int) -> None:
        """A broker's queue is first in, first out: what came before the request at hand is done with.

        Were it not, no client could help it: between the answer that tells of a gap and the first batch of the new
        epoch, a straggler of the old epoch would be taken, and what it brought be written twice (KIP-360).
        """
        self.h.unanswered = [request for request in self.h.unanswered if request.node_id != node]

    @rule(place=any_place, node=st.integers(-1, BROKERS - 1))
    def move(self, place: TopicPartition, node: int) -> None:
        former, _ = self.h.topics[place.topic].leaders[place.partition]
        if former != node:
            self.forget_stragglers(former)  # it is no leader any more when it comes to them
            self.h.move(place.partition, node, place.topic)

    @precondition(lambda self: {METADATA, INIT_PRODUCER_ID} & self.h.held)
    @rule(code=st.sampled_from([0, *PASSING_INIT_CODES]))
    def answer_what_was_held(self, code: int) -> None:
        for connection_id in list(self.h.connections):
            request = self.h.first_of(connection_id)
            if request is not None and request.api == INIT_PRODUCER_ID and request.api in self.h.held:
                self.h.answer_init(code, next(self.h.producer_ids))
            elif request is not None and request.api == METADATA and request.api in self.h.held:
                self.h.answer_metadata()

    @rule(
        fact=st.sampled_from(["made", "data", "writable", "lost", "data while it closes"]),
        choice=st.integers(0, 100),
    )
    def hear_of_a_connection_that_is_gone(self, fact: str, choice: int) -> None:
        """Facts that were on their way already; of one that closes there may be bytes, too."""
        h = self.h
        if fact == "data while it closes":
            if h.closing:
                h.sender.receive_data(h.closing[choice % len(h.closing)], bytes(9), h.now)
        elif choice not in h.connections:
            if fact == "made":
                h.sender.connection_made(choice, h.now)
            elif fact == "data":
                h.sender.receive_data(choice, bytes(9), h.now)
            elif fact == "writable":
                h.sender.writable(choice, h.now)
            else:
                h.sender.connection_lost(choice, ConnectionResetError("late"), h.now)
        h.run()

    @rule(trouble=st.sampled_from(["stop 0", "stop 1", "start", "reset 0", "0.3 s", "1 s"]))
    def make_trouble(self, trouble: str) -> None:
        h = self.h
        if trouble.startswith("stop"):
            node = int(trouble[-1])
            h.down.add(node)
            h.lose(node)
        elif trouble == "reset 0":
            h.lose(0)
        elif trouble.endswith(" s"):
            h.advance(float(trouble[:-2]))
        else:
            h.down.clear()
        h.run()

    @rule(
        trouble=st.sampled_from(
            [
                "slow closing",
                "slow writing",
                "end of slow writing",
                "no producer ids",
                "slow metadata",
                "topic unavailable",
            ]
        )
    )
    def change_the_brokers(self, trouble: str) -> None:
        """What shows later: in what they answer, or when."""
        h = self.h
        if trouble == "slow closing":
            h.holds_closes = True
        elif trouble == "no producer ids":
            h.held.add(INIT_PRODUCER_ID)
        elif trouble == "slow metadata":
            h.held.add(METADATA)
        elif trouble == "topic unavailable":
            h.topics[TOPIC].code = codes.LEADER_NOT_AVAILABLE
        elif trouble == "slow writing":
            h.holds_writable = True
        else:
            h.finish_writes()

    @rule(chance=st.integers(0, 20))
    def close_or_abort(self, chance: int) -> None:
        if chance == 19:
            self.is_closing = True
            self.h.sender.begin_close(self.h.now)
        elif chance == 20:
            self.abort()
        self.h.run()

    def abort(self) -> None:
        self.is_closing = self.is_aborted = True
        self.h.sender.abort(self.h.now)
        while self.h.sender.settled:
            self.h.sender.settled.popleft().run_callbacks()
        assert all(record.is_done for record in self.h.records)

    # -- the oracle ---

    def heal(self) -> None:
        self.h.down.clear()
        for place in PLACES:
            if self.h.topics[place.topic].leaders[place.partition][0] < 0:
                self.h.move(place.partition, 0, place.topic)
        self.h.topics[TOPIC].code = 0
        self.h.finish_writes()
        self.h.finish_closes()
        self.h.unhold(METADATA)
        self.h.unhold(INIT_PRODUCER_ID)

    def process_all_stragglers(self) -> None:
        if self.has_stragglers:
            while any(request.api == PRODUCE for request in self.h.unanswered):
                self.process_a_straggler(0)
        self.h.unanswered.clear()

    def serve(self, seconds: float) -> None:
        """Time passes and brokers do what they should."""
        until = self.h.now + seconds
        while self.h.now < until:
            while self.h.compressing:
                self.h.finish_compression()
            while self.next_request(0) is not None:
                self.answer_with(0, ALL_WELL)
            self.app.end_waits()
            self.h.advance(0.01)

    @invariant()
    def flushes_end_when_they_should(self) -> None:
        if hasattr(self, "h"):
            self.app.check_flushes()

    @invariant()
    def one_request_at_a_time_and_none_while_throttled(self) -> None:
        if hasattr(self, "h"):
            assert len(set(self.h.unwritten)) == len(self.h.unwritten)
            for request in self.h.history[self.looked_at :]:
                assert request.sent_at >= self.silent_until.get(request.connection_id, 0.0)
            self.looked_at = len(self.h.history)

    @invariant()
    def nothing_lingers_while_somebody_waits_for_memory(self) -> None:
        if hasattr(self, "h") and self.h.sender.pool.waiting and self.h.sender.is_accepting:
            accumulator = self.h.sender.accumulator
            if all(batch.attempts == 0 for batch in accumulator.incomplete):
                assert accumulator.readiness.next_timer() is None

    def teardown(self) -> None:
        if not hasattr(self, "h"):
            return
        h = self.h
        records = list(h.records)
        h.advance(DELIVERY_TIMEOUT)
        self.app.check_flushes()
        for record in records:
            assert len(record.outcomes) == 1
            assert record.settled_at <= record.accepted_at + DELIVERY_TIMEOUT + self.overslept + 1e-9
        self.process_all_stragglers()
        if not self.is_closing:
            self.recover()
            self.abort()
        h.advance(DELIVERY_TIMEOUT)
        h.finish_closes()
        self.process_all_stragglers()
        assert h.is_closed() == (not h.compressing)
        while h.compressing:
            h.finish_compression()
        assert h.is_closed()
        assert h.connections == {}
        self.app.end_waits()
        assert self.app.waits == []
        self.app.check_all_is_over()
        assert h.sender.pool.available == h.sender.pool.total
        for place in PLACES:
            self.check_log(place)

    def check_log(self, place: TopicPartition) -> None:
        log = [record.value for batch in self.logs[place].batches for record in batch.records()]
        accepted = self.app.accepted[place]
        for value, record in accepted:
            error = record.error
            if error is None:
                assert value in log
                if record.offset >= 0:
                    assert log[record.offset] == value
            elif not error.possibly_written:
                assert value not in log
        if self.idempotent:
            order = {value: place for place, (value, _) in enumerate(accepted)}
            places = [order[value] for value in log if value is not None]
            assert places == sorted(set(places)), "duplicated, or out of order"


class PlainSenderMachine(SenderMachine):
    """Without idempotence: at least once."""

    idempotent = False


class AcksOneSenderMachine(SenderMachine):
    """acks=1: the leader's word, which does not wait for others."""

    idempotent = False
    acks = 1
    never_after_append = frozenset(
        {codes.NOT_LEADER_OR_FOLLOWER, codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    )


_settings = settings(max_examples=50, stateful_step_count=40, deadline=None)

TestIdempotent = pytest.mark.timeout(300)(SenderMachine.TestCase)
TestIdempotent.settings = _settings
TestPlain = PlainSenderMachine.TestCase
TestPlain.settings = _settings
TestAcksOne = AcksOneSenderMachine.TestCase
TestAcksOne.settings = _settings


@pytest.mark.extended("runs three times as many examples as the gate")
@pytest.mark.parametrize("machine", [SenderMachine, PlainSenderMachine, AcksOneSenderMachine])
def test_at_length(machine: type[SenderMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(_settings, max_examples=150))
