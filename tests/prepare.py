"""Fetch and make what the tests need beyond Python packages: jars, class archives, a Chromium, a Kerberos.

`make test` runs this before pytest. The steps wait for downloads and for JVMs, so independent ones run at the same
time. A step that fails ends the run with its output. Where Java, Maven or a Chromium is missing, the step says so
and succeeds; the tests then skip or, in CI, fail.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

LINES: Final = (
    ("tests.kafka_install", "tests.kafka_archive", "tests.spark.jvm_archive"),
    ("tests.browser_install", "tests.kerberos_install"),
)
"""Run the steps of a line in sequence, and the lines in parallel."""


def run(steps: tuple[str, ...]) -> int:
    """Run each step to its end; the exit status of the first that fails, else 0."""
    for step in steps:
        done = subprocess.run([sys.executable, "-m", step], capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, end="", flush=True)
        if done.returncode:
            print(f"{step} ended with exit status {done.returncode}", file=sys.stderr, flush=True)
            return done.returncode
    return 0


if __name__ == "__main__":
    with ThreadPoolExecutor(len(LINES)) as threads:
        sys.exit(max(threads.map(run, LINES)))
