"""The command lines of the jobs, as a user types them, and the audit's output.

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
"""Exit codes of `land`. After a Ctrl-C it ends its current batch and exits with 130."""

AUDIT_ENDS: Final = (0, 1)
"""Exit codes of `audit`: 1 means that records are lost."""

_SPARK: Final = (
    *("--master", "local[2]"),
    *("--conf", "spark.driver.memory=768m"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "--quiet",
)
"""Options of a small local Spark. They favour a fast start over throughput."""


def land(
    servers: str, topics: Sequence[str], lake: Path, checkpoint: Path, jars: Sequence[Path]
) -> list[str]:
    """Return the command that lands Kafka records as Parquet until it is interrupted."""
    return [
        *(sys.executable, "-m", "aioproduce.spark", "land", *_SPARK),
        *(word for jar in jars for word in ("--jars", str(jar))),
        *("--bootstrap-servers", servers, "--topics", ",".join(topics)),
        *("--lake", str(lake), "--checkpoint", str(checkpoint)),
        *("--continuous", "--trigger", "2 seconds"),
    ]


def compact(lake: Path) -> list[str]:
    """Return the command that merges many small files into a few."""
    return [sys.executable, "-m", "aioproduce.spark", "compact", *_SPARK, "--lake", str(lake)]


def audit(lake: Path) -> list[str]:
    """Return the command that reports lost and duplicate records."""
    return [sys.executable, "-m", "aioproduce.spark", "audit", *_SPARK, "--json", "--lake", str(lake)]


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit's output.

    Attributes:
        told: The JSON document.
    """

    told: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Audit:
        """Parse the last line of the output."""
        return cls(json.loads(text.strip().splitlines()[-1]))

    def total(self, name: str) -> int:
        """Return a sum over the lake: `rows`, `lost`, `duplicates`, `conflicts` or `undecided`."""
        return int(self.told[name])

    def of(self, producer_ids: Collection[bytes], name: str) -> int:
        """Return the sum for some producers. The findings list only producers with an anomaly."""
        wanted = {producer_id.hex() for producer_id in producer_ids}
        return sum(int(found[name]) for found in self.told["findings"] if found["producer_id"] in wanted)
