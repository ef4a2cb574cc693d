"""The requests of `aioproduce txn`: transactional ids, producers of partitions, and transactions that hang.

Called by `txn`. It asks each broker over a separate connection (`drivers.blocking_client`), with TLS and logins as
in a producer.

Invariants:

1. Only `write_abort()` changes anything.
2. A transaction is reported as hanging only if every broker has answered, every partition of the coordinators' log
   has a leader, and the transaction was open both before and after the coordinators were asked. They know a
   transaction before it is open in a partition, and forget it after its markers are written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.txn_error import TxnError
from aioproduce.drivers.blocking_client import BlockingClient
from aioproduce.errors import ProtocolError
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from aioproduce.wire.requests import encode_metadata
from aioproduce.wire.transaction_requests import (
    encode_describe_producers,
    encode_describe_transactions,
    encode_find_coordinator,
    encode_list_transactions,
    encode_write_txn_markers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioproduce.config import ProducerConfig
    from aioproduce.wire.messages import (
        ActiveProducer,
        BrokerAddress,
        Message,
        MetadataResponse,
        TransactionDescription,
        TransactionListing,
    )

_PAUSE: Final = 0.1
_TRANSACTION: Final = 1
_COORDINATORS_LOG: Final = "__transaction_state"
_MOVING: Final = frozenset(
    {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR}
)


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id, and the broker that coordinates it."""

    listing: TransactionListing
    coordinator: int


@final
@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition.

    Attributes:
        topic_partition: The partition.
        producer: Its producer, as the partition's leader knows it.
        transactional_ids: The ids that have its producer id, according to their coordinators; none or one.
        why: The reason why no coordinator will end it; empty if one will.
    """

    topic_partition: TopicPartition
    producer: ActiveProducer
    transactional_ids: tuple[str, ...]
    why: str


def _identity(where: TopicPartition, producer: ActiveProducer) -> tuple[TopicPartition, int, int]:
    """Return what distinguishes a transaction from others in the same partition."""
    return where, producer.producer_id, producer.open_from


@final
class ClusterTransactions:
    """The transactions of one cluster.

    Args:
        config: The addresses of the brokers, TLS and login.
        timeout: Seconds for all requests together.

    Attributes:
        left_out: Partitions without a leader, which `hanging()` could not check.

    Raises:
        ConfigError: if the settings of TLS or of the login contradict each other.
        MissingExtraError: if the login needs a library that is not installed.
    """

    def __init__(self, config: ProducerConfig, timeout: float) -> None:
        self._client = BlockingClient(config)
        self._client_id = config.client_id
        self.left_out: list[TopicPartition] = []
        self._deadline = time.monotonic() + timeout

    # -- transactional ids ---

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Iterable[int] = (),
        duration: float | None = None,
        pattern: str | None = None,
    ) -> list[Listed]:
        """Return the transactional ids of every broker that this client may describe.

        Raises:
            TxnError: if a broker refuses or cannot be asked, or a filter is wrong.
        """
        found: list[Listed] = []
        encode = partial(
            encode_list_transactions,
            states=tuple(states),
            producer_ids=tuple(producer_ids),
            duration=duration,
            pattern=pattern,
        )
        for broker in self._brokers.values():
            what = f"ListTransactions of broker {broker.node_id}"
            response: Any = self._ask_until_loaded(broker, ApiKey.LIST_TRANSACTIONS, encode, what)
            if response.unknown_states:
                unknown = ", ".join(map(repr, response.unknown_states))
                raise TxnError(
                    f"not a state of a transaction: {unknown}. Kafka's are Empty, Ongoing, PrepareCommit, "
                    "PrepareAbort, CompleteCommit, CompleteAbort and PrepareEpochFence",
                    ExitCode.BAD_INPUT,
                )
            found += [Listed(each, broker.node_id) for each in response.transactions]
        return sorted(found, key=lambda each: each.listing.transactional_id)

    def describe(self, transactional_id: str) -> tuple[int, TransactionDescription]:
        """Return the coordinator's broker id, and what it knows about a transactional id.

        Raises:
            TxnError: if there is no such id, or the coordinator refuses or cannot be asked.
        """
        what = f"transactional id {transactional_id!r}"
        while True:
            broker = self._coordinator_of(transactional_id)
            encode = partial(encode_describe_transactions, transactional_ids=[transactional_id])
            response: Any = self._ask(broker, ApiKey.DESCRIBE_TRANSACTIONS, encode, what)
            found = response.transactions.get(transactional_id)
            code = codes.UNKNOWN_SERVER_ERROR if found is None else found.error_code
            if found is not None and code == codes.NONE:
                return broker.node_id, found
            self._pause_or_raise(what, code)

    def _coordinator_of(self, transactional_id: str) -> BrokerAddress:
        what = f"the coordinator of transactional id {transactional_id!r}"
        encode = partial(encode_find_coordinator, key=transactional_id, key_type=_TRANSACTION)
        while True:
            response: Any = self._ask(None, ApiKey.FIND_COORDINATOR, encode, what)
            if response.error_code == codes.NONE:
                address: BrokerAddress = response.address
                return address
            self._pause_or_raise(what, response.error_code)

    # -- partitions ---

    def producers(self, topic_partition: TopicPartition) -> tuple[ActiveProducer, ...]:
        """Return the producers that the leader of a partition knows.

        Raises:
            TxnError: if there is no such partition or it has no leader, or the leader refuses or cannot be asked.
        """
        return self._producers_by_partition([topic_partition])[topic_partition]

    def hanging(self, topic: str | None) -> list[OpenTransaction]:
        """Return the transactions that are open in partitions and that no coordinator will end.

        Args:
            topic: The only topic to check; `None` for all.

        Raises:
            TxnError: if a broker refuses or cannot be asked: then nothing can be reported as hanging.
        """
        leaders = self._leaders(topic)
        self.left_out = [where for where, leader in leaders.items() if leader not in self._brokers]
        opened = self._open_transactions(where for where in leaders if where not in self.left_out)
        suspects = [each for each in map(self._judge, opened, self._known_of(opened)) if each.why]
        still = self._still_open(each.topic_partition for each in suspects)
        return [each for each in suspects if _identity(each.topic_partition, each.producer) in still]

    def why_hanging(self, where: TopicPartition, producer: ActiveProducer) -> str:
        """Return why no coordinator will end this one, if it is still open; empty if one will."""
        opened = [(where, producer)]
        self._leaders(where.topic)
        return self._judge(opened[0], self._known_of(opened)[0]).why

    def write_abort(self, where: TopicPartition, producer: ActiveProducer) -> None:
        """Let the leader write an abort marker, whatever state the transaction's coordinator has.

        Raises:
            TxnError: if it does not, or the transaction has ended: the marker could abort the next one.
        """
        what = f"WriteTxnMarkers for {where}"
        if _identity(where, producer) not in self._still_open([where]):
            raise TxnError(f"nothing was aborted: the transaction in {where} has ended meanwhile")
        encode = partial(
            encode_write_txn_markers,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            topic_partition=where,
        )
        leader = self._brokers[self._leader_of(where)]
        response: Any = self._ask(leader, ApiKey.WRITE_TXN_MARKERS, encode, what)
        code = response.markers.get(producer.producer_id, {}).get(where, codes.UNKNOWN_SERVER_ERROR)
        if code != codes.NONE:
            raise TxnError.of_code(what, code)

    def _open_transactions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, ActiveProducer]]:
        found = self._producers_by_partition(partitions)
        return [
            (where, producer)
            for where, producers in found.items()
            for producer in producers
            if producer.open_from >= 0
        ]

    def _still_open(self, partitions: Iterable[TopicPartition]) -> set[tuple[TopicPartition, int, int]]:
        return {_identity(*each) for each in self._open_transactions(dict.fromkeys(partitions))}

    def _known_of(
        self, opened: Sequence[tuple[TopicPartition, ActiveProducer]]
    ) -> list[list[TransactionDescription]]:
        """Return what the coordinators know about the producer id of each transaction."""
        ids = sorted({producer.producer_id for _, producer in opened})
        known: dict[int, list[TransactionDescription]] = {}
        for each in self.list_transactions(producer_ids=ids) if ids else ():
            _, description = self.describe(each.listing.transactional_id)
            known.setdefault(description.producer_id, []).append(description)
        return [known.get(producer.producer_id, []) for _, producer in opened]

    def _judge(
        self, opened: tuple[TopicPartition, ActiveProducer], known: Sequence[TransactionDescription]
    ) -> OpenTransaction:
        where, producer = opened
        why = "no coordinator knows this producer id"
        for description in known:
            why = ""
            if where not in description.partitions:
                why = f"its coordinator knows no open transaction there ({description.state})"
            elif description.state == "Ongoing" and description.producer_epoch != producer.producer_epoch:
                why = f"its coordinator has a transaction of epoch {description.producer_epoch} there"
            if not why:
                break
        return OpenTransaction(where, producer, tuple(each.transactional_id for each in known), why)

    def _producers_by_partition(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[ActiveProducer, ...]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for where in partitions:
            by_leader.setdefault(self._leader_of(where), []).append(where)
        found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        for leader, led in by_leader.items():
            what = f"DescribeProducers of broker {leader}"
            encode = partial(encode_describe_producers, partitions=led)
            response: Any = self._ask(self._brokers[leader], ApiKey.DESCRIBE_PRODUCERS, encode, what)
            for where in led:
                answer = response.partitions.get(where)
                code = codes.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
                if code != codes.NONE:
                    raise TxnError.of_code(f"{what} for {where}", code)
                found[where] = answer.producers
        return found

    # -- metadata ---

    @cached_property
    def _brokers(self) -> Mapping[int, BrokerAddress]:
        return {broker.node_id: broker for broker in self._metadata([]).brokers}

    @cached_property
    def _known_leaders(self) -> dict[TopicPartition, int]:
        return {}

    def _leader_of(self, where: TopicPartition) -> int:
        """Return the partition's leader.

        Raises:
            TxnError: if there is no such partition, or it has no leader.
        """
        if where not in self._known_leaders:
            self._leaders(where.topic)
        if where not in self._known_leaders:
            raise TxnError(
                f"there is no partition {where.partition} of topic {where.topic!r}", ExitCode.BAD_INPUT
            )
        leader = self._known_leaders[where]
        if leader not in self._brokers:
            raise TxnError(f"{where} has no leader now: ask again when it has one")
        return leader

    def _leaders(self, topic: str | None) -> Mapping[TopicPartition, int]:
        """Return the leader of each partition of the topic, or of all topics.

        Raises:
            TxnError: if the topic does not exist, or not every coordinator is known.
        """
        self._check_coordinators()
        metadata = self._metadata(None if topic is None else [topic])
        found: dict[TopicPartition, int] = {}
        for each in metadata.topics:
            name = each.name
            if name is None:
                continue
            if name == topic and each.error_code != codes.NONE:
                raise TxnError.of_code(f"topic {name!r}", each.error_code)
            if topic in (None, name):
                found |= {TopicPartition(name, one.partition): one.leader_id for one in each.partitions}
        self._known_leaders.update(found)
        return found

    def _check_coordinators(self) -> None:
        """Check that every coordinator can be asked: else a live transaction would look as if it hangs.

        Raises:
            TxnError: if this client may not describe the coordinators' log, or a partition of it has no leader.
        """
        for log in self._metadata([_COORDINATORS_LOG]).topics:
            # Without this log there has never been a transaction.
            if log.error_code not in (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION):
                raise TxnError.of_code(f"topic {_COORDINATORS_LOG!r}", log.error_code)
            if not all(one.leader_id in self._brokers for one in log.partitions):
                raise TxnError(
                    f"a partition of {_COORDINATORS_LOG} has no leader, so the coordinator of its transactions is "
                    "not known. Ask again when it has one"
                )

    def _metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        encode = partial(encode_metadata, topics=topics, allow_auto_topic_creation=False)
        response: Any = self._ask(None, ApiKey.METADATA, encode, "the cluster")
        if response.error_code != codes.NONE:
            raise TxnError.of_code("the cluster's metadata", response.error_code)
        metadata: MetadataResponse = response
        return metadata

    # -- asking ---

    def _ask_until_loaded(self, broker: BrokerAddress, api: ApiKey, encode: Any, what: str) -> Message:
        while True:
            response: Any = self._ask(broker, api, encode, what)
            if response.error_code == codes.NONE:
                message: Message = response
                return message
            self._pause_or_raise(what, response.error_code)

    def _ask(self, broker: BrokerAddress | None, api: ApiKey, encode: Any, what: str) -> Message:
        """Ask this broker, or any of the bootstrap servers."""

        def encoded(version: int, number: int) -> bytes:
            frame: bytes = encode(version, number, self._client_id)
            return frame

        try:
            if broker is None:
                return self._client.ask_any(api, encoded, self._deadline)
            return self._client.ask((broker.host, broker.port), api, encoded, self._deadline)
        except ValueError as error:
            raise TxnError(f"{what}: {error}", ExitCode.BAD_INPUT) from None
        except (OSError, ProtocolError) as error:
            raise TxnError.of_connection(what, error) from None

    def _pause_or_raise(self, what: str, code: int) -> None:
        """Wait a moment if a coordinator moves or loads.

        Raises:
            TxnError: if the code is another one, or the time is over.
        """
        if code not in _MOVING or time.monotonic() + _PAUSE >= self._deadline:
            raise TxnError.of_code(what, code)
        time.sleep(_PAUSE)
