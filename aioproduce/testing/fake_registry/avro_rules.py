"""Avro's rules of schema resolution, as far as a registry applies them: can a reader read what a writer wrote?

Called by `subjects`. The rules: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution. Values that
are known only at run time (a value of an enum, a branch of a union) are judged by what the schemas allow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED: Final = ("record", "error", "enum", "fixed")
# The reader's types that a writer's type can be promoted to.
_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def avro_complaints(schema_type: str, reader: str, writer: str) -> Sequence[str]:
    """Return why data of one Avro schema cannot be read with another; nothing for other types."""
    if schema_type != "AVRO":
        return []
    comparison = _Comparison()
    comparison.compare(_Named(json.loads(reader)).root, _Named(json.loads(writer)).root, "")
    return comparison.complaints


def unreadable(schema: Any, known: set[str]) -> str | None:
    """Return why this is not an Avro schema; None if it is one.

    Args:
        schema: The parsed JSON.
        known: Names of types that it may use without defining them.
    """
    try:
        _Named(schema, known)
    except (ValueError, TypeError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Named:
    """A schema with every name replaced by its type: dicts with `type`, and lists for unions."""

    def __init__(self, schema: Any, known: set[str] | None = None) -> None:
        # A referenced type that is not known here matches only itself.
        self._types: dict[str, dict[str, Any]] = {
            name: {"type": "fixed", "name": name, "size": -1} for name in known or ()
        }
        self._are_strangers_allowed = known is None
        self.root = self._resolve(schema, "")

    def _resolve(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._named_type(schema, namespace)
        if isinstance(schema, list):
            return [self._resolve(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            raise TypeError(f"a schema cannot be a {type(schema).__name__}")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._resolve(kind, namespace)
        if kind in _NAMED:
            return self._define(schema, kind, namespace)
        if kind == "array":
            return {"type": kind, "items": self._resolve(schema["items"], namespace)}
        if kind == "map":
            return {"type": kind, "values": self._resolve(schema["values"], namespace)}
        return self._named_type(kind, namespace)

    def _named_type(self, name: str, namespace: str) -> dict[str, Any]:
        if name in _PRIMITIVES:
            return {"type": name}
        full = _full(name, namespace)
        found = self._types.get(full) or self._types.get(name)
        if found is None:
            if not self._are_strangers_allowed:
                raise ValueError(f"undefined name: {full!r}")
            found = {"type": "fixed", "name": full, "size": -1}
        return found

    def _define(self, schema: dict[str, Any], kind: str, namespace: str) -> dict[str, Any]:
        given = schema.get("namespace")
        name = _full(schema["name"], namespace if given is None else given)
        if name in self._types:
            raise ValueError(f"Can't redefine: {name}")
        inner = name.rpartition(".")[0]
        made: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": name}
        made["aliases"] = [_full(alias, inner) for alias in schema.get("aliases", ())]
        self._types[name] = made  # before its fields, which may be of this type
        if kind == "enum":
            made["symbols"] = list(schema["symbols"])
            made["default"] = schema.get("default")
        elif kind == "fixed":
            made["size"] = int(schema["size"])
        else:
            made["fields"] = [
                {
                    "name": str(each["name"]),
                    "aliases": list(each.get("aliases", ())),
                    "type": self._resolve(each["type"], inner),
                    "has_default": "default" in each,
                }
                for each in schema["fields"]
            ]
        return made


def _full(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


class _Comparison:
    """A recursive comparison of a reader's schema with a writer's."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._seen: set[tuple[int, int]] = set()

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        """Collect what the reader cannot read of the writer's data."""
        pair = id(reader), id(writer)
        if pair in self._seen:
            return  # a recursive type, already compared
        self._seen.add(pair)
        if isinstance(writer, list):
            for index, branch in enumerate(writer):
                self.compare(reader, branch, f"{path}/{index}")
        elif isinstance(reader, list):
            if not any(self._can_read(branch, writer) for branch in reader):
                self._complain(
                    "MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {_kind(writer)}"
                )
        else:
            self._compare_types(reader, writer, path)

    def _can_read(self, reader: Any, writer: Any) -> bool:
        trial = _Comparison()
        trial._seen = set(self._seen)
        trial.compare(reader, writer, "")
        return not trial.complaints

    def _compare_types(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        kind = reader["type"]
        if kind != writer["type"]:
            if kind not in _PROMOTIONS.get(writer["type"], ()):
                self._complain(
                    "TYPE_MISMATCH",
                    path,
                    f"reader type: {kind} not compatible with writer type: {writer['type']}",
                )
        elif kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            self.compare(reader[inner], writer[inner], f"{path}/{inner}")
        elif kind in ("record", "enum", "fixed"):
            self._compare_named(reader, writer, path)

    def _compare_named(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        names = {_unqualified(name) for name in (reader["name"], *reader.get("aliases", ()))}
        if _unqualified(writer["name"]) not in names:
            self._complain("NAME_MISMATCH", path, f"expected: {writer['name']}")
            return
        if reader["type"] == "fixed":
            if reader["size"] != writer["size"]:
                self._complain(
                    "FIXED_SIZE_MISMATCH", path, f"expected: {writer['size']}, found: {reader['size']}"
                )
        elif reader["type"] == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and reader["default"] is None:
                self._complain("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"[{', '.join(missing)}]")
        else:
            self._compare_fields(reader, writer, path)

    def _compare_fields(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        written = {each["name"]: each for each in writer["fields"]}
        for index, wanted in enumerate(reader["fields"]):
            place = f"{path}/fields/{index}"
            found = next(
                (written[name] for name in (wanted["name"], *wanted["aliases"]) if name in written), None
            )
            if found is not None:
                self.compare(wanted["type"], found["type"], f"{place}/type")
            elif not wanted["has_default"]:
                self._complain("READER_FIELD_MISSING_DEFAULT_VALUE", place, str(wanted["name"]))

    def _complain(self, kind: str, path: str, message: str) -> None:
        self.complaints.append(f"{{errorType:'{kind}', description:'{message}', at:'{path or '/'}'}}")


def _kind(schema: dict[str, Any]) -> str:
    return str(schema["type"])


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]
