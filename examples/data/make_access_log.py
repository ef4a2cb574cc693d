"""Writes `access_log.txt` in the same folder: the log of an invented web shop, the same on every machine.

    python examples/data/make_access_log.py

Every line is unique (time and request id), so a lost or repeated line shows. It uses only the generator's
`random()`: Python promises the same values of it in every version.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

LINES = 11_000
TARGET = Path(__file__).with_name("access_log.txt")

BEGIN = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
PATHS = (
    "/",
    "/cart",
    "/checkout",
    "/search?q=tea",
    "/item/",
    "/item/",
    "/item/",
    "/img/",
    "/img/",
    "/login",
    "/api/stock/",
)
METHODS = {"/cart": "POST", "/checkout": "POST", "/login": "POST"}
NAMES = ("ana", "bo", "chen", "dele", "eve", "finn", "gita", "hugo", "ines", "jun", "-", "-", "-")


def lines() -> Iterator[str]:
    """Yield the lines without newlines."""
    rng = random.Random(20260302)
    at = BEGIN
    for number in range(LINES):
        at += timedelta(milliseconds=1 + int(1500 * rng.random() ** 3))
        path = _one_of(PATHS, rng)
        if path.endswith("/") and path != "/":
            path += str(int(900 * rng.random()))
        chance = rng.random()
        status = 500 if chance < 0.004 else 404 if chance < 0.03 else 302 if path == "/login" else 200
        yield (
            f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z "
            f"10.0.{int(4 * rng.random())}.{1 + int(250 * rng.random())} {_one_of(NAMES, rng)} "
            f'"{METHODS.get(path, "GET")} {path}" {status} {int(40_000 * rng.random() ** 4)} '
            f"{1 + int(300 * rng.random() ** 6)}ms r{number:05d}"
        )


def _one_of(choices: Sequence[str], rng: random.Random) -> str:
    return choices[int(len(choices) * rng.random())]


if __name__ == "__main__":
    TARGET.write_text("".join(f"{line}\n" for line in lines()), encoding="ascii", newline="\n")
