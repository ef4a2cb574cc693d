"""Runs a scenario in a network namespace of its own, where packets can be lost and nothing else can be hurt.

Used by `test_netns.py`. The test's own process stays where it is: `tests.faults.netns_child` runs behind
`unshare --net`, as root or as nobody in particular with a user namespace, and prints its verdict as JSON.

What is needed of the machine: Linux, `unshare`, `ip`, `/dev/net/tun`, and leave to make namespaces. netem is not
needed (many kernels come without it): the packets go through a program of ours, see `netns_link`.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]

# Far above what a scenario takes; each has bounds of its own within.
TIMEOUT: Final = 240.0

# Makes the device that a scenario needs, and nothing more.
_PROBE: Final = "from tests.faults.netns_link import open_tun; open_tun().close()"


class ScenarioFailedError(Exception):
    """The child ended without a verdict; the text is what it printed."""


@functools.cache
def why_not() -> str | None:
    """What this machine lacks for it; `None` if nothing."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, and this is {sys.platform}"
    for tool in ("unshare", "ip"):
        if shutil.which(tool, path=_path()) is None:
            return f"no {tool}(8) in {_path()}"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun: the kernel's tun driver is missing"
    done = _in_namespace("-c", _PROBE)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"no network namespace with a tun device (CAP_SYS_ADMIN, CAP_NET_ADMIN): {said[-1]}"
    return None


def run_scenario(name: str, kind: str) -> dict[str, Any]:
    """The verdict of `netns_child` on one of its scenarios, for one kind of producer.

    Raises:
        ScenarioFailedError: There is none, with what the child printed.
    """
    done = _in_namespace("-W", "error", "-m", "tests.faults.netns_child", name, kind)
    if done.returncode:
        raise ScenarioFailedError(f"{name} {kind} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def _in_namespace(*arguments: str) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--net"]
    if os.geteuid():
        # Root in a namespace of users of its own, if the system lets anybody make one.
        unshare.append("--map-root-user")
    return subprocess.run(
        [*unshare, sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": _path()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def _path() -> str:
    """`ip` lies where only root's path looks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
