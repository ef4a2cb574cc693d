"""The dashboard in Chromium over real Kafka, with a broker killed and restarted under the load.

`AIOPRODUCE_SCREENSHOTS=folder` (one that exists) keeps what it looked like: in the light, in the dark, and on a
phone. The pictures of the docs are made so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import FloatRect

from aioproduce import Producer
from aioproduce.dashboard import serve
from tests.dashboard.conftest import Visit, chromium, visit
from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.extended(
    "kills brokers, with a browser; the page with scripted samples stays in the gate"
)

__all__ = ["chromium", "visit"]  # fixtures, found by their names here

SCREENSHOTS = os.environ.get("AIOPRODUCE_SCREENSHOTS")
VICTIM = 2

# The requests per second of a broker, as its row of the table tells them; none before it has a row.
REQUESTS = (
    "id => [...document.querySelectorAll('#brokers tr')].find((row) => row.cells[0].innerText === id)"
    "?.querySelector('[data-column=\"requests\"]').innerText ?? '\u2013'"
)


class Sending:
    """A load, and how much of it was accepted and acknowledged."""

    def __init__(self, producer: Producer, topics: dict[str, int]) -> None:
        self._producer = producer
        self._shares = [topic for topic, share in topics.items() for _ in range(share)]
        self.accepted = 0
        self.acknowledged = 0
        self.failures: list[BaseException] = []

    async def run(self, until: asyncio.Event) -> None:
        """Some 3,000 records a second."""
        while not until.is_set():
            for topic in self._shares * 4:
                await self._producer.send(topic, b"x" * 200, on_delivery=self._delivered)
                self.accepted += 1
            await asyncio.sleep(0.01)
        await self._producer.flush()

    def _delivered(self, _: object, error: BaseException | None) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)


async def stall_with_a_request_unanswered(kafka3: KafkaCluster, producer: Producer) -> None:
    """Have the victim stand still while it owes an answer: what it takes away when it dies is sent again."""
    await asyncio.to_thread(kafka3.stall, VICTIM)
    for _ in range(6000):
        # The loop reads meanwhile what was answered before.
        await asyncio.sleep(0.01)
        if any(
            metric.tags.get("node-id") == f"node-{VICTIM}" and float(metric.value) > 0
            for metric in producer.metrics().find("requests-in-flight")
        ):
            return
    raise AssertionError("nothing was sent to the broker for a minute")


async def pictures(seen: dict[str, Visit]) -> None:
    if SCREENSHOTS is None:
        return
    for name, one in seen.items():
        # Down to the second row of charts, or the second chart: the rest is more of the same.
        last = await one.page.locator("figure.panel").nth(1 if name == "phone" else 5).bounding_box()
        size = one.page.viewport_size
        assert last is not None
        assert size is not None
        clip = FloatRect(x=0, y=0, width=size["width"], height=last["y"] + last["height"] + 12)
        await one.page.screenshot(path=f"{SCREENSHOTS}/dashboard-{name}.png", full_page=True, clip=clip)
        await one.page.screenshot(path=f"{SCREENSHOTS}/dashboard-{name}-full.png", full_page=True)


async def pause(seconds: float) -> None:
    """For the pictures only: lines that are long enough to look at."""
    if SCREENSHOTS is not None:
        await asyncio.sleep(seconds)


async def test_a_broker_dies_and_comes_back_before_your_eyes(
    kafka3: KafkaCluster, topic_name: str, visit: Callable[..., Any]
) -> None:
    shares = {"orders": 4, "payments": 2, "clicks": 1} if SCREENSHOTS else {topic_name: 7}
    for topic in shares:
        await asyncio.to_thread(kafka3.create_topic, topic, partitions=6)
    led = [
        (topic, partition)
        for topic in shares
        for partition, state in kafka3.partitions(topic).items()
        if state.leader == VICTIM
    ]
    assert led
    ended = asyncio.Event()
    async with (
        Producer(kafka3.bootstrap_servers, client_id="shop") as producer,
        serve(producer, port=0) as server,
    ):
        sending = Sending(producer, shares)
        task = asyncio.create_task(sending.run(ended))
        try:
            light = await visit(server.url, width=1360)
            seen = {"light": light}
            if SCREENSHOTS:
                seen |= {
                    "dark": await visit(server.url, width=1360, is_dark=True),
                    "phone": await visit(server.url, width=390),
                }
            await light.until(f"() => !['0/s', '\u2013'].includes(({REQUESTS})('{VICTIM}'))")
            await pause(25)

            await stall_with_a_request_unanswered(kafka3, producer)
            await asyncio.to_thread(kafka3.kill, VICTIM)
            await light.until(f"() => ({REQUESTS})('{VICTIM}') === '0/s'")
            await light.until(
                "() => [...document.querySelectorAll('.tile')].some("
                "(tile) => tile.innerText.includes('records retried') && tile.querySelector('b').innerText !== '0')"
            )
            await pause(20)

            await asyncio.to_thread(kafka3.start, VICTIM)
            for topic, partition in led:
                await asyncio.to_thread(kafka3.elect_preferred, topic, partition, VICTIM)
            await light.until(f"() => !['0/s', '\u2013'].includes(({REQUESTS})('{VICTIM}'))")
            await pause(25)
            assert await light.page.locator("#status").inner_text() == "live"
            await pictures(seen)
        finally:
            ended.set()
            await task
        assert sending.failures == []
        assert sending.acknowledged == sending.accepted
        assert producer.metrics().value("record-error-total") == 0
        assert (await light.figure("records failed")) == 0
