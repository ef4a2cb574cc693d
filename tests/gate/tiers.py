"""Which tests a run takes: the gate's, or all; and whether the native build must be tested this time.

`make test` asks for the marker expression of the gate, `make test-full PART=native` records what it has tested.

1. What is marked `extended` or `native` runs in `make test-full`. Nothing else is left out of the gate.
2. What is marked `patches_core` runs in a process of its own, interpreted, in the gate and in `make test-full`.
3. What is marked `native` (the interpreted build, the packages) joins the gate where one of `NATIVE_SOURCES`
   differs from what the last complete run of that part has tested. A digest tells, because a fresh clone has no
   other memory: `native.json` next to this module is committed with the change. Of `pyproject.toml` the tables that
   a build reads count: a new layer of the import contracts changes no package.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Path(__file__).with_name("native.json")
NATIVE_SOURCES: Final = ("aioproduce/_native/*.py", "aioproduce/**/*.pxd", "setup.py", "pyproject.toml")
BUILD_TABLES: Final = ("setuptools", "cibuildwheel")
"""The tools' tables in `pyproject.toml` that a build reads, besides `build-system` and `project`."""

GATE: Final = "not extended and not native and not patches_core"
GATE_AND_NATIVE: Final = "not extended and not patches_core"
PARTS: Final = {
    "offline": "not kafka and not spark and not browser and not native and not patches_core",
    "brokers": "(kafka or browser) and not spark and not native and not patches_core",
    "spark": "spark and not native and not patches_core",
    "native": "native and not patches_core",
}
"""The parts of `make test-full`, each by its markers: every test is in exactly one."""


def native_digest(root: Path = REPOSITORY) -> str:
    """Identify the sources that the native build and the packages are made from."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in NATIVE_SOURCES for path in root.glob(pattern)):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        if path.name == "pyproject.toml":
            content = of_the_build(content.decode())
        digest.update(b"%s %d\n%s" % (path.relative_to(root).as_posix().encode(), len(content), content))
    return digest.hexdigest()


def of_the_build(pyproject: str) -> bytes:
    """Return what a build reads of `pyproject.toml`, always in the same form."""
    tables = tomllib.loads(pyproject)
    tools = tables.pop("tool", {})
    read = {**tables, "tool": {name: tools[name] for name in BUILD_TABLES if name in tools}}
    return json.dumps(read, sort_keys=True).encode()


def native_changed(root: Path = REPOSITORY, record: Path = RECORD) -> bool:
    """Say whether the native sources differ from those that were last tested completely."""
    if not record.exists():
        return True
    tested: object = json.loads(record.read_text())["tested"]
    return tested != native_digest(root)


def record_native(root: Path = REPOSITORY, record: Path = RECORD) -> None:
    """Remember that the interpreted build and the packages of these sources have passed."""
    record.write_text(json.dumps({"tested": native_digest(root)}, indent=2) + "\n")


def main(arguments: list[str]) -> int:
    """Print a marker expression, or answer by the exit status.

    Args:
        arguments: `gate` or the name of a part prints its marker expression; `native-changed` exits with 0 where
            the native build must be tested; `record-native` remembers that it was.
    """
    match arguments:
        case ["gate"]:
            print(GATE_AND_NATIVE if native_changed() else GATE)
        case [part] if part in PARTS:
            print(PARTS[part])
        case ["native-changed"]:
            return 0 if native_changed() else 1
        case ["record-native"]:
            record_native()
            print(f"{RECORD.relative_to(REPOSITORY)}: commit it with the change")
        case _:
            print(
                f"usage: python -m tests.gate.tiers gate | {' | '.join(PARTS)} | native-changed | record-native",
                file=sys.stderr,
            )
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
