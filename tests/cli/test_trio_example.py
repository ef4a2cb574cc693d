"""`examples/trio_service.py` as a process: lines in, records in the log, told to end with a client connected."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

from aioproduce.testing import FakeCluster
from tests.cli.command import ENVIRONMENT, finish
from tests.cli.test_examples import EXAMPLES


async def test_each_answer_is_in_the_log_and_the_end_is_orderly() -> None:
    async with FakeCluster(3, topics={"lines": 1}) as cluster:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / "trio_service.py")),
            stdout=PIPE,
            stderr=PIPE,
            cwd=EXAMPLES.parent,
            env=ENVIRONMENT
            | {
                "PYTHONPATH": str(EXAMPLES.parent),
                "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
                "PORT": "0",
            },
        )
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[-1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = [b"line %d" % number for number in range(100)]
        writer.write(b"".join(line + b"\n" for line in lines))
        answers = [await reader.readline() for _ in lines]
        process.send_signal(signal.SIGTERM)
        outcome = await finish(process)
        writer.close()

        assert answers == [b"ok 0 %d\n" % number for number in range(100)]
        assert [record.value for record in cluster.records("lines")] == lines
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.strip() == "ended; failed unseen: 0"
        assert cluster.connections == []
