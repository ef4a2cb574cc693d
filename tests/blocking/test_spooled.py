"""`BlockingProducer(spool=...)`: `send()` returns when the record is on disk, in threads, with the cluster away."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aioproduce import BlockingProducer, RecordMetadata
from aioproduce.errors import (
    ConfigError,
    ForkedProcessError,
    InvalidRecordError,
    LoopThreadError,
    NotStartedError,
    ProducerClosedError,
    ProducerStateError,
    SpoolFullError,
    StillSpooledError,
)
from aioproduce.spool import Spool, SpoolState
from aioproduce.testing import ClusterThread

QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}


def _values(cluster: ClusterThread) -> list[bytes | None]:
    return [record.value for record in cluster.records("one")]


def test_records_are_on_disk_through_an_outage(tmp_path: Path) -> None:
    with ClusterThread(1, topics={"one": 1}) as cluster:
        cluster.stop_broker(0)
        spool = tmp_path / "spool"
        with BlockingProducer(cluster.bootstrap_servers, spool=spool, **QUICK) as producer:
            delivery = producer.send("one", b"0", key=b"key", partition=0)
            assert b"key" in next((spool / "queue-0" / "logs" / "one-0").glob("*.log")).read_bytes()
            assert not delivery.done()
            with pytest.raises(TimeoutError):
                delivery.result(0.01)
            assert (producer.health().state, producer.backlog()["one"].records) == (SpoolState.WAITING, 1)
            many = producer.send_many("one", (b"%d" % number for number in range(1, 5)))
            cluster.start_broker(0)
            assert delivery.result() == RecordMetadata("one", 0, 0, delivery.result().timestamp, 3, 1)
            assert [metadata.offset for metadata in many.result()] == [1, 2, 3, 4]
            assert delivery.exception() is None
            producer.flush()
            assert producer.metrics().value("spool-forward-total") == 5
            assert producer.silent_brokers() == []
        assert _values(cluster) == [b"0", b"1", b"2", b"3", b"4"]


def test_threads_share_a_sync(tmp_path: Path) -> None:
    with (
        ClusterThread(1, topics={"one": 1}) as cluster,
        BlockingProducer(cluster.bootstrap_servers, spool=tmp_path / "spool", **QUICK) as producer,
    ):
        with ThreadPoolExecutor(16) as threads:
            deliveries = list(threads.map(lambda number: producer.send("one", b"%d" % number), range(400)))
        assert sorted(delivery.result().offset for delivery in deliveries) == list(range(400))
        assert producer.metrics().value("spool-sync-total") < 400
        assert sorted(_values(cluster), key=lambda value: int(value or b"")) == [
            b"%d" % number for number in range(400)
        ]


def test_callbacks_run_in_the_loop_thread_with_the_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    has_come = threading.Event()
    with ClusterThread(1, topics={"one": 1}) as cluster:
        with BlockingProducer(cluster.bootstrap_servers, spool=tmp_path / "spool", **QUICK) as producer:

            def from_inside(metadata: RecordMetadata, _: BaseException | None) -> None:
                told.append(metadata.offset)
                try:
                    producer.send("one", b"never")
                finally:
                    has_come.set()

            producer.send("one", b"1", on_delivery=from_inside)
            assert has_come.wait(60)
            producer.send("one", b"2").add_done_callback(
                lambda delivery: told.append(delivery.result().offset)
            )
            producer.send_many("one", [b"3"], on_delivery=lambda metadata, error: told.append(error))
            producer.flush()
        cluster.stop_broker(0)
        stays = BlockingProducer(cluster.bootstrap_servers, spool=tmp_path / "spool", **QUICK)
        stays.start()
        delivery = stays.send("one", b"4", on_delivery=lambda metadata, error: told.append((metadata, error)))
        stays.close(0)
        metadata, error = told.pop()
        assert metadata == RecordMetadata("one", -1, -1, -1, -1, -1)
        assert isinstance(error, StillSpooledError)
        assert isinstance(delivery.exception(), StillSpooledError)
        with pytest.raises(StillSpooledError):
            delivery.result()
    assert told == [0, 1, None]
    assert "a delivery callback raised" in caplog.text
    (raised,) = (record.exc_info for record in caplog.records if record.exc_info)
    assert raised[0] is LoopThreadError
    assert _values(cluster) == [b"1", b"2", b"3"]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        BlockingProducer("a:1", spool=tmp_path / "spool", transactional_id="t")
    with pytest.raises(ConfigError, match="when_full"):
        BlockingProducer("a:1", spool=Spool(tmp_path / "spool", when_full="wait"))
    spool = Spool(tmp_path / "spool", max_bytes=3_000, when_full="reject")
    producer = BlockingProducer("localhost:1", spool=spool)
    with pytest.raises(NotStartedError):
        producer.send("one", b"1")
    with pytest.raises(NotStartedError):
        producer.health()
    with pytest.raises(ConfigError, match="require_broker"):
        producer.start(require_broker=True)
    producer.start()
    with pytest.raises(ProducerStateError):
        producer.start()
    with pytest.raises(InvalidRecordError, match="partition"):
        producer.send("one", b"1", partition=-1)
    with pytest.raises(ProducerStateError, match="queue on disk"):
        producer.partitions_for("one")
    producer.send("one", bytes(2_000))
    with pytest.raises(SpoolFullError):
        producer.send("one", bytes(2_000))
    producer.close(0)
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send("one", b"1")
    assert producer.backlog()["one"].records == 1


def test_a_child_after_fork_is_told(tmp_path: Path) -> None:
    with BlockingProducer("localhost:1", spool=tmp_path / "spool", exit_timeout=0) as producer:
        delivery = producer.send("one", b"1")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                producer.send("one", b"2")
            except ForkedProcessError:
                try:
                    delivery.result()
                except ForkedProcessError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        producer.send("one", b"3")
        assert producer.backlog()["one"].records == 2


def test_a_script_that_closes_nothing_loses_nothing(tmp_path: Path) -> None:
    with ClusterThread(1, topics={"one": 1}) as cluster:
        program = (
            "import sys; from aioproduce import BlockingProducer; "
            "producer = BlockingProducer(sys.argv[1], spool=sys.argv[2]); producer.start(); "
            "[producer.send('one', b'%d' % number) for number in range(10)]"
        )
        arguments = [sys.executable, "-c", program, cluster.bootstrap_servers, str(tmp_path / "spool")]
        ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert ended.stderr == ""
        assert _values(cluster) == [b"%d" % number for number in range(10)]


def test_one_that_nobody_holds_is_closed_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    producer = BlockingProducer("localhost:1", spool=tmp_path / "spool", exit_timeout=0)
    producer.start()
    producer.send("one", b"1")
    session = producer._spooled
    assert session is not None
    thread = session._thread
    with pytest.warns(ResourceWarning, match="unclosed"):
        del producer
    assert thread.join(60)
    assert caplog.text == ""
