"""Marks that set the tier of parameters: some values, or one value in so many, stay in the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.structures import ParameterSet

if TYPE_CHECKING:
    from collections.abc import Iterable


def others_extended(values: Iterable[Any], *, keep: Iterable[Any], reason: str) -> list[Any]:
    """Mark every parameter as extended except those that stay in the gate.

    Args:
        values: The values for `parametrize()` or `fixture(params=)`.
        keep: The values that stay. Each must be one of `values`.
        reason: Why the gate omits the others.

    Raises:
        ValueError: if a value of `keep` is not in `values`, so that nothing would stay for it.

    Example:
        `@pytest.mark.parametrize("codec", others_extended(CODECS, keep=["lz4"], reason="one codec stays"))`
    """
    parameters, kept = list(values), list(keep)
    if missing := [value for value in kept if value not in parameters]:
        raise ValueError(f"{missing} cannot stay in the gate: the parameters are {parameters}")
    mark = pytest.mark.extended(reason)
    return [value if value in kept else pytest.param(value, marks=mark) for value in parameters]


def most_extended(values: Iterable[Any], *, one_in: int, reason: str) -> list[Any]:
    """Mark the parameters as extended except the first of every `one_in`.

    Args:
        values: The values for `parametrize()`, `pytest.param()` included.
        one_in: How many parameters there are for each that stays. Where the values are a product, choose a number
            that shares no factor with the length of an axis: then each value of that axis stays somewhere.
        reason: Why the gate omits the others.

    Example:
        `@pytest.mark.parametrize("seed", most_extended(range(200), one_in=3, reason="more of the same"))`
    """
    mark = pytest.mark.extended(reason)
    return [
        value
        if number % one_in == 0
        else pytest.param(*value.values, id=value.id, marks=[*value.marks, mark])
        if isinstance(value, ParameterSet)
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)
        for number, value in enumerate(values)
    ]
