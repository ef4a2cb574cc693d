"""The client of a schema registry, which asks each question of a producer once.

Used by the registry's serializers, and by users for checks at start-up or in a deployment. It uses the REST
interface of Confluent's Schema Registry, which Karapace and Apicurio also offer.

Invariants:

1. Answers that never change (the id of a schema under a subject, the schema of an id) are requested once, even by
   concurrent callers. Failures are not cached.
2. The client has no tasks of its own: a request runs in its caller's task (`single_flight`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import anyio

from aioproduce.config.secret import hides_arguments
from aioproduce.errors import ConfigError, SchemaRegistryError
from aioproduce.serializers.registry_http import Credentials, RegistryHttp, TokenSource
from aioproduce.serializers.schemas import (
    Compatibility,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaType,
)
from aioproduce.serializers.single_flight import SingleFlight

if TYPE_CHECKING:
    import ssl

    import httpx2

    from aioproduce.config.secret import Secret

_log = logging.getLogger("aioproduce")

_TYPES: Final[dict[object, SchemaType]] = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON"}

# Modes of rules that do not apply when a value is written.
_NOT_ON_WRITING: Final = ("READ", "UPGRADE", "DOWNGRADE", "UPDOWN")

# The kind of request, the subject, the schema, and whether it is normalized.
_Asked: TypeAlias = "tuple[str, str, Schema, bool]"


@final
class SchemaRegistryClient:
    """Asks a schema registry, and caches its answers.

    It connects at its first request, and belongs to the event loop of that request. Close it with `async with` or
    `close()`.

    Args:
        urls: Base URLs, one or more of the same registry; if one fails, the next is tried. A user and password in
            the first are used as `basic_auth`.
        basic_auth: User and password; the password may be a `Secret`.
        bearer_token: A token (a text or a `Secret`), or a function that returns one (it may be async) and is called
            for each request.
        timeout: Seconds for one request with all its retries; a `send()` waits no longer than its own timeout.
        request_timeout: Seconds for each step of one attempt.
        retries: How often a request is repeated if no registry answered, or answered 429 or 5xx.
        backoff: Seconds before the second attempt, doubled for each further one, with jitter.
        max_backoff: Maximum seconds between attempts. A registry's `Retry-After` may exceed it.
        latest_ttl: Seconds for which the latest version of a subject is cached; `None` for ever. If the registry
            does not answer after that, the cached version stays in use.
        cache_capacity: How many schemas and ids are cached.
        headers: Further headers, e.g. `{"target-sr-cluster": "lsrc-42"}`.
        ssl_context: For https, or a function that creates one in a thread; by default the platform's certificates.
        transport: An httpx2 transport instead of sockets, for tests and proxies.
        clock: A monotonic clock in seconds, for tests of `latest_ttl`.

    Raises:
        ConfigError: If there is no URL, one that is not http(s), or two kinds of credentials.

    Example:
        >>> async with SchemaRegistryClient("http://localhost:8081") as registry:  # doctest: +SKIP
        ...     await registry.register("orders-value", Schema(text))
    """

    @hides_arguments
    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        basic_auth: tuple[str, str | Secret] | None = None,
        bearer_token: TokenSource | None = None,
        timeout: float = 30.0,
        request_timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.1,
        max_backoff: float = 2.0,
        latest_ttl: float | None = 300.0,
        cache_capacity: int = 1000,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, number, least in (
            ("timeout", timeout, 0.001),
            ("request_timeout", request_timeout, 0.001),
            ("retries", retries, 0),
            ("backoff", backoff, 0),
            ("max_backoff", max_backoff, 0),
            ("latest_ttl", 0 if latest_ttl is None else latest_ttl, 0),
            ("cache_capacity", cache_capacity, 1),
        ):
            if not number >= least:
                raise ConfigError(f"{name} must be at least {least}, not {number}", key=name)
        bases, user_in_url = _base_urls(urls)
        self._http = RegistryHttp(
            urls=bases,
            credentials=Credentials(basic_auth or user_in_url, bearer_token),
            headers=dict(headers or {}),
            timeout=timeout,
            request_timeout=request_timeout,
            retries=retries,
            backoff=backoff,
            max_backoff=max_backoff,
            ssl_context=ssl_context,
            transport=transport,
        )
        self._latest_ttl = latest_ttl
        self._clock = clock
        self._ids: SingleFlight[_Asked, RegisteredSchema] = SingleFlight(cache_capacity)
        self._schemas: SingleFlight[tuple[int, str], Schema] = SingleFlight(cache_capacity)
        self._versions: SingleFlight[tuple[str, int, str], RegisteredSchema] = SingleFlight(cache_capacity)
        self._latest: SingleFlight[tuple[str, str], tuple[float, RegisteredSchema]] = SingleFlight(
            cache_capacity
        )

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object], **arguments: Any) -> Self:
        """Create a client from Confluent's keys, as in Java's properties or confluent-kafka's configuration.

        Args:
            settings: `schema.registry.url`; `basic.auth.credentials.source` and `basic.auth.user.info`;
                `bearer.auth.credentials.source` with `bearer.auth.token`, or with the keys of OAUTHBEARER;
                `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `ssl.key.password`,
                `ssl.truststore.*`, `ssl.keystore.*`. Each may have the prefix `schema.registry.`. `sasl.*` is
                read if a source inherits it; all other keys are ignored.
            **arguments: As for the class; they take precedence.

        Raises:
            ConfigError: If a key is missing, or if two contradict each other.

        Example:
            >>> settings = {"schema.registry.url": "https://sr:8081", "basic.auth.user.info": "me:letmein"}
            >>> SchemaRegistryClient.from_mapping(settings)
            <SchemaRegistryClient https://sr:8081>
        """
        from aioproduce.serializers.registry_settings import arguments_of

        made = {**arguments_of(settings), **arguments}
        urls = made.pop("urls")
        return cls(urls, **made)

    def __repr__(self) -> str:
        if not hasattr(self, "_http"):  # in the traceback of a failed constructor
            return "<SchemaRegistryClient, not made>"
        return f"<SchemaRegistryClient {', '.join(self._http.urls)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later requests raise ProducerClosedError."""
        with anyio.CancelScope(shield=True):
            await self._http.close()

    # -- requests of serializers ---

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Register a schema under a subject, or find it there.

        Args:
            subject: The subject.
            schema: The schema.
            normalize: Whether the registry treats schemas as equal that differ only in order and spelling.

        Raises:
            IncompatibleSchemaError: If the schema breaks the subject's compatibility rules.
            SchemaRegistryError: If it was refused for another reason, or if no registry answered.
        """

        async def question() -> RegisteredSchema:
            answer = await self._post(f"/subjects/{_quoted(subject)}/versions", subject, schema, normalize)
            version = answer.get("version") if isinstance(answer, dict) else None
            known_version = version if type(version) is int else None
            return RegisteredSchema(subject, _number(answer, "id", subject), known_version, schema)

        return await self._ids.ask(("register", subject, schema, normalize), question)

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Find a schema under a subject, without registering it.

        Raises:
            SchemaRegistryError: If it is not there (`error_code` 40401 or 40403), or if no registry answered.
        """

        async def question() -> RegisteredSchema:
            answer = await self._post(f"/subjects/{_quoted(subject)}", subject, schema, normalize)
            return RegisteredSchema(
                subject, _number(answer, "id", subject), _number(answer, "version", subject), schema
            )

        return await self._ids.ask(("lookup", subject, schema, normalize), question)

    async def latest(self, subject: str, *, form: str = "") -> RegisteredSchema:
        """Return the newest version of a subject, at most `latest_ttl` seconds old.

        Args:
            subject: The subject.
            form: A form of the text that the registry offers: `"serialized"` returns Protobuf's descriptor.

        Raises:
            SchemaRegistryError: If there is no such subject (`error_code` 40401), or if no registry answered.
        """
        fresh = self.known_latest(subject, form=form)
        if fresh is not None:
            return fresh
        stale = self._latest.get((subject, form))

        async def question() -> tuple[float, RegisteredSchema]:
            try:
                registered = await self._version(subject, "latest", form)
            except SchemaRegistryError as error:
                if stale is None or not error.retriable:
                    raise
                _log.warning("%s; version %s stays in use", error, stale[1].version)
                registered = stale[1]
            return self._clock(), registered

        return (await self._latest.ask((subject, form), question, again=True))[1]

    def known_latest(self, subject: str, *, form: str = "") -> RegisteredSchema | None:
        """Return the cached newest version; `None` if it is time to ask and no request is in progress.

        Only one caller asks, and the others use the cached version, so a registry that stalls delays only one.
        """
        known = self._latest.get((subject, form))
        if known is None:
            return None
        is_fresh = self._latest_ttl is None or self._clock() - known[0] < self._latest_ttl
        return known[1] if is_fresh or self._latest.is_asking((subject, form)) else None

    async def version(self, subject: str, version: int, *, form: str = "") -> RegisteredSchema:
        """Return one version of a subject.

        Raises:
            SchemaRegistryError: If there is no such subject or version, or if no registry answered.
        """

        async def question() -> RegisteredSchema:
            return await self._version(subject, str(version), form)

        return await self._versions.ask((subject, version, form), question)

    async def schema(self, schema_id: int, *, form: str = "") -> Schema:
        """Return the schema with an id.

        Raises:
            SchemaRegistryError: If no schema has this id (`error_code` 40403), or if no registry answered.
        """

        async def question() -> Schema:
            answer = await self._http.ask("GET", f"/schemas/ids/{schema_id}", query=_formed(form))
            return _schema(answer, None)

        return await self._schemas.ask((schema_id, form), question)

    # -- requests of users ---

    async def check_compatibility(
        self, subject: str, schema: Schema, version: int | None = None
    ) -> Compatibility:
        """Return whether a schema could be registered under a subject, and why not, without changing anything.

        Args:
            subject: The subject; if it has no version yet, every schema is compatible.
            schema: The schema.
            version: The version to compare with; `None` for those that the subject's compatibility level names.

        Raises:
            SchemaRegistryError: If the registry cannot read the schema, does not have the version, or did not
                answer.

        Example:
            >>> answer = await registry.check_compatibility("orders-value", schema)
            >>> answer.is_compatible, answer.messages
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        answer = await self._http.ask(
            "POST", path, query={"verbose": "true"}, body=_as_json(schema), subject=subject
        )
        is_compatible = answer.get("is_compatible") if isinstance(answer, dict) else None
        if type(is_compatible) is not bool:
            raise _unreadable(answer, "is_compatible", subject)
        messages = answer.get("messages")
        return Compatibility(is_compatible, tuple(map(str, messages)) if isinstance(messages, list) else ())

    async def subjects(self) -> list[str]:
        """Return all subjects: the cheapest check that the registry is reachable and accepts the credentials.

        Raises:
            SchemaRegistryError: If it does not answer or refuses.
        """
        answer = await self._http.ask("GET", "/subjects")
        if not isinstance(answer, list) or not all(isinstance(name, str) for name in answer):
            raise _unreadable(answer, "a list of names", None)
        return answer

    async def _post(self, path: str, subject: str, schema: Schema, normalize: bool) -> Any:
        query = {"normalize": "true"} if normalize else {}
        return await self._http.ask("POST", path, query=query, body=_as_json(schema), subject=subject)

    async def _version(self, subject: str, version: str, form: str) -> RegisteredSchema:
        answer = await self._http.ask(
            "GET",
            f"/subjects/{_quoted(subject)}/versions/{version}",
            query=_formed(form),
            subject=subject,
        )
        return RegisteredSchema(
            subject,
            _number(answer, "id", subject),
            _number(answer, "version", subject),
            _schema(answer, subject),
        )


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _formed(form: str) -> dict[str, str]:
    return {"format": form} if form else {}


def _as_json(schema: Schema) -> dict[str, object]:
    """Return a schema as the registry's JSON; without a type it means Avro."""
    asked: dict[str, object] = {"schema": schema.text}
    if schema.schema_type != "AVRO":
        asked["schemaType"] = schema.schema_type
    if schema.references:
        asked["references"] = [reference._asdict() for reference in schema.references]
    return asked


def _schema(answer: Any, subject: str | None) -> Schema:
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise _unreadable(answer, "schema", subject)
    schema_type = _TYPES.get(answer.get("schemaType") or "AVRO")
    if schema_type is None:
        raise _unreadable(answer, "schemaType", subject)
    references = answer.get("references") or []
    try:
        named = tuple(
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in references
        )
    except (TypeError, ValueError, KeyError):
        raise _unreadable(answer, "references", subject) from None
    return Schema(answer["schema"], schema_type, named, _writing_rules(answer.get("ruleSet")))


def _writing_rules(rule_set: object) -> tuple[str, ...]:
    """Return the names of the enabled rules that apply when a value is written."""
    if not isinstance(rule_set, dict):
        return ()
    lists = (rule_set.get(kind) for kind in ("domainRules", "encodingRules"))
    listed = [rule for rules in lists if isinstance(rules, list) for rule in rules]
    return tuple(
        str(rule.get("name"))
        for rule in listed
        if isinstance(rule, dict)
        and rule.get("disabled") is not True
        and rule.get("mode") not in _NOT_ON_WRITING
    )


def _number(answer: Any, name: str, subject: str | None) -> int:
    number = answer.get(name) if isinstance(answer, dict) else None
    # Ids have four bytes in the wire format.
    if type(number) is not int or not 0 <= number <= 0x7FFFFFFF:
        raise _unreadable(answer, name, subject)
    return number


def _unreadable(answer: object, name: str, subject: str | None) -> SchemaRegistryError:
    return SchemaRegistryError(
        f"the schema registry's answer does not have a usable {name!r}: {str(answer)[:200]}",
        status=200,
        error_code=None,
        subject=subject,
        remedy="is this the base URL of a schema registry?",
        retriable=False,
    )


def _base_urls(urls: str | Sequence[str]) -> tuple[list[str], tuple[str, str] | None]:
    """Return the URLs without credentials, and the credentials of the first that has some."""
    bases: list[str] = []
    user: tuple[str, str] | None = None
    for url in urls.split(",") if isinstance(urls, str) else urls:
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host:
            # The URL is never shown: it may contain a password.
            raise ConfigError(
                "a schema registry's URL must be http://host:port or https://host:port", key="urls"
            )
        if user is None and parts.username is not None:
            user = unquote(parts.username), unquote(parts.password or "")
        place = f"[{host}]" if ":" in host else host
        if port is not None:
            place += f":{port}"
        bases.append(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")))
    if not bases:
        raise ConfigError(
            "a SchemaRegistryClient needs a URL: SchemaRegistryClient('http://host:8081')", key="urls"
        )
    return bases, user
