"""ClusterMetadata: Java's ProducerMetadataTest and MetadataTest, KIP-951, KIP-899 and KIP-1102, hostile answers.

| scenario of ProducerMetadataTest | test here |
|---|---|
| metadata | test_update_is_due_by_request_backoff_and_age |
| metadataAwaitAfterClose, metadataUpdateWaitTime, metadataWaitAbortedOnFatalException | left out: waiting, its
  time-out and its end at close() are the Sender's |
| metadataEquivalentResponsesBackoff | test_answers_with_nothing_new_back_off |
| timeToNextUpdateOverwriteBackoff | test_a_new_topic_goes_ahead_of_backoff_once |
| topicExpiry | test_idle_topics_are_dropped |
| metadataPartialUpdate | test_partial_update_asks_for_new_topics_only |
| requestUpdateForTopic | test_a_full_update_stays_due_over_a_partial_one |

| scenario of MetadataTest | test here |
|---|---|
| metadataUpdateAfterClose | test_an_answer_that_nobody_asked_for_is_an_error (there is no close) |
| updateMetadataAllowedImmediatelyAfterBootstrap | test_bootstrap |
| timeToNextUpdate | test_time_to_next_update |
| timeToNextUpdateRetryBackoff, failedUpdate | test_failed_updates_back_off |
| ignoreLeaderEpochInOlderMetadataResponse | test_without_epochs_the_last_answer_counts (wire gives -1 below v9) |
| staleMetadata | test_an_older_epoch_is_ignored |
| clusterListenerGetsNotifiedOfUpdate | left out: no listeners; test_bootstrap sees the cluster id |
| requestUpdate, updateLastEpoch, outOfBandEpochUpdate | left out: a producer learns epochs from metadata and
  KIP-951 hints only: test_hints_of_new_leaders |
| epochUpdateAfterTopicDeletion | test_a_recreated_topic_starts_its_epochs_again |
| epochUpdateOnChangedTopicIds | test_epochs_follow_the_topic_id |
| rejectOldMetadata | test_an_older_epoch_is_ignored, test_a_topic_left_out_of_the_answer |
| noEpoch | test_without_epochs_the_last_answer_counts |
| clusterCopy | test_errors_are_kept_per_topic |
| requestVersion | test_a_topic_wanted_while_an_update_is_in_flight |
| partialMetadataUpdate | test_partial_or_full |
| invalidTopicError, topicAuthorizationError, metadataTopicErrors | test_errors_are_kept_per_topic |
| nodeIfOffline, nodeIfOnline... (3) | left out: closest-replica fetching, a consumer's |
| leaderMetadataInconsistentWithBrokerMetadata | test_a_leader_that_is_no_known_broker |
| metadataMerge | test_a_partial_answer_keeps_the_other_topics |
| metadataMergeOnIdDowngrade | test_epochs_follow_the_topic_id |
| topicMetadataOnUpdatePartitionLeadership | test_hints_of_new_leaders |
| concurrentUpdateAndFetchForSnapshotAndCluster | left out: one event loop owns the core |
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from aioproduce.core.cluster.cluster_metadata import ClusterMetadata, MetadataChange, MetadataQuery
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.records import TopicPartition
from aioproduce.wire.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata

MAX_AGE = 300.0
MAX_IDLE = 300.0
TRIGGER = 300.0
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, DENIED = 3, 5, 17, 29
"""Codes as https://kafka.apache.org/protocol lists them."""

NODES = tuple(BrokerAddress(node, f"broker-{node}", 9092) for node in range(3))
ID_1, ID_2, ID_3 = UUID(int=1), UUID(int=2), UUID(int=3)


def make(
    *,
    now: float = 0.0,
    max_age: float = MAX_AGE,
    backoff: tuple[float, float] = (0.1, 1.0),
    strategy: str = "rebootstrap",
) -> ClusterMetadata:
    return ClusterMetadata(
        bootstrap=[("boot-a", 9092), ("boot-b", 9093)],
        max_age=max_age,
        max_idle=MAX_IDLE,
        backoff=ExponentialBackoff(*backoff, random=lambda: 0.5),  # in the middle: no jitter
        recovery_strategy=strategy,
        rebootstrap_trigger=TRIGGER,
        now=now,
    )


def partition(
    number: int, leader: int = 0, epoch: int = 1, *, error: int = 0, isr: tuple[int, ...] = (0, 1, 2)
) -> PartitionMetadata:
    return PartitionMetadata(number, error, leader, epoch, (0, 1, 2), isr)


def topic(
    name: str, *partitions: PartitionMetadata, topic_id: UUID | None = ID_1, error: int = 0
) -> TopicMetadata:
    return TopicMetadata(name, None if error else topic_id, error, False, partitions)


def answer(
    *topics: TopicMetadata, brokers: Sequence[BrokerAddress] = NODES, error: int = 0
) -> MetadataResponse:
    return MetadataResponse(0.0, error, tuple(brokers), "cluster", 0, topics)


def exchange(metadata: ClusterMetadata, now: float, *topics: TopicMetadata) -> MetadataChange:
    """One update, asked for and answered at the same instant."""
    metadata.begin_update(now)
    return metadata.update(answer(*topics), now)


def with_topic(*partitions: PartitionMetadata, topic_id: UUID | None = ID_1) -> ClusterMetadata:
    metadata = make()
    metadata.want_topic("t", 0.0)
    exchange(metadata, 0.0, topic("t", *partitions, topic_id=topic_id))
    return metadata


def view_of(metadata: ClusterMetadata, number: int) -> tuple[int, int, tuple[int, ...]]:
    view = metadata.topic("t")
    assert view is not None
    found = view.partitions[number]
    assert found.partition == number
    assert metadata.leader_of("t", number) == found.leader_id
    assert metadata.leader_epoch_of("t", number) == found.leader_epoch
    return found.leader_id, found.leader_epoch, found.isr


def is_bootstrapping(metadata: ClusterMetadata) -> bool:
    assert metadata.can_rebootstrap is not metadata.is_bootstrapping
    return metadata.is_bootstrapping


# ---- Bootstrap -------------------------------------------------------------------------------------------


def test_bootstrap() -> None:
    metadata = make(now=50.0)
    assert metadata.next_update_at() == 50.0
    assert metadata.brokers == (BrokerAddress(-1, "boot-a", 9092), BrokerAddress(-2, "boot-b", 9093))
    assert metadata.broker(-2) == BrokerAddress(-2, "boot-b", 9093)
    assert is_bootstrapping(metadata)
    assert metadata.begin_update(50.0) == MetadataQuery((), True)
    assert metadata.update(answer(), 50.0) == MetadataChange()
    assert metadata.brokers == NODES
    assert metadata.broker(-1) is None
    assert not is_bootstrapping(metadata)
    assert (metadata.cluster_id, metadata.version) == ("cluster", 1)


def test_an_answer_without_brokers_is_none() -> None:
    metadata = make()
    metadata.want_topic("t", 0.0)
    for brokers in ((), (BrokerAddress(-1, "x", 1),)):
        metadata.begin_update(0.0)
        assert metadata.update(answer(topic("t", partition(0)), brokers=brokers), 0.0) == MetadataChange()
        assert not metadata.is_known("t")
        assert [broker.node_id for broker in metadata.brokers] == [-1, -2]
        assert metadata.version == 0
    assert metadata.next_update_at() == 0.2


@pytest.mark.parametrize("bad", [{"bootstrap": []}, {"recovery_strategy": "perhaps"}])
def test_nonsense_is_refused(bad: dict[str, object]) -> None:
    arguments = {
        "bootstrap": [("h", 1)],
        "max_age": 1.0,
        "max_idle": 1.0,
        "backoff": ExponentialBackoff(0.1, 1.0, random=lambda: 0.5),
        "recovery_strategy": "none",
        "rebootstrap_trigger": 1.0,
        "now": 0.0,
    }
    with pytest.raises(ValueError, match=r"bootstrap broker|recovery strategy"):
        ClusterMetadata(**(arguments | bad))  # type: ignore[arg-type]


# ---- When an update is due -------------------------------------------------------------------------------


def test_update_is_due_by_request_backoff_and_age() -> None:
    metadata = make()
    exchange(metadata, 0.0)
    assert metadata.next_update_at() == MAX_AGE
    metadata.request_update(0.0)
    assert metadata.next_update_at() == 0.1  # the backoff after an update
    exchange(metadata, 0.1)
    assert metadata.next_update_at() == 0.1 + MAX_AGE
    metadata.request_update(20.0)
    assert metadata.next_update_at() == 20.0
    metadata.request_update(30.0)
    assert metadata.next_update_at() == 20.0


@pytest.mark.parametrize(("backoff", "max_age"), [(0.1, 1.0), (1.0, 0.1), (0.0, 0.0), (0.0, 0.1), (0.1, 0.0)])
def test_time_to_next_update(backoff: float, max_age: float) -> None:
    metadata = make(now=10.0, max_age=max_age, backoff=(backoff, backoff))
    assert metadata.next_update_at() == 10.0
    exchange(metadata, 10.0)
    assert metadata.next_update_at() == 10.0 + max(backoff, max_age)
    metadata.request_update(10.0)
    assert metadata.next_update_at() == 10.0 + backoff
    exchange(metadata, 10.0)
    assert metadata.next_update_at() == 10.0 + max(backoff, max_age)


def test_failed_updates_back_off() -> None:
    metadata = make()
    exchange(metadata, 0.0)
    now = 10.0
    metadata.request_update(now)
    for wait in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        metadata.begin_update(now)
        assert metadata.next_update_at() is None
        metadata.update_failed(now)
        metadata.request_update(now)
        assert metadata.next_update_at() == pytest.approx(now + wait)
        assert metadata.last_success_at == 0.0
        now += wait
    exchange(metadata, now)
    assert metadata.next_update_at() == now + MAX_AGE
    metadata.request_update(now)
    metadata.begin_update(now)
    metadata.update_failed(now)
    assert metadata.next_update_at() == pytest.approx(now + 0.1)  # counted from the start


def test_a_failure_without_a_request_backs_off_too() -> None:
    """As when no broker could be connected to, so that nothing was sent."""
    metadata = make()
    metadata.update_failed(1.0)
    assert metadata.next_update_at() == 1.1
    assert metadata.rebootstrap_at() == 1.0 + TRIGGER
    metadata.update_failed(1.1)
    assert metadata.next_update_at() == pytest.approx(1.3)


def test_answers_with_nothing_new_back_off() -> None:
    metadata = with_topic(partition(0))
    now = 10.0
    for wait in (0.1, 0.1 * 2, 0.1 * 4, 0.1 * 8, 1.0, 1.0):
        metadata.request_update(now)
        exchange(metadata, now, topic("t", partition(0)))
        metadata.request_update(now)
        assert metadata.next_update_at() == pytest.approx(now + wait)
        now += wait
    exchange(metadata, now, topic("t", partition(0, leader=1, epoch=2)))
    metadata.request_update(now)
    assert metadata.next_update_at() == pytest.approx(now + 0.1)


@pytest.mark.parametrize("is_failure", [True, False])
def test_a_failure_or_a_new_topic_ends_the_run_of_answers_with_nothing_new(is_failure: bool) -> None:
    metadata = with_topic(partition(0))
    for now in (10.0, 20.0, 30.0, 40.0):
        metadata.request_update(now)
        exchange(metadata, now, topic("t", partition(0)))
    if is_failure:
        metadata.begin_update(50.0)
        metadata.update_failed(50.0)
        exchange(metadata, 60.0, topic("t", partition(0)))
    else:
        metadata.want_topic("absent", 60.0)
        exchange(metadata, 60.0, topic("absent", error=UNKNOWN_TOPIC))
    metadata.request_update(60.0)
    assert metadata.next_update_at() == pytest.approx(60.1)


def test_an_update_after_max_age_begins_the_backoff_again() -> None:
    metadata = with_topic(partition(0))
    for now in (10.0, 20.0, 30.0, 40.0):
        metadata.request_update(now)
        exchange(metadata, now, topic("t", partition(0)))
    metadata.touch("t", 300.0)
    exchange(metadata, 40.0 + MAX_AGE, topic("t", partition(0)))
    metadata.request_update(40.0 + MAX_AGE)
    assert metadata.next_update_at() == pytest.approx(40.0 + MAX_AGE + 0.1)


def test_one_update_is_in_flight_at_most() -> None:
    metadata = make()
    metadata.begin_update(0.0)
    assert metadata.next_update_at() is None
    with pytest.raises(RuntimeError, match="in flight"):
        metadata.begin_update(0.0)


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    metadata = make()
    with pytest.raises(RuntimeError, match="no update"):
        metadata.update(answer(), 0.0)
    metadata.begin_update(0.0)
    metadata.update_failed(0.0)
    with pytest.raises(RuntimeError, match="no update"):
        metadata.update(answer(), 0.0)


# ---- What is asked for ------------------------------------------------------------------------------------


def test_a_new_topic_goes_ahead_of_backoff_once() -> None:
    metadata = make(now=10.0)
    exchange(metadata, 10.0)
    metadata.want_topic("new", 10.0)
    assert metadata.next_update_at() == 10.0
    exchange(metadata, 10.0, topic("new", partition(0)))
    metadata.want_topic("new", 10.0)
    assert metadata.next_update_at() == 10.0 + MAX_AGE
    metadata.want_topic("another", 10.0)
    assert metadata.next_update_at() == 10.0
    metadata.begin_update(10.0)
    metadata.update_failed(10.0)
    metadata.want_topic("another", 10.05)
    assert metadata.next_update_at() == 10.1


def test_partial_update_asks_for_new_topics_only() -> None:
    metadata = with_topic(partition(0))
    metadata.want_topic("two", 11.0)
    metadata.want_topic("three", 12.0)
    metadata.want_topic("t", 12.0)
    assert metadata.next_update_at() == 11.0
    assert metadata.begin_update(12.0) == MetadataQuery(("two", "three"), False)
    change = metadata.update(answer(topic("two", partition(0), topic_id=ID_2), topic("three", error=5)), 12.0)
    assert change.topics == ("two", "three")
    assert [metadata.is_known(name) for name in ("t", "two", "three")] == [True, True, False]
    # Not new any more, but with an error that may pass: asked for again, with backoff, and alone.
    assert metadata.next_update_at() == 12.1
    assert metadata.begin_update(12.1) == MetadataQuery(("three",), False)
    metadata.update_failed(12.1)
    assert metadata.next_update_at() == pytest.approx(12.2)
    assert metadata.begin_update(12.2) == MetadataQuery(("three",), False)
    assert metadata.update(answer(topic("three", partition(0), topic_id=ID_3)), 12.2).topics == ("three",)
    assert metadata.next_update_at() == MAX_AGE


def test_a_full_update_stays_due_over_a_partial_one() -> None:
    metadata = with_topic(partition(0))
    metadata.want_topic("new", 10.0)
    metadata.begin_update(10.0)
    metadata.request_update(10.0)
    metadata.update(answer(topic("new", partition(0), topic_id=ID_2)), 10.0)
    assert metadata.next_update_at() == 10.1
    assert metadata.begin_update(10.1) == MetadataQuery(("t", "new"), True)
    metadata.update_failed(10.1)
    assert metadata.begin_update(10.3).is_full is True


def test_partial_or_full() -> None:
    metadata = with_topic(partition(0))
    metadata.want_topic("new", 10.0)
    metadata.request_update(10.0)
    assert metadata.begin_update(10.0) == MetadataQuery(("t", "new"), True)
    metadata.update(answer(topic("t", partition(0)), topic("new", partition(0), topic_id=ID_2)), 10.0)
    assert metadata.next_update_at() == 10.0 + MAX_AGE
    # A partial one would do, but all has become old meanwhile.
    metadata.want_topic("third", 11.0)
    metadata.request_update(15.0)
    assert metadata.next_update_at() == 11.0
    assert metadata.begin_update(10.0 + MAX_AGE) == MetadataQuery(("t", "new", "third"), True)


def test_an_update_before_it_is_due_is_a_full_one() -> None:
    metadata = with_topic(partition(0))
    assert metadata.begin_update(1.0) == MetadataQuery(("t",), True)


def test_the_earlier_of_both_updates_counts() -> None:
    metadata = with_topic(partition(0))
    metadata.request_update(10.0)
    metadata.want_topic("new", 20.0)
    assert metadata.next_update_at() == 10.0


def test_a_topic_wanted_while_an_update_is_in_flight() -> None:
    metadata = make()
    metadata.want_topic("a", 0.0)
    assert metadata.begin_update(0.0).topics == ("a",)
    metadata.want_topic("b", 0.5)
    assert metadata.next_update_at() is None
    change = metadata.update(answer(topic("a", partition(0))), 1.0)
    assert change.topics == ("a",)
    assert metadata.next_update_at() == 1.0
    assert metadata.begin_update(1.0) == MetadataQuery(("b",), False)
    assert metadata.update(answer(topic("b", partition(0), topic_id=ID_2)), 1.0).topics == ("b",)


def test_idle_topics_are_dropped() -> None:
    metadata = with_topic(partition(0))
    assert metadata.begin_update(MAX_IDLE).topics == ("t",)
    change = metadata.update(answer(topic("t", partition(0))), MAX_IDLE)
    assert (change.topics, change.dropped) == ((), ("t",))
    # A sender with records for it learns that it has no leader any more.
    assert change.leaders == (TopicPartition("t", 0),)
    assert (metadata.is_wanted("t"), metadata.topic("t"), metadata.topic_name(ID_1)) == (False, None, None)
    assert metadata.begin_update(2 * MAX_IDLE) == MetadataQuery((), True)
    metadata.update(answer(), 2 * MAX_IDLE)

    metadata.want_topic("used", 1000.0)
    exchange(metadata, 1000.0, topic("used", partition(0)))
    for now in (1150.0, 1300.0, 1450.0):
        metadata.request_update(now)
        assert exchange(metadata, now, topic("used", partition(0))).dropped == ()
        metadata.touch("used", now)
    view = metadata.topic("used")
    assert view is not None
    view.used_at = 1600.0  # as send() does
    metadata.request_update(1899.0)
    assert exchange(metadata, 1899.0, topic("used", partition(0))).dropped == ()
    metadata.request_update(1900.0)
    assert exchange(metadata, 1900.0, topic("used", partition(0))).dropped == ("used",)

    # One that is answered only after it would have expired has not expired.
    metadata.want_topic("late", 2000.0)
    assert exchange(metadata, 2000.0 + 2 * MAX_IDLE, topic("late", partition(0))).dropped == ()
    assert metadata.is_known("late")


def test_an_epoch_that_is_older_is_not_believed_even_the_first() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=1))
    metadata.request_update(10.0)
    exchange(metadata, 10.0, topic("t", partition(0, leader=2, epoch=0)))
    assert view_of(metadata, 0)[:2] == (1, 1)
    # Brokers that tell no epochs are believed.
    metadata.request_update(20.0)
    exchange(metadata, 20.0, topic("t", partition(0, leader=2, epoch=-1)))
    assert view_of(metadata, 0)[:2] == (2, -1)


def test_the_epoch_of_a_leader_whose_address_is_not_known_is_news() -> None:
    metadata = make()
    metadata.want_topic("t", 0.0)
    change = exchange(metadata, 0.0, topic("t", partition(0, leader=77, epoch=0)))
    assert change.leaders == (TopicPartition("t", 0),)
    assert view_of(metadata, 0)[:2] == (-1, 0)


@pytest.mark.parametrize(("before", "after"), [(ID_1, ID_2), (None, None)], ids=["anew", "without ids"])
def test_a_topic_with_fewer_partitions_takes_the_leaders_of_the_others(
    before: UUID | None, after: UUID | None
) -> None:
    metadata = with_topic(partition(0), partition(1), partition(2, leader=-1), topic_id=before)
    metadata.request_update(10.0)
    change = exchange(metadata, 10.0, topic("t", partition(0, epoch=2), topic_id=after))
    assert set(change.leaders) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert metadata.leader_of("t", 1) == -1


def test_a_topic_left_out_of_the_answer() -> None:
    metadata = with_topic(partition(0, epoch=100))
    metadata.request_update(10.0)
    change = exchange(metadata, 10.0)
    assert change.topics == ("t",)
    assert change.leaders == (TopicPartition("t", 0),)
    assert (metadata.topic("t"), metadata.topic_error("t")) == (None, UNKNOWN_TOPIC)
    assert metadata.leader_of("t", 0) == -1
    # It comes back, from a broker that is behind: what was known of the leader is still the newest.
    metadata.request_update(20.0)
    exchange(metadata, 20.0, topic("t", partition(0, leader=2, epoch=99)))
    assert view_of(metadata, 0)[:2] == (0, 100)


def test_topics_not_wanted_are_passed_over() -> None:
    metadata = with_topic(partition(0))
    metadata.request_update(10.0)
    change = exchange(
        metadata,
        10.0,
        topic("t", partition(0)),
        topic("other", partition(0), topic_id=ID_2),
        TopicMetadata(None, ID_3, 100),
    )
    assert change.topics == ("t",)
    assert not metadata.is_wanted("other")
    assert metadata.topic_name(ID_2) is None


# ---- Errors -----------------------------------------------------------------------------------------------


def test_errors_are_kept_per_topic() -> None:
    metadata = make()
    codes = {"bad name": INVALID_TOPIC, "secret": DENIED, "absent": UNKNOWN_TOPIC, "good": 0}
    for name in codes:
        metadata.want_topic(name, 0.0)
    change = exchange(
        metadata,
        0.0,
        *(topic(name, error=code) for name, code in codes.items() if code),
        topic("good", partition(0), partition(1)),
    )
    assert set(change.topics) == set(codes)
    assert {name: metadata.topic_error(name) for name in codes} == codes
    assert {name for name in codes if metadata.is_known(name)} == {"good"}
    # Only what may pass is asked for again by itself.
    assert metadata.begin_update(0.1) == MetadataQuery(("absent",), False)
    metadata.update(answer(topic("absent", partition(0), topic_id=ID_2)), 0.1)
    assert metadata.topic_error("absent") == 0
    assert metadata.next_update_at() == MAX_AGE


def test_a_topic_with_a_final_error_is_asked_for_again_when_wanted_again() -> None:
    metadata = make()
    metadata.want_topic("secret", 0.0)
    exchange(metadata, 0.0, topic("secret", error=DENIED))
    assert metadata.next_update_at() == MAX_AGE
    now = 0.0
    for wait in (0.1, 0.2, 0.4):  # however often it is wanted, with backoff: nothing new came
        metadata.want_topic("secret", now)
        metadata.want_topic("secret", now)
        due_at = metadata.next_update_at()
        assert due_at == pytest.approx(now + wait)
        now += wait
        assert metadata.begin_update(now) == MetadataQuery(("secret",), False)
        metadata.update(answer(topic("secret", error=DENIED)), now)
    metadata.want_topic("secret", 100.0)
    metadata.begin_update(100.0)
    metadata.update(answer(topic("secret", partition(0))), 100.0)
    assert (metadata.is_known("secret"), metadata.topic_error("secret")) == (True, 0)


def test_an_unknown_topic_is_asked_for_with_growing_waits() -> None:
    metadata = make()
    metadata.want_topic("absent", 0.0)
    now = 0.0
    waits = []
    for _ in range(6):
        exchange(metadata, now, topic("absent", error=UNKNOWN_TOPIC))
        due_at = metadata.next_update_at()
        assert due_at is not None
        waits.append(due_at - now)
        now = due_at
    # The first answer counts as the first that brought nothing; 0.1 doubles up to 1.0.
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_known_topic_that_vanishes_is_not_usable_until_it_is_back() -> None:
    metadata = with_topic(partition(0), partition(1))
    view = metadata.topic("t")
    metadata.request_update(10.0)
    change = exchange(metadata, 10.0, topic("t", error=UNKNOWN_TOPIC))
    assert change.leaders == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert metadata.topic("t") is None
    assert metadata.leader_of("t", 0) == metadata.leader_epoch_of("t", 0) == -1
    change = exchange(metadata, 10.1, topic("t", partition(0), partition(1)))
    assert change.leaders == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert change.recreated == ()
    assert metadata.topic("t") is view


def test_a_leaderless_partition_keeps_its_topic_usable_and_is_asked_for_again() -> None:
    metadata = with_topic(partition(0, leader=-1, error=LEADER_NOT_AVAILABLE), partition(1, leader=2))
    view = metadata.topic("t")
    assert view is not None
    assert (view.partition_count, view.available) == (2, (1,))
    assert metadata.leader_of("t", 0) == -1
    assert metadata.next_update_at() == 0.1
    assert metadata.begin_update(0.1) == MetadataQuery(("t",), False)
    change = metadata.update(answer(topic("t", partition(0, leader=1, epoch=2), partition(1, leader=2))), 0.1)
    assert change.leaders == (TopicPartition("t", 0),)
    assert view.available == (0, 1)
    assert metadata.next_update_at() == MAX_AGE


def test_a_topic_without_partitions_is_not_usable_yet() -> None:
    metadata = with_topic()
    assert (metadata.topic("t"), metadata.topic_error("t")) == (None, 0)
    assert metadata.next_update_at() == 0.1
    exchange(metadata, 0.1, topic("t", partition(0)))
    assert metadata.is_known("t")


# ---- Leaders and epochs ------------------------------------------------------------------------------------


def test_an_older_epoch_is_ignored() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=100))
    assert view_of(metadata, 0) == (1, 100, (0, 1, 2))
    change = exchange(metadata, 1.0, topic("t", partition(0, leader=2, epoch=99, isr=())))
    assert change == MetadataChange(topics=("t",))
    assert view_of(metadata, 0) == (1, 100, (0, 1, 2))
    change = exchange(metadata, 2.0, topic("t", partition(0, leader=1, epoch=100, isr=())))
    assert change == MetadataChange(topics=("t",))
    assert view_of(metadata, 0) == (1, 100, ())
    change = exchange(metadata, 3.0, topic("t", partition(0, leader=2, epoch=101)))
    assert change == MetadataChange(topics=("t",), leaders=(TopicPartition("t", 0),))
    assert view_of(metadata, 0)[:2] == (2, 101)
    change = exchange(metadata, 4.0, topic("t", partition(0, leader=2, epoch=102)))
    assert change.leaders == (TopicPartition("t", 0),)  # the same leader, but it may have lost what it had


def test_without_epochs_the_last_answer_counts() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=-1))
    assert view_of(metadata, 0)[:2] == (1, -1)
    assert exchange(metadata, 1.0, topic("t", partition(0, leader=2, epoch=-1))).leaders == (
        TopicPartition("t", 0),
    )
    assert view_of(metadata, 0)[:2] == (2, -1)
    exchange(metadata, 2.0, topic("t", partition(0, leader=2, epoch=10)))
    assert view_of(metadata, 0)[:2] == (2, 10)
    exchange(metadata, 3.0, topic("t", partition(0, leader=1, epoch=-1)))
    assert view_of(metadata, 0)[:2] == (1, -1)
    exchange(metadata, 4.0, topic("t", partition(0, leader=0, epoch=5)))
    assert view_of(metadata, 0)[:2] == (0, 5)


def test_a_recreated_topic_starts_its_epochs_again() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=10), topic_id=ID_1)
    assert metadata.topic_name(ID_1) == "t"
    exchange(metadata, 1.0, topic("t", error=UNKNOWN_TOPIC))
    change = exchange(metadata, 1.1, topic("t", partition(0, leader=1, epoch=5), topic_id=ID_2))
    assert change.recreated == ("t",)
    assert change.leaders == (TopicPartition("t", 0),)
    assert view_of(metadata, 0)[:2] == (1, 5)
    assert (metadata.topic_name(ID_1), metadata.topic_name(ID_2)) == (None, "t")


def test_epochs_follow_the_topic_id() -> None:
    metadata = with_topic(partition(0, epoch=100), topic_id=None)
    for now, (topic_id, epoch, expected, recreated) in enumerate(
        [
            (ID_1, 10, 10, ()),  # an id where there was none
            (ID_1, 10, 10, ()),
            (ID_1, 12, 12, ()),
            (ID_1, 11, 12, ()),  # older, of the same topic
            (ID_2, 3, 3, ("t",)),
            (ID_3, 20, 20, ("t",)),
            (None, 19, 20, ()),  # a controller that does not know ids
            (None, 21, 21, ()),
        ],
        start=1,
    ):
        change = exchange(metadata, float(now), topic("t", partition(0, epoch=epoch), topic_id=topic_id))
        assert (metadata.leader_epoch_of("t", 0), change.recreated) == (expected, recreated)
        view = metadata.topic("t")
        assert view is not None
        assert view.topic_id == topic_id
    assert [metadata.topic_name(topic_id) for topic_id in (ID_1, ID_2, ID_3)] == [None, None, None]


def test_two_topics_that_claim_one_id() -> None:
    metadata = make()
    metadata.want_topic("a", 0.0)
    metadata.want_topic("b", 0.0)
    exchange(metadata, 0.0, topic("a", partition(0)), topic("b", partition(0)))
    exchange(metadata, 1.0, topic("a", partition(0), topic_id=ID_2), topic("b", partition(0)))
    assert (metadata.topic_name(ID_1), metadata.topic_name(ID_2)) == ("b", "a")
    exchange(metadata, MAX_IDLE, topic("a", partition(0)), topic("b", partition(0), topic_id=ID_2))
    assert (metadata.topic_name(ID_1), metadata.topic_name(ID_2)) == (None, None)


def test_a_leader_that_is_no_known_broker() -> None:
    metadata = with_topic(partition(0, leader=0, epoch=10))
    view = metadata.topic("t")
    assert view is not None
    metadata.begin_update(1.0)
    # The answer is behind with the partition, and does not list the leader that we know of.
    change = metadata.update(
        answer(topic("t", partition(0, leader=1, epoch=8, isr=(1, 2))), brokers=NODES[1:]), 1.0
    )
    assert change.leaders == (TopicPartition("t", 0),)
    assert (metadata.leader_of("t", 0), metadata.leader_epoch_of("t", 0)) == (-1, 10)
    assert (view.partition_count, view.available) == (1, ())
    # The broker is back, in an answer about something else.
    metadata.want_topic("other", 2.0)
    assert metadata.begin_update(2.0).topics == ("other",)
    change = metadata.update(answer(topic("other", partition(0, leader=1), topic_id=ID_2)), 2.0)
    assert set(change.leaders) == {TopicPartition("t", 0), TopicPartition("other", 0)}
    assert (metadata.leader_of("t", 0), view.available) == (0, (0,))


def test_a_partial_answer_keeps_the_other_topics() -> None:
    metadata = with_topic(partition(0, leader=1), partition(1, leader=2))
    metadata.want_topic("denied", 1.0)
    exchange(metadata, 1.0, topic("denied", error=DENIED))
    metadata.want_topic("new", 2.0)
    metadata.begin_update(2.0)
    brokers = (*NODES, BrokerAddress(7, "broker-7", 9092))
    metadata.update(answer(topic("new", partition(0, leader=7), topic_id=ID_2), brokers=brokers), 2.0)
    assert view_of(metadata, 1)[0] == 2
    assert metadata.topic_error("denied") == DENIED
    assert metadata.leader_of("new", 0) == 7
    assert metadata.brokers == brokers
    assert (metadata.topic_name(ID_1), metadata.topic_name(ID_2)) == ("t", "new")


def test_views_stay_and_partitions_are_added() -> None:
    metadata = with_topic(partition(0))
    view = metadata.topic("t")
    assert view is not None
    first = view.partitions[0]
    change = exchange(metadata, 1.0, topic("t", partition(2, leader=2), partition(0), partition(1)))
    assert metadata.topic("t") is view
    assert view.partitions[0] is first
    assert (view.partition_count, view.available) == (3, (0, 1, 2))
    assert metadata.leader_of("t", 2) == 2
    assert set(change.leaders) == {TopicPartition("t", 1), TopicPartition("t", 2)}
    # A broker that has not heard of the new partitions yet does not take them away.
    assert exchange(metadata, 2.0, topic("t", partition(0))).leaders == ()
    assert view.partition_count == 3
    # Another topic of that name has the partitions that it has.
    exchange(metadata, 3.0, topic("t", partition(0), topic_id=ID_2))
    assert (view.partition_count, len(view.partitions), metadata.leader_of("t", 2)) == (1, 1, -1)


def test_brokers_without_topic_ids_are_taken_at_their_word() -> None:
    metadata = with_topic(partition(0), partition(1), topic_id=None)
    exchange(metadata, 1.0, topic("t", partition(0), topic_id=None))
    view = metadata.topic("t")
    assert view is not None
    assert (view.partition_count, view.available) == (1, (0,))


def test_hostile_partition_numbers_make_nothing_grow() -> None:
    numbers = (0, 2**31 - 1, -1, -(2**31), 5, 0)
    metadata = with_topic(*(partition(number) for number in numbers))
    view = metadata.topic("t")
    assert view is not None
    assert view.partition_count == len(view.partitions) == 5
    assert view.available == (0,)
    for number in (-1, 5, 2**31 - 1):
        assert metadata.leader_of("t", number) == metadata.leader_epoch_of("t", number) == -1


def test_negative_node_ids_are_no_brokers() -> None:
    metadata = make()
    metadata.want_topic("t", 0.0)
    metadata.begin_update(0.0)
    metadata.update(
        answer(topic("t", partition(0, leader=-5)), brokers=(*NODES, BrokerAddress(-5, "evil", 1))), 0.0
    )
    assert metadata.leader_of("t", 0) == -1
    assert metadata.broker(-5) is None
    view = metadata.topic("t")
    assert view is not None
    assert view.available == ()


# ---- KIP-951 -----------------------------------------------------------------------------------------------


def test_hints_of_new_leaders() -> None:
    metadata = with_topic(*(partition(number, leader=1, epoch=3) for number in range(6)))
    version = metadata.version
    moved = BrokerAddress(7, "broker-7", 9092)
    changed = metadata.update_leaders(
        {
            ("t", 0): (7, 4),  # new, at an address that comes with it
            ("t", 1): (2, 4),  # new, at an address known before
            ("t", 2): (2, 3),  # not newer
            ("t", 3): (2, 2),  # older
            ("t", 4): (8, 4),  # nobody knows where broker 8 is
            ("t", 5): (-1, -1),  # no hint at all
            ("t", 6): (2, 4),  # no such partition
            ("u", 0): (2, 4),  # no such topic
        },
        [moved],
    )
    assert changed == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert [metadata.leader_of("t", number) for number in range(6)] == [7, 2, 1, 1, 1, 1]
    assert [metadata.leader_epoch_of("t", number) for number in range(6)] == [4, 4, 3, 3, 3, 3]
    assert metadata.brokers == (*NODES, moved)
    assert metadata.version == version
    # Metadata that is behind does not undo it.
    exchange(metadata, 1.0, topic("t", *(partition(number, leader=1, epoch=3) for number in range(6))))
    assert metadata.leader_epoch_of("t", 1) == 4
    assert [metadata.leader_of("t", number) for number in range(2)] == [-1, 2]  # 7 is gone from the brokers


def test_a_hint_may_tell_where_other_leaders_are() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    metadata.want_topic("u", 1.0)
    exchange(metadata, 1.0, topic("u", partition(0, leader=7), topic_id=ID_2))
    assert metadata.leader_of("u", 0) == -1
    changed = metadata.update_leaders({("t", 0): (7, 4)}, [BrokerAddress(7, "broker-7", 9092)])
    assert changed == [TopicPartition("t", 0), TopicPartition("u", 0)]
    assert metadata.leader_of("u", 0) == 7


def test_a_hint_moves_broker_0_like_any_other() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    moved = BrokerAddress(0, "elsewhere", 9093)
    assert metadata.update_leaders({("t", 0): (0, 4)}, [moved]) == [TopicPartition("t", 0)]
    assert metadata.broker(0) == moved


def test_a_hint_with_a_negative_node_id_is_none() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    assert metadata.update_leaders({("t", 0): (-5, 4)}, [BrokerAddress(-5, "evil", 1)]) == []
    assert metadata.leader_of("t", 0) == 1


@pytest.mark.parametrize("number", [-1, 2])
def test_a_hint_about_a_partition_that_is_not_there_is_none(number: int) -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3), partition(1, leader=1, epoch=3))
    assert metadata.update_leaders({("t", number): (2, 4)}, []) == []
    assert metadata.leader_of("t", number) == -1
    assert metadata.leader_epoch_of("t", number) == -1
    assert [view_of(metadata, each)[0] for each in (0, 1)] == [1, 1]


def test_a_hint_moves_an_address() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    elsewhere = BrokerAddress(2, "elsewhere", 9999)
    assert metadata.update_leaders({TopicPartition("t", 0): (2, 4)}, [elsewhere]) == [TopicPartition("t", 0)]
    assert metadata.broker(2) == elsewhere
    assert len(metadata.brokers) == 3


def test_a_hint_that_is_no_use_leaves_the_brokers_alone() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    assert metadata.update_leaders({("t", 0): (7, 3)}, [BrokerAddress(7, "broker-7", 9092)]) == []
    assert metadata.brokers == NODES


def test_hints_are_ignored_while_there_is_nothing_to_compare_with() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=3))
    metadata.rebootstrap(1.0)
    assert metadata.update_leaders({("t", 0): (2, 9)}, NODES) == []
    assert is_bootstrapping(metadata)
    metadata = with_topic(partition(0, leader=1, epoch=3))
    exchange(metadata, 1.0, topic("t", error=UNKNOWN_TOPIC))
    assert metadata.update_leaders({("t", 0): (2, 9)}, NODES) == []


# ---- Re-bootstrap: KIP-899, KIP-1102 -----------------------------------------------------------------------


def test_rebootstrap() -> None:
    metadata = with_topic(partition(0, leader=1, epoch=100), partition(1, leader=2, epoch=100))
    assert not is_bootstrapping(metadata)
    change = metadata.rebootstrap(10.0)
    assert change == MetadataChange(leaders=(TopicPartition("t", 0), TopicPartition("t", 1)))
    assert is_bootstrapping(metadata)
    assert [broker.host for broker in metadata.brokers] == ["boot-a", "boot-b"]
    view = metadata.topic("t")
    assert view is not None
    assert (view.partition_count, view.available) == (2, ())
    assert (metadata.leader_of("t", 0), metadata.leader_epoch_of("t", 0)) == (-1, -1)
    assert metadata.next_update_at() == 10.0
    assert metadata.begin_update(10.0) == MetadataQuery(("t",), True)
    # Maybe another cluster, restored from before: the first answer is believed.
    change = metadata.update(
        answer(topic("t", partition(0, leader=2, epoch=7), partition(1, leader=1, epoch=7))), 10.0
    )
    assert change.leaders == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert view_of(metadata, 0)[:2] == (2, 7)
    assert metadata.brokers == NODES


def test_rebootstrap_forgets_leaders_that_the_next_answer_leaves_out() -> None:
    metadata = with_topic(partition(0, leader=1), partition(1, leader=2))
    metadata.rebootstrap(10.0)
    exchange(metadata, 10.0, topic("t", partition(0, leader=1)))
    assert [metadata.leader_of("t", number) for number in range(2)] == [1, -1]


def test_rebootstrap_when_the_broker_demands_it() -> None:
    metadata = with_topic(partition(0))
    metadata.request_update(10.0)
    metadata.begin_update(10.0)
    assert metadata.update(answer(topic("t", partition(0)), error=129), 10.0) == MetadataChange()
    assert metadata.needs_rebootstrap(10.0) is True
    metadata.rebootstrap(10.0)
    assert metadata.needs_rebootstrap(10.0) is False
    assert metadata.next_update_at() == 10.1  # brokers that all demand it do not make us spin


def test_a_demand_is_over_when_an_update_succeeds() -> None:
    metadata = make()
    metadata.begin_update(0.0)
    metadata.update(answer(error=129), 0.0)
    exchange(metadata, 0.1)
    assert metadata.needs_rebootstrap(0.1) is False


def test_rebootstrap_when_no_update_succeeds_for_too_long() -> None:
    metadata = make()
    exchange(metadata, 0.0)
    metadata.request_update(50.0)
    assert metadata.rebootstrap_at() == 50.0 + TRIGGER
    now = 60.0
    while now < 60.0 + TRIGGER:
        assert metadata.needs_rebootstrap(now) is False
        metadata.begin_update(now)
        assert metadata.rebootstrap_at() == 60.0 + TRIGGER  # since the first attempt, whatever follows
        metadata.update_failed(now)
        now += 50.0
    at = metadata.rebootstrap_at()
    assert at == 60.0 + TRIGGER
    assert metadata.needs_rebootstrap(at) is True
    metadata.rebootstrap(at)
    assert metadata.rebootstrap_at() == at + TRIGGER
    exchange(metadata, at)
    assert metadata.rebootstrap_at() == at + MAX_AGE + TRIGGER


def test_an_update_that_is_due_but_cannot_be_sent_counts_as_trying() -> None:
    metadata = make(now=0.0)
    assert metadata.needs_rebootstrap(TRIGGER - 0.1) is False
    assert metadata.needs_rebootstrap(TRIGGER) is True


def test_a_request_without_an_answer_counts_as_trying() -> None:
    metadata = make(now=0.0)
    metadata.begin_update(5.0)
    assert metadata.rebootstrap_at() == 5.0 + TRIGGER
    assert metadata.needs_rebootstrap(5.0 + TRIGGER) is True


def test_without_the_strategy_there_is_no_rebootstrap() -> None:
    metadata = make(strategy="none")
    metadata.want_topic("t", 0.0)
    metadata.begin_update(0.0)
    # Java also uses an answer that demands it as far as it goes.
    assert metadata.update(answer(topic("t", partition(0)), error=129), 0.0).topics == ("t",)
    assert metadata.can_rebootstrap is False
    assert metadata.rebootstrap_at() is None
    assert metadata.needs_rebootstrap(1e9) is False
    metadata.begin_update(1.0)
    metadata.update(answer(brokers=(), error=129), 1.0)
    assert metadata.needs_rebootstrap(1.0) is False
