"""The version of aioproduce, for the package itself, bug reports and metrics."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
