"""The page in a headless Chromium. In each test: no complaint in the console, no request elsewhere (`conftest`)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aioproduce import Producer
from aioproduce.dashboard import serve
from aioproduce.errors import ProducerFencedError
from aioproduce.records import SilentBroker
from aioproduce.spool import SpooledProducer
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from tests.dashboard.scripted import ScriptedSource

CHARTS = 12
QUICK = 0.1

Visiting = Callable[..., Any]


@contextlib.asynccontextmanager
async def sending(producer: Producer, topic: str) -> AsyncIterator[None]:
    async def send() -> None:
        while True:
            for _ in range(20):
                await producer.send(topic, b"x" * 100)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


# For each chart: how many of its pixels are of a colour, not of text and grid, which are grey.
COLOURED = """() => [...document.querySelectorAll('canvas')].map((canvas) => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0;
  for (let at = 0; at < data.length; at += 4) {
    const three = [data[at], data[at + 1], data[at + 2]];
    if (data[at + 3] > 200 && Math.max(...three) - Math.min(...three) > 60) coloured += 1;
  }
  return coloured;
})"""


async def test_charts_of_a_real_load(visit: Visiting) -> None:
    async with (
        FakeCluster(3, topics={"orders": 6}) as cluster,
        Producer(cluster.bootstrap_servers, client_id="shop") as producer,
        serve(producer, port=0, interval=QUICK) as server,
    ):
        async with sending(producer, "orders"):
            seen = await visit(server.url)
            await seen.shown(12)
            # An instant of a busy machine may have nothing sent in it, and the next one has another figure.
            await seen.until("() => /k\\/s$/.test(document.querySelector('.tile b')?.innerText)")
            before = await seen.page.locator("#tiles").inner_text()
            await seen.until("before => document.getElementById('tiles').innerText !== before", before)
            assert (await seen.tile("records failed"), await seen.tile("records retried")) == ("0", "0")
            assert await seen.page.locator("#client").inner_text() == "shop"
            assert await seen.page.locator("figure.panel").count() == CHARTS
            # Records, bytes, latency, buffer, in flight, requests, latency, topics, lag, stages.
            coloured = await seen.page.evaluate(COLOURED)
            assert sum(count > 100 for count in coloured) >= CHARTS - 2, coloured
            await seen.until("() => document.querySelectorAll('#brokers tr').length === 1 + 3")
            assert await seen.page.locator("#topics td").first.inner_text() == "orders"
            label = (
                await seen.page.locator("figure", has_text="Records by topic")
                .locator(".plot")
                .get_attribute("aria-label")
            )
            assert re.fullmatch(r"Records by topic: orders [\d.]+ ?k?/s", label)
        await producer.flush()
        # What is told at last is what the brokers have.
        await seen.until("() => document.querySelector('.tile b')?.innerText === '0/s'")
        label = await seen.page.locator("#timeline svg").get_attribute("aria-label")
        assert re.search(r"in flight: [\d.]+ ms … [\d.]+ ms", label)
        assert "waiting for room: none" in label


async def test_retries_and_failures_are_told(visit: Visiting) -> None:
    source = ScriptedSource()
    source.gauges |= {"buffer-total-bytes": 1000, "buffer-available-bytes": 50, "waiting-tasks": 3}
    source.sensors.batches.retries.record(1234, 0.0)
    source.sensors.batches.errors.record(7, 0.0)
    async with serve(source, port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        assert await seen.tile("records retried") == "1.23 k"
        assert await seen.tile("records failed") == "7"
        assert await seen.tile("buffer in use") == "95 %"
        bad = await seen.page.locator(".tile.bad span").all_inner_texts()
        assert bad == ["buffer in use", "tasks waiting", "records failed"]


async def test_a_broker_that_stopped_answering_is_named(visit: Visiting) -> None:
    """By a banner and in its row; what is late has a red tile, and the banner goes with the trouble."""
    source = ScriptedSource()
    source.sensors.node(2).sent(100, 0.0)
    source.sensors.node(2).silent_for = lambda _: 4.2
    source.silent = [SilentBroker(2, "kafka-2.example", 9092, 4.2, 3, 1200)]
    source.gauges |= {
        "oldest-record-age": 60_000.0,
        "buffer-total-bytes": 1000,
        "buffer-available-bytes": 900,
    }
    async with serve(source, port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        warnings = await seen.page.locator("#warnings li").all_inner_texts()
        assert warnings == [
            "Broker 2 (kafka-2.example:9092) has not answered for 4 s: 3 requests and 1200 records wait for it.",
            "The oldest record was accepted 60.0 s ago and is not acknowledged. After delivery.timeout.ms (90 s) "
            "it fails.",
        ]
        assert await seen.page.locator("#brokers td.bad").all_inner_texts() == ["4.2 s"]
        assert await seen.tile("oldest record") == "60 s"
        assert await seen.tile("oldest waiting send()") == "none"
        assert await seen.page.locator(".tile.bad span").all_inner_texts() == ["oldest record"]
        source.silent = []
        source.gauges["oldest-record-age"] = 10.0
        await seen.until("() => document.getElementById('warnings').hidden")


async def test_transactions_and_what_became_of_them(visit: Visiting) -> None:
    async with (
        FakeCluster(3, topics={"orders": 6}) as cluster,
        Producer(cluster.bootstrap_servers, client_id="shop", transactional_id="orders-1") as producer,
        serve(producer, port=0, interval=QUICK) as server,
    ):
        async with producer.transaction() as txn:
            await txn.send("orders", b"42")
        txn = await producer.begin_transaction()
        await txn.send_and_wait("orders", b"43")
        seen = await visit(server.url)
        await seen.shown()
        assert await seen.page.locator("#transactional-id").inner_text() == "orders-1"
        assert await seen.tile("state") == "in transaction"
        assert re.fullmatch(r"[\d.]+ m?s", await seen.tile("open for"))
        assert not await seen.page.locator("#problem").is_visible()
        async with Producer(cluster.bootstrap_servers, transactional_id="orders-1"):
            with pytest.raises(ProducerFencedError):
                await txn.commit()
            await seen.until("() => !document.getElementById('problem').hidden")
        assert await seen.tile("state") == "fatal error"
        told = await seen.page.locator("#problem").inner_text()
        assert told.startswith("orders-1: This producer can do nothing more.")
        status = producer.transaction_status()
        assert status is not None
        assert str(status.error) in told


async def test_without_transactions_none_are_shown(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        assert not await seen.page.locator("#transactions").is_visible()
        assert not await seen.page.locator("#spool").is_visible()


async def test_a_queue_on_disk_through_an_outage(visit: Visiting, tmp_path: Path) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="orders", times=None)
        spooled = SpooledProducer(
            cluster.bootstrap_servers, directory=tmp_path / "spool", client_id="shop", reconnect_backoff_ms=10
        )
        async with spooled as producer, serve(producer, port=0, interval=QUICK) as server:
            await producer.send_many("orders", [b"x" * 100] * 30)
            seen = await visit(server.url)
            await seen.shown()
            assert await seen.page.locator("#spool-note").inner_text() == "takes records"
            assert await seen.tile("records waiting") == "30"
            await seen.until("() => /orders/.test(document.getElementById('warnings').innerText)")
            assert await seen.tile("topics blocked") == "1"
            row = await seen.page.locator("#spool-topics td").all_inner_texts()
            age = row.pop(3)  # it grows with each sample
            assert row == ["orders", "30", await seen.tile("bytes waiting"), "yes"]
            assert re.fullmatch(r"[\d.]+ m?s", age)
            denied.cancel()
            await producer.flush()
            await seen.until("() => document.getElementById('warnings').hidden")
            assert await seen.tile("records waiting") == "0"
            assert await seen.tile("empty in") == "empty"
            assert len(cluster.records("orders")) == 30


async def test_the_timeline_against_its_limits(visit: Visiting) -> None:
    source = ScriptedSource()
    source.sensors.batches.in_flight_time.record(40.0, 0.0)
    source.sensors.batches.delivery_time.record(95_000.0, 0.0)
    async with serve(source, port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        text = await seen.page.locator("#timeline").inner_text()
        assert "delivery.timeout.ms 90 s" in text
        # In one go: each sample redraws the picture.
        limit, quick, late, ticks = await seen.page.evaluate(PLACES)
        assert quick["left"] < limit["left"] < late["right"]
        # Logarithmic: 40 ms lie between 10 and 100, and each power of ten is as wide as any other.
        assert ticks["10 ms"] < quick["left"] < ticks["100 ms"]
        assert ticks["100 ms"] - ticks["10 ms"] == pytest.approx(ticks["1 s"] - ticks["100 ms"], abs=2)


PLACES = """() => {
  const place = (which) => document.querySelector(`#timeline ${which}`).getBoundingClientRect().toJSON();
  const middle = (box) => (box.left + box.right) / 2;
  const ticks = [...document.querySelectorAll('#timeline text.quiet')];
  return [place('.limit-line'), place('rect.s3'), place('rect.s5'),
    Object.fromEntries(ticks.map((tick) => [tick.textContent, middle(tick.getBoundingClientRect())]))];
}"""


def luminance(colour: str) -> float:
    """WCAG 2's, of `rgb(...)` or `#rrggbb`."""
    if colour.startswith("#"):
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    else:
        parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


COLOURS = """() => Object.fromEntries(
  ['panel', 'text', 'quiet', 'good', 'bad', 'bad-ground', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8'].map(
    (name) => [name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()]))"""


async def test_light_and_dark(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=QUICK) as server:
        light = await visit(server.url)
        dark = await visit(server.url, is_dark=True)
        grounds = []
        for seen in (light, dark):
            await seen.shown()
            colours = await seen.page.evaluate(COLOURS)
            ground = await seen.page.evaluate(
                "getComputedStyle(document.querySelector('.panel')).backgroundColor"
            )
            assert contrast(ground, colours["panel"]) == 1.0
            for name in ("text", "quiet", "good", "bad"):
                assert contrast(colours[name], ground) >= 4.5, name
            assert contrast(colours["bad"], colours["bad-ground"]) >= 4.5
            for number in range(1, 9):
                assert contrast(colours[f"c{number}"], ground) >= 3.0, number
            grounds.append(luminance(ground))
        assert grounds[0] > 0.9
        assert grounds[1] < 0.05
        # What is drawn on canvas changes with the scheme too.
        before = await light.page.evaluate("document.querySelector('canvas').toDataURL()")
        await light.page.emulate_media(color_scheme="dark")
        await light.until("before => document.querySelector('canvas')?.toDataURL() !== before", before)


@pytest.mark.parametrize("width", [390, 320, 1024])
async def test_nothing_is_wider_than_the_screen(visit: Visiting, width: int) -> None:
    source = ScriptedSource("a-client-id-without-any-space-" * 5)
    source.sensors.batches.topic("a" * 249).records.record(1, 0.0)
    source.sensors.node(2_147_483_647).sent(1, 0.0)
    async with serve([source, source], port=0, interval=QUICK) as server:
        seen = await visit(server.url, width=width)
        await seen.shown()
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= width
        plots = await seen.page.evaluate(
            "[...document.querySelectorAll('.plot canvas')].map((one) => one.getBoundingClientRect().right)"
        )
        assert len(plots) == CHARTS
        assert max(plots) <= width
        # Every figure of the tables is in sight, with the name of its column, and none is cut off by its neighbour.
        cells = await seen.page.evaluate(
            """[...document.querySelectorAll('#brokers td')].map((cell) => ({
              column: cell.dataset.column, right: cell.getBoundingClientRect().right,
              named: getComputedStyle(cell, '::before').content, wide: cell.scrollWidth > cell.clientWidth }))"""
        )
        columns = ["broker", "silent for", "in flight", "requests", "sent", "latency", "longest"]
        assert [cell["column"] for cell in cells[: len(columns)]] == columns
        assert max(cell["right"] for cell in cells) <= width
        assert not any(cell["wide"] for cell in cells)
        is_phone = width < 560
        assert all(("latency" in cell["named"]) is is_phone for cell in cells[5 :: len(columns)])


async def test_a_window_made_smaller(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=QUICK) as server:
        seen = await visit(server.url, width=1280)
        await seen.shown()
        await seen.page.set_viewport_size({"width": 390, "height": 800})
        await seen.until(
            "() => Math.max(...[...document.querySelectorAll('.plot canvas, #timeline svg')].map("
            "(one) => one.getBoundingClientRect().right)) <= 390"
        )
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_the_stream_is_lost_and_found(visit: Visiting) -> None:
    async with serve(ScriptedSource("first"), port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        assert await seen.page.locator("#status").inner_text() == "live"
        assert await seen.page.locator("#banner").is_hidden()
    banner = seen.page.locator("#banner")
    await banner.wait_for(state="visible", timeout=60_000)
    assert "The stream is lost" in await banner.inner_text()
    assert await seen.page.locator("#status").inner_text() == "lost"
    async with serve(ScriptedSource("second"), port=server.port, interval=QUICK):
        await banner.wait_for(state="hidden", timeout=60_000)
        await seen.until("() => document.getElementById('client').innerText === 'second'")
        assert await seen.page.locator("#status").inner_text() == "live"
    # A browser says in its console that a connection was refused: that is true.
    assert seen.complaints
    assert [line for line in seen.complaints if "/events" not in line and "net::ERR" not in line] == []
    seen.complaints.clear()


async def test_a_stream_that_ends_in_order_is_not_worth_a_banner(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=QUICK, stream_seconds=0.3) as server:
        seen = await visit(server.url)
        await seen.page.evaluate(
            "() => { window.banners = 0; const banner = document.getElementById('banner');"
            "new MutationObserver(() => { window.banners += !banner.hidden; })"
            ".observe(banner, {attributes: true}); }"
        )
        samples = 0
        while sum(address.endswith("/events") for address in seen.requests) <= 2:
            samples += 10
            await seen.shown(samples)
        assert await seen.page.evaluate("window.banners") == 0


async def test_one_viewer_too_many(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=QUICK, max_streams=1) as server:
        first = await visit(server.url)
        await first.shown()
        second = await visit(server.url)
        banner = second.page.locator("#banner")
        await banner.filter(has_text="accepts no more viewers").wait_for(state="visible", timeout=60_000)
        await first.page.close()
        await banner.wait_for(state="hidden", timeout=60_000)
        await second.shown()
    assert second.complaints
    assert [line for line in second.complaints if "503" not in line] == []
    second.complaints.clear()


async def test_before_the_first_sample(visit: Visiting) -> None:
    async with serve(ScriptedSource(), port=0, interval=3600) as server:
        seen = await visit(server.url)
        # One sample, and no rate yet: each chart says that there is nothing.
        await seen.shown(1)
        await seen.until("least => document.querySelectorAll('.none').length >= least", CHARTS - 1)
        assert await seen.page.locator(".none").first.inner_text() == "nothing yet"
        assert await seen.tile("records sent") == "\N{EN DASH}"

        context = seen.page.context
        waiting = await context.new_page()
        await waiting.route("**/events", lambda route: None)
        await waiting.goto(server.url)
        assert await waiting.locator("#empty").is_visible()
        assert await waiting.locator("#content").is_hidden()


async def test_names_are_text(visit: Visiting) -> None:
    name = "<img src=x onerror=alert(1)>"
    async with serve([ScriptedSource(name), ScriptedSource("other")], port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        assert await seen.page.locator("#producer option").all_inner_texts() == [name, "other"]
        assert await seen.page.locator("img").count() == 0


async def test_one_of_several_producers(visit: Visiting) -> None:
    first, second = ScriptedSource("first"), ScriptedSource("second")
    second.sensors.batches.errors.record(5, 0.0)
    async with serve([first, second], port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        assert await seen.tile("records failed") == "0"
        await seen.page.locator("#producer").select_option("second")
        assert await seen.tile("records failed") == "5"


async def test_a_service_that_comes_back_with_other_producers(visit: Visiting) -> None:
    async with serve([ScriptedSource("one"), ScriptedSource("two")], port=0, interval=QUICK) as server:
        seen = await visit(server.url)
        await seen.shown()
        await seen.page.locator("#producer").select_option("two")
    await seen.page.locator("#banner").wait_for(state="visible", timeout=60_000)
    async with serve([ScriptedSource("three"), ScriptedSource("four")], port=server.port, interval=QUICK):
        await seen.page.locator("#banner").wait_for(state="hidden", timeout=60_000)
        names = seen.page.locator("#producer option")
        await names.filter(has_text="three").wait_for(state="attached", timeout=60_000)
        assert await names.all_inner_texts() == ["three", "four"]
        assert await seen.page.locator("#producer").input_value() == "1"
    seen.complaints.clear()  # of the connection that was refused


async def test_under_a_prefix(visit: Visiting) -> None:
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.dashboard.service", stdout=PIPE, stderr=PIPE
    )
    try:
        assert service.stdout is not None
        port = int(await service.stdout.readline())
        seen = await visit(f"http://127.0.0.1:{port}/metrics/live")
        await seen.shown()
        assert seen.page.url == f"http://127.0.0.1:{port}/metrics/live/"
    finally:
        service.terminate()
        await service.communicate()
