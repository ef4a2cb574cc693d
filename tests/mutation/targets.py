"""Which modules are mutated: the pure-Python ones that decide what becomes of a record."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioproduce"

TESTS = (
    "tests/unit",
    "tests/audit/test_record_audit.py",
    "tests/property",
    "tests/metrics/test_sender_metrics.py",
    "tests/metrics/test_producer_metrics.py",
    "tests/metrics/test_stages.py",
    "tests/metrics/test_node_in_flight.py",
    "tests/drivers",
    "tests/simulation",
)
"""Whose tests are run, nearest to the code first."""


def module_name(path: Path) -> str:
    """`core.sender` for `aioproduce/core/sender.py`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def targets() -> dict[str, Path]:
    """By name: the modules' files."""
    paths = [
        *sorted((PACKAGE / "core").rglob("*.py")),
        *sorted((PACKAGE / "drivers").glob("*.py")),
        *(
            PACKAGE / "producer" / f"{name}.py"
            for name in ("admission", "bulk", "bulk_calls", "life", "producer")
        ),
    ]
    return {module_name(path): path for path in paths if path.name != "__init__.py"}
