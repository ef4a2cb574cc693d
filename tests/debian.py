"""Debian packages that the tests need, installed where that is wanted: in CI alone.

Only CI gets a package (`AIOPRODUCE_REQUIRE_KAFKA=1`, set by `.ci/run`), and only as root where there is `apt-get`:
no other machine is changed by running tests. Called before pytest starts: no test's time-out runs meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess

TIMEOUT = 300.0
"""Seconds for each command: a package and what it needs are some 100 MB."""


def install(what: str, packages: tuple[str, ...], otherwise: str) -> str:
    """Install packages if that is wanted and possible; says what came of it.

    Args:
        what: What is missing, for the sentence.
        packages: The packages.
        otherwise: What happens without.
    """
    if os.environ.get("AIOPRODUCE_REQUIRE_KAFKA") != "1":
        return (
            f"no {what}: {otherwise}. To install it: apt-get install {' '.join(packages)}, or run this again as "
            "root with AIOPRODUCE_REQUIRE_KAFKA=1, as CI does"
        )
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"no {what}, and it takes root and apt-get to install one: {otherwise}"
    for command in (
        ("apt-get", "update", "--quiet"),
        ("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *packages),
    ):
        try:
            subprocess.run(
                command,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=True,
                timeout=TIMEOUT,
            )
        except subprocess.CalledProcessError as error:
            return f"no {what}: {' '.join(command)} failed: {error.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            return f"no {what}: {' '.join(command)} did not end within {TIMEOUT:g} s"
    return f"{what} was installed"
