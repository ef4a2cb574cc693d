"""Kafka's classes in a file (`tests.class_archive`): with it a broker of the tests starts in half of the time.

``python -m tests.kafka_archive`` makes the file, once for the jars in the cache (``make test`` does, before
pytest); brokers and tools use it where it is there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from tests import class_archive
from tests.kafka_cluster import BROKER_JVM_FLAGS, KafkaCluster
from tests.kafka_install import KafkaInstall, KafkaUnavailableError, find_or_install
from tests.kafka_tools import KafkaTools


def load_classes(install: KafkaInstall, archive: Path) -> None:
    """A broker that takes one record, and writes down at its end what it has loaded."""
    flags = (*BROKER_JVM_FLAGS, *class_archive.dump_flags(archive))
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
    if class_archive.make(install.archive, lambda partial: load_classes(install, partial)):
        print(f"Kafka's classes for the brokers of the tests: {install.archive}")
    else:
        print(f"{install.java} has written no archive of Kafka's classes: the tests' brokers start without")
    return 0


if __name__ == "__main__":
    sys.exit(main())
