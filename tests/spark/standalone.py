"""Spark's own standalone cluster on loopback: one master and its workers, as processes of a test.

The classes are those of the pip package: no distribution of Spark has to be installed.

1. Every process is ended by its pid, in bounded time; where ``setpriv`` exists the kernel ends it with this one.
2. The master is asked over its own JSON page what is alive: no log is read to find that out, and nothing is slept
   for but other processes, which offer no other means.
3. An executor is a child of its worker's process, and a Python worker one of the executor's (``tests.processes``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyspark

from tests.kafka_node import free_ports
from tests.processes import children, command_of, kill_family
from tests.spark.conftest import spark_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

REPOSITORY = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

(_CORE,) = SPARK_HOME.glob("jars/spark-core_*.jar")
SCALA_VERSION = _CORE.name.split("_")[1].split("-")[0]

START_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0
POLL_INTERVAL = 0.1

# The C1 compiler alone and the serial collector, as for every JVM of the tests: two cores are shared by all.
TASK = re.compile(r"INFO Executor: (Running|Finished) task (\d+)\.")
# As Spark's own launcher has it: an archive of classes is for one order of jars (`jvm_archive`).
CLASSPATH = os.pathsep.join(
    map(str, (SPARK_HOME / "conf", *SPARK_HOME.glob("jars/slf4j-api-*.jar"), SPARK_HOME / "jars" / "*"))
)
JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
EXECUTOR_JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What Spark passes to its own JVMs on Java 17, by JavaModuleOptions; only the launcher adds it by itself.
MODULES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/sun.nio.ch",
)


class StandaloneClusterError(Exception):
    """The cluster did not get where a test wants it; the text holds the end of its logs."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of an application: its exit code and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Application:
    """One that runs."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            StandaloneClusterError: It has.
        """
        if self.process.poll() is not None:
            raise StandaloneClusterError(f"it ended already: {self._ended()}")

    def wait(self, timeout: float) -> Submitted:
        """Wait for its end.

        Raises:
            StandaloneClusterError: It did not end in so many seconds.
        """
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise StandaloneClusterError(f"not ended after {timeout:g} s: {self._ended()}") from None
        return self._ended()

    def _ended(self) -> Submitted:
        code = self.process.poll()
        return Submitted(
            -1 if code is None else code,
            self.out.read_text(errors="replace"),
            self.err.read_text(errors="replace"),
        )


class StandaloneCluster:
    """A master and workers of one core each.

    Args:
        java: The JVM.
        directory: An empty folder, for logs, work directories and what executors write.
        workers: How many.
        memory: Of each worker, as Spark writes sizes; an executor takes all of it.
    """

    def __init__(self, java: str, directory: Path, *, workers: int = 2, memory: str = "512m") -> None:
        self._java = java
        self._directory = directory
        self._memory = memory
        self._count = workers
        self._port, self._page = free_ports(2)
        # The kernel's "kill me with my parent" means the thread that started the process: this one stays.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-spawner")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """What ``--master`` wants."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._spawn(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page)),
            )
            self._wait("the master to answer", lambda: self.state() is not None)
            for number in range(self._count):
                self._spawn(
                    f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", self._memory, "--webui-port", "0"),
                    *("--work-dir", str(self._directory / f"work-{number}"), self.url),
                )
            self._wait(f"{self._count} workers", lambda: self.alive_workers() == self._count)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process; safe to repeat.

        A worker ends its executors when it is told to end, and so it is given the time; an executor that lost its
        worker ends by itself.
        """
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._spawner.shutdown()

    def state(self) -> dict[str, Any] | None:
        """The master's own account of workers and applications; None while it does not answer.

        Its server answers before it knows this page, and then with another one.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, urllib.error.URLError, json.JSONDecodeError):
            return None

    def alive_workers(self) -> int:
        """How many workers the master counts as alive."""
        state = self.state()
        return 0 if state is None else sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def executors(self) -> dict[str, list[int]]:
        """The process ids of the executors that run, by worker."""
        found: dict[str, list[int]] = {}
        for name, process in self._processes.items():
            if name != "master":
                found[name] = [
                    pid for pid in children(process.pid) if b"CoarseGrainedExecutorBackend" in command_of(pid)
                ]
        return found

    def running_tasks(self) -> dict[str, set[int]]:
        """The partitions of the tasks that run, by worker, as its executors' logs tell of the last application."""
        found: dict[str, set[int]] = {}
        for name in self.executors():
            applications = sorted(self._directory.glob(f"{name.replace('worker', 'work')}/app-*"))
            found[name] = set()
            for log in applications[-1].glob("*/stderr") if applications else ():
                for word, partition in TASK.findall(log.read_text(errors="replace")):
                    (found[name].add if word == "Running" else found[name].discard)(int(partition))
        return found

    def kill_executor(self, worker: str) -> int:
        """SIGKILL the executor of a worker, by its pid; the worker will start another one.

        Returns:
            Its pid.
        """
        (pid,) = self.executors()[worker]
        os.kill(pid, signal.SIGKILL)
        return pid

    def command(
        self,
        script: Path,
        *arguments: str,
        jars: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
    ) -> list[str]:
        """How ``spark-submit`` is called for an application on this cluster."""
        wanted = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": EXECUTOR_JVM_FLAGS,
            "spark.executor.memory": self._memory,
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": EXECUTOR_JVM_FLAGS,
            "spark.executorEnv.PYTHONPATH": spark_environment()["PYTHONPATH"],
            "spark.pyspark.python": sys.executable,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            **(settings or {}),
        }
        return [
            str(SPARK_HOME / "bin" / "spark-submit"),
            *("--master", self.url),
            *(("--jars", ",".join(map(str, jars))) if jars else ()),
            *(word for key, value in wanted.items() for word in ("--conf", f"{key}={value}")),
            str(script),
            *arguments,
        ]

    def submit(self, command: Sequence[str], *, timeout: float) -> Submitted:
        """Run an application to its end, as made by ``command``.

        Args:
            command: The command line.
            timeout: Seconds after which it is killed and the call raises.

        Raises:
            StandaloneClusterError: It did not end in time.
        """
        with self.running(command) as application:
            return application.wait(timeout)

    @contextmanager
    def running(self, command: Sequence[str]) -> Iterator[Application]:
        """An application that runs meanwhile, and is killed in the end if it still does."""
        name = f"application-{len(list(self._directory.glob('application-*.out')))}"
        out, err = self._directory / f"{name}.out", self._directory / f"{name}.log"
        with open(out, "wb") as printed, open(err, "wb") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                cwd=REPOSITORY,
                env=self._environment(),
            )
        try:
            yield Application(process, out, err)
        finally:
            if process.poll() is None:
                kill_family(process.pid)
                process.wait()

    def logs(self, size: int = 4000) -> str:
        """The end of what master, workers and executors printed."""
        files = [*self._directory.glob("*.log"), *self._directory.glob("work-*/*/*/stderr")]
        tails = [(file, file.read_bytes()[-size:].decode(errors="replace")) for file in sorted(files)]
        return "\n".join(f"{file.relative_to(self._directory)}:\n{tail}" for file, tail in tails)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **spark_environment(),
            "SPARK_HOME": str(SPARK_HOME),
            # Its scripts would find that out; a worker that builds an executor's command line wants to be told.
            "SPARK_SCALA_VERSION": SCALA_VERSION,
            "SPARK_LOCAL_DIRS": str(self._directory),
        }

    def _spawn(self, name: str, class_name: str, *arguments: str) -> None:
        opened = [word for module in MODULES for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
        command = [self._java, *JVM_FLAGS, *opened, "-cp", CLASSPATH, class_name, *arguments]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]

        def popen() -> subprocess.Popen[bytes]:
            with open(self._directory / f"{name}.log", "ab") as log:
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment()
                )

        self._processes[name] = self._spawner.submit(popen).result()

    def _wait(self, awaited: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not is_so():
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise StandaloneClusterError(f"{', '.join(ended)} ended by itself\n{self.logs()}")
            if time.monotonic() > deadline:
                raise StandaloneClusterError(f"waited {START_TIMEOUT:g} s for {awaited}\n{self.logs()}")
            time.sleep(POLL_INTERVAL)
