"""The producers of a chaos run: VerifiableProducers, ours or Kafka's own, as processes.

Used by ``run``. Each prints into a file, which is followed: a pipe that is not read fast enough would stop it.

1. All run with acks=all and retries for as long as ``delivery.timeout.ms`` lets them, and with idempotence but for
   a control run: without it the same faults must show duplicates.
2. Values are ``prefix.number``, so that several can share a topic. Every second producer has keys.
3. Every process is ended by its pid, and where ``setpriv`` exists by the kernel if this process dies.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kafka_cluster import KafkaCluster

REPOSITORY = Path(__file__).parents[2]
JAVA = "org.apache.kafka.tools.VerifiableProducer"

REQUEST_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_MS = 120_000
KEYS = 100
# Flushing what is left is bounded by the delivery time-out; above it the producer hangs.
END_TIMEOUT = DELIVERY_TIMEOUT_MS / 1000 + 30.0

SETTINGS = {
    "acks": "all",
    "enable.idempotence": "true",
    "retries": "2147483647",
    "linger.ms": "5",
    "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
    "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
    "max.block.ms": str(DELIVERY_TIMEOUT_MS),
}


def under_this_process(command: Sequence[str]) -> list[str]:
    """A command whose process the kernel kills with this one, where it can."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


class Sender:
    """One VerifiableProducer.

    Args:
        cluster: Where to.
        topic: The topic.
        prefix: Of its values; also its place among the senders.
        rate: Records a second, -1 for as many as go.
        client: ``aioproduce`` or ``java``.
        is_idempotent: Whether it is to be.
        directory: For its settings and what it prints.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        prefix: int,
        *,
        rate: int,
        client: str,
        is_idempotent: bool,
        directory: Path,
    ) -> None:
        self.outcomes = Outcomes(prefix)
        self._printed = directory / f"sender-{prefix}.jsonl"
        self.complaints = directory / f"sender-{prefix}.err"
        settings = directory / "sender.properties"
        keys = SETTINGS | {"enable.idempotence": str(is_idempotent).lower()}
        settings.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        words = [
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *("--throughput", str(rate), "--value-prefix", str(prefix), "--command-config", str(settings)),
            *(("--repeating-keys", str(KEYS)) if prefix % 2 else ()),
        ]
        if client == "java":
            command = cluster.tools.command(JAVA, *words)
        else:
            command = [sys.executable, "-m", "aioproduce.verifiable", *words, "--aioproduce-possibly-written"]
        with open(self._printed, "wb") as out, open(self.complaints, "wb") as complaints:
            self.process = subprocess.Popen(
                under_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=complaints,
                cwd=REPOSITORY,
            )
        self._following = open(self._printed, "rb")  # noqa: SIM115  # for as long as the sender lives

    def follow(self) -> None:
        """Take in what was printed since the last time."""
        while chunk := self._following.read(1 << 20):
            self.outcomes.take(chunk)

    def stop(self) -> None:
        """Ask it to end; nothing happens to one that has ended."""
        self.process.terminate()

    def end(self) -> str | None:
        """Wait for its end.

        Returns:
            What was wrong with it.
        """
        try:
            code = self.process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"sender {self.outcomes.prefix} did not end within {END_TIMEOUT:.0f} s"
        self.follow()
        said = self.complaints.read_text(errors="replace")[-2000:]
        if code != 128 + signal.SIGTERM:
            return f"sender {self.outcomes.prefix} ended with {code}: {said}"
        if not self.outcomes.is_complete:
            return f"sender {self.outcomes.prefix} ended without its last lines: {said}"
        if "Traceback" in said:
            return f"sender {self.outcomes.prefix} complained: {said}"
        return None

    def close(self) -> None:
        """Kill it, if it still runs."""
        self._following.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
