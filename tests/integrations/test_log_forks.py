"""fork() and the threads that ship log records: a child never gets the C library in the middle of something.

glibc's resolver has locks that a child gets as they are. Found by `test_after_fork_each_process_ships_its_own`,
which hung in one run of some five hundred: the fork came while the parent's thread resolved a broker's name, and
the child's thread resolved none ever after.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aioproduce.testing import ClusterThread

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")


@pytest.mark.parametrize("case", ["waits", "for a moment"])
def test_a_fork_waits_while_a_name_is_resolved_for_a_moment(case: str) -> None:
    command = [sys.executable, "-m", "tests.integrations.fork_process", case]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "ignored" not in ended.stderr  # as an exception in a hook is


PROGRAM = """
import asyncio, sys
from aioproduce import Producer
from aioproduce.integrations.log_thread import load

async def produce(producer):
    async with producer:
        await producer.send_and_wait("logs", b"v" * 1000)

producer = Producer(sys.argv[1], compression_type=sys.argv[2])
load(producer.config)
loaded = set(sys.modules)
asyncio.run(produce(producer))
print(sorted(set(sys.modules) - loaded))
"""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_thread_imports_nothing_any_more(codec: str) -> None:
    """A fork() in the middle of an import leaves the child with half a module, and its records unshipped."""
    with ClusterThread(topics={"logs": 1}) as cluster:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.bootstrap_servers, codec],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == "[]"
