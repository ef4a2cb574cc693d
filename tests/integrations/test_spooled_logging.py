"""The logging handler with a queue on disk: an outage, and the end of the process, cost no record."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproduce.errors import ConfigError, ProducerStateError
from aioproduce.integrations.logging import KafkaLogHandler
from aioproduce.spool import Spool, SpooledProducer
from aioproduce.testing import ClusterThread, FakeCluster
from tests.integrations.serving import until


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of its own, whose records go nowhere else."""
    logger = logging.getLogger("shop.spooled")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def _texts(cluster: FakeCluster | ClusterThread) -> list[str]:
    return [json.loads(record.value or b"")["message"] for record in cluster.records("logs")]


def test_records_are_on_disk_through_an_outage_and_the_next_process_sends_them(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ClusterThread(1, topics={"logs": 1}) as cluster:
        servers = cluster.bootstrap_servers
        spool = Spool(tmp_path / "spool", sync="interval")
        cluster.stop_broker(0)
        handler = KafkaLogHandler("logs", servers, spool=spool, close_timeout=0.5)
        log.addHandler(handler)
        for number in range(250):
            log.info("line %d", number)
        handler.flush()
        assert (handler.counts().shipped, handler.counts().waiting, handler.counts().dropped) == (250, 0, 0)
        log.removeHandler(handler)
        handler.close()
        assert capsys.readouterr().err == ""
        cluster.start_broker(0)
        again = KafkaLogHandler("logs", servers, spool=spool)
        log.addHandler(again)
        log.info("the next process")
        log.removeHandler(again)
        again.close()
        assert _texts(cluster) == [f"line {number}" for number in range(250)] + ["the next process"]


async def test_the_applications_spooled_producer_takes_them(log: logging.Logger, tmp_path: Path) -> None:
    async with FakeCluster(1, topics={"logs": 1}) as cluster:
        handler = KafkaLogHandler("logs")
        log.addHandler(handler)
        log.info("before")
        async with SpooledProducer(cluster.bootstrap_servers, directory=tmp_path / "spool") as producer:
            async with handler.shipping(producer):
                log.info("during")
                await asyncio.to_thread(handler.flush)
                assert handler.counts().shipped == 2
            await producer.flush()
        assert _texts(cluster) == ["before", "during"]


async def test_a_full_queue_keeps_lines_in_order_until_there_is_room(
    log: logging.Logger, tmp_path: Path
) -> None:
    async with FakeCluster(1, topics={"logs": 1}) as cluster:
        await cluster.stop_broker(0)
        handler = KafkaLogHandler("logs", flush_timeout=60)
        handler.setFormatter(logging.Formatter('{"message": "%(message)s", "fill": "' + "x" * 500 + '"}'))
        log.addHandler(handler)
        spool = Spool(tmp_path / "spool", max_bytes=5_000, segment_bytes=1_500, when_full="reject")
        producer = SpooledProducer.of(spool, cluster.bootstrap_servers, reconnect_backoff_ms=10)
        async with producer, handler.shipping(producer):
            for number in range(30):
                log.info("%d", number)
            await until(lambda: producer.health().state.value == "full")
            assert handler.counts().shipped < 30
            await cluster.start_broker(0)
            await until(lambda: handler.counts().shipped == 30)
            await producer.flush()
        assert handler.counts().failed == 0
        assert _texts(cluster) == [str(number) for number in range(30)]


async def test_a_bug_ends_the_shipping_and_keeps_the_line(
    log: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ProducerStateError("it is over")

    async with FakeCluster(1, topics={"logs": 1}) as cluster:
        handler = KafkaLogHandler("logs")
        log.addHandler(handler)
        async with SpooledProducer(cluster.bootstrap_servers, directory=tmp_path / "spool") as producer:
            monkeypatch.setattr(producer, "send", refuse)
            async with handler.shipping(producer):
                log.info("stays")
                await until(lambda: "log records are no longer sent: it is over" in caplog.text)
        assert (handler.counts().waiting, handler.counts().shipped) == (1, 0)


def test_what_is_refused_and_what_is_not_shipped(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bootstrap_servers"):
        KafkaLogHandler("logs", spool=tmp_path)
    with pytest.raises(ConfigError, match="sync"):
        KafkaLogHandler("logs", "a:1", spool=Spool(tmp_path, sync="never"))
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        KafkaLogHandler("logs", "a:1", spool=tmp_path, transactional_id="t")
    handler = KafkaLogHandler("logs", "a:1", spool=tmp_path / "spool")
    failure = OSError(errno.EIO, "Input/output error")
    own = logging.LogRecord("aioproduce.spool", logging.ERROR, __file__, 1, "%s", (failure,), None)
    assert not handler.handle(own)
    assert handler.counts().waiting == 0
    handler.close()
