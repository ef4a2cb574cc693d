"""The Apache Kafka of the tests, and Spark's connector to it: found in the cache, or fetched once by Maven.

Called by the fixtures of ``tests/integration`` and ``tests/spark`` and, as ``python -m tests.kafka_install``, by
``make test`` before pytest starts, so that a first download is seen as what it is and no test's time-out runs
meanwhile.

1. The cache folder is complete or absent: jars are resolved into a partial folder that is renamed at the end,
   under a file lock, so two runs at once download once and a killed one leaves nothing that looks usable.
2. What is cached belongs to its ``pom.xml`` as it is now: the digest is kept next to the jars and compared.
3. Whatever is missing (Java, Maven, the network) becomes ``KafkaUnavailableError`` with the reason and the
   remedy; nothing else is caught.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import class_archive

POM = Path(__file__).with_name("pom.xml")
CONNECTOR_POM = Path(__file__).parent / "spark" / "pom.xml"
MINIMUM_JAVA = 17

# The download is 54 MB: ten minutes are a tenth of a megabyte per second, and then something is broken.
DOWNLOAD_TIMEOUT = 600.0


class KafkaUnavailableError(Exception):
    """This machine cannot run a real Kafka; the text says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class KafkaInstall:
    """A Java and a folder of Kafka's jars, ready to be run, and maybe a folder of a test's own classes."""

    java: str
    libs: Path
    version: str
    classes: Path | None = None

    @property
    def classpath(self) -> str:
        """What ``java -cp`` wants; the JVM expands the star by itself."""
        own = "" if self.classes is None else f"{self.classes}{os.pathsep}"
        return f"{own}{self.libs}/*"

    @property
    def archive(self) -> Path:
        """Where `tests.kafka_archive` puts the classes as this Java has them in memory."""
        java = Path(self.java).resolve()
        return class_archive.place(self.libs.parent, "classes", (str(java), str(java.stat().st_mtime_ns)))

    @property
    def archive_flags(self) -> tuple[str, ...]:
        """What has a JVM map that file; nothing where there is none, or where the class path is another."""
        return () if self.classes is not None else class_archive.flags(self.archive)


@functools.cache
def find_or_install() -> KafkaInstall:
    """Return the installation, downloading it on the first call on this machine.

    Raises:
        KafkaUnavailableError: Java or Maven is missing or too old, or Maven could not fetch the jars.
    """
    java = find_java()
    version, folder = _find_or_download(POM, "kafka")
    return KafkaInstall(java=java, libs=folder, version=version)


@functools.cache
def find_or_install_connector() -> tuple[Path, ...]:
    """Return the jars of Spark's Kafka connector, downloading them on the first call on this machine.

    Raises:
        KafkaUnavailableError: Java or Maven is missing or too old, or Maven could not fetch the jars.
    """
    find_java()
    _, folder = _find_or_download(CONNECTOR_POM, "spark")
    return tuple(sorted(folder.glob("*.jar")))


def _find_or_download(pom: Path, product: str) -> tuple[str, Path]:
    """What ``<product.version>`` of a pom says, and the folder with its jars."""
    text = pom.read_text()
    match = re.search(rf"<{product}\.version>(.+?)</{product}\.version>", text)
    if match is None:
        raise RuntimeError(f"{pom} names no <{product}.version>")
    folder = cache_folder() / f"{product}-{match[1]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(folder, digest):
            _download(pom, folder, digest)
    return match[1], folder / "libs"


def cache_folder() -> Path:
    """The XDG cache: the specification says that a relative path in the variable is to be ignored."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "aioproduce"


def find_java() -> str:
    """The Java that the tests run.

    Raises:
        KafkaUnavailableError: it is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"under JAVA_HOME={home}" if home else "on PATH"
        raise KafkaUnavailableError(f"no java {where}: install a Java {MINIMUM_JAVA} runtime (or later)")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    match = re.search(r'version "(\d+)', answer.stderr)
    if match is None:
        raise KafkaUnavailableError(f"`{java} -version` names no version: {answer.stderr.strip()!r}")
    if int(match[1]) < MINIMUM_JAVA:
        raise KafkaUnavailableError(
            f"{java} is Java {match[1]}: a Kafka 4 broker and Spark 4 need Java {MINIMUM_JAVA}"
        )
    return java


def _is_complete(folder: Path, digest: str) -> bool:
    stamp = folder / "pom.sha256"
    return stamp.is_file() and stamp.read_text() == digest


def _download(pom: Path, folder: Path, digest: str) -> None:
    """Resolve a pom into ``folder``; the caller holds the lock."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"no mvn on PATH to fetch the jars of {pom} into {folder}: install Maven")
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    command = [maven, "--batch-mode", "--no-transfer-progress", "--file", str(pom)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial / 'libs'}"]
    try:
        answer = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"mvn did not finish in {DOWNLOAD_TIMEOUT:.0f} s") from error
    if answer.returncode != 0:
        errors = [line for line in answer.stdout.splitlines() if line.startswith("[ERROR]")]
        tail = " ".join(errors[:3]) or answer.stdout[-500:]
        raise KafkaUnavailableError(f"mvn could not fetch the jars of {pom}: {tail}")
    (partial / "pom.sha256").write_text(digest)
    if folder.exists():
        # An older pom's jars. A broker that runs from them keeps its open files.
        shutil.rmtree(folder)
    partial.rename(folder)


def main() -> int:
    """Install and say where, or why not: an error only where CI requires the real-Kafka tests."""
    try:
        install = find_or_install()
        connector = find_or_install_connector()
    except KafkaUnavailableError as error:
        print(f"The tests with a real Kafka or with Spark will be skipped: {error}", file=sys.stderr)
        return 1 if os.environ.get("AIOPRODUCE_REQUIRE_KAFKA") == "1" else 0
    print(f"Apache Kafka {install.version} for the tests: {install.libs}")
    print(f"Spark's Kafka connector for the tests: {', '.join(jar.name for jar in connector)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
