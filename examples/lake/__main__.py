"""Services and files -> aioproduce -> Kafka -> land -> compact -> audit, while most of it is killed.

    make lake                              # or: python -m examples.lake [--quick]

It starts three real Kafka brokers, two services, a Spark job that reads log files, and the landing as Parquet. It
kills a service, a Python worker, a broker and the landing's Spark driver with SIGKILL. Then it compacts the lake
and audits it. The report is an HTML file with plots that opens offline. The exit code is 0 only if nothing is lost
and the audit's duplicates are exactly the records that are in Kafka twice, which other software counts too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.table import Table

from examples.folders import FolderError
from examples.lake import jobs, report, verify
from examples.lake.crew import Crew, CrewError
from examples.lake.story import Plan, Story, room_for
from examples.lake.watch import Watch
from tests.kafka_cluster import KafkaCluster, KafkaClusterError
from tests.kafka_install import KafkaUnavailableError, find_or_install, find_or_install_connector
from tests.kafka_tools import KafkaTools

REPOSITORY: Final = Path(__file__).parents[2]
FULL: Final = Plan(records=300_000, seconds=60.0)
QUICK: Final = Plan(records=60_000, seconds=15.0)
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
SOURCES: Final = ("orders", "clicks", "logs")
NAMES: Final = {
    "orders": "orders: a service that reads a file",
    "clicks": "clicks: a service with Auditor",
    "logs": "logs: files, by Spark",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.lake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a fifth as many records, about a minute")
    parser.add_argument(
        "--records", type=int, help="records of each of the three sources (300,000; quick: 60,000)"
    )
    parser.add_argument("--seconds", type=float, help="duration of the sending (60; quick: 15)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build" / "lake",
        help="folder for all files; an earlier run's is emptied first, another one with files is refused",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args(arguments)


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan that the options give."""
    plan = QUICK if options.quick else FULL
    return Plan(options.records or plan.records, options.seconds or plan.seconds)


def run(plan: Plan, folder: Path, console: Console) -> report.Told:
    """Run the whole story; return its results."""
    began_at = time.monotonic()
    tools, jars = KafkaTools(find_or_install()), find_or_install_connector()
    with ExitStack() as stack:
        crew = Crew(folder, REPOSITORY, environment())
        stack.callback(crew.close)
        console.print(f"three brokers, Kafka {tools.install.version}; everything is under {folder}")
        cluster = stack.enter_context(KafkaCluster(tools, folder / "kafka", brokers=3))
        story = Story(plan, cluster, folder, console, jars)
        watch = Watch(cluster, story.topics, story.checkpoint)
        stack.callback(watch.close)
        watch.start()
        story.send_and_land(crew, watch)
        watch.close()
        told = report.Told(samples=watch.samples, events=story.events)
        told.files_before = files_of(story.lake)
        with console.status("compacting"):
            finish(crew, "compact", jobs.compact(story.lake))
        console.print(crew.printed("compact").rstrip(), markup=False, highlight=False)
        told.files_after = files_of(story.lake)
        with console.status("auditing"):
            finish(crew, "audit", jobs.audit(story.lake), codes=jobs.AUDIT_ENDS)
        with console.status("counting again with other software"):
            told.rows = rows(plan, story, jobs.Audit.parse(crew.printed("audit")))
        told.seconds = time.monotonic() - began_at
        told.versions = versions(tools)
    told.is_sound = len(told.rows) == len(SOURCES) and all(row.is_sound for row in told.rows)
    tell(told, folder, console)
    return told


def finish(crew: Crew, name: str, command: list[str], codes: tuple[int, ...] = (0,)) -> None:
    """Start a job and wait for its end."""
    crew.start(name, command)
    crew.wait(name, codes=codes, while_waiting=lambda: None)


def rows(plan: Plan, story: Story, audit: jobs.Audit) -> list[report.Row]:
    """Return the audit's figures of each source, next to the counts in Kafka.

    Raises:
        CrewError: if the audit and the second count do not agree.
    """
    kafka = verify.in_kafka(
        story.cluster.bootstrap_servers, {topic: story.topics[topic] for topic in SOURCES}
    )
    lake = verify.in_lake(story.lake)
    counted = (
        sum(found.records for found in lake.values()),
        sum(found.repeated for found in lake.values()),
    )
    if (audit.total("rows"), audit.total("duplicates")) != counted:
        raise CrewError(f"the audit says {audit.told}, and pyarrow counts {counted}")
    unlike = {topic for counts in (kafka, lake) for topic, found in counts.items() if found.unlike}
    if unlike or audit.total("conflicts"):
        raise CrewError(f"different records have the same stamp, in {unlike}; the audit says {audit.told}")
    found = [
        report.Row(
            name=NAMES[topic],
            producers=len(lake[topic].producer_ids),
            expected=plan.records,
            found=lake[topic].different,
            duplicates=audit.of(lake[topic].producer_ids, "duplicates"),
            lost=audit.of(lake[topic].producer_ids, "lost") + audit.of(lake[topic].producer_ids, "undecided"),
            in_kafka=kafka[topic].records,
        )
        for topic in SOURCES
    ]
    if sum(row.lost for row in found) != audit.total("lost") + audit.total("undecided"):
        raise CrewError(f"the audit reports lost records of a producer that is not in the lake: {audit.told}")
    return found


def tell(told: report.Told, folder: Path, console: Console) -> None:
    """Print the table and the verdict, and write the report."""
    table = Table(title="in the lake")
    table.add_column("source")
    for name in ("sent", "in Kafka", "in the lake", "duplicates", "lost"):
        table.add_column(name, justify="right")
    for row in told.rows:
        numbers = (row.expected, row.in_kafka, row.found, row.duplicates, row.lost)
        table.add_row(row.name, *(f"{number:,}" for number in numbers))
    console.print(table)
    file = report.write(told, folder / "report.html")
    verdict = (
        "[green]nothing lost, every duplicate known[/]"
        if told.is_sound
        else "[bold red]the lake differs from what was sent[/]"
    )
    console.print(f"{verdict}, after {told.seconds:.0f} s; the report: {file}")


def figures(told: report.Told) -> dict[str, Any]:
    """Return the figures for `--json`."""
    return {
        "is_sound": told.is_sound,
        "seconds": told.seconds,
        "files_before": told.files_before,
        "files_after": told.files_after,
        "sources": [asdict(row) for row in told.rows],
        "events": [asdict(event) for event in told.events],
    }


def files_of(lake: Path) -> int:
    """Return the number of Parquet files that a reader of the lake would open."""
    hidden = (".", "_")
    return sum(
        not any(part.startswith(hidden) for part in file.relative_to(lake).parts)
        for file in (lake / "table=data").rglob("*.parquet")
    )


def versions(tools: KafkaTools) -> str:
    """Return a line with the versions of the software."""
    return (
        f"aioproduce {version('aioproduce')}, Kafka {tools.install.version}, PySpark {version('pyspark')}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors"
    )


def environment() -> dict[str, str]:
    """Return the processes' environment: this Python and this checkout, also for Spark's workers."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def main(arguments: list[str]) -> int:
    """Run the example; return 0 if the lake is complete, 1 if not, 2 if it could not run, 130 after a Ctrl-C."""
    options = parse(arguments)
    console = Console()

    def interrupt(*_: object) -> NoReturn:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the cleanup
        raise KeyboardInterrupt

    for number in ENDING:
        signal.signal(number, interrupt)
    try:
        folder = room_for(options.folder.resolve())
        told = run(plan_of(options), folder, console)
        if options.json:
            options.json.write_text(json.dumps(figures(told), indent=1) + "\n")
        return 0 if told.is_sound else 1
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
