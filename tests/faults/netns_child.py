"""The scenarios that need lost packets, each a process of its own: `python -m tests.faults.netns_child NAME KIND`.

Started by `netns.run_scenario` in a fresh network namespace. FakeCluster and the producer are both in here, with a
`LossyLine` between them. A breach is a traceback and a non-zero exit code; otherwise one
JSON object tells what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioproduce import Producer
from aioproduce.errors import NoBrokerAvailableError
from aioproduce.testing import FakeCluster
from tests.drivers.producing import until
from tests.faults.netns_link import BROKERS, HERE, NOBODY, LossyLine
from tests.faults.verdict import Trial
from tests.faults.wire import EAGER, KINDS, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Linux repeats a lost packet after 0.2 s at the earliest, a lost SYN after 1 s.
SETTINGS: Final[dict[str, Any]] = {
    **EAGER,
    "request_timeout_ms": 1000,
    "socket_connection_setup_timeout_ms": 300,
    "socket_connection_setup_timeout_max_ms": 2000,
}


@dataclass(slots=True)
class Field:
    """What a scenario plays with; `told` goes into the verdict."""

    line: LossyLine
    cluster: FakeCluster
    bootstrap: str
    settings: dict[str, Any]
    kind: str
    told: dict[str, Any]

    def port(self, broker: int) -> int:
        """Where the broker listens."""
        return self.cluster.ports[broker]

    @contextlib.asynccontextmanager
    async def sending(self, *, may_fail: bool = False, **settings: Any) -> AsyncIterator[Trial]:
        """Send while the block lasts, and judge the log when the producer is closed."""
        async with (
            Producer(self.bootstrap, **{**self.settings, **settings}) as producer,
            Trial(producer, TOPIC, KINDS[self.kind].promise) as trial,
        ):
            await trial.acknowledged(50)
            yield trial
        found = trial.judge(self.cluster.records(TOPIC), may_fail=may_fail)
        self.told.update(
            sent=trial.sent, acked=len(trial.acked), failed=len(trial.failed), twice=len(found.duplicated)
        )

    async def tried_again(self, times: int = 3) -> None:
        """The client has given up connections, and began so many new ones; repetitions of the kernel's count."""
        target = self.line.attempts.get(BROKERS, 0) + times
        await until(lambda: self.line.attempts[BROKERS] >= target)


async def syn_black_hole(field: Field) -> None:
    """Row 2: of seven bootstrap servers six are switched off. With all of them off the error says so, in time."""
    switched_off = [f"{address}:{field.port(0)}" for address in NOBODY]
    # Which server is asked first is up to chance: until a switched off one was.
    for _ in range(20):
        bootstrap = [*switched_off, f"{BROKERS}:{field.port(0)}"]
        async with Producer(
            bootstrap, **{**field.settings, "socket_connection_setup_timeout_ms": 100}
        ) as producer:
            metadata = await producer.send_and_wait(TOPIC, b"found")
        assert field.cluster.records(TOPIC, metadata.partition)[metadata.offset].value == b"found"
        if field.line.attempts.keys() & set(NOBODY):
            break
    async with Producer(switched_off, **{**field.settings, "max_block_ms": 500}) as producer:
        try:
            await producer.check(5.0)
        except NoBrokerAvailableError as error:
            field.told["causes"] = error.causes
    field.told["attempts"] = {address: field.line.attempts.get(address, 0) for address in NOBODY}


async def short_outage(field: Field) -> None:
    """Row 8: no packet gets through, either way, for longer than the request time-out."""
    await _outages(field, 1)


async def short_outages(field: Field) -> None:
    """Row 8: and once more, from where the first one left the connections."""
    await _outages(field, 2)


async def _outages(field: Field, times: int) -> None:
    async with field.sending() as trial:
        for _ in range(times):
            field.line.is_open_to_brokers = field.line.is_open_to_client = False
            await field.tried_again()
            field.line.is_open_to_brokers = field.line.is_open_to_client = True
            await trial.caught_up()


async def long_outage(field: Field) -> None:
    """Row 9: the same for longer than the delivery time-out."""
    async with field.sending(may_fail=True, delivery_timeout_ms=2000) as trial:
        field.line.is_open_to_brokers = field.line.is_open_to_client = False
        await trial.failures(100)
        field.line.is_open_to_brokers = field.line.is_open_to_client = True
        await trial.acknowledged(200)


async def loss(field: Field) -> None:
    """Row 13: each packet is lost with a probability of 20 %, either way."""
    async with field.sending() as trial:
        field.line.loss = 0.2
        await trial.acknowledged(2000)
        await trial.caught_up()
        field.line.loss = 0.0


async def one_way_to_brokers(field: Field) -> None:
    """Row 13: nothing gets to the brokers, not even what acknowledges their bytes."""
    async with field.sending() as trial:
        field.line.is_open_to_brokers = False
        await field.tried_again()
        field.line.is_open_to_brokers = True
        await trial.caught_up()


async def one_way_to_client(field: Field) -> None:
    """Row 13: records get to the brokers and are written, and no answer ever comes."""
    async with field.sending() as trial:
        field.line.is_open_to_client = False
        await field.tried_again()
        field.line.is_open_to_client = True
        await trial.caught_up()


SCENARIOS: Final[dict[str, Callable[[Field], Awaitable[None]]]] = {
    each.__name__: each
    for each in (
        syn_black_hole,
        short_outage,
        short_outages,
        long_outage,
        loss,
        one_way_to_brokers,
        one_way_to_client,
    )
}


async def run(name: str, kind: str) -> dict[str, Any]:
    """What happened in a scenario; an exception if it was not what was promised."""
    told: dict[str, Any] = {}
    with LossyLine(seed=13) as line:
        async with FakeCluster(3, host=HERE, topics={TOPIC: 6}) as cluster:
            for broker, port in cluster.ports.items():
                cluster.advertise(broker, BROKERS, port)
            line.broker_ports = frozenset(cluster.ports.values())
            bootstrap = ",".join(f"{BROKERS}:{port}" for port in cluster.ports.values())
            settings = {**SETTINGS, **KINDS[kind].settings}
            await SCENARIOS[name](Field(line, cluster, bootstrap, settings, kind, told))
        told.update(carried=line.carried, lost=line.lost)
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(*sys.argv[1:]))))
