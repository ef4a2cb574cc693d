"""The job `replay` without a JVM: its arguments, what the sink is told, and its summary."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import pytest

from aioproduce.spark.errors import OptionError
from aioproduce.spark.jobs import replay as job
from aioproduce.spark.jobs.replay import ReplaySummary, replay_of, sink_options
from aioproduce.spark.jobs.running import add_common_arguments
from aioproduce.spark.options import SinkOptions

PRODUCER = "0123456789abcdef" * 2


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    job.add_arguments(parser)
    add_common_arguments(parser)
    return parser.parse_args(["--lake", "somewhere", *given])


def test_arguments() -> None:
    found = replay_of(
        arguments(
            "--map", "orders=again, audit=again", "--since", "2026-01-31T12:00+01:00", "--until", "2026-02-01",
            "--partitions", "0,7", "--producers", PRODUCER, "--rate", "1000", "--distinct", "--unordered",
        )
    )  # fmt: skip
    assert found.targets == {"orders": "again", "audit": "again"}
    assert found.selection.topics == ("orders", "audit")
    assert found.selection.since == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert found.selection.until == datetime(2026, 2, 1, tzinfo=UTC)
    assert (found.selection.partitions, found.selection.producers) == ((0, 7), (bytes.fromhex(PRODUCER),))
    assert (found.ids, found.is_distinct, found.is_ordered, found.is_same) == ("original", True, False, False)


@pytest.mark.parametrize(
    ("option", "given"),
    [
        pytest.param("--rate", ["--to", "t", "--rate", "-1"], id="rate"),
        pytest.param("--write-id", ["--to", "t", "--write-id", "x"], id="write-id-of-old-ids"),
        pytest.param("--map", ["--map", "orders"], id="map-without-a-target"),
        pytest.param("--map", ["--map", "a=b", "--topics", "a,c"], id="a-topic-that-the-map-has-not"),
        pytest.param("--map", ["--map", "a=b,a=c"], id="a-topic-that-goes-to-two"),
        pytest.param("--since", ["--to", "t", "--since", "today"], id="no-time"),
        pytest.param(
            "--since", ["--to", "t", "--since", "2026-02-01", "--until", "2026-01-01"], id="ends-before"
        ),
        pytest.param("--partitions", ["--to", "t", "--partitions", "-1"], id="no-partition"),
        pytest.param("--producers", ["--to", "t", "--producers", "beef"], id="no-id"),
        pytest.param("--topics", ["--to", "t", "--topics", ","], id="no-name"),
    ],
)
def test_arguments_that_are_refused(option: str, given: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        replay_of(arguments(*given))
    assert caught.value.option == option


def test_where_to_must_be_said() -> None:
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        arguments()


@pytest.mark.parametrize(
    ("given", "stamp", "write_id", "rate"),
    [
        pytest.param([], False, None, 0, id="original"),
        pytest.param(["--ids", "none"], False, None, 0, id="none"),
        pytest.param(["--ids", "new", "--write-id", "again", "--rate", "1001"], True, "again", 250, id="new"),
        pytest.param(["--rate", "3"], False, None, 1, id="a-rate-below-the-number-of-tasks"),
    ],
)
def test_the_sink_understands_its_options(
    given: list[str], stamp: bool, write_id: str | None, rate: int
) -> None:
    replay = replay_of(arguments("--to", "t", *given))
    options = SinkOptions.parse(sink_options(replay, {"bootstrap.servers": "host:9092"}, slots=4))
    assert (options.stamp, options.write_id, options.rate_limit_records) == (stamp, write_id, rate)


def test_the_summary_tells_a_dry_run_from_a_real_one() -> None:
    route = {"topic": "a", "to": "b", "rows": 2, "bytes": 300, "first": "1", "last": "2"}
    dry = ReplaySummary("lake", is_dry=True, rows=2, routes=(route,))
    assert dry.lines() == [
        "2 rows of lake would be sent; nothing was",
        "  a -> b: 2 rows, 0.0 MB, 1 to 2",
    ]
    real = ReplaySummary("lake", is_dry=False, rows=2, seconds=0.5, sink={"rows": 2})
    assert real.lines() == ["replayed 2 rows of lake in 0.5 s (4 rows/s)"]
    assert real.to_json()["job"] == "replay"
    assert real.exit_code == 0
