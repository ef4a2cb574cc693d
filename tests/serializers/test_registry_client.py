"""The registry's client on asyncio and trio: what it asks, how often, and what it says when nothing comes of it."""

from __future__ import annotations

import functools
import json
import logging
import traceback
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.core.bounded_log import BoundedLog
from aioproduce.errors import (
    ConfigError,
    IncompatibleSchemaError,
    ProducerClosedError,
    SchemaRegistryError,
    WrongEventLoopError,
)
from aioproduce.serializers import Schema, SchemaReference, SchemaRegistryClient
from aioproduce.testing import FakeSchemaRegistry
from tests.serializers import confluent

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
OTHER = '{"type": "record", "name": "Order", "fields": [{"name": "x", "type": "long"}]}'


def asked(fake: FakeSchemaRegistry) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in fake.requests]


def test_what_never_changes_is_asked_once(fake: FakeSchemaRegistry, backend: str) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            for _ in range(3):
                registered = await registry.register("a/b-value", Schema(ORDER))
                found = await registry.lookup("a/b-value", Schema(ORDER))
                assert (registered.schema_id, found.schema_id, found.version) == (1, 1, 1)
                assert json.loads((await registry.schema(1)).text) == json.loads(ORDER)
                version = await registry.version("a/b-value", 1)
                assert (version.schema_id, version.version, version.subject) == (1, 1, "a/b-value")
                assert (await registry.latest("a/b-value")).version == 1
            assert await registry.subjects() == ["a/b-value"]

    anyio.run(main, backend=backend)
    assert asked(fake) == [
        ("POST", "/subjects/a%2Fb-value/versions"),
        ("POST", "/subjects/a%2Fb-value"),
        ("GET", "/schemas/ids/1"),
        ("GET", "/subjects/a%2Fb-value/versions/1"),
        ("GET", "/subjects/a%2Fb-value/versions/latest"),
        ("GET", "/subjects"),
    ]
    assert fake.requests[0].headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert fake.requests[0].body == {"schema": ORDER}


def test_a_thousand_at_once_make_one_request(fake: FakeSchemaRegistry, backend: str) -> None:
    ids: list[int] = []

    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry, anyio.create_task_group() as tasks:

            async def register() -> None:
                ids.append((await registry.register("orders-value", Schema(ORDER))).schema_id)

            for _ in range(1000):
                tasks.start_soon(register)

    anyio.run(main, backend=backend)
    assert ids == [1] * 1000
    assert len(fake.requests) == 1


def test_references_and_types_are_told(fake: FakeSchemaRegistry) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            await registry.register("order", Schema(ORDER))
            user = Schema(
                '{"type": "record", "name": "User", "fields": [{"name": "last", "type": "Order"}]}',
                references=(SchemaReference("Order", "order", 1),),
            )
            registered = await registry.register("user", user)
            read = await registry.schema(registered.schema_id)
            assert read.references == user.references
            await registry.register("json", Schema('{"type": "object"}', "JSON"))
            assert (await registry.latest("json")).schema.schema_type == "JSON"

    anyio.run(main)
    assert fake.requests[-2].body == {"schema": '{"type": "object"}', "schemaType": "JSON"}
    assert confluent.client(fake.url).get_latest_version("user").schema.references[0].name == "Order"


def test_normalize_is_asked_of_the_registry(fake: FakeSchemaRegistry) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            turned = '{"name": "Order", "type": "record", "fields": [{"type": "long", "name": "id"}]}'
            first = await registry.register("a", Schema(ORDER))
            same = await registry.register("a", Schema(turned), normalize=True)
            assert first.schema_id == same.schema_id
            with pytest.raises(SchemaRegistryError) as caught:
                await registry.lookup("a", Schema(turned))
            assert caught.value.error_code == 40403

    anyio.run(main)
    assert [request.query for request in fake.requests] == [{}, {"normalize": "true"}, {}]


def test_an_incompatible_schema(fake: FakeSchemaRegistry, backend: str) -> None:
    fake.register("a", ORDER)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            answer = await registry.check_compatibility("a", Schema(OTHER))
            assert not answer
            assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer.messages[0]
            assert not await registry.check_compatibility("a", Schema(OTHER), 1)
            assert await registry.check_compatibility("a", Schema(ORDER))
            assert await registry.check_compatibility("new", Schema(OTHER))
            with pytest.raises(IncompatibleSchemaError, match="give new fields a default") as caught:
                await registry.register("a", Schema(OTHER))
            assert (caught.value.status, caught.value.error_code, caught.value.subject) == (409, 409, "a")
            assert not caught.value.retriable
            assert caught.value.remedy in str(caught.value)
            assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(caught.value)

    anyio.run(main, backend=backend)


def test_a_refusal_is_not_remembered(fake: FakeSchemaRegistry) -> None:
    async def main() -> None:
        async with SchemaRegistryClient(fake.url) as registry:
            with pytest.raises(SchemaRegistryError, match="register the schema first") as caught:
                await registry.lookup("a", Schema(ORDER))
            assert (caught.value.status, caught.value.error_code) == (404, 40401)
            with pytest.raises(SchemaRegistryError) as caught:
                await registry.latest("a")
            assert caught.value.error_code == 40401
            fake.register("a", ORDER)
            assert (await registry.lookup("a", Schema(ORDER))).schema_id == 1
            assert (await registry.latest("a")).schema_id == 1

    anyio.run(main)


# -- a registry in trouble ---


def test_what_may_pass_is_asked_again(
    fake: FakeSchemaRegistry, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fail_next(500)
    fake.fail_next(429, error_code=42901, message="too many")
    fake.fail_next(None)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, retries=3, backoff=0) as registry:
            assert (await registry.register("a", Schema(ORDER))).schema_id == 1

    with caplog.at_level(logging.WARNING, "aioproduce"):
        anyio.run(main, backend=backend)
    assert len(fake.requests) == 4
    assert "answered 500 (error code 50001) for subject 'a': Error in the backend" in caplog.messages[0]
    assert "answered 429 (error code 42901)" in caplog.messages[1]
    assert "did not answer" in caplog.messages[2]


def test_an_outage_is_one_line_in_the_log(
    fake: FakeSchemaRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is.
    always = functools.partial(BoundedLog, interval=float("inf"))
    monkeypatch.setattr("aioproduce.serializers.registry_http.BoundedLog", always)
    fake.fail_next(500, times=30)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, retries=2, backoff=0) as registry:
            for _ in range(10):
                with pytest.raises(SchemaRegistryError):
                    await registry.subjects()

    with caplog.at_level(logging.WARNING, "aioproduce"):
        anyio.run(main)
    assert len(fake.requests) == 30
    assert (
        1 <= len(caplog.messages) < 20
    )  # twenty tries; a line every ten seconds, however slow this machine is


def test_what_does_not_pass_fails_and_is_forgotten(fake: FakeSchemaRegistry, backend: str) -> None:
    fake.fail_next(503, error_code=50003, message="forwarding failed", times=3)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, retries=2, backoff=0) as registry:
            with pytest.raises(SchemaRegistryError, match=r"50003.*forwarding failed.*3 attempts") as caught:
                await registry.register("a", Schema(ORDER))
            assert (caught.value.status, caught.value.error_code, caught.value.retriable) == (
                503,
                50003,
                True,
            )
            assert (await registry.register("a", Schema(ORDER))).schema_id == 1

    anyio.run(main, backend=backend)


def test_nobody_listens(backend: str) -> None:
    with FakeSchemaRegistry() as gone:
        url = gone.url

    async def main() -> None:
        async with SchemaRegistryClient(url, retries=1, backoff=0) as registry:
            with pytest.raises(
                SchemaRegistryError, match=r"did not answer.*check that it is running"
            ) as caught:
                await registry.subjects()
            assert (caught.value.status, caught.value.subject, caught.value.retriable) == (None, None, True)
            assert isinstance(caught.value.__cause__, httpx2.ConnectError)

    anyio.run(main, backend=backend)


def test_the_next_registry_is_asked_where_one_fails(fake: FakeSchemaRegistry, backend: str) -> None:
    with FakeSchemaRegistry() as gone:
        dead = gone.url

    async def main() -> None:
        async with SchemaRegistryClient([dead, fake.url], retries=0) as registry:
            assert await registry.subjects() == []
            fake.fail_next(500)
            with pytest.raises(SchemaRegistryError):
                await registry.subjects()
            # The one that answered last is asked first.
            assert registry._http._first == 1
            assert await registry.subjects() == []

    anyio.run(main, backend=backend)
    assert len(fake.requests) == 3


def test_a_refusal_is_not_asked_of_the_next(fake: FakeSchemaRegistry) -> None:
    async def main() -> None:
        with FakeSchemaRegistry() as second:
            async with SchemaRegistryClient(f"{fake.url},{second.url}") as registry:
                with pytest.raises(SchemaRegistryError):
                    await registry.schema(7)
            assert second.requests == []

    anyio.run(main)


def test_a_registry_that_does_not_answer(fake: FakeSchemaRegistry, backend: str) -> None:
    fake.hold()

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, timeout=0.05) as registry:
            with pytest.raises(SchemaRegistryError, match=r"timed out after 0\.05 s") as caught:
                await registry.register("a", Schema(ORDER))
            assert (caught.value.status, caught.value.subject, caught.value.retriable) == (None, "a", True)
            fake.release()
        async with SchemaRegistryClient(fake.url) as registry:
            assert (await registry.register("a", Schema(ORDER))).schema_id == 1

    anyio.run(main, backend=backend)


def test_one_step_of_a_try_takes_too_long(fake: FakeSchemaRegistry) -> None:
    fake.hold()

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, request_timeout=0.05, retries=1, backoff=0) as registry:
            with pytest.raises(SchemaRegistryError, match=r"Timeout.*2 attempts"):
                await registry.subjects()
            fake.release()

    anyio.run(main)


def test_no_time_is_spent_waiting_for_what_comes_too_late(fake: FakeSchemaRegistry) -> None:
    fake.fail_next(429, headers=[("Retry-After", "86400")])

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, timeout=3600) as registry:
            with pytest.raises(SchemaRegistryError, match="leave no time to try again"):
                await registry.subjects()

    anyio.run(main)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("given", "waited"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("soon", 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("inf", 0.0),
    ],
)
def test_retry_after_is_heeded(
    fake: FakeSchemaRegistry, monkeypatch: pytest.MonkeyPatch, given: str, waited: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    fake.fail_next(429, headers=[("Retry-After", given)])
    monkeypatch.setattr(anyio, "sleep", sleep)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, backoff=0) as registry:
            await registry.subjects()

    anyio.run(main)
    assert slept == [waited]


def test_pauses_grow_to_their_maximum(fake: FakeSchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    fake.fail_next(500, times=6)

    async def main() -> None:
        async with SchemaRegistryClient(
            fake.url, retries=6, backoff=1, max_backoff=5, timeout=3600
        ) as registry:
            await registry.subjects()

    anyio.run(main)
    for pause, most in zip(slept, (1, 2, 4, 5, 5, 5), strict=True):
        assert most / 2 <= pause <= most


# -- the newest version ---


def test_the_latest_version_is_asked_again_after_its_time(fake: FakeSchemaRegistry) -> None:
    now = 0.0
    fake.register("a", ORDER)

    async def main() -> None:
        nonlocal now
        async with SchemaRegistryClient(fake.url, latest_ttl=60, retries=0, clock=lambda: now) as registry:
            assert (await registry.latest("a")).version == 1
            fake.register("a", ORDER.replace('"long"', '"long", "default": 1'))
            now = 59.0
            assert (await registry.latest("a")).version == 1
            now = 60.0
            assert registry.known_latest("a") is None
            assert (await registry.latest("a")).version == 2
            # A registry that is away then does no harm.
            now = 120.0
            fake.fail_next(500)
            assert (await registry.latest("a")).version == 2
            assert registry.known_latest("a") is not None
            fake.fail_next(404, error_code=40401)
            now = 180.0
            with pytest.raises(SchemaRegistryError):
                await registry.latest("a")

    anyio.run(main)


# -- credentials ---

SECRETS = ("s3cret", "dXNlcjpzM2NyZXQ", "t0ken")


@pytest.mark.parametrize("way", ["arguments", "url", "token", "async token"])
def test_credentials_get_through_and_are_shown_to_nobody(
    way: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def token() -> str:
        return "t0ken"

    is_basic = way in ("arguments", "url")
    with FakeSchemaRegistry(
        basic_auth=("user", "s3cret") if is_basic else None, bearer_token=None if is_basic else "t0ken"
    ) as fake:
        url = fake.url.replace("//", "//user:s3cret@") if way == "url" else fake.url
        ways: dict[str, dict[str, Any]] = {
            "arguments": {"basic_auth": ("user", "s3cret")},
            "url": {},
            "token": {"bearer_token": "t0ken"},
            "async token": {"bearer_token": token},
        }
        options = ways[way]

        async def main() -> None:
            async with SchemaRegistryClient(url, retries=1, backoff=0, **options) as registry:
                assert await registry.subjects() == []
                fake.fail_next(500, times=2)
                with pytest.raises(SchemaRegistryError) as failed:
                    await registry.subjects()
                fake.fail_next(None, times=2)
                with pytest.raises(SchemaRegistryError) as unanswered:
                    await registry.subjects()
                with pytest.raises(SchemaRegistryError) as refused:
                    await registry.schema(7)
                everything = [repr(registry), repr(registry._http), repr(registry._http.credentials)]
                everything += [str(vars(registry)), *caplog.messages]
                everything += [str(each.value) + repr(each.value) for each in (failed, unanswered, refused)]
                everything += [
                    "\n".join(traceback.format_exception(each.value)) for each in (failed, refused)
                ]
                for secret in SECRETS:
                    assert not [line for line in everything if secret in line]

        with caplog.at_level(logging.DEBUG):
            anyio.run(main, backend=backend)


def test_wrong_credentials(backend: str) -> None:
    async def main() -> None:
        with FakeSchemaRegistry(basic_auth=("user", "s3cret")) as fake:
            async with SchemaRegistryClient(fake.url, basic_auth=("user", "wr0ng")) as registry:
                with pytest.raises(SchemaRegistryError, match="check basic_auth or bearer_token") as caught:
                    await registry.subjects()
                assert caught.value.status == 401
                assert "wr0ng" not in str(caught.value)

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("token", ["t0ken\n", "t\u00f6ken", " t0ken", "a\r\nHost: b"], ids=range(4))
def test_a_token_that_is_no_header_is_refused_without_being_shown(
    fake: FakeSchemaRegistry, token: str
) -> None:
    with pytest.raises(ConfigError, match="is not a valid HTTP header value") as caught:
        SchemaRegistryClient(fake.url, bearer_token=token)
    assert token.strip() not in str(caught.value)

    async def main() -> None:
        async with SchemaRegistryClient(fake.url, bearer_token=lambda: token) as registry:
            with pytest.raises(ConfigError, match="is not a valid HTTP header value"):
                await registry.subjects()

    anyio.run(main)
    assert fake.requests == []


# -- what users get wrong ---


@pytest.mark.parametrize(
    "urls",
    [
        "",
        [],
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://user:s3cret@",
        "http://a:port",
        "http://[",
    ],
)
def test_a_url_that_is_none(urls: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="http://") as caught:
        SchemaRegistryClient(urls)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"request_timeout": -1},
        {"retries": -1},
        {"backoff": -1},
        {"max_backoff": -1},
        {"latest_ttl": -1},
        {"cache_capacity": 0},
        {"basic_auth": ("a", "b"), "bearer_token": "c"},
        {"headers": {"a": "b\n"}},
    ],
    ids=str,
)
def test_an_option_out_of_range(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SchemaRegistryClient("http://registry:8081", **option)


def test_a_base_path_and_further_headers_are_kept(backend: str) -> None:
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json=[])

    async def main() -> None:
        async with SchemaRegistryClient(
            "https://[::1]:9/registry/", headers={"target": "lsrc-1"}, transport=httpx2.MockTransport(handle)
        ) as registry:
            await registry.subjects()

    anyio.run(main, backend=backend)
    assert str(seen[0].url) == "https://[::1]:9/registry/subjects"
    assert seen[0].headers["target"] == "lsrc-1"


def test_closed(fake: FakeSchemaRegistry, backend: str) -> None:
    async def main() -> None:
        registry = SchemaRegistryClient(fake.url)
        await registry.register("a", Schema(ORDER))
        await registry.close()
        await registry.close()
        assert (await registry.register("a", Schema(ORDER))).schema_id == 1  # it is known
        with pytest.raises(ProducerClosedError):
            await registry.subjects()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("second", ["asyncio", "trio"])
def test_another_event_loop(fake: FakeSchemaRegistry, backend: str, second: str) -> None:
    registry = SchemaRegistryClient(fake.url)

    async def ask() -> int:
        return (await registry.register("a", Schema(ORDER))).schema_id

    async def there() -> None:
        assert await ask() == 1  # it is known
        with pytest.raises(WrongEventLoopError, match="create a client for each loop"):
            await registry.subjects()
        with pytest.raises(WrongEventLoopError):
            await registry.close()

    async def here() -> None:
        assert await ask() == 1
        await anyio.to_thread.run_sync(lambda: anyio.run(there, backend=second))
        await registry.close()

    anyio.run(here, backend=backend)


# -- what is no registry ---


def ask_all(handle: Any) -> list[object]:
    """What the client makes of one answer to every question."""
    outcomes: list[object] = []

    async def main() -> None:
        async with SchemaRegistryClient(
            "http://registry", retries=0, transport=httpx2.MockTransport(handle)
        ) as registry:
            for question in (
                lambda: registry.register("a", Schema(ORDER)),
                lambda: registry.lookup("a", Schema(ORDER)),
                lambda: registry.latest("a"),
                lambda: registry.version("a", 1),
                lambda: registry.schema(1),
                lambda: registry.check_compatibility("a", Schema(ORDER)),
                lambda: registry.subjects(),
            ):
                try:
                    outcomes.append(await question())
                except SchemaRegistryError as error:
                    outcomes.append(error)

    anyio.run(main)
    return outcomes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"null",
        b"7",
        b"[7]",
        b"{}",
        b'"text"',
        b'{"id": "1"}',
        b'{"id": true}',
        b'{"id": -1}',
        b"[" * 10_000,
    ],
    ids=[
        "nothing",
        "html",
        "null",
        "number",
        "list",
        "object",
        "text",
        "text id",
        "bool id",
        "negative",
        "deep",
    ],
)
def test_an_answer_that_is_none(content: bytes) -> None:
    outcomes = ask_all(lambda _: httpx2.Response(200, content=content))

    for outcome in outcomes:
        assert isinstance(outcome, SchemaRegistryError)
        assert "base URL of a schema registry" in outcome.remedy
        assert not outcome.retriable


def test_a_page_that_is_not_there() -> None:
    for outcome in ask_all(lambda _: httpx2.Response(404, content=b"<html>no such page")):
        assert isinstance(outcome, SchemaRegistryError)
        assert (outcome.status, outcome.error_code) == (404, None)
        assert "base URL of a schema registry" in outcome.remedy
        assert "no such page" in str(outcome)


def test_an_answer_without_an_end() -> None:
    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                yield bytes(2**20)

    for outcome in ask_all(lambda _: httpx2.Response(200, stream=Endless())):
        assert isinstance(outcome, SchemaRegistryError)
        assert "more than" in str(outcome)


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "version",
                    "schema",
                    "schemaType",
                    "references",
                    "is_compatible",
                    "messages",
                    "error_code",
                    "message",
                    "name",
                    "subject",
                    "ruleSet",
                    "domainRules",
                ]
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(200, 599).filter(lambda status: status not in (304,)),
    st.one_of(st.binary(max_size=50), _JSON.map(lambda answer: json.dumps(answer).encode())),
)
def test_any_answer_is_an_answer_or_a_typed_error(status: int, content: bytes) -> None:
    outcomes = ask_all(lambda _: httpx2.Response(status, content=content))

    assert len(outcomes) == 7
    if status >= 300:
        assert all(
            isinstance(outcome, SchemaRegistryError) and outcome.status == status for outcome in outcomes
        )
