"""What the wire fault tests share: kinds of producer with what they promise, and a cluster behind a proxy.

A test scripts its fault on `Wire.proxy` while `Wire.trial` sends; at the end of `behind_proxy()` the log is judged.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioproduce import Producer
from aioproduce.testing import FakeCluster
from tests.faults.proxy import FaultProxy
from tests.faults.verdict import Promise, Trial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.faults.proxy import WireFault
    from tests.integration.traffic import Verdict

TOPIC: Final = "t"

# Short waits, so that a fault is met often; a delivery time-out that no fault outlasts unless a test shortens it.
EAGER: Final[dict[str, Any]] = {
    "batch_size": 500,
    "linger_ms": 2,
    "request_timeout_ms": 500,
    "delivery_timeout_ms": 60_000,
    "max_block_ms": 60_000,
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 20,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Settings of a producer, and what they promise."""

    settings: dict[str, Any]
    promise: Promise


KINDS: Final = {
    "idempotent": Kind({}, Promise.ONCE),
    "plain": Kind({"enable_idempotence": False, "acks": "all"}, Promise.AT_LEAST_ONCE),
    "one-by-one": Kind(
        {"enable_idempotence": False, "acks": 1, "max_in_flight_requests_per_connection": 1},
        Promise.IN_ORDER,
    ),
}


@dataclass(slots=True)
class Wire:
    """A producer that sends through a proxy to a cluster.

    Attributes:
        verdict: What was found in the log, once it was judged.
        may_fail: Whether records may fail; a test sets it before the end.
        promise: Instead of the kind's own.
    """

    kind: str
    cluster: FakeCluster
    proxy: FaultProxy
    producer: Producer
    trial: Trial
    may_fail: bool = False
    promise: Promise | None = None
    verdict: Verdict | None = None


@contextlib.asynccontextmanager
async def behind_proxy(
    kind: str, *, seed: int = 0, faults: Sequence[WireFault] = (), is_sending: bool = True, **settings: Any
) -> AsyncIterator[Wire]:
    """Three brokers, each behind the proxy, and a producer that has got its first acknowledgements.

    Args:
        kind: Of `KINDS`.
        seed: The proxy's.
        faults: Scripted before the producer starts.
        is_sending: Whether records are sent without pause; otherwise only those that the test sends.
        **settings: Of the producer, instead of those of its kind and of `EAGER`.
    """
    chosen = {**EAGER, **KINDS[kind].settings, **settings}
    async with FakeCluster(3, topics={TOPIC: 6}) as cluster, FaultProxy.of(cluster, seed=seed) as proxy:
        for fault in faults:
            proxy.script(fault)
        async with Producer(proxy.bootstrap_servers, **chosen) as producer:
            trial = Trial(producer, TOPIC, KINDS[kind].promise, is_sending=is_sending)
            wire = Wire(kind, cluster, proxy, producer, trial)
            async with trial:
                if is_sending:
                    await trial.acknowledged(50)
                else:
                    await trial.send(50)
                    await trial.settle()
                yield wire
    # The log can still be read, and nothing can come into it any more.
    wire.verdict = trial.judge(cluster.records(TOPIC), may_fail=wire.may_fail, promise=wire.promise)
