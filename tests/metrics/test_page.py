"""`docs/reference/metrics.md` is what the table prints, and has every name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aioproduce.metrics.markdown import markdown_page
from tests.metrics.names import KAFKAS, OURS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown_page(), (
        "run: python -m aioproduce.metrics > docs/reference/metrics.md"
    )


def test_the_module_prints_it() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "aioproduce.metrics"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == PAGE.read_text(encoding="utf-8")
    assert printed.stderr == ""


def test_every_name_is_on_it_and_said_to_be_whose_it_is() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = {line.split("|")[1].strip().strip("`"): line for line in lines if line.startswith("| `")}
    for group, names in KAFKAS.items():
        for name in names:
            if group in ("app-info", "kafka-metrics-count") or name == "connections":
                assert any(f"`{name}`" in line for line in lines), name
            elif name not in OURS.get(group, {}) and name != "requests-in-flight":
                assert rows[name].endswith("| Kafka's |"), name
    for name in OURS["producer-metrics"]:
        assert rows[name].endswith("| ours |"), name
