"""The end of a process and its forks: real child processes, against a cluster in this one.

1. A child that hangs is the failure: nothing here measures time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.blocking.threads import PATIENCE

if TYPE_CHECKING:
    from tests.blocking.threads import ThreadedCluster

ROOT = Path(__file__).parents[2]

HEAD = """
import os, signal, sys, threading, time
from aioproduce import BlockingProducer
from aioproduce.errors import *
servers = sys.argv[1]
"""


def start(program: str, cluster: ThreadedCluster) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + program, cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run(program: str, cluster: ThreadedCluster) -> tuple[int, str, str]:
    """What a program said, once it has ended."""
    process = start(program, cluster)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


def values(cluster: ThreadedCluster) -> list[bytes]:
    return [record.value for record in cluster.records("one")]


# -- the interpreter exits ---


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_who_forgets_to_close_loses_nothing(cluster: ThreadedCluster, compression: str) -> None:
    """With zstd, batches are compressed by threads that the interpreter has ended by then."""
    code, _, err = run(
        f"""
producer = BlockingProducer(servers, linger_ms=60_000, compression_type="{compression}", batch_size=200_000)
producer.start()
for number in range(3000):
    producer.send("one", b"%0100d" % number)
""",
        cluster,
    )
    assert (code, err) == (0, "")
    assert values(cluster) == [b"%0100d" % number for number in range(3000)]


def test_threads_that_send_after_the_main_thread_has_ended(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
producer = BlockingProducer(servers)
producer.start()
main = threading.main_thread()

def work():
    main.join()
    for number in range(1000):
        producer.send("one", b"%d" % number)
    print(producer.send_and_wait("one", b"last").offset)

threading.Thread(target=work).start()
""",
        cluster,
    )
    assert (code, out, err) == (0, "1000\n", "")
    assert len(values(cluster)) == 1001


def test_records_that_an_exit_gives_up_are_told_of(cluster: ThreadedCluster) -> None:
    program = """
producer = BlockingProducer(servers, exit_timeout=0.1, linger_ms=0)
producer.start()
producer.send_and_wait("one", b"0")
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    producer.send("one", b"lost")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + program, cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with cluster.stalled():
            _, err = process.communicate("go\n", timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "10 record(s)" in err


def test_a_fork_in_a_transaction_leaves_it_to_the_parent(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
with BlockingProducer(servers, transactional_id="orders-1") as producer:
    with producer.transaction() as txn:
        txn.send("one", b"parent's")
        child = os.fork()
        if not child:
            refused = 0
            sends = [lambda: txn.send("one", b"no"), lambda: producer.send("one", b"no")]
            for call in (*sends, txn.commit, txn.abort):
                try:
                    call()
                except ForkedProcessError:
                    refused += 1
            os._exit(refused)
        _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), txn.outcome.value)
""",
        cluster,
    )
    assert (code, out) == (0, "4 committed\n"), err
    found = cluster.call(lambda it: it.records("one", isolation="read_committed"))
    assert [record.value for record in found] == [b"parent's"]


def test_a_fork_leaves_a_group_commit_to_the_parent(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
with BlockingProducer(servers, transactional_id="orders-1") as producer:
    with producer.group_commit(0.01) as group:
        child = os.fork()
        if not child:
            refused = 0
            for call in (lambda: group.send("one", b"no"), group.__enter__):
                try:
                    call()
                except ForkedProcessError:
                    refused += 1
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        group.send("one", b"parent's")
    print(os.waitstatus_to_exitcode(status))
""",
        cluster,
    )
    assert (code, out) == (0, "2\n"), err
    found = cluster.call(lambda it: it.records("one", isolation="read_committed"))
    assert [record.value for record in found] == [b"parent's"]


def test_a_callback_that_never_returns_does_not_keep_the_process(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
import aioproduce.blocking.session as session
session._GRACE = 0.1
producer = BlockingProducer(servers, exit_timeout=0.1)
producer.start()
entered = threading.Event()
def on_delivery(metadata, error):
    entered.set()
    threading.Event().wait()
producer.send("one", b"v", on_delivery=on_delivery)
entered.wait()
print("leaves")
""",
        cluster,
    )
    assert (code, out) == (0, "leaves\n"), err
    assert "is stuck: not closed" in err


def test_sys_exit_in_a_thread_that_sends(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
with BlockingProducer(servers) as producer:
    def work():
        producer.send("one", b"before")
        sys.exit(3)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(producer.send_and_wait("one", b"after").offset)
sys.exit(4)
""",
        cluster,
    )
    assert (code, out, err) == (4, "1\n", "")


def test_sys_exit_in_a_callback_ends_the_loop_thread_and_settles_everything(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
with BlockingProducer(servers, linger_ms=0) as producer:
    producer.send("one", b"first", on_delivery=lambda *_: sys.exit(3)).exception()
    while True:
        try:
            producer.send("one", b"v").exception()
        except SenderDiedError as error:
            print(type(error).__name__)
            break
""",
        cluster,
    )
    assert (code, out) == (0, "SenderDiedError\n"), err


def test_os_exit(cluster: ThreadedCluster) -> None:
    code, out, _ = run(
        """
producer = BlockingProducer(servers, linger_ms=60_000)
producer.start()
producer.send("one", b"lost")
os._exit(5)
""",
        cluster,
    )
    assert (code, out) == (5, "")
    assert values(cluster) == []


@pytest.mark.parametrize("where", ["send", "result", "flush", "close"])
def test_ctrl_c_while_the_main_thread_waits(cluster: ThreadedCluster, where: str) -> None:
    calls = {
        "send": "while True: producer.send('one', b'%0100d' % 1)",
        "result": "producer.send('one', b'v').result()",
        "flush": "producer.send('one', b'v'); producer.flush()",
        "close": "producer.send('one', b'v'); producer.close()",
    }
    program = f"""
producer = BlockingProducer(servers, exit_timeout=0.1, linger_ms=0, buffer_memory=4096, batch_size=1024)
producer.start()
producer.send_and_wait("one", b"0")
print("ready", flush=True)
sys.stdin.readline()
noticed = threading.Event()
def handler(number, frame):
    if not noticed.is_set():
        noticed.set()
        signal.default_int_handler(number, frame)
signal.signal(signal.SIGINT, handler)
def interrupt():
    # The main thread is in its call; how far does not matter. CPython does not notice a signal that comes when a
    # thread has given up the interpreter and not begun to wait for its lock: it waits to the end. So once more.
    while producer.outstanding_bytes == 0:
        time.sleep(0.001)
    while not noticed.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
threading.Thread(target=interrupt, daemon=True).start()
try:
    {calls[where]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + program, cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with cluster.stalled():
            out, err = process.communicate("go\n", timeout=PATIENCE)
    finally:
        process.kill()
    assert out == "interrupted\n", err
    assert process.returncode == -signal.SIGINT, err


# -- forks ---


def test_a_child_is_told_and_the_parent_goes_on(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
def name_of(call):
    try:
        call()
    except ProducerError as error:
        return type(error).__name__

with BlockingProducer(servers, linger_ms=60_000) as producer:
    delivery = producer.send("one", b"parent")
    child = os.fork()
    if child == 0:
        import concurrent.futures
        calls = [
            lambda: producer.send("one", b"child"),
            lambda: producer.send("one", b"child", headers=[("h", b"v")]),
            lambda: producer.send_many("one", [b"child"]),
            producer.flush,
            lambda: producer.partitions_for("one"),
            delivery.result,
            lambda: delivery.exception(1),
            lambda: delivery.add_done_callback(print),
            lambda: concurrent.futures.wait([delivery]),
        ]
        print(sorted({name_of(call) for call in calls}), delivery.done(), flush=True)
        producer.close()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    producer.flush()
    print(delivery.result().offset, producer.send("one", b"again").done())
""",
        cluster,
    )
    assert (code, out) == (0, "['ForkedProcessError'] True\n7\n0 False\n"), err
    assert "Traceback" not in err
    assert values(cluster) == [b"parent", b"again"]


@pytest.mark.extended("several processes and forks; one fork stays in the gate")
def test_a_child_starts_anew_where_that_is_asked_for(cluster: ThreadedCluster) -> None:
    code, out, err = run(
        """
producer = BlockingProducer(servers, restart_after_fork=True)
producer.start()
producer.send_and_wait("one", b"parent")
for _ in range(3):
    child = os.fork()
    if child == 0:
        threads = [threading.Thread(target=producer.send_and_wait, args=("one", b"child")) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        producer.send("one", b"child")  # sent by the child's exit
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    producer.send_and_wait("one", b"parent")
""",
        cluster,
    )
    assert (code, out) == (0, "0\n" * 3), err
    assert "Traceback" not in err
    assert sorted(values(cluster)) == [b"child"] * 15 + [b"parent"] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
def test_a_fork_while_threads_send(cluster: ThreadedCluster) -> None:
    """Locks of the parent's other threads are held in the child for ever: nothing of the child may want them."""
    code, out, err = run(
        """
with BlockingProducer(servers, buffer_memory=65_536, restart_after_fork=True) as producer:
    ended = threading.Event()
    def work():
        sent = []
        while not ended.is_set():
            sent.append(producer.send("one", b"parent"))
            if len(sent) == 100:
                for delivery in sent: delivery.result()
                sent.clear()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            producer.send_and_wait("one", b"child")
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    ended.set()
    for thread in threads: thread.join()
""",
        cluster,
    )
    assert (code, out) == (0, "0\n" * 5), err
    assert values(cluster).count(b"child") == 5


# -- the example ---


def test_the_example() -> None:
    done = subprocess.run(
        [sys.executable, "examples/blocking_threads.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "8 threads: 20,000 acknowledged, 0 failed" in done.stdout
    assert "as completed: 10" in done.stdout
    assert "a pool of threads: 20 acknowledged" in done.stdout
    assert "at once: 10,000 acknowledged" in done.stdout
    assert "above max.request.size=1,048,576" in done.stdout
