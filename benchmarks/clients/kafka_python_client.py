"""kafka-python 3: pure Python with a sender thread, a future per record, unbounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks import latency
from benchmarks.cases import Case, Outcome
from benchmarks.clients.measuring import SyncMode, measure_sync


def make(case: Case, bootstrap_servers: str) -> Any:
    """A producer with the case's settings."""
    from kafka import KafkaProducer

    settings = case.settings
    return KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all" if settings.acks == "all" else int(settings.acks),
        enable_idempotence=settings.is_idempotent,
        linger_ms=settings.linger_ms,
        batch_size=settings.batch_size,
        compression_type=None if settings.compression == "none" else settings.compression,
        max_request_size=2 * 2**20,
    )


def await_each(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`send()` in a loop that keeps the futures, then `get()` each."""
    send, topic = producer.send, case.topic
    futures = [send(topic, value) for value in values]
    for future in futures:
        future.get()
    return len(futures)


_MODES: dict[str, tuple[int, SyncMode[Any]]] = {"await-each": (40_000, await_each)}


class KafkaPythonClient:
    """`kafka.KafkaProducer`."""

    name = "kafka-python"
    loops = ("",)
    modes: Mapping[str, int] = {mode: rate for mode, (rate, _) in _MODES.items()}

    def unavailable(self) -> str | None:
        return None if find_spec("kafka") else "not installed (pip install kafka-python)"

    def version(self) -> str:
        return version("kafka-python")

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        producer = make(case, bootstrap_servers)
        try:
            return measure_sync(case, producer, _MODES[case.mode][1])
        finally:
            producer.close()

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        producer = make(case, bootstrap_servers)
        try:
            return latency.measure_threads(
                case,
                lambda value, done: producer.send(case.topic, value).add_callback(lambda _: done()),
                producer.flush,
            )
        finally:
            producer.close()


CLIENT = KafkaPythonClient()
