"""What the plugin costs those who do not use it, and how pytest finds it: entry point, xdist, `-p no:...`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

RunPytest = Callable[..., pytest.RunResult]

TOLD = """
    import sys

    def pytest_sessionfinish():
        loaded = sorted(name for name in sys.modules if name.split(".")[0] in {"aioproduce", "kio", "crc32c"})
        print("\\nloaded:", *loaded)
"""


def test_a_run_that_uses_nothing_of_it_loads_nothing(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    pytester.makeconftest(TOLD)
    pytester.makepyfile("def test_nothing(): pass")

    result = run_pytest()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["plugins:*aioproduce-*"])
    result.stdout.re_match_lines([r".*loaded: aioproduce aioproduce\.pytest_plugin aioproduce\.version$"])


@pytest.mark.extended("runs pytest in a process; the example of the page stays in the gate")
def test_it_loads_what_a_test_asks_for(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makeconftest(TOLD)
    pytester.makepyfile("def test_something(kafka_cluster): pass")

    result = run_pytest()

    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r".*loaded: .*aioproduce\.testing\.cluster_thread.* kio.*"])


def test_it_can_be_left_out(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it_is_not_there():
            assert "aioproduce.pytest_plugin" not in sys.modules

        def test_with(kafka_cluster): pass
        """
    )

    result = run_pytest("-p", "no:aioproduce")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kafka_cluster' not found"])


@pytest.mark.extended("runs pytest in a process")
def test_fixtures_and_marker_are_told_of(run_pytest: RunPytest) -> None:
    fixtures, markers = run_pytest("--fixtures"), run_pytest("--markers")

    fixtures.stdout.fnmatch_lines_random(
        ["kafka_cluster -- *", "kafka_cluster_options -- *", "producer -- *", "producer_options -- *"]
    )
    fixtures.stdout.fnmatch_lines_random(["*A Kafka cluster in memory, in its own thread*"])
    markers.stdout.fnmatch_lines(["@pytest.mark.aioproduce(brokers=3, topics=*"])


@pytest.mark.extended("runs pytest in a process")
def test_workers_share_nothing(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_one_of_many(number, kafka_cluster, producer):
            async def main():
                async with producer:
                    await producer.send_and_wait("orders", b"%d" % number)

            asyncio.run(main())
            kafka_cluster.assert_produced_exactly("orders", [b"%d" % number])
        """
    )

    result = run_pytest("-n", "2")

    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*2 workers*"])


@pytest.mark.extended("runs pytest in a process")
def test_wrong_options_are_told(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.aioproduce(broker=1)
        def test_misspelt(kafka_cluster): pass

        @pytest.mark.aioproduce({"orders": 1})
        def test_without_a_name(kafka_cluster): pass

        @pytest.mark.aioproduce(producer={"liger_ms": 1})
        def test_of_the_producer(producer): pass

        @pytest.mark.aioproduce(brokers=0)
        def test_refused(kafka_cluster): pass
        """
    )

    result = run_pytest()

    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines_random(
        [
            "@pytest.mark.aioproduce does not have an option 'broker'; did you mean 'brokers'?*",
            "@pytest.mark.aioproduce needs options by name*",
            "E *did you mean 'linger_ms'*",
            "E *a cluster needs at least one broker",
        ]
    )


@pytest.mark.extended("runs pytest in a process")
def test_options_come_from_fixtures_and_markers(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    """A marker of the function goes before one of its class, and that before the fixture."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def kafka_cluster_options():
            return {"brokers": 2, "topics": {"orders": 1}}

        @pytest.fixture
        def producer_options():
            return {"linger_ms": 1, "acks": 1}

        def test_fixture(kafka_cluster, producer):
            assert len(kafka_cluster.ports) == 2 and list(kafka_cluster.topics) == ["orders"]
            assert (producer.config.linger, producer.config.acks) == (0.001, 1)

        @pytest.mark.aioproduce(brokers=1, producer={"linger_ms": 2, "batch_size": 7})
        class TestMarked:
            def test_class(self, kafka_cluster, producer):
                assert len(kafka_cluster.ports) == 1 and list(kafka_cluster.topics) == ["orders"]
                assert (producer.config.linger, producer.config.acks) == (0.002, 1)

            @pytest.mark.aioproduce(brokers=4, producer={"linger_ms": 3})
            def test_function(self, kafka_cluster, producer, make_producer):
                assert len(kafka_cluster.ports) == 4
                assert (producer.config.linger, producer.config.batch_size) == (0.003, 7)
                assert make_producer(linger_ms=4).config.linger == 0.004
        """
    )

    run_pytest().assert_outcomes(passed=3)


INTERPRETED = """
    import sys
    sys.path.insert(0, {repository!r})
    from tests.interpreted_finder import InterpretedNative

    assert "aioproduce.pytest_plugin" in sys.modules  # the entry point was faster
    assert not [name for name in sys.modules if name.startswith("aioproduce._native")]
    sys.meta_path.insert(0, InterpretedNative("aioproduce"))
"""


@pytest.mark.extended("runs pytest in a process")
def test_a_conftest_can_still_choose_the_interpreted_hot_path(
    pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    """As this project's own does: nothing compiled may be loaded before it, in spite of the entry point."""
    repository = str(Path(__file__).parents[2])
    pytester.makeconftest(INTERPRETED.format(repository=repository))
    pytester.makepyfile(
        """
        import asyncio, sys

        def test_interpreted(kafka_cluster, producer):
            async def main():
                async with producer:
                    await producer.send_and_wait("orders", b"42")

            asyncio.run(main())
            kafka_cluster.assert_produced("orders", b"42")
            native = [name for name in sys.modules if name.startswith(("aioproduce._native.", "aioproduce.core."))]
            assert native and all(sys.modules[name].__file__.endswith(".py") for name in native)
        """
    )

    run_pytest().assert_outcomes(passed=1)


@pytest.mark.extended("runs pytest in a process")
def test_nothing_is_left_of_a_cluster(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        import threading

        def test_one(kafka_cluster):
            assert "aioproduce fake cluster" in [thread.name for thread in threading.enumerate()]

        def test_two():
            assert threading.enumerate() == [threading.main_thread()]
        """
    )

    run_pytest("-p", "no:xdist", "-p", "no:timeout").assert_outcomes(passed=2)


@pytest.mark.extended("runs pytest in a process")
def test_a_client_that_does_not_go(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    """A foreign client may stay connected, and one in another process: the cluster ends all the same."""
    pytester.makepyfile(
        """
        import socket

        def test_one(kafka_cluster, request):
            client = socket.create_connection(("127.0.0.1", kafka_cluster.ports[0]))
            request.addfinalizer(client.close)
        """
    )

    run_pytest().assert_outcomes(passed=1)
