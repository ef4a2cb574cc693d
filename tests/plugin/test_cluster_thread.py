"""`ClusterThread`: all of `FakeCluster` from ordinary functions and any thread, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from aioproduce import Producer
from aioproduce.errors import BrokerRejectedError, DeliveryTimeoutError
from aioproduce.testing import ClusterState, ClusterThread, FakeCluster, Faults, ReplicationConfig, RequestLog
from aioproduce.wire.api import ApiKey

NAME = "aioproduce fake cluster"


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread(topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started
    assert threads() == []


def send(cluster: ClusterThread, *values: bytes, topic: str = "one", **settings: Any) -> None:
    """What a program with a loop of its own does."""

    async def main() -> None:
        async with Producer(cluster.bootstrap_servers, **settings) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)

    asyncio.run(main())


def public(kind: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(kind) if not name.startswith("_")}


# Life


def test_from_start_to_stop() -> None:
    cluster = ClusterThread(2, topics={"one": 1})
    assert "not running" in repr(cluster)
    with pytest.raises(RuntimeError, match=r"no addresses before start\(\)"):
        _ = cluster.bootstrap_servers
    with pytest.raises(RuntimeError, match="not started"):
        cluster.stop_broker(0)
    cluster.stop()
    cluster.create_topic("before", 2)
    cluster.start()
    with pytest.raises(RuntimeError, match="already started"):
        cluster.start()
    assert "not running" not in repr(cluster)
    assert cluster.is_running
    assert threads() == [NAME]
    assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    send(cluster, b"1", b"2")
    cluster.stop()
    cluster.stop()
    assert threads() == []
    assert cluster.produced("one").values == [b"1", b"2"]
    assert list(cluster.topics) == ["one", "before"]
    cluster.assert_produced_exactly("one", ["1", "2"])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.ports[0]))


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        cluster = ClusterThread(1, ports=[taken.getsockname()[1]])
        with pytest.raises(OSError, match="in use"):
            cluster.start()
        assert threads() == []
        assert not cluster.is_running
    cluster.start()
    cluster.create_topic("one", 1)
    send(cluster, b"1")
    cluster.stop()


def test_what_goes_wrong_inside_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug of the model")

    cluster = ClusterThread(1)
    monkeypatch.setattr(cluster._target._model, "receive_data", fail)
    cluster.start()
    with socket.create_connection(("127.0.0.1", cluster.ports[0])) as client:
        client.sendall(b"\0\0\0\1\0")
        assert client.recv(1) == b""
    with pytest.raises(ZeroDivisionError, match="a bug of the model"):
        cluster.stop()
    assert threads() == []


def test_it_ends_with_clients_connected(cluster: ClusterThread) -> None:
    with socket.create_connection(("127.0.0.1", cluster.ports[0])) as client:
        cluster.faults.stall(0)
        client.sendall(b"\0\0\0\1")
        cluster.stop()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


# All of it, from here


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (FakeCluster, ClusterThread),
        (Faults, type(ClusterThread().faults)),
        (RequestLog, type(ClusterThread().requests)),
    ],
    ids=lambda each: each.__name__,
)
def test_everything_is_there_with_the_same_signature(kind: type, ours: type) -> None:
    others = {
        FakeCluster: {"start", "close"},
        # What the model asks and tells.
        Faults: {"take_code", "take_top_level_code", "take_answer_fault", "take_throttle"},
        RequestLog: {"add"},
    }[kind]
    expected = public(kind).keys() - others
    here = public(ours)
    assert expected <= here.keys()
    for name in expected:
        method = getattr(kind, name)
        if inspect.isfunction(method):
            assert str(inspect.signature(here[name])) == str(inspect.signature(method)), name
            assert inspect.getdoc(here[name]) == inspect.getdoc(method), name
    assert inspect.signature(ClusterThread) == inspect.signature(FakeCluster)


def test_all_calls_run_on_the_clusters_thread(
    cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls from this thread, from others at the same time, and from the cluster's own."""
    seen: list[str] = []
    grow = ClusterState._grow

    def noting(*arguments: Any) -> None:
        seen.append(threading.current_thread().name)
        grow(*arguments)

    monkeypatch.setattr(ClusterState, "_grow", noting)
    cluster.create_topic("mine", 2)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: cluster.create_topic(f"t{number}", 1).name, range(100)))
    cluster._call(lambda: cluster.create_topic("its_own"))
    assert made == [f"t{number}" for number in range(100)]
    assert seen == [NAME] * 102


def test_errors_come_through(cluster: ClusterThread) -> None:
    with pytest.raises(ValueError, match="one"):
        cluster.create_topic("one", 1)
    with pytest.raises(KeyError):
        cluster.records("nothing")
    with pytest.raises(KeyError, match="no topic 'nothing': it was neither created nor sent to"):
        cluster.produced("nothing")
    with pytest.raises(KeyError):
        cluster.produced("one", 7)
    with pytest.raises(KeyError):
        cluster.stop_broker(7)
    with pytest.raises(ValueError, match="times"):
        cluster.faults.drop_answers(times=0)
    send(cluster, b"goes on")


def test_topics_and_their_partitions(cluster: ClusterThread) -> None:
    cluster.create_topic("orders", 2)
    cluster.add_partitions("orders", 5)
    cluster.configure_topic("orders", is_log_append_time=True)
    cluster.move_leader("one", 0, 2)
    assert cluster.leader("one", 0) == 2
    cluster.take_leader("one", 0)
    assert cluster.leader("one", 0) == -1
    cluster.elect_leader("one", 0)
    send(cluster, b"1", b"2", b"3")
    assert cluster.high_watermark("one", 0) == 3
    assert sorted(cluster.isr("one", 0)) == [0, 1, 2]
    assert [batch.record_count for batch in cluster.log("one")] == [1, 1, 1]
    cluster.delete_records("one", 0, 1)
    assert cluster.produced("one").values == [b"2", b"3"]
    cluster.delete_topic("one")
    assert cluster.topics.keys() == {"t", "orders"}
    assert len(cluster.topics["orders"].partitions) == 5


def test_faults(cluster: ClusterThread) -> None:
    cluster.faults.fail_produce(6, times=2)  # NOT_LEADER_OR_FOLLOWER
    reset = cluster.faults.reset_connections_on(ApiKey.PRODUCE)
    send(cluster, b"1", retry_backoff_ms=1)
    cluster.assert_produced_exactly("one", [b"1"])
    assert reset.hits == 1
    cluster.deny_topic("one")
    assert cluster.requests.count(ApiKey.PRODUCE) >= 3
    never = cluster.faults.fail_produce(29, times=None)
    cluster.deny_topic("one", False)
    with pytest.raises(BrokerRejectedError):
        send(cluster, b"2")
    never.cancel()
    for broker in cluster.ports:
        cluster.faults.stall(broker)
    assert cluster.faults.is_stalled(0)
    cluster.faults.clear()
    send(cluster, b"3")
    cluster.assert_produced_exactly("one", [b"1", b"3"])
    cluster.requests.clear()
    assert cluster.requests.entries() == []


def test_a_stall_ends_from_here(cluster: ClusterThread) -> None:
    """What a stalled broker was sent is processed when `resume()` says so, and not before."""
    cluster.faults.stall(cluster.leader("one", 0))
    sender = threading.Thread(target=send, args=(cluster, b"1"))
    sender.start()
    while not cluster.connections:
        pass
    cluster.assert_nothing_produced()
    cluster.faults.resume(cluster.leader("one", 0))
    assert cluster.wait_for_records("one").values == [b"1"]
    sender.join()


def test_brokers_die_and_come_back(cluster: ClusterThread) -> None:
    leader = cluster.leader("one", 0)
    cluster.stop_broker(leader)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.ports[leader]))
    send(cluster, b"without it")
    cluster.start_broker(leader)
    cluster.move_leader("one", 0, leader)
    send(cluster, b"with it")
    cluster.assert_produced_exactly("one", [b"without it", b"with it"])


def test_replication_and_clock_are_those_of_its_loop() -> None:
    with ClusterThread(topics={"one": 1}, replication=ReplicationConfig()) as cluster:
        cluster.faults.pause_replication(1)
        cluster.faults.pause_replication(2)
        with pytest.raises(DeliveryTimeoutError):
            send(cluster, b"1", delivery_timeout_ms=50, request_timeout_ms=40, linger_ms=0)
        assert cluster.produced("one").values == [b"1"]
        assert cluster.high_watermark("one", 0) == 0
        cluster.faults.resume_replication(1)
        cluster.faults.resume_replication(2)
        send(cluster, b"2")
        assert cluster.high_watermark("one", 0) == 2


# Waiting


def test_waiting_for_another_threads_records(cluster: ClusterThread) -> None:
    sender = threading.Thread(target=send, args=(cluster, b"1", b"2", b"3"))
    sender.start()
    assert cluster.wait_for_records("one", 3).values == [b"1", b"2", b"3"]
    sender.join()


def test_waiting_in_vain(cluster: ClusterThread) -> None:
    send(cluster, b"1")
    with pytest.raises(AssertionError, match=r"'one' has 1 record after 0 s, not 2\n1 record there"):
        cluster.wait_for_records("one", 2, timeout=0)
    with pytest.raises(
        AssertionError, match="there is no such topic; there is something in 'one' \\(1 record\\)"
    ):
        cluster.wait_for_records("none yet", timeout=0)


async def test_waiting_does_not_stop_the_loop_that_sends(cluster: ClusterThread) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=1) as producer:
        await producer.send("one", b"1")
        assert (await cluster.until_produced("one")).values == [b"1"]
        with pytest.raises(RuntimeError, match=r"await cluster\.until_produced"):
            cluster.wait_for_records("one")
    with pytest.raises(AssertionError, match="has 1 record after 0 s, not 2"):
        await cluster.until_produced("one", 2, timeout=0)


def test_waiting_under_trio(cluster: ClusterThread) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, send, cluster, b"1")
            assert (await cluster.until_produced("one")).values == [b"1"]
        with pytest.raises(RuntimeError, match=r"await cluster\.until_produced"):
            cluster.wait_for_records("one")

    trio.run(main)


async def test_a_wait_can_be_cancelled(cluster: ClusterThread) -> None:
    waiting = asyncio.ensure_future(cluster.until_produced("one"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# Assertions


@pytest.mark.parametrize(
    "assertion",
    [
        lambda cluster: cluster.assert_produced("one", b"2"),
        lambda cluster: cluster.assert_produced("one", b"1", count=2),
        lambda cluster: cluster.assert_produced("t"),
        lambda cluster: cluster.assert_produced("nothing"),
        lambda cluster: cluster.assert_produced_exactly("one", [b"1", b"2"]),
        lambda cluster: cluster.assert_produced_exactly("one", []),
        lambda cluster: cluster.assert_produced_exactly("t", [b"1"], partition=1),
        lambda cluster: cluster.assert_nothing_produced("one"),
        lambda cluster: cluster.assert_nothing_produced(),
    ],
    ids=range(9),
)
def test_assertions_that_fail(cluster: ClusterThread, assertion: Callable[[ClusterThread], object]) -> None:
    send(cluster, b"1")
    with pytest.raises(AssertionError, match=r"'(one|t|nothing)'"):
        assertion(cluster)


def test_assertions_that_hold(cluster: ClusterThread) -> None:
    cluster.assert_nothing_produced()
    send(cluster, b"1")
    cluster.assert_nothing_produced("t")
    cluster.assert_nothing_produced("nothing")
    assert cluster.assert_produced("one", "1", key=None, partition=0, count=1)[0].offset == 0
    cluster.assert_produced_exactly("one", ["1"], partition=0)
    cluster.assert_produced_exactly("nothing", [])
