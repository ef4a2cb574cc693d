"""The logging handler: nobody waits for it, nothing is lost unsaid, and it does not ship itself."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import logging.config
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import pytest

from aioproduce import Producer
from aioproduce.errors import ConfigError
from aioproduce.integrations.log_queue import LogQueue
from aioproduce.integrations.logging import JsonFormatter, KafkaLogHandler
from aioproduce.testing import FakeCluster
from tests.integrations.serving import FOREVER, FOREVER_MS, stall, until

NO_BROKER = "127.0.0.1:1"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of which only the test's handlers hear."""
    logger = logging.getLogger("shop")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def make_handler(servers: str | None = None, **options: Any) -> KafkaLogHandler:
    """A handler whose bounds are so far away that no test comes near them, unless it says so."""
    bounds = {"flush_timeout": FOREVER, "close_timeout": FOREVER}
    return KafkaLogHandler("orders", servers, **{**bounds, **options})


def documents(cluster: FakeCluster, topic: str = "orders") -> list[dict[str, Any]]:
    """What was shipped; of one partition, so in order."""
    records = sorted(cluster.records(topic), key=lambda record: (record.partition, record.offset))
    return [json.loads(record.value or b"") for record in records]


def texts(cluster: FakeCluster, topic: str = "orders") -> list[str]:
    return [document["message"] for document in documents(cluster, topic)]


@pytest.fixture
async def cluster(nothing_left: None) -> Any:
    async with FakeCluster(1, topics={"orders": 1, "logs": 1}, auto_create_topics=False) as started:
        yield started


# With brokers of its own


async def test_from_any_thread_in_order(cluster: FakeCluster, log: logging.Logger) -> None:
    handler = make_handler(cluster.bootstrap_servers, capacity=100_000)
    log.addHandler(handler)

    def work(worker: int) -> None:
        for number in range(200):
            log.info("%d %d", worker, number)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    log.info("and the loop itself")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await asyncio.to_thread(handler.flush)
    found = texts(cluster)
    assert len(found) == 801
    for worker in range(4):
        mine = [text for text in found if text.startswith(f"{worker} ")]
        assert mine == [f"{worker} {number}" for number in range(200)]
    counts = handler.counts()
    assert (counts.shipped, counts.waiting, counts.dropped, counts.failed) == (801, 0, 0, 0)
    await asyncio.to_thread(handler.close)


async def test_brokers_that_say_nothing_hold_up_nobody_and_what_is_dropped_is_counted_and_told(
    cluster: FakeCluster, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = make_handler(
        cluster.bootstrap_servers, capacity=50, buffer_memory=40_000, max_block_ms=FOREVER_MS
    )
    log.addHandler(handler)
    log.info("first")
    await asyncio.to_thread(handler.flush)
    stall(cluster)
    # More than the producer's buffer and the queue hold together.
    long = "x" * 4000
    for number in range(500):
        log.info("%d %s", number, long)
        if number % 50 == 0:
            await asyncio.sleep(0)
    dropped = handler.counts().dropped
    assert dropped > 0
    assert handler.counts().waiting <= 50
    stall(cluster, is_stalled=False)
    await asyncio.to_thread(handler.flush)
    assert handler.counts().waiting == 0
    found = documents(cluster)
    notices = [document for document in found if document["logger"] == "aioproduce.logging"]
    assert sum(document["dropped"] for document in notices) == dropped == handler.counts().dropped
    assert f"{notices[0]['dropped']} log record(s) were dropped" == notices[0]["message"].partition(":")[0]
    # What was shipped is in order, and nothing is missing but what was counted.
    numbers = [int(document["message"].split()[0]) for document in found[1:] if document not in notices]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 500 - dropped
    assert "were dropped: the queue was full" in caplog.text
    await asyncio.to_thread(handler.close)


async def test_a_cluster_that_comes_later_gets_what_waited(log: logging.Logger, nothing_left: None) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        stall(cluster)
        handler = make_handler(servers, max_block_ms=20)
        log.addHandler(handler)
        log.info("early")
        shipping = asyncio.create_task(asyncio.to_thread(handler.flush))
        await asyncio.sleep(0.1)  # several times max.block.ms, or not: nothing hangs on it
        stall(cluster, is_stalled=False)
        await shipping
        assert texts(cluster) == ["early"]
        await asyncio.to_thread(handler.close)


async def test_without_a_broker_flush_and_close_are_bounded_and_the_loss_is_told(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = make_handler(NO_BROKER, flush_timeout=0.01, close_timeout=0.01)
    log.addHandler(handler)
    for number in range(3):
        log.info("%d", number)
    await asyncio.to_thread(handler.flush)
    await asyncio.to_thread(handler.close)
    assert (
        "3 log record(s) for 'orders' were not sent, and 0 did not fit into the queue"
        in capsys.readouterr().err
    )
    log.info("late")
    assert handler.counts().dropped == 1
    handler.close()
    assert capsys.readouterr().err == ""


async def test_its_own_records_are_not_shipped_and_those_of_another_producer_are(
    cluster: FakeCluster, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = make_handler(cluster.bootstrap_servers)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        logging.getLogger("aioproduce").warning("of the application's producer")
        await asyncio.to_thread(handler.flush)
        cluster.faults.fail_produce(87)  # INVALID_RECORD: a warning of the handler's own thread
        logging.getLogger("other").warning("lost")
        await asyncio.to_thread(handler.flush)
        await until(lambda: "a log record was not sent" in caplog.text)
        await asyncio.to_thread(handler.flush)
    finally:
        root.removeHandler(handler)
        await asyncio.to_thread(handler.close)
    assert texts(cluster) == ["of the application's producer"]
    assert handler.counts().failed == 1


async def test_without_an_event_loop_records_wait_for_the_next_try(
    cluster: FakeCluster,
    log: logging.Logger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As where no descriptor is left: nothing is raised where it is logged, and logging says why."""

    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    handler = make_handler(cluster.bootstrap_servers)
    log.addHandler(handler)
    with monkeypatch.context() as patched:
        patched.setattr("aioproduce.integrations.log_thread._make_loop", no_loop)
        log.info("1")
    assert os.strerror(errno.EMFILE) in capsys.readouterr().err
    assert handler.counts().waiting == 1
    log.info("2")
    await asyncio.to_thread(handler.close)
    assert texts(cluster) == ["1", "2"]


async def test_a_producer_that_died_is_followed_by_another(cluster: FakeCluster, log: logging.Logger) -> None:
    handler = make_handler(cluster.bootstrap_servers)
    log.addHandler(handler)
    log.info("1")
    await asyncio.to_thread(handler.flush)
    thread = handler._thread
    assert thread is not None
    loop_thread = thread._thread
    assert loop_thread is not None

    def kill() -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("aioproduce sender"):
                task.cancel()

    loop_thread.call_soon(kill)
    # What finds the producer dead goes back into the queue; the thread ends, and the next record starts another.
    while loop_thread.is_alive:
        log.info("2")
        await asyncio.sleep(0.001)
    log.info("3")
    await asyncio.to_thread(handler.flush)
    found = texts(cluster)
    assert (found[0], found[-1], set(found[1:-1]) <= {"2"}) == ("1", "3", True)
    assert len(found) == handler.counts().shipped
    await asyncio.to_thread(handler.close)


def test_in_a_signal_handler_while_it_logs(log: logging.Logger, nothing_left: None) -> None:
    """The queue's lock is taken again by the thread that holds it."""
    lines = LogQueue(10, 1000)
    inside: list[bool] = []

    def interrupt() -> None:
        if not inside:
            inside.append(True)
            assert lines.put(b"from within")

    lines.on_line(interrupt)
    assert lines.put(b"first")
    assert lines.take(10) == [b"first", b"from within"]


# By the application's producer


async def test_before_during_and_after_the_applications_producer(
    cluster: FakeCluster, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = make_handler(capacity=3)
    log.addHandler(handler)
    for number in range(4):
        log.info("before %d", number)
    assert handler.counts().waiting == 3
    async with Producer(cluster.bootstrap_servers) as producer, handler.shipping(producer):
        await until(lambda: handler.counts().shipped == 4)
        log.info("on the loop")
        handler.flush()  # returns: it could only wait for itself
        await asyncio.to_thread(log.info, "in a thread")
        await asyncio.to_thread(handler.flush)
        assert handler.counts().shipped == 6
        logging.getLogger("aioproduce").addHandler(handler)
        logging.getLogger("aioproduce").warning("its own producer's")
        logging.getLogger("aioproduce").removeHandler(handler)
        with pytest.raises(RuntimeError, match="one at a time"):
            async with handler.shipping(producer):
                pass
        log.info("at the end")
    log.info("after")
    assert texts(cluster) == [
        *("before 0", "before 1", "before 2"),
        "1 log record(s) were dropped: the queue was full",
        *("on the loop", "in a thread", "at the end"),
    ]
    async with Producer(cluster.bootstrap_servers) as producer, handler.shipping(producer):
        pass
    assert texts(cluster)[-1] == "after"
    assert handler.counts().shipped == 8
    log.info("never")
    log.removeHandler(handler)
    handler.close()
    assert (
        "1 log record(s) for 'orders' were not sent, and 1 did not fit into the queue"
        in capsys.readouterr().err
    )


async def test_what_the_producer_did_not_accept_waits_for_the_next(
    cluster: FakeCluster, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = make_handler(flush_timeout=0.01)
    log.addHandler(handler)
    async with Producer(NO_BROKER) as producer, handler.shipping(producer):
        log.info("1")
        log.info("2")
        await asyncio.sleep(0)
    assert handler.counts().waiting == 2
    async with Producer(cluster.bootstrap_servers) as producer, handler.shipping(producer):
        await until(lambda: handler.counts().shipped == 2)
    assert texts(cluster) == ["1", "2"]


async def test_the_producer_is_closed_under_it(cluster: FakeCluster, log: logging.Logger) -> None:
    handler = make_handler()
    log.addHandler(handler)
    async with Producer(cluster.bootstrap_servers) as producer:
        async with handler.shipping(producer):
            log.info("1")
            await asyncio.to_thread(handler.flush)
            await producer.close()
            log.info("2")
        assert handler.counts().waiting == 1
    async with Producer(cluster.bootstrap_servers) as producer, handler.shipping(producer):
        pass
    assert texts(cluster) == ["1", "2"]


async def test_a_record_that_is_too_large_does_not_stop_the_others(
    cluster: FakeCluster, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = make_handler()
    log.addHandler(handler)
    async with (
        Producer(cluster.bootstrap_servers, max_request_size=2000) as producer,
        handler.shipping(producer),
    ):
        log.info("x" * 3000)
        log.info("next")
    assert texts(cluster) == ["next"]
    assert handler.counts().failed == 1
    assert "a log record was not sent" in caplog.text


# Bad input


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError):
        KafkaLogHandler("logs", "localhost:9092", linger_minutes=1)  # type: ignore[call-arg]  # that is it
    with pytest.raises(ValueError, match="linger_ms"):
        KafkaLogHandler("logs", linger_ms=1)
    for wrong in ({"capacity": 0}, {"max_bytes": 0}, {"flush_timeout": -1}, {"close_timeout": math.nan}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            KafkaLogHandler("logs", **wrong)


async def test_a_handler_with_brokers_ships_by_no_other_producer(cluster: FakeCluster) -> None:
    handler = make_handler(cluster.bootstrap_servers)
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(RuntimeError, match="a producer of its own"):
            async with handler.shipping(producer):
                pass
    handler.close()


def test_a_formatter_that_fails_is_told_as_logging_does(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = make_handler()
    handler.setFormatter(logging.Formatter("%(order)s %(message)s"))
    log.addHandler(handler)
    log.info("without an order")
    log.info("with", extra={"order": 7})
    assert "--- Logging error ---" in capsys.readouterr().err
    assert handler.counts().waiting == 1
    assert handler._queue.take(1) == [b"7 with"]


def test_bytes_bound_the_queue_too() -> None:
    lines = LogQueue(10, 100)
    assert lines.put(bytes(60))
    assert not lines.put(bytes(60))
    assert lines.put(bytes(40))
    assert (len(lines), lines.dropped, lines.untold_drops(), lines.untold_drops()) == (2, 1, 1, 0)
    taken = lines.take(1)
    assert lines.put(bytes(60))
    lines.put_back(taken)
    assert lines.take(10) == [bytes(60), bytes(40), bytes(60)]


# JSON


def formatted(formatter: JsonFormatter, *args: Any, **kwargs: Any) -> dict[str, Any]:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.Logger("shop")
    logger.addHandler(Keep())
    logger.error(*args, **kwargs)
    text = formatter.format(records[0])
    assert "\n" not in text

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return document


def test_json_fields() -> None:
    document = formatted(
        JsonFormatter({"service": "shop", "level": "mine"}), "%d sold", 3, extra={"order": 7}
    )
    assert document["message"] == "3 sold"
    assert (document["level"], document["logger"], document["service"]) == ("ERROR", "shop", "shop")
    assert (document["order"], document["file"], document["function"]) == (7, __file__, "formatted")
    assert document["timestamp"].endswith("Z")
    assert len(document["timestamp"]) == len("2026-01-02T03:04:05.678Z")
    assert {"process", "thread", "line"} <= document.keys()
    assert "exception" not in document
    assert "stack" not in document


def test_json_exceptions_and_stacks() -> None:
    try:
        raise KeyError("price")
    except KeyError:
        document = formatted(JsonFormatter(), "no", exc_info=True, stack_info=True)
    assert document["exception"]["type"] == "builtins.KeyError"
    assert document["exception"]["message"] == "'price'"
    assert 'raise KeyError("price")' in document["exception"]["stacktrace"]
    assert "in formatted" in document["stack"]
    assert "exception" not in formatted(JsonFormatter(), "no", exc_info=True)


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


CIRCLE: dict[str, Any] = {}
CIRCLE["itself"] = CIRCLE


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"bytes", "b'bytes'"),
        ({1}, "{1}"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("\ud800 lone", "\ud800 lone"),
        ("two\nlines", "two\nlines"),
        (Unspeakable(), "<Unspeakable that cannot be shown>"),
        (CIRCLE, "{'itself': {...}}"),
    ],
    ids=["bytes", "set", "nan", "inf", "tuple key", "surrogate", "newline", "unspeakable", "circle"],
)
def test_json_of_whatever_there_is(value: Any, shown: str) -> None:
    document = formatted(JsonFormatter(), "m", extra={"level": value})
    assert document["extra_level"] == shown
    assert document["message"] == "m"


def test_a_surrogate_does_not_cost_the_record(log: logging.Logger) -> None:
    handler = make_handler()
    # Past pytest's own handlers: what those hold of a test must be UTF-8 to get from one process to the other.
    handler.handle(log.makeRecord(log.name, logging.INFO, __file__, 1, "\ud800 lone", (), None))
    (line,) = handler._queue.take(1)
    assert json.loads(line)["message"] in ("\ud800 lone", "\\ud800 lone")
    handler.close()


def test_behind_a_queue_handler(log: logging.Logger) -> None:
    handler = make_handler()
    passed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    log.addHandler(QueueHandler(passed))
    listener = QueueListener(passed, handler)
    listener.start()
    try:
        raise ValueError("x")
    except ValueError:
        log.exception("failed")
    listener.stop()
    (line,) = handler._queue.take(10)
    assert "ValueError: x" in json.dumps(json.loads(line))


# As a process


async def run(cluster: FakeCluster | str, case: str) -> tuple[int, str]:
    servers = (
        cluster if isinstance(cluster, str) else cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integrations.log_process", servers, case),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


async def test_a_script_that_ends_at_once_loses_nothing(cluster: FakeCluster) -> None:
    """By dictConfig, with names to resolve and batches to compress when no executor takes work any more."""
    code, err = await run(cluster, "ends at once")
    assert code == 0, err
    assert texts(cluster, "logs") == [f"line {number}" for number in range(1000)]
    assert documents(cluster, "logs")[0]["service"] == "shop"
    assert "Traceback" not in err
    assert "not sent" not in err


async def test_a_script_without_a_broker_ends_and_says_what_is_lost() -> None:
    code, err = await run(NO_BROKER, "no broker")
    assert code == 0
    assert "aioproduce: 3 log record(s) for 'logs' were not sent, and 0 did not fit into the queue" in err
    assert "Traceback" not in err


async def test_after_fork_each_process_ships_its_own(cluster: FakeCluster) -> None:
    code, err = await run(cluster, "fork")
    assert code == 0, err
    found = documents(cluster, "logs")
    assert sorted(document["message"] for document in found) == ["child", "parent after", "parent before"]
    assert len({document["process"] for document in found}) == 2


async def test_the_last_words_of_a_script_that_fails(cluster: FakeCluster) -> None:
    code, err = await run(cluster, "error")
    assert code == 3, err
    (document,) = documents(cluster, "logs")
    assert document["exception"]["message"] == "no price"


def test_signals_are_left_alone() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
