"""A Chromium for the tests of the page: the one that is there, driven by Playwright.

Playwright's own download needs a host that is no package registry: Debian's package `chromium` does as well, and so
does what `playwright install chromium` left. `AIOPRODUCE_CHROMIUM` names another.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


ARGUMENTS = (
    # It cannot be had as root, and all that is opened here is our own page.
    "--no-sandbox",
    # It asks nobody but the page's server: no updates, no accounts, no experiments, no other protocol; and what it
    # asks for all the same (looked at with strace: its updates and its accounts) has no address.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-first-run",
)
"""What it is started with."""

NO_CHROMIUM = "no Chromium: "
"""How the reason of a skip begins."""


def find_chromium(of_playwright: str) -> str:
    """The path of a Chromium.

    Raises:
        LookupError: there is none.
    """
    named = os.environ.get("AIOPRODUCE_CHROMIUM")
    if named:
        return named
    if Path(of_playwright).is_file():
        return of_playwright
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    raise LookupError(
        f"{NO_CHROMIUM}apt-get install chromium, or playwright install chromium, or AIOPRODUCE_CHROMIUM=/its/path"
    )


async def launch(playwright: Playwright) -> Browser:
    """Start it.

    Raises:
        LookupError: there is none.
    """
    path = find_chromium(playwright.chromium.executable_path)
    return await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
