"""A JVM's classes as it has them in memory, in a file that later JVMs map: they start in half of the time.

It is class data sharing of the JVM's own (JEP 350): what a small program has loaded is written down at its end.
Kafka's is made by `tests.kafka_archive`, Spark's by `tests.spark.jvm_archive`.

1. Nothing depends on it: the JVM checks the file against its own version and against the jars on its class path,
   and goes on without it where they differ.
2. The file is whole or absent: it is made under another name, under a lock, and renamed.
3. Its name is of what it was made from. One of something else is removed when the next is made.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Of one that does not fit nobody needs to hear: a JVM may be given that of other classes."""


def place(folder: Path, name: str, made_from: Iterable[str]) -> Path:
    """Where the archive of that name is, or would be."""
    digest = hashlib.sha256("\n".join(made_from).encode()).hexdigest()
    return folder / f"{name}-{digest[:16]}.jsa"


def flags(archive: Path) -> tuple[str, ...]:
    """What has a JVM map it; nothing where there is none."""
    return (f"-XX:SharedArchiveFile={archive}", *SILENT) if archive.is_file() else ()


def dump_flags(archive: Path) -> tuple[str, ...]:
    """What has a JVM write it at its end."""
    return ("-Xlog:cds=off", f"-XX:ArchiveClassesAtExit={archive}")


def make(archive: Path, dump: Callable[[Path], None]) -> bool:
    """Make it, unless it is there; says whether there is one: some JVMs write none.

    Args:
        archive: From `place()`.
        dump: Runs a JVM with `dump_flags()` of the path that it is called with, to its end.
    """
    name, _ = archive.stem.rsplit("-", 1)
    with open(archive.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.is_file():
            return True
        for old in archive.parent.glob(f"{name}-*.jsa*"):
            old.unlink()
        partial = archive.with_suffix(".jsa.partial")
        dump(partial)
        if not partial.is_file():
            return False
        partial.rename(archive)
        return True
