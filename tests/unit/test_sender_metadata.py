"""The Sender and what it knows of the cluster: leaders that move, hints, topics that come, go and fall idle.

Scenarios of Java's SenderTest (tests/README.md says which test stands for which), KIP-951 and KIP-899 at the level
of the core.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

import pytest

from aioproduce.errors import DeliveryTimeoutError, NoBrokerAvailableError, UnsupportedVersionError
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import NoRandom, SenderHarness, warm
from tests.unit.sender_wire import METADATA, PRODUCE, TOPIC, Topic, topic_id_of


def led_by(*nodes: int, **settings: Any) -> SenderHarness:
    """As many brokers as it takes, each partition led by the node named, and an acknowledged record in each."""
    h = SenderHarness(brokers=max(nodes) + 1, partitions=len(nodes), is_bootstrapped=False, **settings)
    h.topics[TOPIC].leaders = [(node, 0) for node in nodes]
    h.want(TOPIC)
    h.run()
    for partition in range(len(nodes)):
        h.send_acknowledged(partition)
    return h


def bootstrapped_elsewhere(**settings: Any) -> SenderHarness:
    """The bootstrap server is an address of its own, which always leads to a broker that runs."""
    h = SenderHarness(bootstrap_servers="boot:9092", is_bootstrapped=False, **settings)
    h.bootstrap = ("boot", 9092)
    h.want(TOPIC)
    h.run()
    h.lose(h.BOOTSTRAP)
    h.advance(0.2)
    return h


# -- leaders that move ---


def test_a_refusal_by_a_former_leader_has_metadata_fetched_and_the_retry_waits_for_its_backoff() -> None:
    h = led_by(0, 0, 1, retry_backoff_ms=100, retry_backoff_max_ms=100)
    h.advance(1)
    records = [h.append(partition) for partition in range(3)]
    h.run()
    before = h.count(METADATA)
    h.held.add(METADATA)
    to_node_0 = next(request for request in h.produces if request.node_id == 0)
    h.answer(to_node_0, codes.NOT_LEADER_OR_FOLLOWER)
    h.answer(offset=1)
    assert [record.is_done for record in records] == [False, False, True]
    assert h.count(METADATA) == before + 1
    h.advance(0.09)
    assert h.produces == []
    h.advance(0.02)
    # Nobody knew better: the same broker again.
    assert [(request.node_id, request.partitions) for request in h.produces] == [(0, [0, 1])]


def test_a_new_leader_ends_the_backoff() -> None:
    h = led_by(0, 1, retry_backoff_ms=400, retry_backoff_max_ms=400)
    h.advance(1)
    record = h.send(0)
    h.move(0, 1)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    assert h.produce().node_id == 1
    # The same leader again has to wait.
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    h.advance(0.3)
    assert h.produces == []
    h.advance(0.2)
    h.acknowledge(offset=999)
    assert record.offset == 999


def test_a_newer_epoch_of_the_same_leader_ends_the_backoff_too() -> None:
    h = led_by(0, 1, retry_backoff_ms=400, retry_backoff_max_ms=400)
    h.advance(1)
    h.send(0)
    h.move(0, 0)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    assert h.produce().node_id == 0


def test_an_older_epoch_is_not_believed() -> None:
    h = led_by(0, 1)
    h.topics[TOPIC].leaders[0] = (1, 5)
    h.refresh()
    h.topics[TOPIC].leaders[0] = (0, 4)
    h.refresh()
    h.send(0)
    assert h.produce().node_id == 1


def test_a_hint_in_the_answer_is_followed_at_once() -> None:
    """KIP-951."""
    h = led_by(0, 0, 1, retry_backoff_ms=400, retry_backoff_max_ms=400)
    h.held.add(METADATA)
    records = [h.append(partition) for partition in range(2)]
    h.run()
    h.brokers[9990] = ("new", 9990)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER, leaders={0: (9990, 1), 1: (1, 1)}, endpoints=[9990, 1])
    assert {request.node_id: request.partitions for request in h.produces} == {9990: [0], 1: [1]}
    assert h.sender.metadata.leader_of(TOPIC, 0) == 9990
    assert h.sender.metadata.leader_epoch_of(TOPIC, 0) == 1
    for number in (0, 1):
        h.acknowledge(offset=number)
    assert all(record.is_done for record in records)


def test_a_hint_may_name_broker_0() -> None:
    """A node id is one from 0 on; what is below says that there is no hint."""
    h = led_by(1, 1)
    h.held.add(METADATA)
    record = h.send(0)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER, leaders={0: (0, 1)}, endpoints=[0])
    assert h.produce().node_id == 0
    h.acknowledge(offset=7)
    assert record.offset == 7


def test_a_hint_that_is_older_than_what_is_known_is_ignored() -> None:
    h = led_by(0, 1)
    h.held.add(METADATA)
    h.move(0, 0)
    h.move(0, 0)
    h.held.clear()
    h.refresh()
    h.send(0)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER, leaders={0: (1, 1)}, endpoints=[1])
    h.advance(0.06)
    assert h.produce().node_id == 0


def test_a_hint_without_an_address_is_ignored() -> None:
    h = led_by(0, 1)
    h.held.add(METADATA)
    h.send(0)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER, leaders={0: (77, 1)})
    h.advance(0.06)
    assert h.produce().node_id == 0


class InTurn(NoRandom):
    """Jitter that changes nothing, and of equals each in its turn."""

    def __init__(self) -> None:
        self._turns = count()

    def randrange(self, stop: int, /) -> int:
        return next(self._turns) % stop


RULES = pytest.mark.parametrize("rule", ["uniform_sticky", "sticky", "round_robin", "random"])


def chosen(h: SenderHarness, count: int = 40) -> set[int]:
    """Where keyless records go that take a batch each."""
    return {h.append(None, bytes(200)).delivery.partition for _ in range(count)}


@RULES
def test_keyless_records_go_where_a_hint_tells_of_a_leader(rule: str) -> None:
    """KIP-951: the partition had none, as far as metadata knew."""
    h = led_by(0, 1, partitioner_class=rule, batch_size=200, random=InTurn())
    h.send(1)
    h.move(1, -1)
    h.refresh()
    assert chosen(h) == {0}
    h.held.add(METADATA)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER, leaders={1: (0, 2)}, endpoints=[0])
    assert chosen(h) == {0, 1}


@RULES
def test_keyless_records_leave_a_leader_that_goes_with_its_broker(rule: str) -> None:
    """An answer about another topic tells that the broker is gone."""
    h = led_by(1, 0, partitioner_class=rule, batch_size=200, random=InTurn())
    assert chosen(h) == {0, 1}
    del h.brokers[1]
    h.topics["other"] = Topic(UUID(int=7), [(0, 0)])
    h.want("other")
    h.advance(0.1)
    [*_, asked] = [request for request in h.history if request.api == METADATA]
    assert [topic["name"] for topic in asked.body["topics"]] == ["other"]
    assert chosen(h) == {1}


def test_a_partition_without_a_leader_waits_for_one() -> None:
    h = led_by(0, 1)
    h.move(0, -1)
    h.refresh()
    record = h.send(0)
    other = h.send(1)
    assert h.produce().partitions == [1]
    h.acknowledge()
    assert other.is_done
    h.advance(0.3)
    asked = h.count(METADATA)
    h.move(0, 1)
    h.advance(0.1)
    assert h.count(METADATA) > asked
    assert h.produce().node_id == 1
    h.acknowledge()
    assert record.is_done


def test_where_records_wait_for_a_leader_all_topics_are_asked_for() -> None:
    """Java's `requestUpdate()`: what is known is out of date, not only that one topic."""
    h = led_by(0, 1)
    h.topics["other"] = Topic(topic_id_of(5), [(0, 0)])
    h.want("other")
    h.run()
    h.move(0, -1)
    h.refresh()
    h.advance(1.0)
    partial = h.history[-1]
    assert partial.api == METADATA
    assert [topic["name"] for topic in partial.body["topics"]] == [TOPIC]
    h.send(0)
    h.advance(0.1)
    asked = [
        request for request in h.history if request.api == METADATA and request.sent_at > partial.sent_at
    ]
    assert {topic["name"] for topic in asked[0].body["topics"]} == {TOPIC, "other"}


def test_a_partition_that_never_gets_a_leader_fails_in_time_and_says_so() -> None:
    h = led_by(0, 1)
    h.move(0, -1)
    h.refresh()
    record = h.send(0)
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert "no known leader" in str(record.error)
    assert record.error.__cause__ is None
    assert not record.error.possibly_written


def test_a_cluster_that_is_gone_is_named_as_the_root_and_not_the_missing_leader() -> None:
    h = led_by(0, 1)
    h.down |= {0, 1}
    h.lose(0)
    h.lose(1)
    stuck = [h.send(partition) for partition in (0, 1)]
    h.advance(1.5)
    for record in stuck:
        assert isinstance(record.error, DeliveryTimeoutError)
        assert "refused" in str(record.error)
        assert "no known leader" not in str(record.error)
        assert isinstance(record.error.__cause__, NoBrokerAvailableError)
        assert all("refused" in why for why in record.error.__cause__.causes.values())


def test_a_leader_that_cannot_be_reached_is_named_with_the_reason() -> None:
    h = led_by(0, 1)
    h.down.add(0)
    h.lose(0)
    stuck = h.send(0)
    h.advance(1.5)
    assert isinstance(stuck.error, DeliveryTimeoutError)
    assert "because broker 0 cannot be reached: cannot connect to" in str(stuck.error)
    assert isinstance(stuck.error.__cause__, NoBrokerAvailableError)
    assert list(stuck.error.__cause__.causes) == ["{}:{}".format(*h.brokers[0])]


def test_a_broker_that_moves_to_another_address_is_followed() -> None:
    h = led_by(0, 1)
    h.brokers[0] = ("elsewhere", 9093)
    h.refresh()
    record = h.send(0)
    h.advance(0.1)
    h.acknowledge()
    assert record.is_done


def test_a_broker_that_cannot_be_reached_delays_only_its_partitions() -> None:
    h = led_by(0, 1)
    h.down.add(0)
    h.lose(0)
    stuck, well = h.send(0), h.send(1)
    assert h.produce().partitions == [1]
    h.acknowledge()
    assert well.is_done
    h.move(0, 1)
    h.advance(0.2)
    h.acknowledge()
    assert stuck.is_done


# -- topics ---


def test_who_waits_for_a_topic_is_told_when_it_is_known() -> None:
    h = warm()
    h.topics["other"] = Topic(UUID(int=7), [(0, 0)])
    news = h.want("other")
    h.run()
    assert news == ["other"]
    record = h.send(0, topic="other")
    assert h.produce().batch(0, "other").values == (b"v",)
    h.acknowledge()
    assert record.is_done


def test_who_gave_up_waiting_is_not_told() -> None:
    h = warm()
    h.held.add(METADATA)
    told: list[str] = []
    kept = h.want("other")
    waiter = h.sender.metadata_requests.await_topic("other", lambda: told.append("gave up"), h.now)
    h.run()
    h.sender.metadata_requests.forget(waiter)
    h.sender.metadata_requests.forget(waiter)
    h.answer_metadata()
    assert (told, kept) == ([], ["other"])


def test_any_answer_tells_those_who_wait_for_metadata_as_such() -> None:
    h = warm()
    h.advance(1)
    told: list[str] = []
    h.sender.metadata_requests.await_any(lambda: told.append("metadata"), h.now)
    h.advance(0.1)
    assert told == ["metadata"]


@pytest.mark.parametrize("code", [codes.INVALID_TOPIC_EXCEPTION, codes.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_is_refused_is_told_once_and_not_asked_for_again(code: int) -> None:
    h = warm()
    h.topics["other"] = Topic(None, [], code=code)
    news = h.want("other")
    h.run()
    assert news == ["other"]
    assert h.sender.metadata.topic_error("other") == code
    asked = h.count(METADATA)
    h.advance(5)
    assert h.count(METADATA) == asked


def test_a_topic_that_is_not_there_yet_is_asked_for_with_backoff() -> None:
    h = warm(retry_backoff_ms=100, retry_backoff_max_ms=100)
    h.want("other")
    h.advance(0.35)
    assert h.sender.metadata.topic_error("other") == codes.UNKNOWN_TOPIC_OR_PARTITION
    h.topics["other"] = Topic(UUID(int=7), [(0, 0)])
    news = h.want("other")
    h.advance(0.2)
    assert news == ["other"]
    asked = h.count(METADATA)
    assert asked <= 8
    assert h.send(0, topic="other").delivery.topic == "other"


def test_an_idle_topic_is_forgotten_and_can_be_used_again() -> None:
    h = warm(metadata_max_idle_ms=5000, metadata_max_age_ms=6000)
    h.advance(7)
    assert h.sender.metadata.topic(TOPIC) is None
    assert h.want(TOPIC) == []
    h.run()
    h.send_acknowledged(offset=1)


def test_a_topic_with_records_on_their_way_is_not_forgotten() -> None:
    h = led_by(
        0,
        1,
        metadata_max_idle_ms=5000,
        metadata_max_age_ms=6000,
        delivery_timeout_ms=30_000,
    )
    h.down.add(0)
    h.lose(0)
    record = h.send(0)
    h.advance(13)
    h.move(0, 1)
    h.advance(0.5)
    h.acknowledge(offset=3)
    assert record.offset == 3


def test_a_topic_is_in_use_by_the_last_record_of_a_batch_not_by_the_first() -> None:
    h = SenderHarness(metadata_max_idle_ms=5000, linger_ms=4000, delivery_timeout_ms=10_000)
    h.send(0)
    h.advance(3.9)
    h.send(0)
    h.advance(0.2)
    h.acknowledge()
    h.advance(2)
    h.refresh()
    assert h.sender.metadata.topic(TOPIC) is not None
    h.advance(3)
    h.refresh()
    assert h.sender.metadata.topic(TOPIC) is None


def test_a_topic_is_in_use_by_a_record_whose_batch_is_given_up() -> None:
    h = led_by(0, linger_ms=0, metadata_max_idle_ms=5000, request_timeout_ms=1000, delivery_timeout_ms=8000)
    h.down.add(0)
    h.lose(0)
    h.send(0)
    h.advance(7.9)
    late = h.send(0)
    h.advance(0.2)
    assert late.error is not None
    assert h.sender.metadata.is_wanted(TOPIC)
    h.down.clear()
    h.advance(4)
    h.refresh()
    assert h.sender.metadata.topic(TOPIC) is not None


def test_a_topic_that_somebody_waits_for_is_not_forgotten_while_the_answer_takes_its_time() -> None:
    h = warm(metadata_max_idle_ms=5000, request_timeout_ms=20_000, delivery_timeout_ms=40_000)
    h.want("other")
    h.run()
    assert h.sender.metadata.topic_error("other") == codes.UNKNOWN_TOPIC_OR_PARTITION
    h.held.add(METADATA)
    h.topics["other"] = Topic(UUID(int=7), [(0, 0)])
    news = h.want("other")
    h.advance(13)
    h.answer_metadata()
    assert news == ["other"]
    assert h.sender.metadata.topic("other") is not None


def test_a_topic_with_records_in_flight_is_not_forgotten() -> None:
    h = led_by(
        0,
        1,
        metadata_max_idle_ms=5000,
        metadata_max_age_ms=6000,
        request_timeout_ms=20_000,
        delivery_timeout_ms=40_000,
    )
    record = h.send(0)
    h.advance(13)
    h.move(0, 1)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    h.advance(0.5)
    assert h.produce().node_id == 1
    h.acknowledge(offset=3)
    assert record.offset == 3


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_topic_that_is_created_again_is_written_under_its_new_id(idempotent: bool) -> None:
    h = warm(enable_idempotence=idempotent)
    record = h.send()
    old = h.produce().body["topic_data"][0]["topic_id"]
    h.recreate()
    h.answer(code=codes.UNKNOWN_TOPIC_ID)
    h.advance(0.1)
    new = h.produce().body["topic_data"][0]["topic_id"]
    assert old != new
    assert new == h.topics[TOPIC].topic_id
    h.acknowledge(offset=0)
    assert record.offset == 0
    h.send_acknowledged(offset=1)


def test_a_partition_that_is_gone_fails_its_records_in_time() -> None:
    """The topic was created again with fewer, and the broker that led the others is gone, too."""
    h = led_by(0, 1)
    h.topics[TOPIC] = Topic(topic_id_of(7), [(0, 0)])
    record = h.send(1)
    h.answer(code=codes.UNKNOWN_TOPIC_ID)
    del h.brokers[1]
    h.refresh()
    h.lose(1)
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert h.outstanding == 0
    h.send_acknowledged(0, offset=0)


def test_a_topic_that_is_gone_fails_its_records_in_time() -> None:
    h = warm()
    record = h.send()
    del h.topics[TOPIC]
    h.answer(code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    h.advance(1.5)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert not record.error.possibly_written
    assert h.outstanding == 0


# -- brokers ---


def test_a_lost_metadata_request_is_sent_again() -> None:
    h = warm()
    h.advance(1)
    h.held.add(METADATA)
    news = h.want("other")
    h.run()
    (request,) = h.waiting(METADATA)
    h.held.clear()
    h.lose(request.node_id)
    h.advance(0.2)
    assert news == ["other"]


def test_a_metadata_request_that_is_not_answered_in_time_is_sent_again() -> None:
    h = warm()
    h.advance(1)
    h.held.add(METADATA)
    news = h.want("other")
    h.run()
    h.advance(0.9)
    h.held.clear()
    h.advance(0.3)
    assert news == ["other"]


def test_a_broker_that_is_too_old_is_named_to_those_who_wait() -> None:
    h = SenderHarness(produce_versions=(0, 2), is_bootstrapped=False)
    news = h.want(TOPIC)
    h.run()
    assert news == [TOPIC]
    error = h.sender.connections.fatal_error
    assert isinstance(error, UnsupportedVersionError)
    assert error.broker_versions == (0, 2)


def test_when_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked() -> None:
    """KIP-899: the cluster moved as a whole, `bootstrap.servers` resolves to it all the same."""
    h = bootstrapped_elsewhere()
    record = h.send()
    h.lose(0)
    h.brokers = {5: ("b5", 9092)}
    h.topics[TOPIC].leaders = [(5, 0), (5, 0)]
    h.advance(1)
    assert h.produce().node_id == 5
    h.acknowledge()
    assert record.is_done


def test_after_that_a_partition_without_a_leader_waits_though_its_old_one_is_back() -> None:
    h = bootstrapped_elsewhere()
    record = h.send()
    h.brokers = {0: ("b0", 9092), 5: ("b5", 9092)}
    h.topics[TOPIC].leaders = [(-1, 1), (0, 1)]
    h.lose(0)
    h.advance(1)
    assert h.produces == []
    h.move(0, 5)
    h.advance(1)
    assert h.produce().node_id == 5
    h.acknowledge()
    assert record.is_done


def test_without_recovery_the_known_brokers_are_tried_until_they_come_back() -> None:
    h = bootstrapped_elsewhere(metadata_recovery_strategy="none")
    record = h.send()
    h.down.add(0)
    h.lose(0)
    h.advance(1)
    assert h.count(PRODUCE) == 1
    h.down.clear()
    h.advance(0.3)
    h.acknowledge()
    assert record.is_done


def test_who_waits_for_a_topic_is_woken_once() -> None:
    h = SenderHarness()
    told = h.want("another")
    h.sender.metadata_requests.wake_all()
    h.sender.metadata_requests.wake_all()
    assert told == ["another"]


# A topic that comes to be


@pytest.mark.parametrize(
    "code",
    [codes.UNKNOWN_TOPIC_OR_PARTITION, codes.LEADER_NOT_AVAILABLE],
    ids=["KRaft", "ZooKeeper"],
)
def test_a_topic_that_the_broker_creates_is_told_once(code: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioproduce.sender")
    h = warm()
    h.topics["typo"] = Topic(None, [], code)
    news = h.want("typo")
    h.run()
    assert news == ["typo"]
    told = "topic 'typo' did not exist when the producer asked for it, but exists now"
    assert told not in caplog.text
    h.topics["typo"] = Topic(topic_id_of(7), [(0, 0)] * 3)
    h.want("typo")
    h.advance(1.0)
    [line] = [record for record in caplog.records if told in record.getMessage()]
    assert line.levelname == "INFO"
    assert "auto.create.topics.enable" in line.getMessage()
    assert "3 partition(s)" in line.getMessage()
    h.refresh()
    h.recreate("typo")
    h.refresh()
    assert caplog.text.count(told) == 1


def test_a_topic_that_was_there_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Neither at first, nor after a time when it could not be used."""
    caplog.set_level("INFO", "aioproduce.sender")
    h = warm()
    there = h.topics[TOPIC]
    for code in (codes.LEADER_NOT_AVAILABLE, codes.UNKNOWN_TOPIC_OR_PARTITION):
        h.topics[TOPIC] = Topic(there.topic_id, [], code)
        h.refresh()
        h.topics[TOPIC] = there
        h.advance(1.0)
        assert h.sender.metadata.topic(TOPIC) is not None
    assert "did not exist" not in caplog.text
