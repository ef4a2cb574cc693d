"""The Chromium of the tests: the one that is there, or in CI the Debian package.

Called by `make test` before pytest starts, so that no test's time-out runs meanwhile. Only CI gets a package
(`AIOPRODUCE_REQUIRE_KAFKA=1`, set by `.ci/run`), and only as root where there is `apt-get`: no other machine is
changed by running tests. Whatever is missing is said, and the tests of the page then skip with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.dashboard.browser import NAMES

_TIMEOUT = 300.0
"""Seconds for each command: the package and what it needs are some 100 MB."""

_COMMANDS = (
    ("apt-get", "update", "--quiet"),
    ("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", "chromium"),
)


def install() -> str:
    """Install it if that is wanted and possible; says what came of it."""
    if "AIOPRODUCE_CHROMIUM" in os.environ or any(map(shutil.which, NAMES)):
        return "Chromium is there"
    if os.environ.get("AIOPRODUCE_REQUIRE_KAFKA") != "1":
        return "no Chromium: the tests of the dashboard's page will skip (apt-get install chromium)"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "no Chromium, and it takes root and apt-get to install one: the tests of the page will skip"
    for command in _COMMANDS:
        try:
            subprocess.run(
                command,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=True,
                timeout=_TIMEOUT,
            )
        except subprocess.CalledProcessError as error:
            return f"no Chromium: {' '.join(command)} failed: {error.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            return f"no Chromium: {' '.join(command)} did not end within {_TIMEOUT:g} s"
    return "Chromium was installed"


if __name__ == "__main__":
    print(install(), file=sys.stderr)
