"""The clients that are compared, one module each, behind one protocol.

Called by the plans, for what there is to measure, and by the worker process, which runs one case.

1. A client that cannot run here reports why (`unavailable`), and the tables leave it out with that reason.
2. Importing this package imports no client library: a worker's memory and start-up are those of its own client.
3. Every client sends the same values and gets the same settings, as far as it has them. Its module names the
   differences.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.cases import Case, Outcome

LOOPS = ("uvloop", "asyncio")


class Client(Protocol):
    """A Kafka client and the ways to use it.

    Attributes:
        name: Its name in the tables.
        loops: The event loops that it runs on; one empty name for a client without a loop.
        modes: The ways to send, each with its expected records per second (100 bytes, null broker), so that all
            runs last about as long.
    """

    @property
    def name(self) -> str: ...
    @property
    def loops(self) -> tuple[str, ...]: ...
    @property
    def modes(self) -> Mapping[str, int]: ...

    def unavailable(self) -> str | None:
        """Return why this client cannot run here, or None."""

    def version(self) -> str:
        """Return the library's version."""

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        """Send ``case.records`` as fast as the mode can, all acknowledged."""

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        """Send at a fixed rate and return the latencies; None if they are not measured for this client."""


# In the order of the tables.
_MODULES = {
    "aioproduce": "aioproduce_client",
    "drop-in": "drop_in_client",
    "aioproduce/trio": "aioproduce_trio_client",
    "aiokafka": "aiokafka_client",
    "confluent": "confluent_client",
    "drop-in AIO": "drop_in_confluent_client",
    "confluent AIO": "confluent_aio_client",
    "kafka-python": "kafka_python_client",
    "Java": "java_client",
    "franz-go": "franz_go_client",
}
NAMES = tuple(_MODULES)


def client(name: str) -> Client:
    """Return the client of that name."""
    module = import_module(f"benchmarks.clients.{_MODULES[name]}")
    made: Client = module.CLIENT
    return made
