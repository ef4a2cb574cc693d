"""What figures were measured on: processors, kernel, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.clients import NAMES, client


def processor() -> str:
    """The processor's model, as the kernel names it; else its architecture."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if "model name" in line:
            return line.split(":")[1].strip()
    return platform.machine()


def client_versions() -> dict[str, str]:
    """The version of each client that is compared, or why it cannot run here."""
    return {name: client(name).unavailable() or client(name).version() for name in NAMES}


def machine() -> dict[str, str]:
    """Everything that changes a figure, in words."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": f"{os.cpu_count()} x {processor()}",
        "uvloop": version("uvloop"),
        **client_versions(),
    }
