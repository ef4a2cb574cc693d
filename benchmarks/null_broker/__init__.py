"""A Kafka cluster that counts records and keeps none, in a separate process; its C source is in this folder.

For the benchmarks and their tests: a broker that is never the limit of the measured client.

    with null_broker(topics={"bench": 6}, brokers=3) as broker:
        produce(broker.bootstrap_servers)
        assert broker.records() == 1_000_000

1. The program is compiled on first use into the cache folder, under a name that changes with its source. It is
   renamed into place, so two processes may compile at the same time.
2. The process ends with the block, and with its parent, however that ends.
3. One caller at a time: a command's answer is the next line.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SOURCES: Final = Path(__file__).parent
FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra")
TLS_FLAGS: Final = ("-DWITH_TLS", "-lssl", "-lcrypto")
"""They require OpenSSL's headers (Debian, Ubuntu: libssl-dev; Fedora: openssl-devel)."""
COMPILERS: Final = ("cc", "gcc", "clang")
LONGEST_ARGUMENT: Final = 100_000
"""Linux allows 128 KiB in one argument, and megabytes in total."""
ENOUGH_TO_END: Final = 5.0
"""Seconds; the end of its standard input ends the program at once."""


class NullBrokerError(RuntimeError):
    """The null broker cannot be built or has ended."""


class CompilerNotFoundError(NullBrokerError):
    """There is no C compiler."""

    def __init__(self) -> None:
        super().__init__(
            f"No C compiler: none of {', '.join(COMPILERS)} is on PATH, and CC names none. Install one"
            " (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc) or set CC."
        )


class CompilationError(NullBrokerError):
    """The C compiler refused the source.

    Attributes:
        command: The compiler's command.
        output: The compiler's output.
    """

    def __init__(self, command: Sequence[str], output: str) -> None:
        super().__init__(
            f"{shlex.join(command)} failed. The null broker needs Linux (epoll) and the C library's headers, and"
            " with a certificate OpenSSL's (libssl-dev)."
            f"\n{output}"
        )
        self.command = tuple(command)
        self.output = output


def find_compiler() -> list[str]:
    """Return the C compiler as the first words of a command: ``CC`` if it is set, else the first of ``COMPILERS``.

    Raises:
        CompilerNotFoundError: if there is none.
    """
    words = shlex.split(os.environ.get("CC", ""))
    if words and shutil.which(words[0]):
        return words
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise CompilerNotFoundError


def cache_folder() -> Path:
    """Return the folder of compiled programs: never in the source tree, which may be read-only."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "aioproduce" / "null_broker"


def build(*flags: str) -> Path:
    """Return the compiled program; compile it if this source never was with these additional flags.

    Raises:
        CompilerNotFoundError: if it must be compiled and there is no compiler.
        CompilationError: if the compiler fails.
    """
    digest = hashlib.sha256(repr((FLAGS, flags, platform.machine())).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = cache_folder()
    program = folder / f"null_broker-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    compiler = find_compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        result = Path(scratch) / program.name
        # Libraries among the flags must come after the source that needs them.
        command = [*compiler, *FLAGS, "-o", str(result), str(SOURCES / "null_broker.c"), *flags]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            raise CompilationError(command, done.stdout)
        result.replace(program)
    return program


class NullBroker:
    """The running brokers.

    Attributes:
        bootstrap_servers: Their addresses, separated by commas.
        pid: Their one process.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.bootstrap_servers: str = self._answer()["bootstrap_servers"]

    def stats(self) -> dict[str, Any]:
        """Return all counts since the start or `reset()`.

        Returns:
            ``records``, ``batches``, ``requests`` (Produce only), ``bytes`` (of record batches), ``crc_errors``,
            ``sequence_errors``, ``refused_batches`` (answered with an error, those two included), ``partitions``
            (``"topic-0"`` to its records; only those with records), and, never reset, ``connections`` (now),
            ``accepted_connections`` and ``cpu_seconds``.
        """
        return self._tell("stats")

    def records(self) -> int:
        """Return the number of records accepted since the start or `reset()`."""
        return int(self.stats()["records"])

    def cpu_seconds(self) -> float:
        """Return the processor time that the brokers have used, in user and system mode."""
        return float(self.stats()["cpu_seconds"])

    def reset(self) -> None:
        """Count from zero again. Offsets, topics and producers' sequences do not change."""
        self._tell("reset")

    def set_delay(self, delay: float) -> None:
        """Answer Produce requests that arrive from now on only `delay` seconds later."""
        self._tell(f"delay {delay * 1000:.6f}")

    def _tell(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NullBrokerError(answer["error"])
        return answer

    def _ended(self) -> NullBrokerError:
        return NullBrokerError(
            f"The null broker ended with status {self._process.wait()}; what it said is on standard error."
        )


@contextmanager
def null_broker(
    *,
    topics: Mapping[str, int] | None = None,
    brokers: int = 1,
    partitions: int = 1,
    delay: float = 0.0,
    verify: bool = False,
    certificate: Path | None = None,
    build_flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> Iterator[NullBroker]:
    """Run brokers until the block ends.

    Args:
        topics: Topics that exist from the start, with their number of partitions.
        brokers: The number of brokers; broker ``p % brokers`` leads partition ``p``.
        partitions: The number of partitions of any other topic, which is created when a client asks for it.
        delay: Seconds from a Produce request's arrival to its answer.
        verify: Check the CRC-32C of every batch, and the sequences of idempotent producers.
        certificate: PEM with key, certificate and chain: TLS 1.3 on every port.
        build_flags: More flags for the compiler.
        arguments: More arguments for the program.

    Raises:
        CompilerNotFoundError: if there is no C compiler.
        CompilationError: if the compiler fails, or `certificate` needs OpenSSL's headers and they are missing.
        NullBrokerError: if the program does not start.
    """
    flags = (*build_flags, *(TLS_FLAGS if certificate else ()))
    command = [str(build(*flags)), "--brokers", str(brokers), "--partitions", str(partitions)]
    command += ["--certificate", str(certificate)] if certificate else []
    command += ["--delay-ms", f"{delay * 1000:.6f}", *(["--verify"] if verify else []), *arguments]
    for chunk in _chunks([f"{name}:{count}" for name, count in (topics or {}).items()]):
        command += ["--topics", chunk]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield NullBroker(process)
    finally:
        try:
            process.communicate(timeout=ENOUGH_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _chunks(words: list[str]) -> Iterator[str]:
    """Return the words joined by commas, in as many arguments as they need."""
    chunk: list[str] = []
    length = 0
    for word in words:
        if length + len(word) > LONGEST_ARGUMENT:
            yield ",".join(chunk)
            chunk, length = [], 0
        chunk.append(word)
        length += len(word) + 1
    if chunk:
        yield ",".join(chunk)
