"""The version of aioproduce, for whoever tells it: the package's own front, bug reports, metrics."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
