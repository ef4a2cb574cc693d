"""Marks that give a test its tier: `others_extended()` for parameters of which one kind stays in the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def others_extended(values: Iterable[Any], *, keep: Iterable[Any], reason: str) -> list[Any]:
    """Mark every parameter as extended except those that stay in the gate.

    Args:
        values: What `parametrize()` or `fixture(params=)` would be given.
        keep: The values that stay. Each must be one of `values`.
        reason: Why the gate does without the others.

    Raises:
        ValueError: a value of `keep` is not among `values`, so that nothing would stay for it.

    Example:
        `@pytest.mark.parametrize("codec", others_extended(CODECS, keep=["lz4"], reason="one codec stays"))`
    """
    parameters, kept = list(values), list(keep)
    if missing := [value for value in kept if value not in parameters]:
        raise ValueError(f"{missing} cannot stay in the gate: the parameters are {parameters}")
    mark = pytest.mark.extended(reason)
    return [value if value in kept else pytest.param(value, marks=mark) for value in parameters]
