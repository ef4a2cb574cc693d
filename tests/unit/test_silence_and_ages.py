"""What is old and who is silent, by the test's clock: the oldest record, and brokers that stopped answering."""

from __future__ import annotations

import pytest

from aioproduce.core.cluster.broker_connections import SILENCE
from aioproduce.producer.gauges import oldest_record_age, silent_brokers
from aioproduce.wire.api import ApiKey
from tests.unit.sender_harness import SenderHarness, warm
from tests.unit.sender_wire import TOPIC


def patient(**settings: int) -> SenderHarness:
    """No time-out comes within the test."""
    return warm(**{"delivery_timeout_ms": 600_000, "request_timeout_ms": 300_000, **settings})


def test_the_age_of_the_oldest_record() -> None:
    h = patient()
    assert oldest_record_age(h.sender, h.now) == 0.0
    h.send(0)
    h.advance(0.25)
    h.send(1)
    h.advance(0.5)
    assert oldest_record_age(h.sender, h.now) == 0.75
    h.acknowledge()
    assert oldest_record_age(h.sender, h.now) == 0.5
    h.acknowledge()
    assert oldest_record_age(h.sender, h.now) == 0.0


def test_a_broker_is_silent_after_a_second_without_a_byte() -> None:
    h = patient()
    for _ in range(3):
        h.send(0)
    h.advance(SILENCE - 0.001)
    assert silent_brokers(h.sender, h.now) == []
    h.advance(0.001)
    [broker] = silent_brokers(h.sender, h.now)
    node = h.sender.metadata.leader_of(TOPIC, 0)
    [address] = [each for each in h.sender.metadata.brokers if each.node_id == node]
    assert (broker.node_id, broker.host, broker.port) == (node, address.host, address.port)
    assert broker.seconds == pytest.approx(SILENCE)
    assert broker.requests == len(h.produces) > 0
    assert broker.records == 3
    # What is sent meanwhile is our own byte, and no answer.
    h.send(0)
    h.advance(1.5)
    [broker] = silent_brokers(h.sender, h.now)
    assert broker.seconds == pytest.approx(SILENCE + 1.5)
    assert broker.records == 4
    while h.produces:
        h.acknowledge()
    assert silent_brokers(h.sender, h.now) == []


def test_one_answer_ends_the_silence_though_others_are_awaited() -> None:
    h = patient()
    h.send(0)
    h.advance(0.1)
    h.send(0)
    h.advance(2.0)
    assert len(silent_brokers(h.sender, h.now)) == 1
    h.acknowledge()
    assert silent_brokers(h.sender, h.now) == []
    h.advance(SILENCE)
    assert [broker.seconds for broker in silent_brokers(h.sender, h.now)] == [pytest.approx(SILENCE)]


def test_an_idle_broker_is_not_silent() -> None:
    h = patient()
    h.send(0)
    h.acknowledge()
    h.jump(100.0)
    assert silent_brokers(h.sender, h.now) == []


def test_a_time_out_does_not_end_the_silence() -> None:
    """The connection is given up after request.timeout.ms; the broker has not answered for all that time."""
    h = patient(request_timeout_ms=5_000)
    h.send(0)
    node = h.sender.metadata.leader_of(TOPIC, 0)
    h.held.add(ApiKey.API_VERSIONS)  # the next connection is not answered either
    h.advance(5.0)
    h.advance(0.5)
    [broker] = [each for each in silent_brokers(h.sender, h.now) if each.node_id == node]
    assert broker.seconds == pytest.approx(5.5)
    assert broker.records == 1
