"""Kafka's Java producer by Kafka's own ProducerPerformance: a callback per record, two threads, a JIT compiler.

1. The first records (`--warmup-records`) are not measured, because of the compiler. Their rate is reported
   separately (`warmup_records_per_second`).
2. ProducerPerformance reports the records per second of the steady state. CPU time is sampled whenever it prints a
   line, and divided by the records acknowledged between two lines.
3. The payload is a file of the values that the other clients send: with `--record-size` it would spend most of its
   time making random bytes for each record.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from benchmarks.cases import Case, Outcome
from benchmarks.process import cpu_seconds_of, payload, resident
from tests.kafka_install import KafkaInstall, KafkaUnavailableError, find_or_install

_CLASS = "org.apache.kafka.tools.ProducerPerformance"
_WINDOW = re.compile(r"^(\d+) records sent, .* max latency\.$")
_SUMMARY = re.compile(
    r"^(\d+) (steady state )?records sent, ([\d.]+) records/sec .* "
    r"([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th, ([\d.]+) ms 99\.9th\.$"
)


@cache
def _install() -> KafkaInstall | str:
    try:
        return find_or_install()
    except KafkaUnavailableError as error:
        return str(error)


def _command(
    case: Case, bootstrap_servers: str, values: Path, records: int, warmup: int, rate: int
) -> list[str]:
    install = _install()
    if isinstance(install, str):
        raise KafkaUnavailableError(install)
    settings = case.settings
    properties = {
        "acks": settings.acks,
        "enable.idempotence": str(settings.is_idempotent).lower(),
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "buffer.memory": settings.buffer_memory,
        "compression.type": settings.compression,
        "max.request.size": 2 * 2**20,
    }
    if settings.ca:
        properties["security.protocol"] = "SSL"
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings.ca}
    return [
        install.java,
        *("-Xms512m", "-Xmx512m", "-cp", install.classpath, _CLASS),
        *("--topic", case.topic, "--num-records", str(records + warmup), "--warmup-records", str(warmup)),
        *("--reporting-interval", "100", "--throughput", str(rate), "--payload-file", str(values)),
        *("--bootstrap-server", bootstrap_servers),
        *("--command-property", *(f"{key}={value}" for key, value in properties.items())),
    ]


class _Reading:
    """The output of ProducerPerformance so far, with the CPU time at each line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.windows: list[tuple[int, float]] = []
        self.is_steady = False
        self.rss_start = self.rss_peak = 0
        self.summaries: list[list[str]] = []
        self.other: list[str] = []

    def take(self, line: str) -> None:
        if match := _SUMMARY.match(line):
            self.summaries.append([group or "" for group in match.groups()])
        elif match := _WINDOW.match(line):
            self.rss_peak = resident(self._process.pid, peak=True)
            self.rss_start = self.rss_start or resident(self._process.pid)
            if self.is_steady:
                self.windows.append((int(match[1]), cpu_seconds_of(self._process.pid)))
        elif line.startswith("In steady state"):
            self.is_steady = True
        else:
            self.other.append(line)


def _measure(case: Case, bootstrap_servers: str, warmup: int, rate: int) -> tuple[_Reading, Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "values"
        values.write_bytes(b"\n".join(payload(case.settings.value_size)))
        command = _command(case, bootstrap_servers, values, case.records, warmup, rate)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            reading = _Reading(process)
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    reading.take(line.strip())
            finally:
                process.kill()
    if process.wait() != 0 or len(reading.summaries) != 2 or len(reading.windows) < 2:
        raise RuntimeError("ProducerPerformance failed, or was too short:\n" + "\n".join(reading.other[-20:]))
    whole, steady = reading.summaries
    sampled = sum(records for records, _ in reading.windows[1:])
    burnt = (reading.windows[-1][1] - reading.windows[0][1]) / sampled * int(steady[0])
    seconds, all_seconds = (int(summary[0]) / float(summary[2]) for summary in (steady, whole))
    outcome = Outcome(
        records=int(steady[0]),
        total=int(whole[0]),
        seconds=seconds,
        cpu_seconds=burnt,
        rss_start=reading.rss_start,
        rss_peak=reading.rss_peak,
        figures={"warmup_records_per_second": warmup / max(all_seconds - seconds, 1e-3)},
    )
    return reading, outcome


class JavaClient:
    """`org.apache.kafka.clients.producer.KafkaProducer`."""

    name = "Java"
    loops = ("",)
    modes: Mapping[str, int] = {"callback": 2_000_000}

    def unavailable(self) -> str | None:
        install = _install()
        return install if isinstance(install, str) else None

    def version(self) -> str:
        install = _install()
        return install if isinstance(install, str) else install.version

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        # The JIT compiler needs about two million records, whatever the length of the measured part.
        warmup = int(case.options.get("java_warmup", 2_000_000))
        return _measure(case, bootstrap_servers, warmup, -1)[1]

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        """Return latencies in whole milliseconds from the call of `send()`, as ProducerPerformance reports them."""
        rate = int(case.options.get("rate", 5000))
        reading, outcome = _measure(case, bootstrap_servers, 3 * rate, rate)
        steady = reading.summaries[1]
        outcome.figures = {
            "latency_p50_ms": float(steady[3]),
            "latency_p99_ms": float(steady[5]),
            "latency_p99.9_ms": float(steady[6]),
        }
        return outcome


CLIENT = JavaClient()
