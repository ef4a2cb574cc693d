"""The machine of a measurement: processors, kernel, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.clients import NAMES, client


def processor() -> str:
    """Return the processor's model, as the kernel names it; else its architecture."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if "model name" in line:
            return line.split(":")[1].strip()
    return platform.machine()


def client_versions() -> dict[str, str]:
    """Return the version of each compared client, or why it cannot run here."""
    return {name: client(name).unavailable() or client(name).version() for name in NAMES}


def machine() -> dict[str, str]:
    """Return everything that changes a figure, in words."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": f"{os.cpu_count()} x {processor()}",
        "uvloop": version("uvloop"),
        **client_versions(),
    }
