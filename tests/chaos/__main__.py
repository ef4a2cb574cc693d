"""`python -m tests.chaos`: real brokers bounced, killed and stalled under producers; `--soak`: for a long time.

Exit code: 0 if nothing is wrong, 1 if something is, which is then printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.chaos.display import chaos_table, progress, soak_summary, soak_table
from tests.chaos.run import PARTITIONS, Plan, run
from tests.chaos.schedule import endless
from tests.chaos.soak import BROKER_PROPERTIES, SoakPlan, soak
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install
from tests.kafka_tools import KafkaTools

# Leaders go back to where they were soon, which is one more move for each fault.
PROPERTIES = {"leader.imbalance.check.interval.seconds": "15", **BROKER_PROPERTIES}


def _count(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the faults (default: 1)")
    parser.add_argument(
        "--rate",
        type=_count,
        default=None,
        help="records a second, -1 for as many as go (default: 3000; soak: 50000)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object to standard output")
    parser.add_argument(
        "--keep", type=Path, help="keep the brokers' logs and what was printed in this folder"
    )
    chaos = parser.add_argument_group("chaos run")
    chaos.add_argument(
        "--records", type=_count, default=2_000_000, help="at least so many (default: 2,000,000)"
    )
    chaos.add_argument("--senders", type=int, default=2, help="verifiable producers (default: 2)")
    chaos.add_argument(
        "--client", choices=("aioproduce", "java"), default="aioproduce", help="whose verifiable producer"
    )
    chaos.add_argument(
        "--without-idempotence", action="store_true", help="a control: the same faults must show duplicates"
    )
    long = parser.add_argument_group("soak run")
    long.add_argument("--soak", action="store_true", help="watch one producer's resources instead")
    long.add_argument("--minutes", type=float, default=30.0)
    long.add_argument("--bounce-every", type=float, default=60.0, help="seconds (default: 60)")
    long.add_argument("--sample-every", type=float, default=5.0, help="seconds (default: 5)")
    return parser.parse_args(arguments)


def main() -> int:
    """Run what the command line says."""
    options = parse(sys.argv[1:])
    console = Console(stderr=options.json)
    tools = KafkaTools(find_or_install())
    with tempfile.TemporaryDirectory(prefix="aioproduce-chaos-") as folder:
        directory = options.keep or Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        console.print("starting three brokers")
        with KafkaCluster(tools, directory / "kafka", brokers=3, properties=PROPERTIES) as cluster:
            figures = (_soak if options.soak else _chaos)(cluster, options, directory, console)
    if options.json:
        print(json.dumps(figures))
    for wrong in figures["wrong"]:
        console.print(f"[red]wrong:[/] {wrong}")
    for example in figures.get("examples", ()):
        console.print(f"  {example}")
    return 1 if figures["wrong"] else 0


def _chaos(
    cluster: KafkaCluster, options: argparse.Namespace, directory: Path, console: Console
) -> dict[str, Any]:
    plan = Plan(
        records=options.records,
        rate=3000 if options.rate is None else options.rate,
        faults=endless(options.seed, PARTITIONS),
        senders=options.senders,
        client=options.client,
        is_idempotent=not options.without_idempotence,
    )
    with progress(console, plan.records, "records") as show:
        report = run(cluster, "chaos", plan, directory, say=console.print, on_progress=show)
    console.print(chaos_table(report))
    return {"seed": options.seed, "client": plan.client, **report.as_json()}


def _soak(
    cluster: KafkaCluster, options: argparse.Namespace, _directory: Path, console: Console
) -> dict[str, Any]:
    plan = SoakPlan(
        minutes=options.minutes,
        rate=50_000 if options.rate is None else options.rate,
        bounce_every=options.bounce_every,
        sample_every=options.sample_every,
        seed=options.seed,
    )
    with progress(console, plan.minutes, "minutes") as show:
        report = soak(
            cluster, "soak", plan, say=console.print, on_sample=lambda sample: show(sample["at"] / 60)
        )
    console.print(soak_table(report))
    console.print(soak_summary(report))
    return {"seed": options.seed, **report.as_json()}


if __name__ == "__main__":
    sys.exit(main())
