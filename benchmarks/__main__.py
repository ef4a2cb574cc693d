"""Run the measurements and print them: `python -m benchmarks [--quick] [--json FILE]`.

Peers are run interleaved, each in the same process and against the same broker process, and compared as ratios
of medians: the machine may be shared and noisy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import measures
from benchmarks.broker import BrokerProcess, broker_process
from benchmarks.measures import Figures

console = Console(stderr=True)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": str(os.cpu_count()),
        **{name: version(name) for name in ("aioproduce", "aiokafka", "uvloop", "kio")},
    }


def run(measure: Coroutine[Any, Any, Figures], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> Figures:
    """One measurement on a new event loop."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(measure)


def against_aiokafka(broker: BrokerProcess, records: int, rounds: int) -> dict[str, Figures]:
    """Both clients in turn, on asyncio and uvloop, with batches of 16 KiB and 64 KiB."""
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    runs: dict[str, list[Figures]] = {}
    plan = [(size, loop) for size in (16384, 65536) for loop in loops] * rounds
    for size, loop in track(plan, "against aiokafka", console=console):
        case = f"{loop}, {size // 1024} KiB"
        ours = measures.send_with_aioproduce(broker, records, batch_size=size, linger_ms=5)
        runs.setdefault(f"aioproduce, {case}", []).append(run(ours, loops[loop]))
        theirs = measures.send_with_aiokafka(broker, records, size)
        runs.setdefault(f"aiokafka, {case}", []).append(run(theirs, loops[loop]))
    return {
        name: {figure: median(run[figure] for run in figures) for figure in figures[0]}
        for name, figures in runs.items()
    }


def print_comparison(results: dict[str, Figures]) -> None:
    """One line per case, with the ratio to aiokafka."""
    table = Table(title="await send(), then await each delivery: 100-byte values, acks=all, idempotent")
    for column in ("client", "records/s", "CPU s per million", "records/s / aiokafka's", "CPU / aiokafka's"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name, figures in results.items():
        peer = results["aiokafka," + name.split(",", 1)[1]]
        table.add_row(
            name,
            f"{figures['records_per_second']:,.0f}",
            f"{figures['cpu_seconds_per_million']:.2f}",
            f"{figures['records_per_second'] / peer['records_per_second']:.2f}",
            f"{figures['cpu_seconds_per_million'] / peer['cpu_seconds_per_million']:.2f}",
        )
    Console().print(table)


def print_figures(name: str, figures: Figures) -> None:
    """One measurement's figures."""
    table = Table(title=name, show_header=False)
    for figure, value in figures.items():
        table.add_row(figure.replace("_", " "), f"{value:,.4g}" if value < 1000 else f"{value:,.0f}")
    Console().print(table)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; for a first look")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    records, rounds, seconds = (20_000, 1, 5.0) if options.quick else (200_000, 5, 60.0)
    results: dict[str, Any] = {"machine": machine()}
    others: dict[str, Callable[[BrokerProcess], Coroutine[Any, Any, Figures]]] = {
        "stalled broker": lambda broker: measures.stalled_broker(broker, seconds),
        "tasks waiting for memory: 1,000": lambda broker: measures.waiting_tasks(broker, 1_000),
        "tasks waiting for memory: 10,000": lambda broker: measures.waiting_tasks(broker, 10_000),
        "idle": lambda broker: measures.idle(broker, min(seconds, 30.0)),
        "keyed records": lambda broker: measures.order_of_keys(broker, records),
    }
    Console().print(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    with broker_process(topic=measures.TOPIC, partitions=6) as broker:
        results["against aiokafka"] = against_aiokafka(broker, records, rounds)
    print_comparison(results["against aiokafka"])
    for name, measure in others.items():
        with broker_process(topic=measures.TOPIC, partitions=6) as broker:
            results[name] = asyncio.run(measure(broker))
        print_figures(name, results[name])
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
