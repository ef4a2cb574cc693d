"""Expected values that Kafka's own Java code printed: see ``RecordFormatVectors.java``, which made them."""

from __future__ import annotations

from pathlib import Path


def record_format(kind: str) -> list[list[str]]:
    """The lines of ``record_format.txt`` that start with a word, without it, split at spaces."""
    text = Path(__file__).with_name("record_format.txt").read_text(encoding="ascii")
    found = [line.split()[1:] for line in text.splitlines() if line.split()[0] == kind]
    if not found:
        raise LookupError(f"record_format.txt has no line {kind!r}")
    return found


def java_batch(name: str) -> bytes:
    """A record batch as Kafka's MemoryRecordsBuilder wrote it; its records are ``JAVA_RECORDS``."""
    return bytes.fromhex(dict(record_format("batch"))[name])


JAVA_RECORDS: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
    (1_700_000_000_000, b"key", b"value", (("trace", b"abc"), ("n", None), ("été", b""))),
    (1_699_999_999_000, None, b"earlier", ()),
    (1_700_000_086_400, b"", None, ()),
    (1_700_000_000_001, b"k" * 64, b"x" * 200, ()),
]
"""Timestamp, key, value and headers of every record that the Java program appended, in order."""
