"""`examples/drop_in.py` runs as it says, and tells the same of both producers."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from aioproduce.testing import FakeCluster
from tests.compat.aiokafka_sides import nobody_there

ROOT = Path(__file__).parents[2]


async def run(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(ROOT / "examples" / "drop_in.py"), *arguments),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_both_do_the_same() -> None:
    code, out, err = await run()
    assert code == 0, out + err
    theirs, ours = re.split(r"^aioproduce\.compat\.aiokafka:\n", out, flags=re.MULTILINE)
    assert theirs.startswith("aiokafka.producer.producer:\n")
    for told in (theirs, ours):
        assert re.search(r"an order is at partition \d, offset \d+: RecordMetadata\n", told)
        assert "refused: aiokafka.errors.MessageSizeTooLargeError\n" in told
        assert re.search(r"[\d,]+ records/s, serialized, gathered\n", told)
    batches = re.findall(r"a batch of (\d+) records", out)
    # How many fit hangs on the milliseconds between them, of which each record has its own.
    assert [int(count) > 500 for count in batches] == [True, True]
    assert err == ""


async def test_with_a_cluster_of_ones_own() -> None:
    async with FakeCluster(1, topics={"drop-in": 1}) as cluster:
        code, out, err = await run(cluster.bootstrap_servers)
    assert code == 0, out + err
    assert len(cluster.records("drop-in")) > 40_000


async def test_without_a_broker_it_says_so() -> None:
    with nobody_there() as nobody:
        code, _, err = await run(nobody)
    assert code == 1
    assert "KafkaConnectionError: Unable to bootstrap from" in err
