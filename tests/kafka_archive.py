"""Kafka's classes as a JVM has them in memory, in a file: with it a broker of the tests starts in half of the time.

``python -m tests.kafka_archive`` makes the file, once for the jars in the cache (``make test`` does, before
pytest); brokers and tools use it where it is there. As `tests.spark.jvm_archive`, and under the same rules: nothing
depends on it, and it is whole or absent.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from tests.kafka_cluster import BROKER_JVM_FLAGS, KafkaCluster
from tests.kafka_install import KafkaInstall, KafkaUnavailableError, find_or_install
from tests.kafka_tools import KafkaTools


def make(install: KafkaInstall) -> bool:
    """Make it, unless it is there; says whether there is one: a Java without an archive of its own makes none."""
    archive = install.archive
    with open(archive.with_name("classes.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.is_file():
            return True
        for old in archive.parent.glob("classes-*.jsa*"):
            old.unlink()
        partial = archive.with_suffix(".jsa.partial")
        load_classes(install, partial)
        if not partial.is_file():
            return False
        partial.rename(archive)
        return True


def load_classes(install: KafkaInstall, archive: Path) -> None:
    """A broker that takes one record, and writes down at its end what it has loaded."""
    flags = (*BROKER_JVM_FLAGS, "-Xlog:cds=off", f"-XX:ArchiveClassesAtExit={archive}")
    with (
        tempfile.TemporaryDirectory() as scratch,
        KafkaCluster(KafkaTools(install), Path(scratch) / "kafka", brokers=1, jvm_flags=flags) as cluster,
    ):
        cluster.create_topic("one")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        producer.produce("one", b"value")
        assert producer.flush(60.0) == 0
        cluster.terminate(1)


def main() -> int:
    """Make the archive, and say where it is; without Kafka there is nothing to be made."""
    try:
        install = find_or_install()
    except KafkaUnavailableError:
        return 0  # told by `tests.kafka_install`
    if make(install):
        print(f"Kafka's classes for the brokers of the tests: {install.archive}")
    else:
        print(f"{install.java} has written no archive of Kafka's classes: the tests' brokers start without")
    return 0


if __name__ == "__main__":
    sys.exit(main())
