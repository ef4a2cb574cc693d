"""Sending from threads, without an event loop: futures, callbacks, back-pressure and failures.

python examples/blocking_threads.py                    # with a cluster in memory
python examples/blocking_threads.py localhost:9092     # with yours; sends to the topic "threads"
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, cast

from anyio.from_thread import start_blocking_portal

from aioproduce import BlockingProducer
from aioproduce.errors import BufferExhaustedError, DeliveryError, ProducerError, RecordTooLargeError
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aioproduce import RecordMetadata

TOPIC = "threads"
RECORDS = 20_000
WORKERS = 8


class Tally:
    """A delivery callback. The producer's thread calls it for one record at a time, so it needs no lock."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed = 0

    def __call__(self, _metadata: RecordMetadata, error: BaseException | None) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


def work(producer: BlockingProducer, tally: Tally, worker: int) -> None:
    """Send records as a thread of a service does: the callback receives each result."""
    for number in range(RECORDS // WORKERS):
        # Waits only while the buffer is full, at most max.block.ms: the thread never outruns Kafka.
        producer.send(TOPIC, b"%d/%d" % (worker, number), key=b"worker-%d" % worker, on_delivery=tally)


def threads(servers: str) -> None:
    with BlockingProducer(servers, linger_ms=5, compression_type="lz4") as producer:
        # One record: accepted when send() returns, acknowledged when its future has a result.
        delivery = producer.send(TOPIC, b"hello", headers=[("from", b"a thread")])
        metadata = delivery.result(timeout=30)
        print(f"hello: partition {metadata.partition}, offset {metadata.offset}")

        # Many threads, one producer.
        tally = Tally()
        workers = [threading.Thread(target=work, args=(producer, tally, number)) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush()
        print(f"{WORKERS} threads: {tally.acknowledged:,} acknowledged, {tally.failed} failed")

        # concurrent.futures accepts these futures; a type checker needs the cast.
        deliveries = cast(
            "list[Future[RecordMetadata]]", [producer.send(TOPIC, b"one of ten") for _ in range(10)]
        )
        print(f"as completed: {sum(each.exception() is None for each in as_completed(deliveries))}")

        # From a pool of threads, each waiting for its own record.
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda number: producer.send_and_wait(TOPIC, b"%d" % number), range(20)))
        print(f"a pool of threads: {len(told)} acknowledged")

        # Many records at once, with one handle.
        print(f"at once: {len(producer.send_many(TOPIC, [b'record'] * 10_000).result()):,} acknowledged")

        # A record that can never be sent is refused at once.
        try:
            producer.send(TOPIC, bytes(2_000_000))
        except RecordTooLargeError as error:
            print(f"refused: {error.size:,} bytes are above {error.limited_by}={error.limit:,}")
        # A service that prefers a dropped record to a wait sets timeout=0.
        try:
            producer.send(TOPIC, b"now or never", timeout=0)
        except BufferExhaustedError as error:
            print(f"dropped: {error}")
    # The end of the block sends all accepted records and ends the producer's thread.


def main() -> None:
    if len(sys.argv) > 1:
        threads(sys.argv[1])
        return
    with start_blocking_portal("asyncio") as portal:

        async def make() -> FakeCluster:
            return FakeCluster(topics={TOPIC: 3})

        cluster = portal.call(make)
        with portal.wrap_async_context_manager(cluster):
            threads(cluster.bootstrap_servers)


if __name__ == "__main__":
    try:
        main()
    except DeliveryError as error:
        sys.exit(
            f"not acknowledged ({'perhaps written' if error.possibly_written else 'not written'}): {error}"
        )
    except ProducerError as error:
        sys.exit(f"{type(error).__name__}: {error}")
