"""The loop thread of a worker process: kept from task to task, never over a fork, never waited for in vain."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.drivers.loop_thread import new_loop
from aioproduce.spark.errors import LoopEndedError, RowError, WriteError
from aioproduce.spark.runtime import Runtime
from aioproduce.spark.task import write_task
from tests.spark.task_bench import cluster, columns_of, identity, options_for, rows, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aioproduce.testing import ClusterThread


API_VERSIONS = 18


def connections(found: ClusterThread) -> int:
    """How many connections there were: each begins with one question for the broker's versions."""
    return found.requests.count(API_VERSIONS)


def test_tasks_share_a_loop_thread_and_a_producer_by_configuration() -> None:
    with cluster(t=1) as found:
        write(options_for(found), rows(3), identity(batch=0))
        here, opened = Runtime.here(), connections(found)
        producer = here.producer(options_for(found).kafka)
        for batch in range(1, 4):
            write(options_for(found, on_error="drop"), rows(3), identity(batch=batch))
        assert Runtime.here() is here
        assert here.producer(options_for(found).kafka) is producer
        assert connections(found) == opened
        other = options_for(found, kafka_acks="1", kafka_enable_idempotence="false")
        write(other, rows(3), identity(batch=4))
        assert here.producer(other.kafka) is not producer
        assert len(found.records("t")) == 15


def test_of_many_configurations_those_used_last_keep_their_producers() -> None:
    with cluster(t=1) as found:
        first = options_for(found, kafka_client_id="first")
        write(first, rows(1))
        here = Runtime.here()
        kept, others = here.producer(first.kafka), []
        for number in range(20):
            other = options_for(found, kafka_client_id=f"other-{number}")
            write(other, rows(1))
            others.append(here.producer(other.kafka))
            write(first, rows(1))
        assert here.producer(first.kafka) is kept
        assert [other.state.name for other in others] == ["CLOSED"] * 13 + ["RUNNING"] * 7
        assert len(found.records("t")) == 41


def test_a_failed_write_drops_its_producer_and_no_other() -> None:
    with cluster(t=1) as found:
        bad, good = options_for(found), options_for(found, kafka_linger_ms="1")
        write(bad, rows(1))
        write(good, rows(1))
        here = Runtime.here()
        failed, kept = here.producer(bad.kafka), here.producer(good.kafka)
        found.faults.fail_produce(87, topic="t")
        with pytest.raises(RowError):
            write(bad, rows(1))
        assert failed.state.name == "CLOSED"
        assert here.producer(good.kafka) is kept
        assert here.producer(bad.kafka) is not failed
        assert write(bad, rows(2)).rows == 2


def test_what_sparks_iterator_raises_ends_the_task_and_its_producer() -> None:
    with cluster(t=1) as found:
        options = options_for(found)
        held = rows(30, batch_size=10)

        def broken() -> Iterator[pa.RecordBatch]:
            yield held[0]
            raise OSError("the JVM is gone")

        with pytest.raises(WriteError, match="the JVM is gone") as caught:
            write_task(options, columns_of(held[0].schema, options), broken(), identity(partition=2))
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.partition == 2
        assert caught.value.acknowledged + caught.value.unknown == 10


def test_a_killed_task_takes_its_producer_with_it() -> None:
    with cluster(t=1) as found:
        options = options_for(found)
        held = rows(10)

        def killed() -> Iterator[pa.RecordBatch]:
            yield held[0]
            raise KeyboardInterrupt

        write(options, rows(1))
        producer = Runtime.here().producer(options.kafka)
        with pytest.raises(KeyboardInterrupt):
            write_task(options, columns_of(held[0].schema, options), killed(), identity())
        assert producer.state.name == "CLOSED"


def test_at_most_so_many_batches_are_under_way() -> None:
    with cluster(t=1) as found:
        options = options_for(found, inflight_batches="2", kafka_linger_ms="0")
        write(options, rows(1))
        found.faults.stall(0)
        held = rows(50, batch_size=10)
        taken: list[int] = []
        third = threading.Event()

        def watched() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(held):
                taken.append(number)
                if number == 2:
                    third.set()
                yield batch

        reports: list[Any] = []
        task = threading.Thread(
            target=lambda: reports.append(
                write_task(options, columns_of(held[0].schema, options), watched(), identity(batch=1))
            )
        )
        task.start()
        assert third.wait(60)
        # The third is in hand and waits for the first two: nothing more is taken however long this lasts.
        task.join(0.1)
        assert taken == [0, 1, 2]
        found.faults.resume(0)
        task.join(60)
        assert reports[0].rows == 50


def test_when_the_loop_ends_who_waits_is_told_and_the_next_task_has_another() -> None:
    with cluster(t=1) as found:
        options = options_for(found)
        write(options, rows(1))
        here = Runtime.here()
        waiting = here.submit(asyncio.sleep, 3600)
        loop = here._thread.loop
        loop.call_soon_threadsafe(loop.stop)
        with pytest.raises(LoopEndedError, match="ended while the task waited"):
            here.result(waiting, 60)
        here._thread._thread.join(60)
        assert not here.is_alive
        with pytest.raises(LoopEndedError):
            here.result(here.submit(asyncio.sleep, 0), 60)
        assert write(options, rows(4)).rows == 4
        assert Runtime.here() is not here
        here.close()


def test_a_loop_that_is_stuck_is_not_waited_for_for_ever() -> None:
    here = Runtime.here()
    release = threading.Event()
    here._thread.call_soon(release.wait)
    waiting = here.submit(asyncio.sleep, 0)
    with pytest.raises(LoopEndedError, match="has not answered"):
        here.result(waiting, 0.05)
    release.set()
    here.close()


def test_a_forked_child_has_a_runtime_of_its_own_and_leaves_the_parents_alone() -> None:
    with cluster(t=1) as found:
        options = options_for(found)
        write(options, rows(2), identity(partition=0))
        parents = Runtime.here()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                mine = Runtime.here()
                # Nothing of the parent's was closed or touched: it is only kept.
                is_own = mine is not parents and parents in Runtime._left
                report = write(options, rows(3), identity(partition=1))
                status = 0 if is_own and report.rows == 3 and mine.pid == os.getpid() else 2
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert Runtime.here() is parents
        assert write(options, rows(4), identity(partition=2)).rows == 4
        assert len(found.records("t")) == 9


def test_without_uvloop_it_is_asyncios_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    loop = new_loop()
    assert type(loop).__module__.startswith("asyncio")
    loop.close()
    with cluster(t=2) as found:
        assert write(options_for(found), rows(20)).rows == 20
