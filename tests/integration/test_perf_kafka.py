"""`aioproduce perf` compared with Kafka's own tool, with the same options, on the same real broker.

1. Both must print the lines that `tests/cli/perf_lines.py` describes: the expressions were written from Kafka's
   source, so that Kafka's own output judges them, and they judge ours.
2. What was acknowledged is in the log: offsets as Kafka's AdminClient tells them.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.perf_lines import read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka

RECORDS = 3000
WARMUP = 1000


async def output_of(*command: str) -> str:
    """What a command prints to standard output, once it ended well."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return printed.decode()


async def records_in(cluster: KafkaCluster, topic: str) -> int:
    offsets = await asyncio.to_thread(cluster.offsets, topic)
    return sum(end - first for first, end in offsets.values())


@pytest.mark.extended("starts two JVMs of Kafka's own tool")
async def test_the_same_command_line_and_the_same_lines(
    kafka1: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    topics = {"java": f"{topic_name}-java", "ours": f"{topic_name}-ours"}
    for topic in topics.values():
        await asyncio.to_thread(kafka1.create_topic, topic, partitions=3, replication=1)
    payloads = tmp_path / "payloads.txt"
    payloads.write_text("first\n\nthird\n")
    # 1000 records a second for three seconds: several windows.
    arguments = (
        *("--num-records", str(RECORDS), "--throughput", "1000", "--payload-file", str(payloads)),
        *("--warmup-records", str(WARMUP), "--reporting-interval", "400", "--print-metrics"),
        *("--command-property", "acks=all", "linger.ms=5", "--bootstrap-server", kafka1.bootstrap_servers),
    )

    java = await output_of(
        *kafka1.tools.command("org.apache.kafka.tools.ProducerPerformance"),
        *("--topic", topics["java"], *arguments),
    )
    ours = await output_of(
        *(sys.executable, "-m", "aioproduce.cli", "perf", "--topic", topics["ours"], *arguments)
    )

    for name, out in (("java", java), ("ours", ours)):
        lines = read(out)
        assert await records_in(kafka1, topics[name]) == RECORDS
        # Windows come wherever the time is over; in the slow start of a JVM none may be before the steady state.
        order = [kind for kind, _ in itertools.groupby(lines.kinds) if kind != "window"]
        assert order == ["payloads", "warmup", "steady", "total", "head", "metric"]
        assert lines.kinds[lines.kinds.index("steady") + 1] == "window"
        assert lines.kinds[lines.kinds.index("total") - 1] == "window"
        assert [total[:2] for total in lines.totals] == [
            (str(RECORDS), ""),
            (str(RECORDS - WARMUP), " steady state"),
        ]
        assert out.splitlines()[1] == "Number of records read: 3"
        # Both were held to the same rate.
        assert float(lines.totals[0][2]) <= 1010
    # Metrics have the same names, and most of Kafka's are there; each as it was at the end.
    javas, own = ({line.split(":{")[0] for line in read(out).metrics} for out in (java, ours))
    assert len(javas & own) > 60
    sent = "producer-metrics:record-send-total:{client-id=perf-producer-client}"
    assert float(read(java).metrics[sent]) == float(read(ours).metrics[sent]) == RECORDS
