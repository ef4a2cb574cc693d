"""A Chromium, and pages that tell what they did."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.dashboard.browser import launch


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    """A headless Chromium; skips where there is none."""
    async with async_playwright() as playwright:
        try:
            browser = await launch(playwright)
        except LookupError as error:
            pytest.skip(str(error))
        try:
            yield browser
        finally:
            await browser.close()


class Visit:
    """A page that was opened, and what it did.

    Attributes:
        page: Playwright's.
        requests: The addresses that it asked for.
        complaints: What its console says as warning or error, and exceptions nobody caught.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("console", self._told)

    def _told(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    async def tile(self, name: str) -> str:
        """The figure of a tile."""
        return await self.page.locator(".tile", has_text=name).locator("b").inner_text()

    async def figure(self, name: str) -> float:
        """The same as a number."""
        text = await self.tile(name)
        matched = re.match(r"([\d.]+) ?([kMG]?)", text)
        assert matched, text
        return float(matched[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[matched[2]]

    async def until(self, condition: str, argument: object = None) -> None:
        """Wait for a JavaScript expression to be true."""
        await self.page.wait_for_function(condition, arg=argument, timeout=60_000)

    async def shown(self, samples: int = 3) -> None:
        """Wait until the charts show some samples."""
        await self.until(
            "least => Number(document.getElementById('content').dataset.sample) >= least", samples
        )


async def is_served(url: str) -> bool:
    """Whether anybody listens there."""
    address = urlsplit(url)
    assert address.hostname is not None
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.fixture
async def visit(chromium: Browser) -> AsyncIterator[Callable[..., Any]]:
    """Opens pages; whatever test: none complains, and none asks for anything but its own server."""
    visits: list[tuple[Visit, str]] = []

    async def opened(url: str, *, width: int = 1280, is_dark: bool = False) -> Visit:
        context = await chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if is_dark else "light"
        )
        made = Visit(await context.new_page())
        visits.append((made, url))
        await made.page.goto(url)
        return made

    yield opened
    for made, url in visits:
        assert made.requests
        assert [address for address in made.requests if not address.startswith(url)] == []
        # A page that is still open when its server has ended asks for the stream again, and its console says so.
        refused = "error: Failed to load resource: net::ERR_CONNECTION_REFUSED"
        assert [line for line in made.complaints if line != refused or await is_served(url)] == []
