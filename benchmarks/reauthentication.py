"""Records in flight while sessions end every two seconds: `python -m benchmarks.reauthentication`.

A producer sends to a FakeCluster in another process that requires a new login every two seconds, in turn with one
that never does: 20,000 records a second on a fixed schedule, and at full rate; each mechanism, over TLS, with and
without idempotence.

1. Every record's value is its number. The brokers' logs are audited: each number exists once, and each partition's
   numbers rise. Without idempotence there are no retries, so a lost connection would lose records.
2. Latency at a fixed rate is counted from when a record was due, at full rate from the call of `send()`.
3. The buffer is of 1 MiB. A session is renewed when a tenth of a second or more is left of it. A broker that needs
   longer than that for the data it was sent closes the connection, as Kafka does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import partial
from itertools import product
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from aioproduce import Producer
from benchmarks.broker import BrokerProcess, broker_process
from benchmarks.cases import PARTITIONS, TOPIC
from benchmarks.loop_clock import Ticks, percentiles

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RATES: Final = (20_000, 0)
"""Records a second; 0 for full rate."""
# Sessions are renewed at 85 to 95 % of their time: about every two seconds.
SESSION_MS: Final = 2220
MOST_SLOWER: Final = 2.0
_TICK: Final = 0.001
_WARM_UP: Final = 0.5
_WITHOUT_S: Final = 15.0
"""The longest time of a run without renewals, which only gives the latencies to compare with."""
Figures = dict[str, float]


class _Acknowledgements:
    """The latencies from a given instant to a record's acknowledgement."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.failed = 0

    def taken(self, begun: float, metadata: object, error: BaseException | None) -> None:
        if error is None:
            self.latencies.append(time.perf_counter() - begun)
        else:
            self.failed += 1


async def _at_a_rate(producer: Producer, rate: int, seconds: float, acknowledged: _Acknowledgements) -> int:
    sent = 0
    with Ticks(_TICK) as ticks:
        for tick in range(int(seconds / _TICK)):
            await ticks.wait(tick)
            told = partial(acknowledged.taken, ticks.due(tick))
            for _ in range(int((tick + 1) * rate * _TICK) - sent):
                await producer.send(TOPIC, b"%d" % sent, on_delivery=told)
                sent += 1
    return sent


async def _at_full_rate(producer: Producer, seconds: float, acknowledged: _Acknowledgements) -> int:
    sent, until = 0, time.perf_counter() + seconds
    while (now := time.perf_counter()) < until:
        for _ in range(100):
            told = partial(acknowledged.taken, now)
            await producer.send(TOPIC, b"%d" % sent, on_delivery=told)
            sent += 1
            now = time.perf_counter()
        # `send()` alone lets the loop turn only when the buffer is full.
        await asyncio.sleep(0)
    return sent


async def _run(
    broker: BrokerProcess, settings: dict[str, Any], rate: int, seconds: float, *, is_idempotent: bool
) -> Figures:
    more: dict[str, Any] = {"buffer.memory": str(2**20), "linger.ms": "5"}
    if not is_idempotent:
        more |= {"enable.idempotence": "false", "retries": "0"}
    acknowledged = _Acknowledgements()
    async with Producer({**settings, **more}) as producer:
        began = time.perf_counter()
        send = partial(_at_a_rate, rate=rate) if rate else _at_full_rate
        sent = await send(producer, seconds=seconds, acknowledged=acknowledged)
        await producer.flush()
        took = time.perf_counter() - began
        metrics = producer.metrics()
        renewed = metrics.value("successful-reauthentication-total")
        opened = metrics.value("connection-creation-total")
    audited = await asyncio.to_thread(broker.audit, TOPIC)
    warm = int(len(acknowledged.latencies) * min(0.5, _WARM_UP / seconds))
    return {
        "sent": sent,
        "records_per_second": sent / took,
        "failed": acknowledged.failed,
        "lost": sent - audited["distinct"],
        "duplicated": audited["records"] - audited["distinct"],
        "disordered": audited["disordered"],
        "renewed": renewed,
        "opened": opened,
        **percentiles("latency", acknowledged.latencies[warm:]),
    }


def measure(mechanism: str, rate: int, seconds: float, *, is_idempotent: bool, session_ms: int) -> Figures:
    """One run, on uvloop.

    Args:
        mechanism: One of `MECHANISMS`.
        rate: Records a second; 0 for full rate.
        seconds: The length of the run.
        is_idempotent: Whether the producer is idempotent; if not, it does not retry.
        session_ms: `connections.max.reauth.ms` of the brokers; 0 for sessions without end.
    """
    security = {"connections_max_reauth_ms": session_ms, "users": {"alice": "alice-secret"}}
    with (
        broker_process(topic=TOPIC, partitions=PARTITIONS, security=security) as broker,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        settings = broker.settings("alice", mechanism)
        figures: Figures = runner.run(_run(broker, settings, rate, seconds, is_idempotent=is_idempotent))
    return figures


def faults(figures: Figures, seconds: float) -> list[str]:
    """Return the problems of a run whose sessions ended, in words."""
    found = [
        f"{figures[name]:,.0f} {name}"
        for name in ("failed", "lost", "duplicated", "disordered")
        if figures[name]
    ]
    # A bootstrap connection, and one to the leader; only the latter is used, and renewed, all the time.
    if figures["opened"] > 2:
        found.append(f"{figures['opened']:.0f} connections")
    if figures["renewed"] < int(seconds / (SESSION_MS / 1000)):
        found.append(f"renewed {figures['renewed']:.0f} times only")
    return found


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 if a record failed or its acknowledgement took too long."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reauthentication", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of each run (60)")
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=MECHANISMS, metavar="NAME")
    parser.add_argument(
        "--rates", nargs="+", type=int, default=RATES, help="records/s; 0 for full rate (20000 0)"
    )
    parser.add_argument("--json", action="store_true", help="for a program")
    options = parser.parse_args(arguments)
    table = Table(title="Sessions of two seconds, and such without end", title_justify="left")
    table.add_column("mechanism, idempotence, rate", no_wrap=True)
    for heading in ("records/s", "without", "renewed", "p50 ms", "without", "p99 ms", "without", "p99 x", ""):
        table.add_column(heading, justify="right" if heading else "left")
    rows: list[dict[str, Any]] = []
    for mechanism, is_idempotent, rate in product(options.mechanisms, (True, False), options.rates):
        run = partial(measure, mechanism, rate, is_idempotent=is_idempotent)
        without = run(seconds=min(options.seconds, _WITHOUT_S), session_ms=0)
        with_end = run(seconds=options.seconds, session_ms=SESSION_MS)
        wrong = faults(with_end, options.seconds)
        slower = with_end["latency_p99_ms"] / without["latency_p99_ms"]
        if slower > MOST_SLOWER:
            wrong.append("p99")
        rows.append(
            {
                "mechanism": mechanism,
                "is_idempotent": is_idempotent,
                "rate": rate,
                "sessions_that_end": with_end,
                "sessions_without_end": without,
                "p99_ratio": slower,
                "wrong": wrong,
            }
        )
        told = "full" if rate == 0 else f"{rate:,}/s"
        table.add_row(
            f"{mechanism}, {'idempotent' if is_idempotent else 'not'}, {told}",
            *(f"{each['records_per_second']:,.0f}" for each in (with_end, without)),
            f"{with_end['renewed']:.0f}",
            *(f"{each['latency_p50_ms']:,.2f}" for each in (with_end, without)),
            *(f"{each['latency_p99_ms']:,.2f}" for each in (with_end, without)),
            f"{slower:.2f}",
            f"MISSED: {', '.join(wrong)}" if wrong else "met",
        )
    if options.json:
        print(json.dumps(rows))
    else:
        Console(width=160).print(table)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
