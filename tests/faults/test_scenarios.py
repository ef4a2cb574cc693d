"""Every fault scenario has its tests, and the README's table names them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.extended("collects all tests again")
def test_every_scenario_is_tried_at_its_layers_and_the_table_is_current() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.faults.scenarios"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
