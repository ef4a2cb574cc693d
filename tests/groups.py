"""Says which tests run in one process where there are several.

Used by `tests/conftest.py`, which marks the tests with it, and by the fixtures of the real brokers, which end them
with their group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def group_of(item: pytest.Item) -> str:
    """The name of the group: ``"spark"``, ``"kafka"``, or the test's file."""
    is_kafka = item.get_closest_marker("kafka") is not None
    if item.get_closest_marker("spark") or (is_kafka and item.path.parent.name == "spark"):
        return "spark"
    return "kafka" if is_kafka else item.nodeid.partition("::")[0]
