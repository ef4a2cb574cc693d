"""Compare aioproduce with other clients: `python -m benchmarks [--quick | --full] [--only SECTION ...]`.

benchmarks/README.md explains each mode and figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import bounds, handshakes, judge, plans, report, startup
from benchmarks.clients import LOOPS, NAMES
from benchmarks.machine import machine
from benchmarks.null_broker import NullBrokerError
from benchmarks.plans import Effort, Section, TargetSpec
from benchmarks.runner import BenchmarkError, Result, run_interleaved
from benchmarks.targets import Target, fake_target, kafka_target, null_target
from tests.kafka_install import KafkaUnavailableError, find_or_install

OTHERS = ("bounds", "handshakes", "start-up")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    sections = [*plans.SECTIONS, *OTHERS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute; for a first look")
    size.add_argument("--full", action="store_true", help="every loop, mode, size, codec; hours")
    parser.add_argument("--only", nargs="+", choices=sections, default=sections, metavar="SECTION",
                        help=f"some of {', '.join(sections)}")  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, help="runs of each case; medians are shown (5; 3 for long runs)"
    )
    parser.add_argument(
        "--seconds", type=float, help="about how long each run lasts (1; each of the bounds 15)"
    )
    parser.add_argument("--clients", nargs="+", choices=NAMES, default=list(NAMES), metavar="CLIENT",
                        help=f"some of {', '.join(NAMES)}")  # fmt: skip
    parser.add_argument(
        "--modes", nargs="+", default=[], help="await-each, dropped, gather, tasks, callback, ..."
    )
    parser.add_argument(
        "--loops", nargs="+", default=[], choices=LOOPS, help="uvloop, and asyncio for one mode"
    )
    parser.add_argument("--values", nargs="+", type=int, help="sizes of values, in bytes (100)")
    parser.add_argument("--compression", nargs="+", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--acks", nargs="+", choices=("all", "1"))
    parser.add_argument("--batches", nargs="+", type=int, help="batch sizes, in KiB (64)")
    parser.add_argument(
        "--broker",
        choices=("null", "fake"),
        default="null",
        help="fake: a FakeCluster instead of the null broker",
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave out the section on real Kafka")
    parser.add_argument("--no-pin", action="store_true", help="pin no process to a processor")
    parser.add_argument("--client-cores", type=_cores, default=(0,), help="processors for clients (0)")
    parser.add_argument(
        "--broker-cores", type=_cores, default=(1,), help="processors for the null broker (1)"
    )
    parser.add_argument("--json", type=Path, help="also write every figure of every round to this file")
    parser.add_argument("--plot", type=Path, help="also draw the results to a .svg or .png file")
    return parser.parse_args(arguments)


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(core) for core in text.split(","))


def effort_of(options: argparse.Namespace) -> Effort:
    """Return how much to measure."""
    full = options.full
    return Effort(
        rounds=options.rounds or (1 if options.quick else 5),
        few_rounds=options.rounds or (1 if options.quick else 3),
        seconds=options.seconds or (0.15 if options.quick else 1.0),
        is_full=full,
        is_quick=options.quick,
        clients=tuple(options.clients),
        modes=tuple(options.modes),
        loops=tuple(options.loops),
        values=tuple(options.values or ((100, 1000, 10_000) if full else (100,))),
        compressions=tuple(options.compression or (("none", "lz4", "zstd") if full else ("none",))),
        acks=tuple(options.acks or (("all", "1") if full else ("all",))),
        batches=tuple(size * 1024 for size in options.batches or ((16, 64) if full else (64,))),
    )


def console_for_tables() -> Console:
    """Return a console on standard output; in a file or a pipe no table is cut or wrapped."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


class Runner:
    """A runner of sections, which keeps their results."""

    def __init__(self, options: argparse.Namespace, effort: Effort, console: Console) -> None:
        self._options = options
        self._effort = effort
        self._console = console
        self.sections: dict[str, Section] = {}
        self.results: dict[str, list[Result]] = {}
        self.others: dict[str, dict[str, dict[str, float]]] = {}
        self.skipped: dict[str, str] = {}

    def _open(self, spec: TargetSpec) -> AbstractContextManager[Target] | None:
        cores = () if self._options.no_pin else self._options.broker_cores
        if spec.kind == "none":
            return None
        if spec.kind == "kafka":
            return kafka_target()
        if self._options.broker == "fake":
            return fake_target(cores)
        return null_target(cores, topics=plans.topic_names(spec), brokers=spec.brokers,
                           delay=spec.delay, is_tls=spec.is_tls)  # fmt: skip

    def run(self, name: str) -> None:
        """Run a section, and print its table."""
        if name in OTHERS:
            self._run_other(name)
            return
        section = plans.SECTIONS[name](self._effort)
        if not section.runs:
            self.skipped[name] = "none of the chosen clients has a part in it"
            return
        try:
            results = self._run_section(section)
        except (KafkaUnavailableError, NullBrokerError) as error:
            self.skipped[name] = str(error)
            return
        self.sections[name], self.results[name] = section, results
        out = console_for_tables()
        if name == "scaling":
            report.print_scaling(out, section, report.curves_of(results))
        else:
            report.print_section(out, section, results)

    def _run_section(self, section: Section) -> list[Result]:
        with ExitStack() as stack:
            opened: dict[TargetSpec, Target | None] = {}
            for spec, _ in section.runs:
                if spec not in opened:
                    made = self._open(spec)
                    opened[spec] = None if made is None else stack.enter_context(made)
            runs = [(opened[spec], case) for spec, case in section.runs]
            is_kafka = any(spec.kind == "kafka" for spec in opened)
            # Three brokers and a client share two processors: the system schedules them.
            cores = () if self._options.no_pin or is_kafka else self._options.client_cores
            with self._progress() as progress:
                rounds = section.rounds
                if is_kafka:
                    self._warm_up(runs, cores, progress)
                task = progress.add_task(section.name, total=len(runs) * rounds, case="")
                return run_interleaved(
                    runs,
                    rounds=rounds,
                    cores=cores,
                    starting=lambda case: progress.update(task, case=case.name),
                    ended=lambda case: progress.advance(task),
                )

    def _warm_up(
        self, runs: list[tuple[Target | None, Any]], cores: tuple[int, ...], progress: Progress
    ) -> None:
        """Run each client at least once and for 20 s, uncounted: a cold broker is three times slower for all."""
        task = progress.add_task("warm-up of the brokers", total=len(runs), case="")
        began = time.monotonic()
        while True:
            progress.reset(task)
            run_interleaved(
                runs,
                rounds=1,
                cores=cores,
                starting=lambda case: progress.update(task, case=case.name),
                ended=lambda case: progress.advance(task),
            )
            if time.monotonic() - began > 20.0 or self._effort.is_quick:
                return

    def _run_other(self, name: str) -> None:
        quick = self._effort.is_quick
        figures: dict[str, dict[str, float]] = {}
        # These measure this process: no thread of the progress bar may run during them.
        with self._progress(is_quiet=True) as progress:
            if name == "start-up":
                progress.add_task("start-up", total=1, case="import")
                figures["milliseconds to import"] = startup.import_times(3 if quick else 11)
            elif name == "handshakes":
                found = handshakes.measures(3 if quick else 20)
                task = progress.add_task(name, total=len(found), case="")
                for title, opens in found.items():
                    progress.update(task, case=title, refresh=True)
                    figures[title] = opens()
                    progress.advance(task)
            else:
                usual = 60.0 if self._effort.is_full else (3.0 if quick else 15.0)
                seconds = self._options.seconds or usual
                measures = bounds.measures(seconds, 10_000 if quick else 200_000)
                task = progress.add_task("bounds", total=len(measures), case="")
                for title, measure in measures.items():
                    progress.update(task, case=title, refresh=True)
                    figures[title] = bounds.run(measure)
                    progress.advance(task)
        self.others[name] = figures
        for title, each in figures.items():
            table = Table(title=title, show_header=False, title_justify="left")
            for figure, value in each.items():
                table.add_row(figure.replace("_", " "), f"{value:,.4g}" if value < 1000 else f"{value:,.0f}")
            console_for_tables().print(table)

    def _progress(self, *, is_quiet: bool = False) -> Progress:
        columns = (
            TextColumn("{task.description:>22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[case]}"),
        )
        return Progress(*columns, console=self._console, transient=True, auto_refresh=not is_quiet)

    def to_json(self, judgements: dict[str, list[judge.Judgement]]) -> dict[str, Any]:
        """Return every figure of every round."""
        return {
            "machine": machine(),
            "command": ["python", "-m", "benchmarks", *sys.argv[1:]],
            "pinned": None
            if self._options.no_pin
            else {"client": self._options.client_cores, "null broker": self._options.broker_cores},
            "sections": {
                name: [
                    {"name": result.case.name, "case": asdict(result.case), "median": result.figures,
                     "rounds": result.rounds}
                    for result in results
                ]
                for name, results in self.results.items()
            },
            "others": self.others,
            "targets": {
                name: [{**asdict(each), "is_met": each.is_met} for each in judged]
                for name, judged in judgements.items()
            },
            "skipped": self.skipped,
        }  # fmt: skip


def without_folders(value: Any) -> Any:
    """Return a document in which a file is its name alone: a folder of this machine means nothing elsewhere."""
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def main(arguments: list[str]) -> int:
    """Measure the chosen sections."""
    options = parse(arguments)
    effort = effort_of(options)
    console, out = Console(stderr=True), console_for_tables()
    if options.plot and find_spec("matplotlib") is None:
        # Reported now, not after a quarter of an hour.
        console.print("--plot needs matplotlib: pip install '.[bench]'", style="red", markup=False)
        return 2
    began = time.monotonic()
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim", highlight=False)
    runner = Runner(options, effort, console)
    if options.no_kafka:
        runner.skipped["kafka"] = "--no-kafka"
    else:
        _install_kafka(options, runner)
    try:
        for name in options.only:
            if name not in runner.skipped:
                runner.run(name)
    except BenchmarkError as error:
        console.print(f"{error}", style="red", markup=False)
        return 1
    judgements = judge.judge(runner.results, runner.others)
    judge.print_judgements(out, judgements)
    for name, reason in {**runner.skipped, **plans.unavailable(options.clients)}.items():
        out.print(f"left out: {name}: {reason}", style="yellow", markup=False)
    if options.json:
        options.json.write_text(json.dumps(without_folders(runner.to_json(judgements)), indent=1) + "\n")
    if options.plot:
        from benchmarks.plot import draw

        draw(options.plot, runner.sections, runner.results, judgements)
    out.print(
        f"{time.monotonic() - began:,.0f} s, {sum(map(len, runner.results.values()))} cases", style="dim"
    )
    return 0


def _install_kafka(options: argparse.Namespace, runner: Runner) -> None:
    """Download Kafka, if it is missing, before anything is measured."""
    if "kafka" in options.only:
        try:
            find_or_install()
        except KafkaUnavailableError as error:
            runner.skipped["kafka"] = str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
