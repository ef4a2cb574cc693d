"""Schedules of faults, random or written by hand.

Users pass a schedule to `Simulation.plan()`. A fault begins at an instant, most of them end some seconds later, and
`Simulation.heal()` ends all. The table `KINDS` has every kind: each is implemented in about three lines, and the
schedule of a failed run can be read, shortened and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from aioproduce.testing.simulation.endpoint import Endpoint
    from aioproduce.testing.simulation.simulation import Simulation


@final
@dataclass(frozen=True, slots=True, order=True)
class ScheduledFault:
    """One fault.

    Attributes:
        at: When it begins, in seconds of virtual time.
        kind: One of `KINDS`, `SECURITY_KINDS` or `TRANSACTION_KINDS`.
        seconds: Its duration, or the delay that it causes.
        broker: The broker, if the kind has one.
        topic: The topic, if the kind has one.
        partition: The partition, if the kind has one.
        number: Another parameter: an error code, a count, a length.
    """

    at: float
    kind: str
    seconds: float = 0.0
    broker: int = 0
    topic: str = ""
    partition: int = 0
    number: int = 0

    def __str__(self) -> str:
        return (
            f"{self.at:.3f} {self.kind} broker={self.broker} {self.topic}-{self.partition} "
            f"for {self.seconds:.3f} s, {self.number}"
        )


class Kind(NamedTuple):
    """The effect of a kind of fault.

    Attributes:
        begin: Called when it begins.
        end: Called `seconds` later; `None` if it ends by itself.
        numbers: The possible values of `number`.
        longest: The maximum duration in seconds; 0 if it takes no time.
    """

    begin: Callable[[Simulation, ScheduledFault], object]
    end: Callable[[Simulation, ScheduledFault], object] | None = None
    numbers: Sequence[int] = (0,)
    longest: float = 0.0


REFUSALS: Final = (
    codes.NOT_ENOUGH_REPLICAS,
    codes.LEADER_NOT_AVAILABLE,
    codes.CORRUPT_MESSAGE,
    codes.INVALID_RECORD,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.REQUEST_TIMED_OUT,
    codes.KAFKA_STORAGE_ERROR,
    codes.UNKNOWN_SERVER_ERROR,
    codes.MESSAGE_TOO_LARGE,
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    999,
)
"""Error codes that a broker may answer without having appended."""

AMBIGUITIES: Final = (
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    codes.REQUEST_TIMED_OUT,
    codes.KAFKA_STORAGE_ERROR,
    codes.UNKNOWN_SERVER_ERROR,
    999,
)
"""Error codes that it may answer although it has appended."""


def _hold(outward: bool, inward: bool) -> Callable[[Simulation, ScheduledFault], object]:
    return lambda s, f: s.network.hold(host_of(f.broker), outward=outward, inward=inward)


def _release(s: Simulation, f: ScheduledFault) -> None:
    s.network.release(host_of(f.broker))


def _every_host(act: Callable[[Simulation, str], object]) -> Callable[[Simulation, ScheduledFault], object]:
    def on_all(s: Simulation, _: ScheduledFault) -> None:
        for host in s.network.links:
            act(s, host)

    return on_all


def _set(**values: object) -> Callable[[Simulation, ScheduledFault], object]:
    def on_link(s: Simulation, f: ScheduledFault) -> None:
        for name, value in values.items():
            setattr(s.network.links[host_of(f.broker)], name, value)

    return on_link


def _newest(s: Simulation, f: ScheduledFault) -> Endpoint | None:
    """Return one side of the newest connection to a broker: the client's for an odd number."""
    connections = s.network.connections_to(host_of(f.broker))
    if not connections:
        return None
    return connections[-1] if f.number % 2 else connections[-1].peer


def _cut(s: Simulation, f: ScheduledFault) -> None:
    """Cut a frame in half, in either direction, on the newest connection."""
    side = _newest(s, f)
    if side is not None:
        side.cut(f.number)


def _move(s: Simulation, f: ScheduledFault) -> None:
    state = s.cluster.state
    partition = state.partition(f.topic, f.partition)
    if partition is None or f.broker not in state.isr(partition):
        return
    # The last replica in sync stays in the ISR even while it is down.
    if state.brokers[f.broker].is_running:
        state.move_leader(f.topic, f.partition, f.broker)


def _elect_unclean(s: Simulation, f: ScheduledFault) -> None:
    state = s.cluster.state
    partition = state.partition(f.topic, f.partition)
    if partition is None or partition.leader_id == f.broker or f.broker not in partition.replicas:
        return
    if state.brokers[f.broker].is_running:
        state.elect_unclean(f.topic, f.partition, f.broker)


def _add_partition(s: Simulation, f: ScheduledFault) -> None:
    state = s.cluster.state
    state.add_partitions(f.topic, len(state.topics[f.topic].partitions) + 1)


KINDS: Final[Mapping[str, Kind]] = {
    # the network
    "reset": Kind(lambda s, f: s.network.reset(host_of(f.broker))),
    "cut a frame": Kind(_cut, numbers=range(40)),
    "black hole": Kind(_hold(True, True), _release, longest=45),
    "black hole outward": Kind(_hold(True, False), _release, longest=45),
    "black hole inward": Kind(_hold(False, True), _release, longest=45),
    "black hole, all brokers": Kind(
        _every_host(lambda s, host: s.network.hold(host)),
        _every_host(lambda s, host: s.network.release(host)),
        longest=30,
    ),
    "slow": Kind(
        lambda s, f: s.network.set_latency(host_of(f.broker), 0.2, 0.2),
        lambda s, f: s.network.set_latency(host_of(f.broker)),
        longest=30,
    ),
    "narrow": Kind(_set(bandwidth=2000.0), _set(bandwidth=None), longest=10),
    "slices": Kind(_set(piece=7), _set(piece=None), longest=2),
    "refused": Kind(_set(refuses=True), _set(refuses=False), longest=20),
    # brokers
    "kill": Kind(
        lambda s, f: s.cluster.stop_broker(f.broker),
        lambda s, f: s.cluster.start_broker(f.broker),
        longest=30,
    ),
    "stall": Kind(
        lambda s, f: s.cluster.model.faults.stall(f.broker),
        lambda s, f: s.cluster.model.faults.resume(f.broker),
        longest=40,
    ),
    "lag": Kind(
        lambda s, f: s.cluster.model.faults.pause_replication(f.broker),
        lambda s, f: s.cluster.model.faults.resume_replication(f.broker),
        longest=30,
    ),
    "stale metadata": Kind(
        lambda s, f: s.cluster.model.faults.freeze_metadata(f.broker),
        lambda s, f: s.cluster.model.faults.unfreeze_metadata(f.broker),
        longest=30,
    ),
    "throttle": Kind(lambda s, f: s.cluster.model.faults.throttle(f.seconds, broker=f.broker), longest=3),
    # partitions
    "move": Kind(_move),
    "unclean election": Kind(_elect_unclean),
    "leaderless": Kind(
        lambda s, f: s.cluster.state.take_leader(f.topic, f.partition),
        lambda s, f: s.cluster.state.elect_leader(f.topic, f.partition),
        longest=20,
    ),
    "refuse": Kind(
        lambda s, f: s.cluster.model.faults.fail_produce(f.number, topic=f.topic, partition=f.partition),
        numbers=REFUSALS,
    ),
    "append and refuse": Kind(
        lambda s, f: s.cluster.model.faults.fail_produce(
            f.number, topic=f.topic, partition=f.partition, after_append=True
        ),
        numbers=AMBIGUITIES,
    ),
    # With acks=1 a deposed leader has appended nothing, and its answer says so.
    "append and depose": Kind(
        lambda s, f: s.cluster.model.faults.fail_produce(
            codes.NOT_LEADER_OR_FOLLOWER, topic=f.topic, partition=f.partition, after_append=True
        )
    ),
    "refuse on": Kind(
        lambda s, f: s.cluster.model.faults.fail_produce(
            f.number, topic=f.topic, partition=f.partition, times=7
        ),
        numbers=(codes.NOT_ENOUGH_REPLICAS, codes.LEADER_NOT_AVAILABLE),
    ),
    # answers
    "answer lost": Kind(
        lambda s, f: s.cluster.model.faults.drop_answers(api=ApiKey.PRODUCE, broker=f.broker)
    ),
    "answer late": Kind(
        lambda s, f: s.cluster.model.faults.delay_answers(
            f.seconds, times=1, api=ApiKey.PRODUCE, broker=f.broker
        ),
        longest=45,
    ),
    "reset after": Kind(lambda s, f: s.cluster.model.faults.reset_connections_on(broker=f.broker)),
    "reset before": Kind(
        lambda s, f: s.cluster.model.faults.reset_connections_on(broker=f.broker, after_processing=False)
    ),
    "answer cut": Kind(
        lambda s, f: s.cluster.model.faults.cut_answers(broker=f.broker, length=f.number), numbers=range(24)
    ),
    "garbage": Kind(lambda s, f: s.cluster.model.faults.garble_answers(broker=f.broker)),
    "hostile length": Kind(
        lambda s, f: s.cluster.model.faults.announce_hostile_length(f.number, broker=f.broker),
        numbers=(-1, 2**31 - 1),
    ),
    "wrong correlation id": Kind(lambda s, f: s.cluster.model.faults.change_correlation_ids(broker=f.broker)),
    # metadata and producer ids
    "no metadata": Kind(
        lambda s, f: s.cluster.model.faults.fail_metadata(f.number, topic=f.topic, times=3),
        numbers=(codes.UNKNOWN_TOPIC_OR_PARTITION, codes.LEADER_NOT_AVAILABLE, codes.UNKNOWN_SERVER_ERROR),
    ),
    "no producer id": Kind(
        lambda s, f: s.cluster.model.faults.fail(ApiKey.INIT_PRODUCER_ID, f.number),
        numbers=(
            codes.COORDINATOR_LOAD_IN_PROGRESS,
            codes.COORDINATOR_NOT_AVAILABLE,
            codes.NOT_COORDINATOR,
            codes.CONCURRENT_TRANSACTIONS,
        ),
    ),
    "add a partition": Kind(_add_partition),
    # the client's own machine
    "blocked": Kind(lambda s, f: s.clock.let_pass(f.seconds), longest=5),
}
"""Every kind of fault of unsecured clusters, by name; the default for random faults."""


def _corrupt(s: Simulation, f: ScheduledFault) -> None:
    # Without TLS this could not be detected.
    side = None if s.cluster.tls is None else _newest(s, f)
    if side is not None:
        side.corrupt()


def _refuse_handshakes(s: Simulation, f: ScheduledFault) -> None:
    if s.cluster.tls is not None:
        s.cluster.tls.refusals += f.number


def _close_silently(s: Simulation, f: ScheduledFault) -> None:
    """Close as the broker's kernel does: FIN, without close_notify before it."""
    connections = s.network.connections_to(host_of(f.broker))
    if connections:
        connections[-1].peer.close()


SECURITY_KINDS: Final[Mapping[str, Kind]] = {
    # TLS
    "handshake refused": Kind(_refuse_handshakes, numbers=(1, 3)),
    "handshake cut": Kind(
        lambda s, f: s.cluster.model.faults.cut_handshakes(f.number, broker=f.broker), numbers=range(24)
    ),
    "closed silently": Kind(_close_silently),
    "record corrupted": Kind(_corrupt, numbers=(0, 1)),
    # SASL
    "login refused": Kind(lambda s, f: s.cluster.model.faults.refuse_login(broker=f.broker)),
    "login late": Kind(
        lambda s, f: s.cluster.model.faults.delay_answers(
            f.seconds, times=1, api=ApiKey.SASL_AUTHENTICATE, broker=f.broker
        ),
        longest=45,
    ),
    "login unanswered": Kind(
        lambda s, f: s.cluster.model.faults.drop_answers(api=ApiKey.SASL_AUTHENTICATE, broker=f.broker)
    ),
    "session over": Kind(lambda s, f: s.cluster.model.faults.end_sessions(f.broker)),
}
"""Kinds for clusters with TLS or SASL, in addition to the others.

They are not part of `KINDS` so that the same seed draws the same faults: `kinds=[*KINDS, *SECURITY_KINDS]`.
"""

_TRANSACTIONAL: Final = (
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)


def _id(s: Simulation, f: ScheduledFault) -> str | None:
    """Return one of the transactional ids that the cluster knows."""
    known = list(s.cluster.model.transactions.transactions)
    return known[f.partition % len(known)] if known else None


def _move_coordinator(s: Simulation, f: ScheduledFault) -> None:
    name = _id(s, f)
    if name is not None and s.cluster.state.brokers[f.broker].is_running:
        s.cluster.model.transactions.move(name, f.broker)


def _take_coordinator(s: Simulation, f: ScheduledFault) -> None:
    name = _id(s, f)
    if name is not None:
        s.cluster.model.transactions.take(name)


def _expire(s: Simulation, f: ScheduledFault) -> None:
    """Let a transaction exceed its time-out by its coordinator's clock."""
    transactions, name = s.cluster.model.transactions, _id(s, f)
    transaction = None if name is None else transactions.transactions[name]
    if transaction is not None and transaction.started_at is not None:
        transaction.started_at -= transaction.timeout
        transactions.look_again(s.clock.now)


TRANSACTION_KINDS: Final[Mapping[str, Kind]] = {
    # coordinators
    "coordinator moved": Kind(_move_coordinator),
    "coordinator lost": Kind(
        _take_coordinator, lambda s, _: s.cluster.model.transactions.places.give_all_back(), longest=20
    ),
    "coordinator refuses": Kind(
        lambda s, f: s.cluster.model.faults.fail(_TRANSACTIONAL[f.partition % len(_TRANSACTIONAL)], f.number),
        numbers=(
            codes.COORDINATOR_LOAD_IN_PROGRESS,
            codes.COORDINATOR_NOT_AVAILABLE,
            codes.NOT_COORDINATOR,
            codes.CONCURRENT_TRANSACTIONS,
        ),
    ),
    "transaction timed out": Kind(_expire),
    "transaction.version": Kind(
        lambda s, f: s.cluster.state.set_transaction_version(f.number), numbers=(1, 2)
    ),
    # requests and answers; `number` is their API
    "transactional answer lost": Kind(
        lambda s, f: s.cluster.model.faults.drop_answers(api=f.number),
        numbers=(*_TRANSACTIONAL, ApiKey.INIT_PRODUCER_ID),
    ),
    "transactional answer late": Kind(
        lambda s, f: s.cluster.model.faults.delay_answers(f.seconds, times=1, api=f.number),
        numbers=(*_TRANSACTIONAL, ApiKey.INIT_PRODUCER_ID),
        longest=45,
    ),
    "reset after a transactional request": Kind(
        lambda s, f: s.cluster.model.faults.reset_connections_on(f.number),
        numbers=(*_TRANSACTIONAL, ApiKey.INIT_PRODUCER_ID),
    ),
    "reset before a transactional request": Kind(
        lambda s, f: s.cluster.model.faults.reset_connections_on(f.number, after_processing=False),
        numbers=(*_TRANSACTIONAL, ApiKey.INIT_PRODUCER_ID),
    ),
    "request late": Kind(
        lambda s, f: s.cluster.model.faults.delay_requests(f.seconds, api=f.number),
        numbers=(*_TRANSACTIONAL, ApiKey.PRODUCE, ApiKey.PRODUCE),
        longest=20,
    ),
}
"""Kinds for clusters with transactions: those of coordinators, and of the requests to them."""

EVERY_KIND: Final[Mapping[str, Kind]] = {**KINDS, **SECURITY_KINDS, **TRANSACTION_KINDS}
"""All kinds, by name."""


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise ValueError for a kind that is not in `EVERY_KIND`."""
    for kind in kinds:
        if kind not in EVERY_KIND:
            near = get_close_matches(kind, EVERY_KIND, 1)
            raise ValueError(
                f"there is no kind of fault {kind!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"choose from:  {', '.join(EVERY_KIND)}")
            )


def random_faults(
    random: Random,
    *,
    seconds: float,
    count: int,
    brokers: int,
    topics: Mapping[str, int],
    kinds: Sequence[str] = tuple(KINDS),
    scale: float = 1.0,
) -> list[ScheduledFault]:
    """Draw a schedule.

    Args:
        random: The source of random numbers.
        seconds: Faults begin before this instant, in seconds since the simulation began.
        count: The number of faults.
        brokers: The number of brokers.
        topics: Name -> number of partitions.
        kinds: The kinds to choose from, all equally likely.
        scale: A factor for the durations of the kinds.

    Returns:
        The faults, by time of their beginning; the same for the same random numbers.

    Raises:
        ValueError: If there is no broker, topic or kind to choose from, or a kind is not in `EVERY_KIND`.

    Example:
        >>> faults = random_faults(
        ...     simulation.random, seconds=600, count=20, brokers=3, topics={"orders": 3}, kinds=["kill", "move"]
        ... )
    """
    if brokers < 1 or not topics or not kinds:
        raise ValueError("faults need at least a broker, a topic and a kind")
    check_kinds(kinds)
    names = list(topics)
    faults = []
    for _ in range(count):
        name = kinds[random.randrange(len(kinds))]
        kind = EVERY_KIND[name]
        topic = names[random.randrange(len(names))]
        # Short ones are as likely as long ones, so that they fall on both sides of time-outs.
        lasts = kind.longest * scale * random.random() ** 2
        faults.append(
            ScheduledFault(
                at=random.uniform(0.0, seconds),
                kind=name,
                seconds=lasts,
                broker=random.randrange(brokers),
                topic=topic,
                partition=random.randrange(topics[topic]),
                number=kind.numbers[random.randrange(len(kind.numbers))],
            )
        )
    return sorted(faults)
