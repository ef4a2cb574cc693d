"""One case in a separate process: `python -m benchmarks.worker CASE BOOTSTRAP_SERVERS CORES`.

The runner starts it. It prints the outcome as one JSON line, the last on standard output.

1. The process is pinned before it imports anything that starts threads.
2. An error ends it with a traceback and an exit code other than 0; the runner shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from benchmarks.cases import Case, Outcome
from benchmarks.process import pin

# Each is imported on demand: a worker loads only what its case needs.
MEASURES = {
    "throughput": "benchmarks.worker:throughput",
    "latency": "benchmarks.worker:latency",
    "futures": "benchmarks.memory:futures",
    "latency-floor": "benchmarks.floors:latency",
    "stall-floor": "benchmarks.floors:stall",
    "loopback": "benchmarks.floors:loopback",
    "parking": "benchmarks.floors:parking",
    "dropped": "benchmarks.scaling_measures:dropped",
    "senders": "benchmarks.scaling_measures:senders",
    "waiters": "benchmarks.scaling_measures:waiters",
    "spread": "benchmarks.scaling_measures:spread",
}


def throughput(case: Case, bootstrap_servers: str) -> Outcome:
    """As fast as the client's mode can."""
    from benchmarks.clients import client

    return client(case.client).throughput(case, bootstrap_servers)


def latency(case: Case, bootstrap_servers: str) -> Outcome:
    """At a fixed rate."""
    from benchmarks.clients import client

    outcome = client(case.client).latency(case, bootstrap_servers)
    if outcome is None:
        raise RuntimeError(f"{case.client} has no latency measure")
    return outcome


def main(arguments: list[str]) -> None:
    """Run the case."""
    line, bootstrap_servers, cores = arguments
    pin(tuple(int(core) for core in cores.split(",") if core))
    case = Case.from_json(line)
    module, _, name = MEASURES[case.measure].partition(":")
    measure: Callable[[Case, str], Outcome] = getattr(import_module(module), name)
    outcome = measure(case, bootstrap_servers)
    print(outcome.to_json(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
