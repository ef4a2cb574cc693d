"""confluent-kafka's Producer (librdkafka): C with its own threads, called from one thread without an event loop.

It raises `BufferError` when its queue is full; the caller then polls and tries again, as its documentation says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks import latency
from benchmarks.cases import Case, Outcome
from benchmarks.clients.measuring import SyncMode, measure_sync


def settings_of(case: Case, bootstrap_servers: str) -> dict[str, Any]:
    """Return the case's settings under librdkafka's names."""
    settings = case.settings
    return {
        "bootstrap.servers": bootstrap_servers,
        "acks": settings.acks,
        "enable.idempotence": settings.is_idempotent,
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "compression.type": settings.compression,
        "queue.buffering.max.kbytes": settings.buffer_memory // 1024,
        "queue.buffering.max.messages": 1_000_000,
        "message.max.bytes": 2 * 2**20,
        **({"security.protocol": "ssl", "ssl.ca.location": settings.ca} if settings.ca else {}),
    }


def callback(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`produce(on_delivery=...)` and `poll(0)` in a loop, then `flush()`."""
    acknowledged = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    produce, poll, topic = producer.produce, producer.poll, case.topic
    for number, value in enumerate(values):
        while True:
            try:
                produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                poll(0.001)
        # One poll serves all waiting reports: a call for each record would cost a tenth of the rate.
        if number % 100 == 0:
            poll(0)
    producer.flush()
    return acknowledged


def no_report(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`produce()` without any report per record, then `flush()`."""
    produce, poll, topic = producer.produce, producer.poll, case.topic
    for value in values:
        while True:
            try:
                produce(topic, value)
                break
            except BufferError:
                poll(0.001)
    return count - int(producer.flush())


_MODES: dict[str, tuple[int, SyncMode[Any]]] = {
    "callback": (500_000, callback),
    "no-report": (900_000, no_report),
}


class ConfluentClient:
    """`confluent_kafka.Producer`."""

    name = "confluent"
    loops = ("",)
    modes: Mapping[str, int] = {mode: rate for mode, (rate, _) in _MODES.items()}

    def unavailable(self) -> str | None:
        return None if find_spec("confluent_kafka") else "not installed (pip install confluent-kafka)"

    def version(self) -> str:
        return version("confluent-kafka")

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        from confluent_kafka import Producer

        producer = Producer(settings_of(case, bootstrap_servers))
        return measure_sync(case, producer, _MODES[case.mode][1])

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        from confluent_kafka import Producer

        producer = Producer(settings_of(case, bootstrap_servers))
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                producer.poll(0.1)

        def send(value: bytes, done: Callable[[], None]) -> None:
            def on_delivery(error: object, message: object) -> None:
                if error is not None:
                    raise RuntimeError(f"confluent: {error}")
                done()

            producer.produce(case.topic, value, on_delivery=on_delivery)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            return latency.measure_threads(case, send, producer.flush)
        finally:
            ended.set()
            thread.join()


CLIENT = ConfluentClient()
