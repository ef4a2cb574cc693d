"""Draw the chart of the README from the table of evidence.md: `python -m benchmarks.chart`.

Only the table has the figures: `tests/docs/test_chart.py` fails if the picture differs from it. The picture has a
background, so it can be read on a light and on a dark page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

DOCS: Final = Path(__file__).parents[1] / "docs"
TABLE: Final = DOCS / "explanation" / "evidence.md"
PICTURE: Final = DOCS / "images" / "throughput.svg"

BARS: Final = (
    # The bar's name, and the beginning of its row. If a cell has several figures, the first one counts.
    ("aioproduce, await each delivery", "| **aioproduce**, `await send()`"),
    ("aioproduce, send_many", "| **aioproduce**, `send_many`"),
    ("aiokafka 0.14.0, await each", "| aiokafka 0.14.0"),
    ("confluent AIOProducer 2.16.1, await each", "| confluent AIOProducer"),
    ("confluent-kafka 2.16.1, callback", "| confluent-kafka 2.16.1, callback"),
    ("kafka-python 3.0.12", "| kafka-python"),
    ("Java 4.3.1, callback", "| Java 4.3.1"),
    ("franz-go 1.22.0, callback", "| franz-go"),
)
_WIDTH: Final = 760
_LEFT: Final = 270
_BAR: Final = 18
_STEP: Final = 28
_TOP: Final = 58


def figures(table: str) -> list[tuple[str, int]]:
    """The bars: records a second on real Kafka, which is the fourth column."""
    found = []
    for name, begins in BARS:
        (row,) = [line for line in table.splitlines() if line.startswith(begins)]
        cell = row.split("|")[4]
        millions = re.match(r"\s*([\d.]+) / .* M\s*$", cell)
        if millions:
            found.append((name, round(float(millions[1]) * 1_000_000)))
        else:
            found.append((name, int(cell.split("/")[0].strip().replace(",", ""))))
    return found


def drawn(bars: list[tuple[str, int]]) -> str:
    """The picture."""
    most = max(value for _, value in bars)
    height = _TOP + _STEP * len(bars) + 12
    words = "; ".join(f"{name} {value:,}" for name, value in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="Acknowledged records a second on real Kafka: {escape(words)}">',
        '<style>text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1c2024}'
        ".t{font-weight:600;font-size:15px}.s{font-size:12px;fill:#4a535c}.n{text-anchor:end}</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#fff"/>',
        '<text class="t" x="16" y="24">Acknowledged records per second</text>',
        '<text class="s" x="16" y="43">Real Kafka, 3 brokers on the same 2 processors, acks=all, idempotent, '
        "100-byte values</text>",
    ]
    for number, (name, value) in enumerate(bars):
        y = _TOP + _STEP * number
        width = round((_WIDTH - _LEFT - 90) * value / most)
        colour = "#0b5fa5" if name.startswith("aioproduce") else "#b8bec6"
        parts += [
            f'<text class="n" x="{_LEFT - 8}" y="{y + 14}">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{_LEFT + width + 6}" y="{y + 14}">{value:,}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(figures(TABLE.read_text())))
