"""The ASGI application: what it answers, and when its streams end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from inspect import signature
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

import aioproduce.dashboard
from aioproduce.dashboard import Dashboard
from tests.dashboard.asgi import Exchange, Message, Receive, Send
from tests.dashboard.scripted import ScriptedSource

STATIC = Path(aioproduce.dashboard.__file__).parent / "static"
FAST = 0.01


@asynccontextmanager
async def streaming(
    dashboard: Dashboard, *, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[Exchange, asyncio.Task[Exchange]]]:
    exchange = Exchange("/events", headers=headers)
    asking = asyncio.create_task(exchange.ask(dashboard))
    try:
        yield exchange, asking
    finally:
        asking.cancel()
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.result()


async def test_the_page_and_its_files() -> None:
    dashboard = Dashboard(ScriptedSource())
    page = await Exchange("/").ask(dashboard)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = page.body.decode()
    named = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(named) > 4
    for name in named:
        assert not name.startswith("/")
        assert "://" not in name
        assert (await Exchange(f"/{name}").ask(dashboard)).status == 200
    served = {name for name in STATIC.rglob("*") if name.is_file() and name.name != "index.html"}
    for file in served:
        answer = await Exchange(f"/static/{file.relative_to(STATIC).as_posix()}").ask(dashboard)
        assert (answer.status, answer.body) == (200, file.read_bytes())
        assert answer.headers["content-length"] == str(len(answer.body))


def test_the_chart_library_is_the_one_of_npm_unchanged() -> None:
    """`npm pack uplot@1.6.32`, dist/."""
    vendored = STATIC / "vendor" / "uplot"
    assert {file.name: sha256(file.read_bytes()).hexdigest() for file in vendored.glob("uPlot*")} == {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    }
    assert "The MIT License" in (vendored / "LICENSE").read_text()


async def test_nothing_may_come_from_elsewhere() -> None:
    dashboard = Dashboard(ScriptedSource())
    for path in ("/", "/samples", "/static/dashboard.js", "/nowhere"):
        policy = (await Exchange(path).ask(dashboard)).headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/static/", "/static/../app.py", "/static/%2e%2e/app.py", "//etc/passwd", "/static/vendor"],
)
async def test_what_is_not_there(path: str) -> None:
    assert (await Exchange(path).ask(Dashboard(ScriptedSource()))).status == 404


async def test_nothing_can_be_changed() -> None:
    answer = await Exchange("/samples", method="POST").ask(Dashboard(ScriptedSource()))
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/samples", "/events"])
async def test_head_has_no_body(path: str) -> None:
    answer = await Exchange(path, method="HEAD").ask(Dashboard(ScriptedSource()))
    assert (answer.status, answer.body, answer.is_complete) == (200, b"", True)


async def test_a_page_without_its_slash_is_sent_to_the_one_with_it() -> None:
    answer = await Exchange("/a/producer", root="/a/producer").ask(Dashboard(ScriptedSource()))
    assert (answer.status, answer.headers["location"]) == (307, "producer/")


async def test_servers_that_leave_the_prefix_in_the_path_and_those_that_do_not() -> None:
    dashboard = Dashboard(ScriptedSource())
    for path in ("/p/samples", "/samples"):
        assert (await Exchange(path, root="/p").ask(dashboard)).status == 200


async def test_a_stream_goes_on_where_it_was() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST)
    async with streaming(dashboard) as (first, _):
        await first.until(lambda: len(first.events) >= 4)
    begin, one, two, *_ = first.events
    assert first.headers["content-type"] == "text/event-stream"
    assert begin["event"] == "begin"
    run = json.loads(begin["data"])["run"]
    assert [one["id"], two["id"]] == [f"{run}.1", f"{run}.2"]
    assert json.loads(one["data"])["producers"][0]["client_id"] == "scripted"

    async with streaming(dashboard, headers={"last-event-id": f"{run}.2"}) as (again, _):
        await again.until(lambda: len(again.events) >= 3)
    assert [event["id"] for event in again.events[1:3]] == [f"{run}.3", f"{run}.4"]
    for strange in ("other.2", f"{run}.-1", f"{run}.x", "2", "\xff", f"{run}.{'9' * 400}"):
        async with streaming(dashboard, headers={"last-event-id": strange}) as (anew, _):
            await anew.until(lambda anew=anew: len(anew.events) >= 2)  # type: ignore[misc]
        assert anew.events[1]["id"] == f"{run}.1"


async def test_a_client_that_went_costs_nothing() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST)
    async with streaming(dashboard) as (exchange, asking):
        await exchange.until(lambda: len(exchange.events) >= 2)
        assert dashboard.streams == 1
        exchange.is_gone.set()
        await asking
    assert dashboard.streams == 0


async def test_a_client_that_went_is_not_sent_the_history() -> None:
    """A server's send() returns at once: a stream that never lets the loop run does not learn that its client left.

    asyncio then wrote a warning for each event: "socket.send() raised exception."
    """
    dashboard = Dashboard(ScriptedSource(), interval=3600.0)
    for number in range(50):
        dashboard.feed.sample(float(number), float(number))
    gone = Exchange("/events")

    async def send(message: Message) -> None:
        await gone.send(message)
        if gone.body.count(b"id: ") == 2:
            gone.is_gone.set()

    async def application(scope: Message, receive: Receive, _: Send) -> None:
        await dashboard(scope, receive, send)

    await gone.ask(application)
    assert 2 <= gone.body.count(b"id: ") < 5
    assert dashboard.streams == 0


async def test_a_client_that_does_not_read_misses_what_the_history_forgot() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST, history=3)
    async with streaming(dashboard) as (slow, _), streaming(dashboard) as (quick, _):
        await slow.until(lambda: len(slow.events) >= 2)
        slow.reads.clear()
        held = slow.body
        await quick.until(lambda: dashboard.feed.last_number >= 40)
        assert slow.body == held
        kept = dashboard.feed.since(0)
        assert len(kept) == 3
        seen = len(slow.events)
        slow.reads.set()
        await slow.until(lambda: len(slow.events) >= seen + 6)
        numbers = [int(event["id"].partition(".")[2]) for event in slow.events[1:]]
    # It had been given at most the samples of one round when it stopped; then it is where the history is.
    jumps = [(a, b) for a, b in pairwise(numbers) if b != a + 1]
    assert len(jumps) == 1
    assert jumps[0][1] >= kept[0].number


async def test_a_stream_with_nothing_to_tell_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or proxies close it, and `aioproduce top` takes it for lost."""
    monkeypatch.setattr(aioproduce.dashboard.app, "_SILENCE_SECONDS", FAST)
    dashboard = Dashboard(ScriptedSource(), interval=3600)
    async with streaming(dashboard) as (exchange, _):
        await exchange.until(lambda: exchange.body.endswith(b"\n\n:\n\n:\n\n"))
    assert exchange.body.count(b"\ndata: ") == 2  # the beginning, and one sample
    assert dashboard.feed.last_number == 1


def test_a_stream_ends_before_a_server_that_it_cannot_see_end_is_killed() -> None:
    """gunicorn's `graceful_timeout` and Kubernetes' `terminationGracePeriodSeconds` are 30 s by default."""
    assert signature(Dashboard).parameters["stream_seconds"].default < 30


async def test_no_more_streams_than_were_allowed() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST, max_streams=1)
    async with streaming(dashboard) as (exchange, _):
        await exchange.until(lambda: bool(exchange.events))
        refused = await Exchange("/events").ask(dashboard)
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    async with streaming(dashboard) as (exchange, _):
        await exchange.until(lambda: bool(exchange.events))


async def test_closing_ends_the_streams() -> None:
    dashboard = Dashboard(ScriptedSource())
    async with streaming(dashboard) as (exchange, asking):
        await exchange.until(lambda: bool(exchange.events))
        dashboard.close()
        await asking
    assert exchange.is_complete
    assert (await Exchange("/events").ask(dashboard)).status == 503
    assert (await Exchange("/samples").ask(dashboard)).status == 200


async def test_closing_ends_a_stream_whose_client_does_not_read() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST)
    async with streaming(dashboard) as (exchange, asking):
        await exchange.until(lambda: bool(exchange.events))
        exchange.reads.clear()
        dashboard.close()
        while dashboard.streams:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0)
        assert not asking.done()  # what ends the answer has no room either: that is the server's
        exchange.reads.set()
        await asking


async def test_a_stream_ends_after_its_time() -> None:
    dashboard = Dashboard(ScriptedSource(), interval=FAST, stream_seconds=0.05)
    async with streaming(dashboard) as (exchange, asking):
        await asking
    assert exchange.is_complete
    assert len(exchange.events) > 1


async def test_a_stream_sees_its_server_end() -> None:
    """As uvicorn does it: its Server handles the signal, and says that it should exit."""

    class Server:
        should_exit = False

        def handle_exit(self, number: int, frame: FrameType | None) -> None:
            self.should_exit = True

    server, dashboard = Server(), Dashboard(ScriptedSource(), stream_seconds=3600)
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        async with streaming(dashboard) as (exchange, asking):
            await exchange.until(lambda: bool(exchange.events))
            signal.raise_signal(signal.SIGTERM)
            await asking
    finally:
        signal.signal(signal.SIGTERM, before)
    assert exchange.is_complete


async def test_samples_as_json() -> None:
    dashboard = Dashboard([ScriptedSource("a"), ScriptedSource("b")], history=2)
    for number in range(3):
        dashboard.feed.sample(float(number), float(number))
    told = json.loads((await Exchange("/samples").ask(dashboard)).body)
    assert (told["run"], told["last"]) == (dashboard.feed.run, 3)
    assert [sample["at_ms"] for sample in told["samples"]] == [1000, 2000]


async def test_the_lifespan_of_an_application_of_its_own() -> None:
    dashboard = Dashboard(ScriptedSource())
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive() -> dict[str, str]:
        return incoming.pop(0)

    async def send(message: object) -> None:
        sent.append(message)

    await dashboard({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


@pytest.mark.parametrize("settings", [{"max_streams": 0}, {"stream_seconds": 0.0}])
def test_impossible_settings(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="max_streams must be at least 1"):
        Dashboard(ScriptedSource(), **settings)  # type: ignore[arg-type]
