"""Shows when the real brokers of a session end, and that a test which asks later finds them running."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from tests.integration.conftest import _lend, pytest_runtest_teardown
from tests.kafka_cluster import KafkaCluster

TESTS = """
    import pytest

    @pytest.mark.kafka
    def test_a_broker(): ...

    @pytest.mark.kafka
    def test_the_same_broker(): ...

    def test_nothing_of_the_kind(): ...
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    """The tests above, collected."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers = kafka")
    return pytester.getitems(TESTS)


def test_the_nodes_end_with_the_last_test_of_their_group(items: list[pytest.Item]) -> None:
    first, last, next_group = items
    cluster = create_autospec(KafkaCluster, instance=True, nodes={})
    assert [next(_lend(cluster, item)) for item in (first, last)] == [cluster, cluster]

    pytest_runtest_teardown(first, last)
    pytest_runtest_teardown(last, None)  # the session's end is the fixture's own
    assert not cluster.rest.called
    pytest_runtest_teardown(last, next_group)
    assert cluster.rest.call_count == 1


def test_nodes_that_rest_run_again_before_a_later_test_has_them(items: list[pytest.Item]) -> None:
    cluster = create_autospec(KafkaCluster, instance=True, nodes={})

    lent = _lend(cluster, items[0])
    next(lent)
    assert cluster.mend.call_count == 1
    assert list(lent) == []
    assert cluster.mend.call_count == 2
