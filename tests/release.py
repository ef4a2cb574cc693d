"""What a release brings beyond its packages: a lock file with hashes, and sums of what was built.

    python -m pip install --dry-run --ignore-installed --report build/lock.json '.[dev]'
    python -m tests.release lock < build/lock.json
    python -m tests.release sums dist

`lock` writes `requirements-dev.txt` anew: what pip chooses on this platform and Python, a line for each package. It
holds no address, so it says nothing of the registry that was asked. `make lock` and `make release` call them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).parents[1] / "requirements-dev.txt"
SUMS: Final = "SHA256SUMS"


def locked(report: Mapping[str, Any]) -> str:
    """The lock file by a report of pip's; see "installation report" in pip's documentation.

    Raises:
        ValueError: A package has no hash, so nobody could check what is installed.
    """
    environment = report["environment"]
    platform = f"{environment['sys_platform']} {environment['platform_machine']}"
    python = environment["python_version"]
    lines = []
    for item in report["install"]:
        if "dir_info" in item["download_info"]:
            continue  # this package itself
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            raise ValueError(f"{name} {version} has no SHA-256 in pip's report")
        lines.append(f"{name.lower().replace('_', '-')}=={version} --hash=sha256:{digest}\n")
    head = f"# What pip chooses for aioproduce[dev] on {platform}, Python {python}. Written by `make lock`.\n"
    return head + "".join(sorted(lines))


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of each file in it, as `sha256sum --check` reads them."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != SUMS)
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    target = folder / SUMS
    target.write_text(sums)
    return target


def main(arguments: list[str]) -> int:
    """Run one of the two commands."""
    match arguments:
        case ["lock"]:
            LOCK.write_text(locked(json.load(sys.stdin)))
        case ["sums", folder]:
            print(write_sums(Path(folder)).read_text(), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
