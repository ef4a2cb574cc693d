"""`python -m examples.lake` as a process: what it says and leaves, and that a Ctrl-C leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from examples.lake import report
from examples.lake.__main__ import main
from examples.lake.story import SIGN, room_for
from examples.lake.watch import Sample
from tests.kafka_tools import KafkaTools
from tests.processes import family, is_alive
from tests.spark.conftest import ROOT, WORKER_PATH
from tests.spark.fault_world import wait_until
from tests.spark.jvm_archive import java_options

TIMEOUT = 280.0


class Loads(HTMLParser):
    """What a page would fetch, and how many plots are in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.plots = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.plots += tag == "svg"
        names = ("src", "href", "xlink:href")
        self.fetched += [
            value for name, value in attrs if name in names and value and not value.startswith("#")
        ]
        if tag in ("script", "link", "iframe"):
            self.fetched.append(tag)


def example(
    folder: Path, *options: str, program: tuple[str, str] = ("-m", "examples.lake")
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *program, "--folder", str(folder), *options],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "160", "PYTHONPATH": str(WORKER_PATH)} | java_options(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told() -> report.Told:
    samples = [
        Sample(at / 2, {"orders": 100 * at, "<b>": 0}, {"orders": max(0, 100 * at - 300), "<b>": 0})
        for at in range(20)
    ]
    row = report.Row("orders", producers=1, expected=1900, found=1900, duplicates=100, lost=0, in_kafka=2000)
    return report.Told(samples, [report.Event(3.0, "kill", "a <script> was killed")], [row], is_sound=True)


def test_the_report_loads_nothing_and_takes_no_text_for_markup() -> None:
    page = report.page(told())

    found = Loads(page)
    assert (found.fetched, found.plots) == ([], 3)
    assert "a &lt;script&gt; was killed" in page
    assert "nothing lost, every duplicate known" in page
    assert "100" in re.findall(r"<b>([\d,]+)</b><span>twice in Kafka", page)


def test_rates_are_of_two_seconds() -> None:
    at, rate = report.rates(told().samples, [each.produced["orders"] for each in told().samples])

    assert len(at) == 16
    assert set(rate) == {200.0}


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.extended("starts and kills all processes of the example")
def test_the_whole_story(kafka_tools: KafkaTools, connector: tuple[Path, ...], tmp_path: Path) -> None:
    with example(tmp_path / "lake", "--records", "12000", "--seconds", "10") as process:
        printed, _ = process.communicate(timeout=TIMEOUT * 2)

    assert process.returncode == 0, printed + said(tmp_path / "lake")
    for what in ("the service `orders`", "a Python worker", "the Spark driver", "broker 2 of three"):
        assert f"{what}" in printed
    assert printed.count("was killed") == 4
    assert "nothing lost, every duplicate known" in printed
    found = Loads((tmp_path / "lake" / "report.html").read_text())
    assert (found.fetched, found.plots) == ([], 3)


def interrupted(
    process: subprocess.Popen[str], awaited: str, is_time: Callable[[list[int]], bool]
) -> list[int]:
    """Let the example be sent what Ctrl-C sends, and end; the processes that it had then."""
    with process:
        try:
            wait_until(awaited, lambda: is_time(family(process.pid)) or process.poll() is not None)
            started = family(process.pid)
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 130, printed
    assert "interrupted: every process is ended" in printed
    assert "Traceback" not in printed
    return started


@pytest.mark.spark
@pytest.mark.extended("starts all processes of the example")
def test_a_ctrl_c_ends_every_process(
    kafka_tools: KafkaTools, connector: tuple[Path, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    started = interrupted(
        example(folder, "--records", "12000", "--seconds", "600"),
        "the sources to be started",
        lambda _: (folder / "logs.log").exists(),
    )
    assert len(started) > 5  # it, three brokers, land, and sources
    wait_until("all of them to be gone", lambda: not any(map(is_alive, started)))


WITH_A_CREW_ALONE = """
import sys
from examples.lake import __main__ as lake

def run(plan, folder, console):
    crew = lake.Crew(folder, lake.REPOSITORY, lake.environment())
    with lake.ExitStack() as stack:
        stack.callback(crew.close)
        crew.start("one", [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '600'])"])
        crew.wait("one", while_waiting=lambda: None)

lake.run = run
sys.exit(lake.main(sys.argv[1:]))
"""


def test_a_ctrl_c_ends_what_a_process_of_the_example_had_started(tmp_path: Path) -> None:
    """The same without Kafka and Spark: the process that is started starts another, as Spark's driver does."""
    started = interrupted(
        example(tmp_path / "lake", program=("-c", WITH_A_CREW_ALONE)), "three", lambda found: len(found) == 3
    )
    assert len(started) == 3
    wait_until("all of them to be gone", lambda: not any(map(is_alive, started)))


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    (tmp_path / "thesis.tex").touch()
    try:
        assert main(["--folder", str(tmp_path)]) == 2
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert "has files that are not of this example" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "thesis.tex").exists()
    (tmp_path / "thesis.tex").unlink()
    room_for(tmp_path)
    (tmp_path / "lake").mkdir()
    assert [file.name for file in room_for(tmp_path).iterdir()] == [SIGN]


def said(folder: Path) -> str:
    """The end of what each process said."""
    return "\n".join(
        f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in folder.glob("*.log")
    )
