"""`examples/lake/orders.py` as a process: killed with SIGKILL and started again, on a cluster in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, Mark, unpack_stamp
from aioproduce.testing import ClusterThread
from examples.lake.orders import id_of
from examples.lake.sources import write_orders
from tests.spark.conftest import ROOT
from tests.spark.fault_world import wait_until

RECORDS = 6_000


def service(servers: str, file: Path, rate: int) -> subprocess.Popen[bytes]:
    words = ["--bootstrap-servers", servers, "--journal", str(file.with_name("journal")), "--rate", str(rate)]
    return subprocess.Popen(
        [sys.executable, "-m", "examples.lake.orders", str(file), *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
    )


def test_a_killed_service_goes_on_and_what_comes_twice_has_the_stamp_of_its_original(tmp_path: Path) -> None:
    file = write_orders(tmp_path / "orders.jsonl", RECORDS)
    with ClusterThread(brokers=3, topics={"orders": 4, DEFAULT_AUDIT_TOPIC: 1}) as cluster:
        first = service(cluster.bootstrap_servers, file, rate=3_000)
        try:
            wait_until("a third of the orders", lambda: len(cluster.records("orders")) > RECORDS // 3)
        finally:
            first.kill()
            first.wait()
        acknowledged = int((tmp_path / "journal").read_text())
        there = len(cluster.records("orders"))
        second = service(cluster.bootstrap_servers, file, rate=1_000_000)

        assert second.wait(120) == 0
        records = cluster.records("orders")
        marks = [Mark.from_json(record.value) for record in cluster.records(DEFAULT_AUDIT_TOPIC)]

    lines = file.read_bytes().splitlines()
    stamps = [unpack_stamp(dict(record.headers)["ap.id"]) for record in records]
    assert 0 < acknowledged <= there < RECORDS
    assert {(stamp.sequence, record.value) for stamp, record in zip(stamps, records, strict=True)} == set(
        enumerate(lines)
    )
    assert {stamp.producer_id for stamp in stamps} == {id_of(file)}
    # What was on the wire when it was killed may have come in after that was counted.
    assert len(records) >= RECORDS + there - acknowledged
    (mark,) = marks
    assert (mark.kind, mark.producer_id, mark.next, mark.topics) == (
        "closing",
        id_of(file),
        RECORDS,
        {"orders": RECORDS},
    )
