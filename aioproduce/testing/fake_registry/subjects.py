"""The memory and the answers of a schema registry, without HTTP: subjects, versions, ids, compatibility.

Called by the server, under its lock. Paths, bodies, answers and error codes are those of
https://docs.confluent.io/platform/current/schema-registry/develop/api.html

Invariants:

1. A schema has one id in all subjects; two schemas are the same if type, text and references are equal. JSON texts
   are compared as JSON, so white space does not matter; with `normalize`, neither does the order of members.
2. A subject's versions are counted from 1 and never assigned twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, final
from urllib.parse import unquote

from aioproduce.portable_error import PortableError
from aioproduce.testing.fake_registry.avro_rules import avro_complaints, unreadable

Query: TypeAlias = Mapping[str, str]

Complaints: TypeAlias = Callable[[str, str, str], Sequence[str]]
"""Returns why data of the second schema cannot be read with the first, from type, reader's and writer's text."""

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_TYPES: Final = ("AVRO", "PROTOBUF", "JSON")


class Refusal(PortableError):
    """An answer with an error code.

    Attributes:
        status: The HTTP status.
        code: The registry's code.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@final
@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One schema as first registered, and its form for comparisons."""

    schema_id: int
    schema_type: str
    text: str
    references: tuple[tuple[str, str, int], ...]

    def as_answer(self) -> dict[str, Any]:
        """Return it as in the registry's answers: the type is omitted for Avro."""
        answer: dict[str, Any] = {"schema": self.text}
        if self.schema_type != "AVRO":
            answer["schemaType"] = self.schema_type
        if self.references:
            names = ("name", "subject", "version")
            answer["references"] = [dict(zip(names, each, strict=True)) for each in self.references]
        return answer


@final
@dataclass(slots=True)
class _Subject:
    versions: dict[int, StoredSchema] = field(default_factory=dict)
    last_version: int = 0
    level: str | None = None


@final
class Subjects:
    """The registry's memory.

    Args:
        complaints: Judges compatibility instead of Avro's rules; by default types other than Avro are always
            compatible.
    """

    __slots__ = ("_by_content", "_by_id", "_complaints", "_level", "_routes", "_subjects")

    def __init__(self, complaints: Complaints | None = None) -> None:
        self._complaints = complaints or avro_complaints
        self._subjects: dict[str, _Subject] = {}
        self._by_id: dict[int, StoredSchema] = {}
        self._by_content: dict[tuple[object, ...], StoredSchema] = {}
        self._level = "BACKWARD"
        subject = r"/subjects/([^/]+)"
        version = r"/versions/([^/]+)"
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., Any]]] = [
            (method, re.compile(path), answer)
            for method, path, answer in (
                ("GET", "/", self._root),
                ("GET", "/subjects", self._names),
                ("POST", subject, self._lookup),
                ("DELETE", subject, self._delete_subject),
                ("GET", subject + "/versions", self._versions),
                ("POST", subject + "/versions", self._register),
                ("GET", subject + version, self._version),
                ("GET", subject + version + "/schema", self._version_text),
                ("DELETE", subject + version, self._delete_version),
                ("GET", r"/schemas/ids/([^/]+)", self._by_schema_id),
                ("GET", r"/schemas/ids/([^/]+)/versions", self._places),
                ("GET", "/schemas/types", self._schema_types),
                ("GET", "/config", self._global_level),
                ("PUT", "/config", self._set_global_level),
                ("GET", "/config/([^/]+)", self._subject_level),
                ("PUT", "/config/([^/]+)", self._set_subject_level),
                ("POST", r"/compatibility" + subject + "/versions", self._compatible_with_all),
                ("POST", r"/compatibility" + subject + version, self._compatible_with),
            )
        ]

    def answer(self, method: str, path: str, query: Query, body: Any) -> Any:
        """Return the JSON for a request.

        Raises:
            Refusal: If the answer is an error, with the registry's own code.
        """
        is_known = False
        for wanted, pattern, answer in self._routes:
            match = pattern.fullmatch(path.rstrip("/") or "/")
            if match is not None:
                is_known = True
                if wanted == method:
                    given = (body,) if method in ("POST", "PUT") else ()
                    return answer(query, *map(unquote, match.groups()), *given)
        if is_known:
            raise Refusal(405, 405, "HTTP 405 Method Not Allowed")
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def versions_of(self, subject: str) -> dict[int, str]:
        """Return the texts of a subject by version; empty if it does not exist."""
        known = self._subjects.get(subject)
        return {} if known is None else {number: schema.text for number, schema in known.versions.items()}

    # -- reading ---

    def _root(self, _query: Query) -> dict[str, str]:
        return {}

    def _names(self, _query: Query) -> list[str]:
        return sorted(name for name, subject in self._subjects.items() if subject.versions)

    def _versions(self, _query: Query, name: str) -> list[int]:
        return sorted(self._known(name).versions)

    def _version(self, _query: Query, name: str, version: str) -> dict[str, Any]:
        number, schema = self._known_version(name, version)
        return {"subject": name, "version": number, "id": schema.schema_id, **schema.as_answer()}

    def _version_text(self, _query: Query, name: str, version: str) -> Any:
        return json.loads(self._known_version(name, version)[1].text)

    def _by_schema_id(self, _query: Query, schema_id: str) -> dict[str, Any]:
        return self._known_id(schema_id).as_answer()

    def _places(self, _query: Query, schema_id: str) -> list[dict[str, Any]]:
        schema = self._known_id(schema_id)
        return [
            {"subject": name, "version": number}
            for name, subject in sorted(self._subjects.items())
            for number, each in sorted(subject.versions.items())
            if each is schema
        ]

    def _schema_types(self, _query: Query) -> list[str]:
        return ["JSON", "PROTOBUF", "AVRO"]

    def _lookup(self, query: Query, name: str, body: Any) -> dict[str, Any]:
        subject = self._known(name)
        asked = self._read(body)
        for number, schema in sorted(subject.versions.items(), reverse=True):
            if _content(schema, query) == _content(asked, query):
                return {"subject": name, "version": number, "id": schema.schema_id, **schema.as_answer()}
        raise Refusal(404, 40403, "Schema not found")

    # -- changing ---

    def _register(self, query: Query, name: str, body: Any) -> dict[str, Any]:
        asked = self._read(body)
        subject = self._subjects.setdefault(name, _Subject())
        for number, schema in subject.versions.items():
            if _content(schema, query) == _content(asked, query):
                return {"id": schema.schema_id, "version": number, **schema.as_answer()}
        complaints = self._judge(subject, asked, None)
        if complaints:
            raise Refusal(
                409,
                409,
                f'Schema being registered is incompatible with an earlier schema for subject "{name}", details: '
                f"[{'; '.join(complaints)}]",
            )
        known = self._by_content.get(_content(asked, {}))
        if known is None:
            known = StoredSchema(len(self._by_id) + 1, asked.schema_type, asked.text, asked.references)
            self._by_id[known.schema_id] = known
            self._by_content[_content(known, {})] = known
        subject.last_version += 1
        subject.versions[subject.last_version] = known
        return {"id": known.schema_id, "version": subject.last_version, **known.as_answer()}

    def _delete_subject(self, _query: Query, name: str) -> list[int]:
        subject = self._known(name)
        deleted = sorted(subject.versions)
        subject.versions.clear()
        return deleted

    def _delete_version(self, _query: Query, name: str, version: str) -> int:
        number, _ = self._known_version(name, version)
        del self._subjects[name].versions[number]
        return number

    def _global_level(self, _query: Query) -> dict[str, str]:
        return {"compatibilityLevel": self._level}

    def _subject_level(self, query: Query, name: str) -> dict[str, str]:
        subject = self._subjects.get(name)
        level = None if subject is None else subject.level
        if level is None and _is_set(query, "defaultToGlobal"):
            level = self._level
        if level is None:
            raise Refusal(
                404, 40408, f"Subject '{name}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": level}

    def _set_global_level(self, _query: Query, body: Any) -> dict[str, str]:
        self._level = _level(body)
        return {"compatibility": self._level}

    def _set_subject_level(self, _query: Query, name: str, body: Any) -> dict[str, str]:
        level = self._subjects.setdefault(name, _Subject()).level = _level(body)
        return {"compatibility": level}

    # -- compatibility ---

    def _compatible_with_all(self, query: Query, name: str, body: Any) -> dict[str, Any]:
        asked = self._read(body)
        subject = self._subjects.get(name)
        return _verdict(query, [] if subject is None else self._judge(subject, asked, None))

    def _compatible_with(self, query: Query, name: str, version: str, body: Any) -> dict[str, Any]:
        asked = self._read(body)
        number, _ = self._known_version(name, version)
        return _verdict(query, self._judge(self._subjects[name], asked, number))

    def _judge(self, subject: _Subject, asked: StoredSchema, version: int | None) -> list[str]:
        """Return why a schema is incompatible with one version, or with those selected by the subject's level."""
        level = subject.level or self._level
        if level == "NONE" or not subject.versions:
            return []
        if version is not None:
            compared = [subject.versions[version]]
        elif level.endswith("_TRANSITIVE"):
            compared = [schema for _, schema in sorted(subject.versions.items(), reverse=True)]
        else:
            compared = [subject.versions[max(subject.versions)]]
        found: list[str] = []
        for earlier in compared:
            if earlier.schema_type != asked.schema_type:
                found.append(
                    f"{{errorType:'TYPE_MISMATCH', '{asked.schema_type}' is not '{earlier.schema_type}'}}"
                )
                continue
            if level.startswith(("BACKWARD", "FULL")):
                found += self._complaints(asked.schema_type, asked.text, earlier.text)
            if level.startswith(("FORWARD", "FULL")):
                found += self._complaints(asked.schema_type, earlier.text, asked.text)
        return found

    # -- look-ups ---

    def _known(self, name: str) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None or not subject.versions:
            raise Refusal(404, 40401, f"Subject '{name}' not found.")
        return subject

    def _known_version(self, name: str, version: str) -> tuple[int, StoredSchema]:
        subject = self._known(name)
        if version in ("latest", "-1"):
            number = max(subject.versions)
        elif version.isascii() and version.isdecimal() and 1 <= int(version) < 2**31:
            number = int(version)
        else:
            raise Refusal(
                422,
                42202,
                f"The specified version '{version}' is not a valid version id. Allowed values are between "
                '[1, 2^31-1] and the string "latest"',
            )
        if number not in subject.versions:
            raise Refusal(404, 40402, f"Version {number} not found.")
        return number, subject.versions[number]

    def _known_id(self, schema_id: str) -> StoredSchema:
        known = self._by_id.get(int(schema_id)) if schema_id.isascii() and schema_id.isdecimal() else None
        if known is None:
            raise Refusal(404, 40403, f"Schema {schema_id} not found")
        return known

    def _read(self, body: Any) -> StoredSchema:
        """Return the schema in a request's body, if it is valid."""
        text = body.get("schema") if isinstance(body, dict) else None
        if not isinstance(text, str) or not text:
            raise Refusal(422, 42201, "Empty schema")
        schema_type = body.get("schemaType") or "AVRO"
        if schema_type not in _TYPES:
            raise Refusal(422, 42201, f"Invalid schema type {schema_type}")
        references = tuple(self._reference(each) for each in body.get("references") or ())
        if schema_type != "PROTOBUF":
            text = self._read_json(schema_type, text, references)
        return StoredSchema(0, schema_type, text, references)

    def _read_json(self, schema_type: str, text: str, references: Sequence[tuple[str, str, int]]) -> str:
        try:
            read = json.loads(text)
        except ValueError as error:
            raise Refusal(422, 42201, f"Invalid schema {text[:200]}, details: {error}") from None
        if schema_type == "AVRO":
            complaint = unreadable(read, {name for name, _, _ in references})
            if complaint is not None:
                raise Refusal(422, 42201, f"Invalid schema {text[:200]}, details: {complaint}")
        return json.dumps(read, separators=(",", ":"), ensure_ascii=False)

    def _reference(self, given: Any) -> tuple[str, str, int]:
        try:
            reference = str(given["name"]), str(given["subject"]), int(given["version"])
        except (KeyError, TypeError, ValueError):
            raise Refusal(422, 42201, f"Invalid reference {given}") from None
        try:
            self._known_version(reference[1], str(reference[2]))
        except Refusal as refusal:
            raise Refusal(422, 42201, f"No schema reference found for subject: {refusal}") from None
        return reference


def _content(schema: StoredSchema, query: Query) -> tuple[object, ...]:
    """Return what is compared of a schema."""
    text = schema.text
    if _is_set(query, "normalize") and schema.schema_type != "PROTOBUF":
        text = json.dumps(json.loads(text), sort_keys=True)
    return schema.schema_type, text, schema.references


def _is_set(query: Query, name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _level(body: Any) -> str:
    level = body.get("compatibility") if isinstance(body, dict) else None
    if level not in LEVELS:
        raise Refusal(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    return str(level)


def _verdict(query: Query, complaints: list[str]) -> dict[str, Any]:
    verdict: dict[str, Any] = {"is_compatible": not complaints}
    if _is_set(query, "verbose"):
        verdict["messages"] = complaints
    return verdict
