"""A service whose cluster goes away, and that notices nothing: `python -m examples.outage [--quick]`.

It starts three real Kafka brokers, and a service that puts records into a queue on disk at a steady rate. It cuts
the network, kills the service with SIGKILL in the cut, kills a broker, and kills the service again. At the end
librdkafka reads the log, and each record whose `send()` had returned must be in it. The exit code is 0 only then.

It needs Java 17 and Maven, as the tests do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.table import Table

from examples.folders import FolderError, room_for
from examples.lake.crew import Crew, CrewError
from examples.outage import report
from examples.outage.audit import audit, read_log
from examples.outage.events import FAULTS
from examples.outage.journal import Journals
from examples.outage.service import MODES, TOPIC
from examples.outage.story import Plan, Story, create_topic
from tests.kafka_cluster import KafkaCluster, KafkaClusterError
from tests.kafka_install import KafkaUnavailableError, find_or_install
from tests.kafka_tools import KafkaTools

REPOSITORY: Final = Path(__file__).parents[2]
SIGN: Final = ".examples-outage"
FULL: Final = (2_000.0, 120.0)
QUICK: Final = (500.0, 24.0)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.outage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="500 records/s for 24 s: about a minute in all")
    parser.add_argument("--rate", type=float, help="records a second (2,000; quick: 500)")
    parser.add_argument("--seconds", type=float, help="duration of the sending (120; quick: 24)")
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="what the service promises")
    parser.add_argument("--sync", choices=("always", "interval", "os"), default="always")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=list(FAULTS), help="all of them by default"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build" / "outage",
        help="folder for all files; an earlier run's is emptied first, another one with files is refused",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args(arguments)


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan that the options give."""
    rate, seconds = QUICK if options.quick else FULL
    rate, seconds = options.rate or rate, options.seconds or seconds
    return Plan(int(rate * seconds), rate, options.sync, options.mode, frozenset(options.faults))


def run(plan: Plan, folder: Path, console: Console) -> dict[str, Any]:
    """Run the whole story; return its figures."""
    tools = KafkaTools(find_or_install())
    with ExitStack() as stack:
        crew = Crew(folder, REPOSITORY, environment())
        stack.callback(crew.close)
        console.print(f"three brokers, Kafka {tools.install.version}; everything is under {folder}")
        cluster = stack.enter_context(KafkaCluster(tools, folder / "kafka", brokers=3, has_proxies=True))
        create_topic(cluster)
        story = Story(plan, cluster, crew, folder, lambda line: console.print(line, highlight=False))
        asyncio.run(story.run())
        with console.status("reading the log back"):
            is_exactly_once = plan.mode == "exactly-once"
            level = "read_committed" if is_exactly_once else "read_uncommitted"
            log = list(read_log(cluster.bootstrap_servers, TOPIC, isolation_level=level))
            findings = audit({life: numbers_of(story.journals, life) for life in story.journals.lives()}, log)
            told = report.figures(story.journals, log, story.events)
    wrong = findings.wrong(is_exactly_once=is_exactly_once)
    if findings.returned != plan.records:
        wrong["unsent"] = plan.records - findings.returned
    return {
        **findings.as_json(),
        **told,
        "rate": plan.rate,
        "mode": plan.mode,
        "sync": plan.sync,
        "lives": len(story.journals.lives()),
        "is_sound": not wrong,
        "wrong": wrong,
    }


def numbers_of(journals: Journals, life: int) -> Iterator[range]:
    """Return the numbers whose `send()` returned in a life."""
    return (range(call.first, call.first + call.records) for call in journals.read(life))


def tell(told: dict[str, Any], folder: Path, console: Console) -> None:
    """Print the tables and the verdict, and write the plot."""
    console.print(audit_table(told))
    table = Table(title=f"milliseconds until send() returned, sync={told['sync']}", title_justify="left")
    table.add_column("while")
    for name in ("calls", "p50", "p99", "most"):
        table.add_column(name, justify="right")
    for state, row in told["send_ms"].items():
        table.add_row(state, f"{row['calls']:,}", *(f"{row[name]:,.2f}" for name in ("p50", "p99", "most")))
    console.print(table)
    drained = told["seconds_to_drain"]
    if drained is not None:
        console.print(
            f"at most {told['largest_backlog']:,} records waited; {drained:.1f} s after the network was back the "
            "cluster had all of them"
        )
    file = folder / "outage.svg"
    file.write_text(report.plot(told), encoding="utf-8")
    for example in told["examples"]:
        console.print(f"  {example}", markup=False)
    verdict = (
        "[green]nothing lost, every duplicate has its original's id[/]"
        if told["is_sound"]
        else f"[bold red]wrong: {told['wrong']}[/]"
    )
    console.print(f"{verdict}, after {told['seconds']:.0f} s; the plot: {file}")


def audit_table(told: dict[str, Any]) -> Table:
    """Return the audit's counts."""
    table = Table(
        title=f"records, {told['mode']}, {told['lives']} lives of the service", title_justify="left"
    )
    table.add_column("what")
    table.add_column("records", justify="right")
    for name, text in report.COUNTS.items():
        table.add_row(text, f"{told[name]:,}")
    return table


def environment() -> dict[str, str]:
    """Return the service's environment: this Python and this checkout."""
    paths = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}


def main(arguments: list[str]) -> int:
    """Return 0 if nothing is lost, 1 if something is, 2 if the example could not run, 130 after a Ctrl-C."""
    options = parse(arguments)
    console = Console()

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        folder = room_for(options.folder.resolve(), SIGN)
        console.print(f"aioproduce {version('aioproduce')}, Python {platform.python_version()}")
        told = run(plan_of(options), folder, console)
        tell(told, folder, console)
        if options.json:
            options.json.write_text(json.dumps(told, indent=1) + "\n")
        return 0 if told["is_sound"] else 1
    except KeyboardInterrupt:
        console.print(f"interrupted: every process is ended; the files so far are in {options.folder}")
        return 130
    except KafkaUnavailableError as error:
        console.print(f"This needs a real Kafka: {error}", markup=False)
        return 2
    except FolderError as error:
        console.print(str(error), markup=False, highlight=False)
        return 2
    except (CrewError, KafkaClusterError) as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
