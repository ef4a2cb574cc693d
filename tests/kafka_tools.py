"""Kafka's own command line tools as judges: what they print, parsed into values.

Used by ``KafkaCluster`` and, through the ``kafka_tools`` fixture, by any integration test. The bytes that
our producer wrote are decoded by Kafka's Java code alone: this module only splits the text that was printed.

1. A tool that exits with an error raises with everything it said; no output is parsed after that.
2. Records are split at separators that are random per call, so no key, value or header value can look like
   one, and null differs from every string. Header *keys* must hold no colon: the tool separates with it.
3. A line of ``DumpLogSegments`` that is not understood raises: neither a new field nor a complaint of its
   ("Found timestamp mismatch in ...") passes unseen.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.kafka_install import KafkaInstall

# Short-lived JVMs on two cores: the C1 compiler alone and the serial collector save a third of their start,
# and a quarter of a gigabyte is enough to dump or consume a log of any length, record by record.
TOOL_JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LOG4J = Path(__file__).with_name("kafka-log4j2.properties")

# A tool that says nothing for this long hangs; consuming a million records takes a tenth of it.
TOOL_TIMEOUT = 180.0

NO_HEADERS = b"NO_HEADERS"


class KafkaToolError(Exception):
    """A tool of Kafka's ended with an error; the text is what it printed."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """One record as Kafka's console consumer printed it."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record as ``DumpLogSegments`` printed it; a size is -1 for null, the sequence without producer."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One record batch as it lies in the log, as ``DumpLogSegments`` printed it."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    position: int
    timestamp_type: str
    timestamp: int
    size: int
    magic: int
    compression: str
    crc: int
    is_valid: bool
    records: tuple[DumpedRecord, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class KafkaTools:
    """Runs classes of Kafka's jars, each in a JVM of its own that ends with the call."""

    install: KafkaInstall

    def run(self, class_name: str, *args: str, timeout: float = TOOL_TIMEOUT) -> str:
        """Run a tool to its end and return what it printed to standard output, as text.

        Args:
            class_name: For example ``org.apache.kafka.tools.GetOffsetShell``.
            *args: Its arguments.
            timeout: Seconds after which it is killed.

        Raises:
            KafkaToolError: It ended with another exit code than 0, or not in time.
        """
        return self.run_binary(class_name, *args, timeout=timeout).decode()

    def run_binary(self, class_name: str, *args: str, timeout: float = TOOL_TIMEOUT) -> bytes:
        """Like ``run``, but leave standard output as the bytes that were printed."""
        command = self.command(class_name, *args)
        try:
            answer = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            printed = (error.stdout or b"")[-2000:] + (error.stderr or b"")[-2000:]
            raise KafkaToolError(
                f"{class_name} did not end in {timeout:g} s; it printed {printed!r}"
            ) from error
        if answer.returncode != 0:
            printed = answer.stdout[-2000:] + answer.stderr[-4000:]
            text = printed.decode(errors="backslashreplace")
            raise KafkaToolError(f"{class_name} {' '.join(args)} ended with {answer.returncode}:\n{text}")
        return answer.stdout

    def command(self, class_name: str, *args: str, jvm_flags: Sequence[str] = TOOL_JVM_FLAGS) -> list[str]:
        """Return the command line that runs a class, for a caller that keeps the process."""
        logging = f"-Dlog4j2.configurationFile={LOG4J}"
        flags = (*self.install.archive_flags, *jvm_flags, logging)
        return [self.install.java, *flags, "-cp", self.install.classpath, class_name, *args]

    def console_consume(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        max_messages: int,
        isolation_level: str = "read_uncommitted",
        timeout: float = TOOL_TIMEOUT,
        properties: Mapping[str, str] | None = None,
    ) -> list[ConsumedRecord]:
        """Read a topic from its beginning with Kafka's ConsoleConsumer until ``max_messages`` have come.

        The records come in the order in which the consumer met them: ascending offsets within a partition.

        Raises:
            KafkaToolError: Fewer records came within ``timeout`` seconds.
        """
        field_end, record_end, header_end, null = (f"{name}{secrets.token_hex(6)}" for name in "FRHN")
        formatter = {
            "print.timestamp": "true",
            "print.partition": "true",
            "print.offset": "true",
            "print.headers": "true",
            "print.key": "true",
            "print.value": "true",
            "key.separator": field_end,
            "line.separator": record_end,
            "headers.separator": header_end,
            "null.literal": null,
        }
        consumer = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", **(properties or {})}
        printed = self.run_binary(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(max_messages), "--timeout-ms", str(int(timeout * 1000))),
            *("--isolation-level", isolation_level),
            *_pairs("--formatter-property", formatter),
            *_pairs("--command-property", consumer),
            timeout=timeout + 15.0,
        )
        ends = (field_end.encode(), record_end.encode(), header_end.encode(), null.encode())
        records = parse_consumed(printed, *ends)
        if len(records) != max_messages:
            raise KafkaToolError(
                f"ConsoleConsumer read {len(records)} of {max_messages} records of {topic!r}"
            )
        return records

    def dump_log(self, segments: Sequence[Path]) -> list[DumpedBatch]:
        """Decode log segments with DumpLogSegments; batches come in the order of the given files.

        Raises:
            KafkaToolError: The tool failed, or printed a line that is not understood.
        """
        files = ",".join(str(path) for path in segments)
        return parse_dump(
            self.run("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
        )


def _pairs(option: str, properties: Mapping[str, str]) -> Iterable[str]:
    for name, value in properties.items():
        yield option
        yield f"{name}={value}"


def parse_consumed(
    printed: bytes, field_end: bytes, record_end: bytes, header_end: bytes, null: bytes
) -> list[ConsumedRecord]:
    """Split what ConsoleConsumer printed with these separators and this literal for null."""
    if not printed:
        return []
    *rows, rest = printed.split(record_end)
    if rest.strip():
        raise KafkaToolError(f"ConsoleConsumer ended in the middle of a record: {rest[-200:]!r}")
    records = []
    for row in rows:
        timestamp, partition, offset, headers, key, value = row.split(field_end)
        kind, _, instant = timestamp.decode().partition(":")
        records.append(
            ConsumedRecord(
                partition=int(partition.removeprefix(b"Partition:")),
                offset=int(offset.removeprefix(b"Offset:")),
                timestamp=int(instant),
                timestamp_type=kind,
                headers=_parse_headers(headers, header_end, null),
                key=None if key == null else key,
                value=None if value == null else value,
            )
        )
    return records


def _parse_headers(printed: bytes, header_end: bytes, null: bytes) -> tuple[tuple[str, bytes | None], ...]:
    if printed == NO_HEADERS:
        return ()
    headers = []
    for header in printed.split(header_end):
        name, _, value = header.partition(b":")
        headers.append((name.decode(), None if value == null else value))
    return tuple(headers)


_BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>-?\d+)"
    r" baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+)"
    r" producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+)"
    r" partitionLeaderEpoch: (?P<partition_leader_epoch>-?\d+)"
    r" isTransactional: (?P<is_transactional>true|false) isControl: (?P<is_control>true|false)"
    r" deleteHorizonMs: \S+ position: (?P<position>\d+)"
    r" (?P<timestamp_type>CreateTime|LogAppendTime): (?P<timestamp>-?\d+)"
    r" size: (?P<size>\d+) magic: (?P<magic>\d+)"
    r" compresscodec: (?P<compression>\S+) crc: (?P<crc>\d+) isvalid: (?P<is_valid>true|false)"
)
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+)"
    r" headerKeys: \[(?P<header_keys>.*)\]"
)
_CONTROL_RECORD = re.compile(r"\| offset: (\d+) .*endTxnMarker: ")
_HEADINGS = ("Dumping ", "Log starting offset: ", "Snapshot end offset: ")


def parse_dump(printed: str) -> list[DumpedBatch]:
    """Parse the output of ``DumpLogSegments --deep-iteration``."""
    heads: list[dict[str, str]] = []
    records: list[list[DumpedRecord]] = []
    for line in printed.splitlines():
        if batch := _BATCH.fullmatch(line):
            heads.append(batch.groupdict())
            records.append([])
        elif record := _RECORD.fullmatch(line):
            records[-1].append(_dumped_record(record.groupdict()))
        elif line and not line.startswith(_HEADINGS) and not _CONTROL_RECORD.match(line):
            raise KafkaToolError(f"DumpLogSegments printed a line that is not understood: {line!r}")
    return [_dumped_batch(head, tuple(inside)) for head, inside in zip(heads, records, strict=True)]


def _dumped_record(match: dict[str, str]) -> DumpedRecord:
    header_keys = match.pop("header_keys")
    names = tuple(header_keys.split(",")) if header_keys else ()
    return DumpedRecord(header_keys=names, **{name: int(text) for name, text in match.items()})


def _dumped_batch(match: dict[str, str], records: tuple[DumpedRecord, ...]) -> DumpedBatch:
    words = {name: match.pop(name) for name in ("timestamp_type", "compression")}
    flags = {name: match.pop(name) == "true" for name in ("is_transactional", "is_control", "is_valid")}
    numbers = {name: int(text) for name, text in match.items()}
    return DumpedBatch(records=records, **numbers, **flags, **words)  # type: ignore[arg-type]
