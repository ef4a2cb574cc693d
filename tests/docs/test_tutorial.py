"""The tutorial, followed from its first step to its seventh, with the cluster in memory that it starts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.tutorial import PAGE, Reader

pytestmark = pytest.mark.extended(
    "starts seven processes, and a request waits for 5 s; an example like the page's program stays in the gate"
)


def test_somebody_follows_it(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert "aioproduce" in reader.run(reader.block("--version"))

        kafka = reader.start(reader.block("aioproduce dev"))
        kafka.wait_for("bootstrap servers")
        reader.run(reader.block("aioproduce check"))

        reader.save("hello.py")
        said = reader.run(reader.block("hello.py"))
        assert re.fullmatch(r"accepted: .*\nacknowledged: partition \d, offset \d\n", said)

        reader.save("orders.py")
        service = reader.start(reader.block("uvicorn orders:app"))
        service.wait_for("Uvicorn running")
        answer = reader.run(reader.block("two apples"))
        assert answer.startswith("HTTP/1.1 201 Created")
        assert set(json.loads(answer.splitlines()[-1])) == {"partition", "offset"}

        seen = reader.run(reader.block("record_send_total"))
        assert '"status": "ready"' in seen
        assert 'record_send_total{client_id="orders",client_type="producer"} 1.0' in seen
        assert 'aioproduce_service_ready{service=""} 1.0' in seen

        kafka.end()
        answer = reader.run(reader.block("three pears"))
        assert answer.startswith("HTTP/1.1 504 ")
        assert '"outcome": "unknown"' in answer
        assert "Connection refused" in service.said()

        reader.start(reader.block("aioproduce dev", 1)).wait_for("bootstrap servers")
        ask = reader.block("grep record_error_total")
        while json.loads((said := reader.run(ask)).splitlines()[0])["outstanding_records"]:
            pass
        assert 'record_error_total{client_id="orders",client_type="producer"} 0.0' in said

        service.end()
        (lines,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert [line for line in lines.splitlines() if line not in service.said()] == []
