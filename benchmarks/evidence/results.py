"""A result: the figures of one run of an entry, as one JSON file, and its required fields. Used by all modules.

1. A file is complete or missing: it is renamed into its place.
2. `problems()` returns the problems of a file in words; a test in the gate calls it for each committed file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.evidence.setting import REPOSITORY, RESULTS

Document: TypeAlias = dict[str, Any]
FOLDER: Final = REPOSITORY / RESULTS

_FIELDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "title": str,
    "command": list,
    "environment": dict,
    "commit": str,
    "is_clean": bool,
    "changed": list,
    "began_at": str,
    "seconds": (int, float),
    "exit_code": int,
    "machine": dict,
    "load_before": list,
    "load_after": list,
    "versions": dict,
    "medians": dict,
    "figures": (dict, list),
}
_MACHINE: Final = ("processor", "processors", "kernel", "memory_mib")
_VERSIONS: Final = ("CPython", "aioproduce", "extensions", "uvloop", "Kafka", "Java")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def path_of(name: str, folder: Path = FOLDER) -> Path:
    """Return the path of a result."""
    return folder / f"{name}.json"


def read(name: str, folder: Path = FOLDER) -> Document | None:
    """Return the result of that name; None if there is none."""
    path = path_of(name, folder)
    if not path.exists():
        return None
    document: Document = json.loads(path.read_text(encoding="utf-8"))
    return document


def write(document: Document, folder: Path = FOLDER) -> Path:
    """Write a result in place of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(document["name"], folder)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def problems(path: Path) -> list[str]:
    """Return the problems of a file: missing fields, and fields that cannot be true."""
    document = json.loads(path.read_text(encoding="utf-8"))
    found = [f"{path.name}: no field {name!r}" for name in _FIELDS if name not in document]
    found += [f"{path.name}: an unknown field {name!r}" for name in document if name not in _FIELDS]
    found += [
        f"{path.name}: {name!r} is {document[name]!r}"
        for name, kind in _FIELDS.items()
        if name in document and not isinstance(document[name], kind)
    ]
    if found:
        return found
    for field, names in (("machine", _MACHINE), ("versions", _VERSIONS)):
        found += [f"{path.name}: no {name!r} in {field!r}" for name in names if name not in document[field]]
    if document["name"] != path.stem:
        found.append(f"{path.name}: its name is {document['name']!r}")
    if not re.fullmatch(r"[0-9a-f]{40}", document["commit"]):
        found.append(f"{path.name}: {document['commit']!r} is not a commit")
    if not _DATE.fullmatch(document["began_at"]):
        found.append(f"{path.name}: began at {document['began_at']!r}")
    if document["is_clean"] is bool(document["changed"]):
        found.append(f"{path.name}: clean and changed do not agree")
    if not document["medians"]:
        found.append(f"{path.name}: no medians")
    return found
