"""ExponentialBackoff: Java's ExponentialBackoffTest, and the values that Java's class gives.

| scenario of Java | test here |
|---|---|
| exponentialBackoff (within jitter, never above the maximum) | test_with_jitter_each_wait_is_within_its_bounds |
| exponentialBackoffWithoutJitter | test_without_jitter_the_waits_are_javas |
"""

from __future__ import annotations

import pytest

from aioproduce.core.retry import ExponentialBackoff


def never() -> float:
    pytest.fail("no random number is needed")


@pytest.mark.parametrize(
    ("initial", "maximum", "multiplier", "expected"),
    [
        # Milliseconds, printed by org.apache.kafka.common.utils.ExponentialBackoff of Kafka 4.3.1 without jitter
        # for 0 to 7 attempts, and for a million.
        (100, 1000, 2, [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]),
        (50, 1000, 2, [50, 100, 200, 400, 800, 1000, 1000, 1000, 1000]),
        (100, 100, 2, [100, 100, 100, 100, 100, 100, 100, 100, 100]),
        (100, 99, 2, [99, 99, 99, 99, 99, 99, 99, 99, 99]),
        (10000, 30000, 2, [10000, 20000, 30000, 30000, 30000, 30000, 30000, 30000, 30000]),
        (1, 1000000, 3, [1, 3, 9, 27, 81, 243, 729, 2187, 999999]),
        (0, 1000, 2, [0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (100, 2147483647, 2, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 2147483646]),
    ],
)
def test_without_jitter_the_waits_are_javas(
    initial: int, maximum: int, multiplier: int, expected: list[int]
) -> None:
    backoff = ExponentialBackoff(initial / 1000, maximum / 1000, multiplier, 0.0, random=lambda: 0.99)
    waits = [backoff.backoff(attempts) * 1000 for attempts in (*range(8), 1_000_000)]
    for wait, java in zip(waits, expected, strict=True):
        assert java - 1e-6 <= wait <= java + 1 + 1e-6  # Java cuts off what is below a millisecond


@pytest.mark.parametrize(
    ("random", "factor"), [(0.0, 0.8), (0.25, 0.9), (0.5, 1.0), (0.75, 1.1), (0.999999, 1.2)]
)
def test_with_jitter_each_wait_is_within_its_bounds(random: float, factor: float) -> None:
    """KIP-580: +-20 %, and the maximum holds in spite of it."""
    backoff = ExponentialBackoff(0.1, 2.0, random=lambda: random)
    for attempts, term in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0)):
        assert backoff.backoff(attempts) == pytest.approx(min(term * factor, 2.0), rel=1e-5)
        assert backoff.backoff(attempts) <= 2.0


def test_each_question_draws_again() -> None:
    numbers = iter((0.0, 0.5))
    backoff = ExponentialBackoff(1.0, 60.0, random=lambda: next(numbers))
    assert [backoff.backoff(0), backoff.backoff(0)] == pytest.approx([0.8, 1.0])


@pytest.mark.parametrize(("initial", "maximum", "wait"), [(1.0, 1.0, 1.0), (5.0, 1.0, 1.0), (0.0, 3.0, 0.0)])
def test_constant_waits_have_no_jitter(initial: float, maximum: float, wait: float) -> None:
    backoff = ExponentialBackoff(initial, maximum, random=never)
    assert [backoff.backoff(attempts) for attempts in (0, 1, 50)] == [wait] * 3


def test_any_number_of_attempts_is_fine() -> None:
    backoff = ExponentialBackoff(0.001, 1e9, random=lambda: 0.5)
    assert backoff.backoff(10**400) == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("initial", "maximum", "multiplier", "jitter"),
    [
        (-0.1, 1.0, 2.0, 0.2),
        (0.1, -1.0, 2.0, 0.2),
        (0.1, float("inf"), 2.0, 0.2),
        (float("inf"), 1.0, 2.0, 0.2),
        (float("nan"), 1.0, 2.0, 0.2),
        (0.1, 1.0, 1.0, 0.2),
        (0.1, 1.0, float("inf"), 0.2),
        (0.1, 1.0, 2.0, 1.0),
        (0.1, 1.0, 2.0, -0.1),
    ],
)
def test_nonsense_is_refused(initial: float, maximum: float, multiplier: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        ExponentialBackoff(initial, maximum, multiplier, jitter, random=never)


def test_a_negative_number_of_attempts_is_refused() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, random=never)
    with pytest.raises(ValueError, match="negative"):
        backoff.backoff(-1)
