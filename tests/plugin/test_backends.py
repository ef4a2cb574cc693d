"""The plugin under pytest-asyncio, anyio and pytest-trio: the same tests, which produce and assert, or fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gate.marks import others_extended
from tests.plugin.backends import ON_ASYNCIO, ON_TRIO, Backend

EVERY_BACKEND = pytest.mark.parametrize(
    "backend",
    others_extended(
        [*ON_ASYNCIO, *ON_TRIO],
        keep=[ON_ASYNCIO[0]],
        reason="runs pytest in a process; one plugin stays in the gate",
    ),
    ids=lambda each: each.name,
)

GOOD = """
    from aioproduce.errors import BrokerRejectedError

    async def test_what_was_sent_is_there(kafka_cluster, producer):
        async with producer:
            metadata = await producer.send_and_wait("orders", b"42", key=b"customer-7", headers=[("trace", b"1")])
        [record] = kafka_cluster.assert_produced(
            "orders", b"42", key="customer-7", headers={"trace": b"1"}, count=1
        )
        assert (record.partition, record.offset) == (metadata.partition, metadata.offset)
        assert record.timestamp == metadata.timestamp
        kafka_cluster.assert_nothing_produced("payments")

    async def test_each_test_has_a_cluster_of_its_own(kafka_cluster, producer):
        kafka_cluster.assert_nothing_produced()

    async def test_order_within_a_partition(kafka_cluster, producer):
        sent = [b"%d" % number for number in range(1000)]
        async with producer:
            for number, value in enumerate(sent):
                await producer.send("orders", value, key=b"%d" % (number % 10))
        kafka_cluster.assert_produced_exactly("orders", sent)
        assert kafka_cluster.produced("orders").with_key("7").values == sent[7::10]

    @pytest.mark.aioproduce(brokers=1, topics={"orders": 2}, auto_create_topics=False, producer={"linger_ms": 0})
    async def test_options(kafka_cluster, producer, make_producer):
        assert len(kafka_cluster.ports) == 1
        assert len(kafka_cluster.topics["orders"].partitions) == 2
        assert producer.config.linger == 0
        assert make_producer(linger_ms=7).config.linger == 0.007
        async with make_producer(acks=1) as one, make_producer(client_id="two") as two:
            await one.send_and_wait("orders", b"1", partition=1)
            await two.send_and_wait("orders", b"2", partition=1)
        kafka_cluster.assert_produced_exactly("orders", [b"1", b"2"], partition=1)
        assert {entry.client_id for entry in kafka_cluster.requests.entries(0)} == {one.config.client_id, "two"}

    async def test_a_fault(kafka_cluster, producer):
        kafka_cluster.create_topic("orders", 1)
        fault = kafka_cluster.faults.fail_produce(29, topic="orders")  # TOPIC_AUTHORIZATION_FAILED
        async with producer:
            delivery = await producer.send("orders", b"refused")
            with pytest.raises(BrokerRejectedError) as caught:
                await delivery
            assert not caught.value.possibly_written
            assert fault.hits == 1
            await producer.send_and_wait("orders", b"taken")
        kafka_cluster.assert_produced_exactly("orders", [b"taken"])

    async def test_a_broker_that_dies_and_comes_back(kafka_cluster, producer):
        kafka_cluster.create_topic("orders", 3)
        async with producer:
            await producer.send_and_wait("orders", b"before", partition=0)
            leader = kafka_cluster.leader("orders", 0)
            kafka_cluster.stop_broker(leader)
            assert kafka_cluster.leader("orders", 0) != leader
            await producer.send_and_wait("orders", b"without it", partition=0)
            kafka_cluster.start_broker(leader)
            kafka_cluster.move_leader("orders", 0, leader)
            await producer.send_and_wait("orders", b"after", partition=0)
        kafka_cluster.assert_produced_exactly("orders", [b"before", b"without it", b"after"])

    async def test_waiting_for_what_somebody_else_sends(kafka_cluster, producer):
        async with producer:
            for number in range(3):
                await producer.send("orders", b"%d" % number)
            produced = await kafka_cluster.until_produced("orders", 3)
            assert sorted(produced.values) == [b"0", b"1", b"2"]
            with pytest.raises(AssertionError, match="has 3 records after 0 s, not 4"):
                await kafka_cluster.until_produced("orders", 4, timeout=0)
            with pytest.raises(RuntimeError, match="await cluster.until_produced"):
                kafka_cluster.wait_for_records("orders", 3)

    @async_fixture
    async def service(producer):
        async with producer:
            yield producer

    async def test_a_producer_that_a_fixture_has_started(kafka_cluster, service):
        await service.send_and_wait("orders", b"42")
        kafka_cluster.assert_produced("orders", b"42")

    @pytest.mark.aioproduce(may_leave_open=True, producer={"enable_metrics_push": False})
    async def test_nothing_is_started(kafka_cluster, producer):
        assert "new" in repr(producer)
        assert not producer.config.enable_metrics_push
"""

BAD = """
    async def test_left_open(producer):
        await producer.start()

    async def test_wrong_value(kafka_cluster, producer):
        async with producer:
            await producer.send_and_wait("orders", b'{"id": 42}', key=b"customer-7")
        kafka_cluster.assert_produced("orders", json={"id": 43}, key="customer-7")

    async def test_wrong_topic(kafka_cluster, producer):
        async with producer:
            await producer.send_and_wait("orders", b"42")
        kafka_cluster.assert_produced("order", b"42")

    async def test_its_own_failure_is_not_hidden(kafka_cluster, producer):
        await producer.start()
        raise ValueError("the cause")

    @async_fixture
    async def leaking(producer):
        await producer.start()
        return producer

    async def test_a_fixture_that_leaks(leaking):
        await leaking.send_and_wait("orders", b"42")
"""


@pytest.mark.extended("runs pytest with all plugins in a process; the example of the page stays in the gate")
@EVERY_BACKEND
def test_good_tests_pass(
    backend: Backend, pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(backend.source(GOOD))

    result = run_pytest(*backend.arguments)

    result.assert_outcomes(passed=9)


@EVERY_BACKEND
@pytest.mark.extended("runs pytest in a process; tests that pass stay in the gate")
def test_bad_tests_fail_and_say_why(
    backend: Backend, pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    # A producer that its loop ended under leaves sockets to the collector: those warnings are not the matter here.
    pytester.makepyfile(backend.source(BAD))

    result = run_pytest(*backend.arguments)

    outcomes = result.parseoutcomes()
    assert outcomes["failed"] + outcomes.get("errors", 0) == 5, outcomes
    result.stdout.fnmatch_lines_random(
        [
            "*left open: the producer 'producer-*'. Close every producer that you start*async with producer*",
            "*no record of topic 'orders' has JSON {'id': 43} and key 'customer-7'",
            "* closest is partition *, offset 0:",
            "* $.id: expected 43, found 42",
            "*   partition *, offset 0: key b'customer-7', value b'{\"id\": 42}'",
            "*no record of topic 'order' has value b'42'",
            "* there is no such topic; there is something in 'orders' (1 record)",
            "* ValueError: the cause",
        ]
    )
    result.stdout.re_match_lines_random([r"(FAILED|ERROR) .*test_left_open.*", r"(FAILED|ERROR) .*_leaks.*"])
    result.stdout.no_re_match_line(r".*ERROR.*test_its_own_failure.*")
