"""The command lines of the jobs, as anybody would type them, and what the audit prints.

Called by `story` and `__main__`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LAND_ENDS: Final = (0, 130)
"""What `land` may end with: 130 is after a Ctrl-C, by then it has ended what it was doing."""

AUDIT_ENDS: Final = (0, 1)
"""What `audit` may end with: 1 is that records are lost."""

_SPARK: Final = (
    *("--master", "local[2]"),
    *("--conf", "spark.driver.memory=768m"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "--quiet",
)
"""A small Spark on this machine that starts fast, not one that is fast in the long run."""


def land(
    servers: str, topics: Sequence[str], lake: Path, checkpoint: Path, jars: Sequence[Path]
) -> list[str]:
    """Kafka to Parquet, for as long as it is let."""
    return [
        *(sys.executable, "-m", "aioproduce.spark", "land", *_SPARK),
        *(word for jar in jars for word in ("--jars", str(jar))),
        *("--bootstrap-servers", servers, "--topics", ",".join(topics)),
        *("--lake", str(lake), "--checkpoint", str(checkpoint)),
        *("--continuous", "--trigger", "2 seconds"),
    ]


def compact(lake: Path) -> list[str]:
    """Many small files to a few."""
    return [sys.executable, "-m", "aioproduce.spark", "compact", *_SPARK, "--lake", str(lake)]


def audit(lake: Path) -> list[str]:
    """What is lost and what is there twice."""
    return [sys.executable, "-m", "aioproduce.spark", "audit", *_SPARK, "--json", "--lake", str(lake)]


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit printed.

    Attributes:
        told: The document.
    """

    told: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Audit:
        """The last line that it printed."""
        return cls(json.loads(text.strip().splitlines()[-1]))

    def total(self, name: str) -> int:
        """A sum over the lake: `rows`, `lost`, `duplicates`, `conflicts`, `undecided`."""
        return int(self.told[name])

    def of(self, producer_ids: Collection[bytes], name: str) -> int:
        """The same of some producers; one that is not among the findings has nothing amiss."""
        wanted = {producer_id.hex() for producer_id in producer_ids}
        return sum(int(found[name]) for found in self.told["findings"] if found["producer_id"] in wanted)
