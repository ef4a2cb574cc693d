"""The parts of a release that are ours: a lock file with hashes, a check of what was built, and its sums.

    python -m pip install --dry-run --ignore-installed --report build/lock.json '.[dev]'
    python -m tests.release lock < build/lock.json
    python -m tests.release check dist
    python -m tests.release sums dist

`make lock` and `make release` call them.

1. `lock` rewrites `requirements-dev.txt`: what pip chooses on this platform and Python, a line for each package.
   The file holds no address, so it says nothing of the registry that was asked.
2. `check` reads what is packed, never the checkout, and lists everything that is wrong, not only the first problem.
   It needs `trove-classifiers`, which `make release` installs next to twine.
"""

from __future__ import annotations

import email
import hashlib
import importlib
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).parents[1] / "requirements-dev.txt"
SUMS: Final = "SHA256SUMS"
WHEEL_LIMIT: Final = 4_000_000
LINKS: Final = ("Homepage", "Documentation", "Source", "Issues", "Changelog")
_PACKED: Final = re.compile(r"(?:aioproduce|pyspark_aioproduce|aioproduce-[^/]+\.dist-info)/")
_RELATIVE: Final = re.compile(r"""\]\((?!https?:)([^)\s]+)\)|(?:src|href)="(?!https?:)([^"]+)\"""")
# The names of an ELF file's sections of symbols and of debug information.
_UNSTRIPPED: Final = (b"\0.symtab\0", b"\0.debug_info\0")


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


def problems(folder: Path, classifiers: Collection[str]) -> list[str]:
    """List what is wrong with the packages in a folder; nothing, if they can be published.

    Args:
        folder: The wheels and the source distribution of one version.
        classifiers: Those that an index accepts.
    """
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    found = [] if wheels else ["there is no wheel"]
    if len(sdists) != 1:
        found.append(f"there are {len(sdists)} source distributions, not one")
    metadata = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            found += [f"{wheel.name}: {problem}" for problem in _wheel_problems(wheel, archive)]
            metadata[wheel.name] = _message(archive, archive.namelist(), "METADATA")
    for sdist in sdists:
        with tarfile.open(sdist) as archive:
            (name,) = (
                name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO")
            )
            member = archive.extractfile(name)
            assert member is not None
            metadata[sdist.name] = email.message_from_bytes(member.read())
    for name, message in metadata.items():
        found += [f"{name}: {problem}" for problem in _metadata_problems(message, classifiers)]
    versions = {str(message["Version"]) for message in metadata.values()}
    if len(versions) > 1:
        found.append(f"there are several versions: {', '.join(sorted(versions))}")
    return found


def _message(archive: zipfile.ZipFile, names: list[str], last: str) -> Message:
    (name,) = (name for name in names if name.endswith(f".dist-info/{last}"))
    return email.message_from_bytes(archive.read(name))


def _wheel_problems(wheel: Path, archive: zipfile.ZipFile) -> Iterator[str]:
    if (size := wheel.stat().st_size) > WHEEL_LIMIT:
        yield f"{size:,} bytes are more than {WHEEL_LIMIT:,}"
    extensions = [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
    if not extensions:
        yield "no extension is in it: the hot path would run interpreted"
    for name in archive.namelist():
        if not _PACKED.match(name):
            yield f"{name} would be installed outside of the packages"
        if name.endswith(".c"):
            yield f"{name} was made by Cython, and is not to be packed"
    for name in extensions:
        if name.endswith(".so") and any(section in archive.read(name) for section in _UNSTRIPPED):
            yield f"{name} is not stripped"


def _metadata_problems(message: Message, classifiers: Collection[str]) -> Iterator[str]:
    links = {link.partition(", ")[0] for link in message.get_all("Project-URL", [])}
    yield from (f"the link {name} is missing" for name in LINKS if name not in links)
    yield from (
        f"{name} is not a known classifier"
        for name in message.get_all("Classifier", [])
        if name not in classifiers
    )
    for field in ("Author", "License-Expression", "License-File", "Keywords", "Requires-Python"):
        if not message[field]:
            yield f"the field {field} is missing"
    text = str(message.get_payload())
    if not text.strip():
        yield "the text for the index is missing"
    for link in _RELATIVE.finditer(text):
        yield f"the link {link[1] or link[2]} leads nowhere on an index"


def main(arguments: list[str]) -> int:
    """Run one of the commands."""
    match arguments:
        case ["lock"]:
            LOCK.write_text(locked(json.load(sys.stdin)))
        case ["check", folder]:
            found = problems(Path(folder), importlib.import_module("trove_classifiers").classifiers)
            for problem in found:
                print(problem, file=sys.stderr)
            return 1 if found else 0
        case ["sums", folder]:
            print(write_sums(Path(folder)).read_text(), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
