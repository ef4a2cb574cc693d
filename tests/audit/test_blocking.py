"""Records of threads have numbers, too, and the closing mark comes when the last of them is settled."""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import pytest

from aioproduce import BlockingProducer
from aioproduce.audit import DEFAULT_AUDIT_TOPIC, Auditor, Mark
from tests.blocking.threads import ThreadedCluster, in_threads

THREADS, COUNT = 4, 500


def send(producer: BlockingProducer, thread: int) -> None:
    for number in range(COUNT):
        producer.send("t", b"%d/%d" % (thread, number), headers=[("of", b"%d" % thread)] if thread else None)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_what_threads_send_is_numbered_without_holes(codec: Any) -> None:
    auditor = Auditor()
    with ThreadedCluster({"t": 3, DEFAULT_AUDIT_TOPIC: 1}) as cluster:
        with BlockingProducer(
            cluster.bootstrap_servers, interceptors=[auditor], compression_type=codec, batch_size=4000
        ) as producer:
            in_threads([partial(send, producer, thread) for thread in range(THREADS)])
            producer.send_many("t", [b"many"] * 100)
        records = cluster.records("t")
        [closing] = [Mark.from_json(record.value) for record in cluster.records(DEFAULT_AUDIT_TOPIC)]
    total = THREADS * COUNT + 100
    stamps = [struct.unpack(">16sQ", record.headers[-1][1]) for record in records]
    assert sorted(number for _, number in stamps) == list(range(total))
    assert {producer_id for producer_id, _ in stamps} == {auditor.producer_id}
    assert {record.headers[:-1] for record in records if record.value.startswith(b"1/")} == {(("of", b"1"),)}
    assert (closing.kind, closing.next, closing.acknowledged) == ("closing", total, total)
    # Of each thread they ascend with its records.
    for thread in range(THREADS):
        own = [record for record in records if record.value.startswith(b"%d/" % thread)]
        numbers = {
            int(each.value.split(b"/")[1]): struct.unpack(">Q", each.headers[-1][1][16:])[0] for each in own
        }
        assert sorted(numbers, key=numbers.__getitem__) == list(range(COUNT))
