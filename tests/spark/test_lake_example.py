"""`python -m examples.lake` as a process: what it says, and what it leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from examples.lake import report
from examples.lake.watch import Sample
from tests.kafka_tools import KafkaTools
from tests.spark.conftest import ROOT

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


def example(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.lake", "--folder", str(folder), *options],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "160"},
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


def said(folder: Path) -> str:
    """The end of what each process said."""
    return "\n".join(
        f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in folder.glob("*.log")
    )
