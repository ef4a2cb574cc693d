"""The Chromium of the tests: the one that is there, or in CI the Debian package (`tests.debian`).

Whatever is missing is said, and the tests of the page then skip with the reason.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests import debian
from tests.dashboard.browser import NAMES


def install() -> str:
    """Install it if that is wanted and possible; says what came of it."""
    if "AIOPRODUCE_CHROMIUM" in os.environ or any(map(shutil.which, NAMES)):
        return "Chromium is there"
    skips = "the tests of the dashboard's page will skip (AIOPRODUCE_CHROMIUM=PATH names one)"
    return debian.install("Chromium", ("chromium",), skips)


if __name__ == "__main__":
    print(install(), file=sys.stderr)
