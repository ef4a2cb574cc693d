"""`aioproduce perf` when all goes well: what arrives, and the figures, against what the cluster saw."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from collections import Counter
from pathlib import Path

import pytest

from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli
from tests.cli.perf_lines import read
from tests.gate.marks import others_extended


def options(cluster: FakeCluster, records: int, *more: str, topic: str = "t") -> tuple[str, ...]:
    return (
        *("perf", "--topic", topic, "--num-records", str(records)),
        *("--bootstrap-server", cluster.bootstrap_servers, *more),
    )


async def test_the_lines_are_kafkas_and_every_record_is_in_the_log(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *options(cluster, 20_000, "--record-size", "50", "--throughput", "20000"),
        *("--reporting-interval", "100"),
    )

    assert outcome.code == 0
    lines = read(outcome.out)
    assert set(lines.kinds) == {"window", "total"}
    assert lines.kinds.index("total") == len(lines.kinds) - 1
    (count, steady, rate, mb_rate, average, highest, *percentiles) = lines.totals[0]
    assert (count, steady) == ("20000", "")
    # A second's worth of records cannot have taken less; what a window begins is told in the total only.
    assert float(rate) <= 20_000 * 1.05
    assert float(mb_rate) == pytest.approx(float(rate) * 50 / 2**20, abs=0.006)
    assert sum(window[0] for window in lines.windows) <= 20_000
    assert max(window[4] for window in lines.windows) <= float(highest) + 0.1
    assert [int(each) for each in percentiles] == sorted(int(each) for each in percentiles)
    assert float(average) <= float(highest)
    values = [record.value or b"" for record in cluster.records("t")]
    assert len(values) == 20_000
    assert {len(value) for value in values} == {50}
    letters = Counter(b"".join(values))
    assert set(letters) == set(range(ord("A"), ord("Z") + 1))
    # A million letters, 38,462 of each expected: six standard deviations.
    assert max(letters.values()) - min(letters.values()) < 2 * 6 * 193
    # The summary is for people: not on standard output.
    assert "acknowledged" in outcome.err


async def test_a_warm_up_is_told_apart(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *options(cluster, 3000, "--record-size", "10", "--throughput", "5000"),
        *("--warmup-records", "1000", "--reporting-interval", "100"),
    )

    assert outcome.code == 0
    lines = read(outcome.out)
    assert lines.kinds[0] == "warmup"
    assert lines.kinds.count("steady") == 1
    assert lines.kinds[-2:] == ["total", "total"]
    assert [total[:2] for total in lines.totals] == [("3000", ""), ("2000", " steady state")]
    before = lines.kinds.index("steady")
    assert sum(window[0] for window in lines.windows[: lines.kinds[:before].count("window")]) <= 3000
    assert sum(window[0] for window in lines.windows[lines.kinds[:before].count("window") :]) <= 2000


async def test_payloads_are_drawn_from_a_file(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "payloads.txt"
    file.write_bytes(b"one;two;\xff\xfe;;four")

    outcome = await run_cli(
        *options(cluster, 5000, "--payload-file", str(file), "--payload-delimiter", ";"),
        *("--producer-props", "linger.ms=1", "acks=1", "enable.idempotence=false", "--throughput", "-1"),
    )

    assert outcome.code == 0
    assert outcome.out.splitlines()[:2] == [f"Reading payloads from: {file}", "Number of records read: 5"]
    assert read(outcome.out).totals[0][0] == "5000"
    drawn = Counter(record.value for record in cluster.records("t"))
    assert set(drawn) == {b"one", b"two", b"\xff\xfe", b"", b"four"}
    assert min(drawn.values()) > 800  # 1000 expected of each, and 28 its standard deviation


async def test_payloads_count_up(cluster: FakeCluster) -> None:
    outcome = await run_cli(*options(cluster, 2000, "--payload-monotonic", topic="one"))

    assert outcome.code == 0
    assert [record.value for record in cluster.records("one")] == [b"%d" % n for n in range(2000)]


async def test_the_document_adds_up(cluster: FakeCluster) -> None:
    outcome = await run_cli(
        *options(cluster, 4000, "--record-size", "25", "--throughput", "8000", "--json"),
        *("--warmup-records", "400", "--reporting-interval", "100", "--print-metrics"),
    )

    assert outcome.code == 0
    assert outcome.err == ""
    answer = outcome.json
    assert answer["sent"] == answer["acknowledged"] == len(cluster.records("t")) == 4000
    assert (answer["failed"], answer["errors"], answer["exit_code"]) == (0, {}, 0)
    total = answer["total"]
    assert (total["records"], total["bytes"]) == (4000, 100_000)
    assert total["records_per_second"] == pytest.approx(4000 / total["seconds"], rel=1e-3)
    assert total["mb_per_second"] == pytest.approx(100_000 / 2**20 / total["seconds"], rel=1e-3)
    assert total["seconds"] >= 3999 / 8000 * 0.99
    assert answer["steady"]["records"] == 3600
    for course, records in (("windows", 4000), ("timeline", 4000), ("steady_windows", 3600)):
        assert sum(part["records"] for part in answer[course]) == records
        assert sum(part["bytes"] for part in answer[course]) == 25 * records
        starts = [part["begins_s"] for part in answer[course]]
        assert starts == sorted(starts)
        latencies = [part["latency_ms"] for part in answer[course] if part["latency_ms"]]
        expected = answer["steady" if course == "steady_windows" else "total"]["latency_ms"]
        assert max(each["max"] for each in latencies) == expected["max"]
    latency = total["latency_ms"]
    assert latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    assert answer["metrics"]["metrics"]["producer-metrics"]["record-send-total"] == 4000
    assert answer["options"]["warmup_records"] == 400
    assert set(answer["versions"]) == {"aioproduce", "build", "python", "platform"}


async def test_latency_is_until_the_acknowledgement(cluster: FakeCluster) -> None:
    cluster.faults.delay_answers(0.2, api=ApiKey.PRODUCE)

    outcome = await run_cli(*options(cluster, 300, "--payload-monotonic", "--json"))

    latency = outcome.json["total"]["latency_ms"]
    # The broker says nothing for 200 ms: no latency can be shorter, and no request either.
    assert latency["avg"] >= 200
    assert latency["p50"] >= 200
    assert outcome.json["stages_ms"]["in_flight"] >= 200


async def test_the_wait_for_room_is_latency(cluster: FakeCluster) -> None:
    # Room for three records, each in a batch of its own; one request at a time, and each takes 50 ms. So there are
    # always three in the buffer and a fourth that waits in send(), until 27 are answered, then 3, 2, 1.
    cluster.faults.delay_answers(0.05, api=ApiKey.PRODUCE)

    outcome = await run_cli(
        *options(cluster, 30, "--record-size", "10000", "--json", topic="one"),
        *("--command-property", "buffer.memory=32768", "batch.size=1", "linger.ms=0"),
        *("max.in.flight.requests.per.connection=1",),
    )

    assert outcome.code == 0
    answer = outcome.json
    assert answer["total"]["seconds"] >= 30 * 0.05
    assert answer["stages_ms"]["send_wait"] > 0
    # Little's law; without the wait for room it would be three records, 4,500 ms.
    assert answer["total"]["latency_ms"]["avg"] * 30 >= 50 * (27 * 4 + 3 + 2 + 1)


async def test_batches_that_are_split_keep_the_count(cluster: FakeCluster) -> None:
    # The broker takes 2,000 bytes at once, and batch.size is eight times as much.
    cluster.configure_topic("one", max_message_bytes=2000)

    outcome = await run_cli(*options(cluster, 3000, "--record-size", "100", "--json", topic="one"))

    assert outcome.code == 0
    total = outcome.json["total"]
    assert (total["records"], total["bytes"]) == (3000, 300_000)
    assert len(cluster.records("one")) == 3000
    assert sum(part["records"] for part in outcome.json["timeline"]) == 3000


async def test_metrics_are_printed_as_kafkas_tool_does(cluster: FakeCluster) -> None:
    outcome = await run_cli(*options(cluster, 100, "--record-size", "10", "--print-metrics"))

    lines = read(outcome.out)
    assert lines.kinds[:3] == ["total", "head", "head"]
    assert set(lines.kinds[3:]) == {"metric"}
    assert list(lines.metrics) == sorted(lines.metrics)
    assert lines.metrics["producer-metrics:record-send-total:{client-id=perf-producer-client}"] == "100.000"
    name = "producer-topic-metrics:record-send-total:{client-id=perf-producer-client, topic=t}"
    assert lines.metrics[name] == "100.000"


async def test_settings_of_all_kinds_and_which_wins(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nlinger.ms=7\nacks=1\nbatch.size=1000\n")

    outcome = await run_cli(
        *("perf", "--topic", "t", "--num-records", "1", "--payload-monotonic", "--json"),
        *("--command-config", str(file), "--command-property", "acks=all", "batch.size=2000"),
        *("--bootstrap-server", cluster.bootstrap_servers),
        environment={"AIOPRODUCE_BOOTSTRAP_SERVERS": "127.0.0.1:2"},
    )

    assert outcome.code == 0
    producer = outcome.json["producer"]
    assert (producer["acks"], producer["linger.ms"], producer["batch.size"]) == (-1, 7, 2000)


@pytest.mark.parametrize(
    "name", others_extended(["run.svg", "run.png"], keep=["run.png"], reason="runs matplotlib for each case")
)
async def test_a_picture_is_drawn(cluster: FakeCluster, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / name

    outcome = await run_cli(
        *options(cluster, 500, "--record-size", "10", "--throughput", "1000", "--plot", str(file))
    )

    assert outcome.code == 0
    picture = file.read_bytes()
    if name.endswith(".svg"):
        # Text is drawn as outlines, with what it says in comments.
        told = set(re.findall(r"<!-- (.*?) -->", picture.decode()))
        assert {"records/s acknowledged", "latency, ms", "average in each stage, ms", "in flight"} <= told
    else:
        assert picture.startswith(b"\x89PNG")


async def test_on_a_terminal_there_is_a_bar(cluster: FakeCluster) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = options(cluster, 3000, "--record-size", "10", "--throughput", "6000")
        os.execve(COMMAND[0], [*COMMAND, *arguments], ENVIRONMENT)
    seen = await read_terminal(terminal)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0

    assert "3,000 acked" in seen
    assert "p99" in seen
    assert "3000 records sent" in seen


async def read_terminal(terminal: int) -> str:
    """What a terminal showed, to its end; without blocking the cluster."""

    def read_all() -> bytes:
        seen = b""
        while True:
            try:
                part = os.read(terminal, 65_536)
            except OSError:  # how a terminal says that nobody is there any more
                return seen
            if not part:
                return seen
            seen += part

    seen = await asyncio.to_thread(read_all)
    os.close(terminal)
    return seen.decode(errors="replace")
