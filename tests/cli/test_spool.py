"""`aioproduce spool` on queues that a `SpooledProducer` has written, and while another process writes one."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aioproduce.cli.app import app
from aioproduce.cli.signals import Signals
from aioproduce.spool import SpooledProducer
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import INVALID_RECORD
from tests.cli.command import Outcome, run_cli

pytestmark = pytest.mark.usefixtures("signals_are_python_s")

TIME = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def signals_are_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in a thread cannot handle signals."""
    monkeypatch.setattr(Signals, "listening", lambda _: nullcontext())


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue that a producer makes."""
    return tmp_path / "queue-0"


async def invoke(*arguments: object, stdin: bytes = b"") -> Outcome:
    """A command in a thread: a process for each would cost a second."""
    result = await asyncio.to_thread(CliRunner().invoke, app, ["spool", *map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


async def store(nobody: str, spool: Path, values: Sequence[bytes | None], topic: str = "one") -> None:
    """Put records on disk, each in a batch of its own; none is forwarded."""
    async with SpooledProducer(nobody, directory=spool.parent, sync="os") as producer:
        for number, value in enumerate(values):
            await producer.send(
                topic,
                value,
                b"k%d" % number,
                headers=[("n", b"1"), ("\u202e", b"\xff")],
                timestamp=TIME + number,
            )
        await producer.close(0)


def log_of(spool: Path, topic: str = "one") -> Path:
    return min((spool / "logs" / f"{topic}-0").glob("*.log"))


def flip(path: Path, part: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(part)] ^= 1
    path.write_bytes(content)


def spool_id(spool: Path) -> str:
    return str(json.loads((spool / "spool.json").read_text())["id"]).replace("-", "")


def life_id(spool: Path) -> str:
    ((_, life),) = json.loads((spool / "spool.json").read_text())["lives"]
    return str(life).replace("-", "")


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


# -- stat and verify ---


async def test_what_waits(nobody: str, spool: Path, tmp_path: Path) -> None:
    await store(nobody, spool, [b"1", b"2", b"3"])
    await store(nobody, spool, [b"4"])
    await store(nobody, spool, [b"1"], "t")
    SpoolDirectory(tmp_path / "queue-1").close()
    outcome = await invoke("stat", tmp_path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    first, second = outcome.json["queues"]
    assert (first["path"], first["id"], first["in_use"]) == (str(spool), spool_id(spool), False)
    told = [(each["topic"], each["waiting"], each["oldest_at"]) for each in first["topics"]]
    assert told == [("one", 4, "2023-11-14T22:13:20.000+00:00"), ("t", 1, "2023-11-14T22:13:20.000+00:00")]
    assert (second["topics"], outcome.json["waiting"], outcome.json["queue_count"]) == ([], 5, 2)
    assert outcome.json["oldest_age_s"] > 86_400
    shown = await invoke("stat", spool)
    assert shown.code == 0
    assert "queues: 1 (0 in use), records that wait: 5 " in " ".join(shown.out.split())


async def test_a_queue_that_another_process_writes(nobody: str, spool: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.spool.killed_sender", nobody, str(spool), "0", "1000000", "os"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        for _ in range(100):
            await process.stdout.readline()
        (queue,) = (await invoke("stat", spool, "--json")).json["queues"]
        verified = await invoke("verify", spool, "--json")
        dumped = await invoke("dump", spool, "numbers", "--waiting", "--limit", 100, "--json")
        refused = [await invoke(command, spool) for command in ("repair", "compact")]
        refused.append(await invoke("repair", spool, "--dry-run"))
    finally:
        process.kill()
        await process.communicate()
    assert (queue["in_use"], queue["process"]) == (True, str(process.pid))
    assert queue["waiting"] >= 100
    assert (verified.code, verified.json["queues"][0]["findings"]) == (0, [])
    assert verified.json["records"] >= queue["waiting"]
    assert [row["value"] for row in rows_of(dumped)] == [str(number) for number in range(100)]
    for outcome in refused:
        assert outcome.code == 1
        assert f"in use by process {process.pid}" in outcome.err
    assert (await invoke("verify", spool)).code == 0
    assert (await invoke("repair", spool)).code == 0


async def test_damage_has_a_place_and_an_exit_code(nobody: str, spool: Path) -> None:
    await store(nobody, spool, [b"value-%d" % number for number in range(4)])
    before = log_of(spool).read_bytes()
    flip(log_of(spool), b"value-1")
    outcome = await invoke("verify", spool, "--json", "--progress")
    assert outcome.code == 1
    assert not outcome.json["is_clean"]
    (queue,) = outcome.json["queues"]
    assert (queue["records"], queue["batches"]) == (3, 3)
    (finding,) = queue["findings"]
    size = len(before) // 4
    assert (finding["kind"], finding["topic"], finding["segment"]) == ("damaged", "one", log_of(spool).name)
    assert (finding["start"], finding["end"]) == (size, 2 * size)
    assert (finding["first_offset"], finding["next_offset"]) == (1, 2)
    shown = await invoke("verify", spool)
    assert shown.code == 1
    assert f"{spool}  damaged places: 1 (read: 3 records, 3 batches, " in shown.out
    assert not (spool / "quarantine").exists()


async def test_what_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        for command in ("stat", "verify", "dump", "repair", "compact"):
            outcome = await invoke(command, path)
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err.startswith(f"error: {path} ")


async def test_a_queue_that_cannot_be_read_hides_no_other(nobody: str, spool: Path, tmp_path: Path) -> None:
    await store(nobody, spool, [b"1"])
    (tmp_path / "queue-1").mkdir()
    (tmp_path / "queue-1" / "logs").symlink_to("logs")
    outcome = await invoke("stat", tmp_path, "--json")
    assert (outcome.code, outcome.json["waiting"]) == (2, 1)
    assert "queue-1" in outcome.err


# -- dump ---


async def test_records_are_printed_for_programs_and_for_people(nobody: str, spool: Path) -> None:
    await store(nobody, spool, [b"text", b"\xff\x00", None, b"", b"4"])
    rows = rows_of(await invoke("dump", spool, "--json"))
    assert rows[1] == {
        "queue": str(spool),
        "topic": "one",
        "offset": 1,
        "id": f"{life_id(spool)}{1:016x}",
        "timestamp": TIME + 1,
        "key": "k1",
        "value": {"base64": "/wA="},
        "headers": [["n", "1"], ["\u202e", {"base64": "/w=="}]],
    }
    assert [row["value"] for row in rows] == ["text", {"base64": "/wA="}, None, "", "4"]
    some = await invoke("dump", spool, "one", "--from-offset", 1, "--limit", 2, "--json")
    assert [row["offset"] for row in rows_of(some)] == [1, 2]
    shown = await invoke("dump", spool, "one", "--limit", 1)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (
        f"one 0 2023-11-14T22:13:20.000+00:00 id={life_id(spool)}{0:016x} "
        'key="k0" value="text" headers=[["n", "1"], ["\\u202e", {"base64": "/w=="}]]\n'
    )
    unknown = await invoke("dump", spool, "no-such-topic")
    assert (unknown.code, unknown.out) == (1, "")
    (spool / "spool.json").write_text("{")
    assert rows_of(await invoke("dump", spool, "--limit", 1, "--json"))[0]["id"] is None


async def test_only_what_waits(cluster: FakeCluster, nobody: str, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool.parent) as producer:
        await producer.send("one", b"sent")
        await producer.flush()
    await store(nobody, spool, [b"waits"])
    assert [row["value"] for row in rows_of(await invoke("dump", spool, "--waiting", "--json"))] == ["waits"]


async def test_a_dump_passes_damage_and_tells(nobody: str, spool: Path) -> None:
    await store(nobody, spool, [b"value-0", b"value-1", b"value-2"])
    flip(log_of(spool), b"value-1")
    outcome = await invoke("dump", spool, "--json")
    assert outcome.code == 1
    assert [row["offset"] for row in rows_of(outcome)] == [0, 2]
    assert "1 records from offset 1 on" in outcome.err
    few = await invoke("dump", spool, "--limit", 2, "--json")
    assert ([row["offset"] for row in rows_of(few)], few.code) == ([0, 2], 1)
    assert (await invoke("dump", spool, "--limit", 1)).code == 0


# -- dead letters ---


async def refused(cluster: FakeCluster, spool: Path, count: int) -> list[bytes]:
    """Make dead letters: a compacted topic takes no record without a key. Return their ids."""
    cluster.configure_topic("one", is_compacted=True)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool.parent) as producer:
        for number in range(count):
            await producer.send("one", b"value %d" % number, headers=[("n", None)], timestamp=TIME + number)
        await producer.flush()
    cluster.configure_topic("one", is_compacted=False)
    with closing(sqlite3.connect(spool / "dead-letters.db")) as table:
        ids = [row[0] for row in table.execute("SELECT id FROM dead_letters ORDER BY id")]
    assert len(ids) == count
    assert cluster.records("one") == []
    return ids


async def left(spool: Path) -> list[str]:
    outcome = await invoke("dump", spool, "--dead-letters", "--json")
    assert outcome.code == 0
    return [row["id"] for row in rows_of(outcome)]


async def test_dead_letters_are_sent_again_with_their_ids_and_removed(
    cluster: FakeCluster, spool: Path
) -> None:
    ids = await refused(cluster, spool, 3)
    rows = rows_of(await invoke("dump", spool, "--dead-letters", "--json"))
    assert [(row["id"], row["offset"], row["value"], row["headers"]) for row in rows] == [
        (each.hex(), number, f"value {number}", [["n", None]]) for number, each in enumerate(ids)
    ]
    assert "INVALID_RECORD" in rows[0]["reason"]
    assert (await invoke("stat", spool, "--json")).json["dead_letters"] == 3

    servers = ("-b", cluster.bootstrap_servers)
    outcome = await invoke("replay", spool, *servers, "--id", ids[1].hex(), "--json", "--progress")
    assert (outcome.code, outcome.json["acknowledged"], outcome.json["failed"]) == (0, 1, 0)
    (record,) = cluster.records("one")
    assert (record.value, record.key, record.timestamp) == (b"value 1", None, TIME + 1)
    assert record.headers == (("n", None), ("ap.id", ids[1]))
    assert await left(spool) == [ids[0].hex(), ids[2].hex()]

    outcome = await invoke("replay", spool, *servers, "--topic", "one", "--to-topic", "t")
    assert outcome.code == 0
    assert {dict(record.headers)["ap.id"] for record in cluster.records("t")} == {ids[0], ids[2]}
    assert await left(spool) == []
    again = await invoke("replay", spool, *servers, "--json")
    assert (again.code, again.json["acknowledged"]) == (0, 0)
    assert len(cluster.records("t")) == 2


async def test_what_fails_again_stays(cluster: FakeCluster, spool: Path, nobody: str) -> None:
    ids = await refused(cluster, spool, 3)
    cluster.configure_topic("one", is_compacted=True)
    servers = ("-b", cluster.bootstrap_servers)
    outcome = await invoke("replay", spool, *servers, "--json")
    assert (outcome.code, outcome.json["failed"], outcome.json["errors"]) == (
        1,
        3,
        {"BrokerRejectedError": 3},
    )
    assert f"{ids[0].hex()} stays a dead letter" in outcome.err
    assert len(await left(spool)) == 3

    outcome = await invoke("replay", spool, *servers, "--to-topic", "unknown", "--timeout", "0.2", "--json")
    assert (outcome.code, outcome.json["acknowledged"], outcome.json["failed"]) == (1, 0, 3)
    assert len(await left(spool)) == 3

    outcome = await invoke("replay", spool, "-b", nobody, "--timeout", "0.2", "--json")
    assert (outcome.code, outcome.json["acknowledged"]) == (1, 0)
    assert outcome.json["stopped_by"]
    assert len(await left(spool)) == 3


async def test_a_dead_letter_stays_until_its_acknowledgement(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.cli.spool_replay._GROUP", 2)
    ids = await refused(cluster, spool, 5)
    each_alone = ("-b", cluster.bootstrap_servers, "-X", "batch.size=0", "--json")
    outcome = await invoke("replay", spool, *each_alone, "-X", "acks=0")
    assert (outcome.code, outcome.out) == (2, "")
    assert len(await left(spool)) == 5

    lost = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    quick = ("-X", "request.timeout.ms=100", "-X", "delivery.timeout.ms=100", "-X", "linger.ms=0")
    outcome = await invoke("replay", spool, *each_alone, *quick)
    assert (outcome.code, outcome.json["acknowledged"], outcome.json["failed"]) == (1, 0, 5)
    assert len(await left(spool)) == 5
    lost.cancel()

    cluster.faults.fail_produce(INVALID_RECORD, times=1)
    before = len(cluster.records("one"))
    outcome = await invoke("replay", spool, *each_alone)
    assert (outcome.code, outcome.json["acknowledged"], outcome.json["failed"]) == (1, 4, 1)
    there = {dict(record.headers)["ap.id"] for record in cluster.records("one")[before:]}
    (still,) = await left(spool)
    assert there == set(ids) - {bytes.fromhex(still)}


@pytest.mark.parametrize("wrong", ["zz", "00ff"])
async def test_an_id_that_is_none(spool: Path, wrong: str) -> None:
    SpoolDirectory(spool).close()
    outcome = await invoke("replay", spool, "-b", "localhost:1", "--id", wrong)
    assert (outcome.code, outcome.out) == (2, "")
    assert "48 hexadecimal digits" in outcome.err
    missing = await invoke("replay", spool, "-b", "localhost:1", "--id", "00" * 24, "--json")
    assert (missing.code, missing.json["acknowledged"]) == (1, 0)


# -- repair and compact ---


async def test_a_repair_tells_what_it_does_and_what_it_leaves(nobody: str, spool: Path) -> None:
    await store(nobody, spool, [b"value-0", b"value-1", b"value-2"])
    flip(log_of(spool), b"value-1")
    (spool / "spool.json").write_text("{")
    dry = await invoke("repair", spool, "--dry-run", "--json")
    assert (dry.code, dry.json["is_dry_run"]) == (1, True)
    assert not (spool / "quarantine").exists()
    outcome = await invoke("repair", spool, "--json")
    assert outcome.code == 1
    (queue,) = outcome.json["queues"]
    assert queue == dry.json["queues"][0]
    assert [(each["kind"], each["is_done"]) for each in queue["repairs"]] == [
        ("description", False),
        ("damaged", True),
    ]
    assert len(list((spool / "quarantine").iterdir())) == 2
    shown = await invoke("repair", spool, "--new-id")
    assert shown.code == 0
    assert "    -> the queue gets a new id\n" in shown.out
    assert (await invoke("verify", spool)).code == 0
    assert [row["offset"] for row in rows_of(await invoke("dump", spool, "--json"))] == [0, 2]


async def test_what_becomes_free(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool.parent) as producer:
        await producer.send("one", bytes(5_000))
        await producer.flush()
    size = log_of(spool).stat().st_size
    assert size > 5_000
    quarantine = spool / "quarantine"
    quarantine.mkdir()
    (quarantine / "one-0-0-0.bytes").write_bytes(bytes(300))

    asked = await invoke("compact", spool, "--quarantine", stdin=b"no\n")
    assert (asked.code, asked.out) == (1, "")
    assert "not confirmed" in asked.err
    assert log_of(spool).stat().st_size == size
    outcome = await invoke("compact", spool, "--json")
    assert (outcome.code, outcome.json["bytes"]) == (0, size)
    shown = await invoke("compact", spool, "--quarantine", "--yes")
    assert shown.code == 0
    assert f"{spool}  300 bytes became free\n" in shown.out
    assert list(quarantine.iterdir()) == []
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool.parent) as producer:
        await producer.send("one", b"next")
        await producer.flush()
    ids = [dict(record.headers)["ap.id"] for record in cluster.records("one")]
    assert len(set(ids)) == len(ids) == 2


async def test_as_processes(cluster: FakeCluster, nobody: str, spool: Path) -> None:
    await refused(cluster, spool, 1)
    await store(nobody, spool, [b"1"])
    verified = await run_cli("spool", "verify", str(spool), "--json")
    assert (verified.code, verified.json["is_clean"]) == (0, True)
    replayed = await run_cli("spool", "replay", str(spool), "-b", cluster.bootstrap_servers, "--json")
    assert (replayed.code, replayed.json["acknowledged"]) == (0, 1)
