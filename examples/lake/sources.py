"""The input of the example's sources: orders as JSON lines, and log files of a web server.

Called by `story`. The same count gives the same bytes each time, so the expected content of the lake is known.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ACCESS_LOG: Final = Path(__file__).parents[1] / "data" / "access_log.txt"
CUSTOMERS: Final = 1_000
LOG_FILES: Final = 4
"""Number of the web server's log files. A Spark task reads one or several."""


def write_orders(file: Path, count: int) -> Path:
    """Write `count` orders, one per line."""
    with file.open("w", encoding="ascii") as lines:
        for number in range(count):
            order = {
                "order": number,
                "customer": f"customer-{number * 7919 % CUSTOMERS}",
                "cents": 100 + number * 37 % 90_000,
                "state": ("new", "paid", "sent")[number % 3],
            }
            lines.write(json.dumps(order, separators=(",", ":")) + "\n")
    return file


def write_logs(folder: Path, count: int) -> Path:
    """Write log files with `count` lines in total. Each line has its number, so all lines differ."""
    folder.mkdir()
    lines = ACCESS_LOG.read_text(encoding="ascii").splitlines()
    for part in range(LOG_FILES):
        numbers = range(part * count // LOG_FILES, (part + 1) * count // LOG_FILES)
        text = "".join(f"{number} {lines[number % len(lines)]}\n" for number in numbers)
        (folder / f"access-{part}.log").write_text(text, encoding="ascii")
    return folder
