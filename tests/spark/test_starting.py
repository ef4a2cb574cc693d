"""Where a landing begins and why it must not: a row for each case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aioproduce.spark.checkpoint import Checkpoint
from aioproduce.spark.errors import CheckpointError, OptionError
from aioproduce.spark.files import LocalFiles
from aioproduce.spark.lake import CheckpointNote, Lander
from aioproduce.spark.starting import Found, check_checkpoint, starting_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproduce.spark.lake import Offsets

PARTITIONS = {"orders": (0, 1), "aioproduce.audit": (0,)}
WANTED = CheckpointNote("lake-1", ("orders",), is_pattern=False, audit_topic="aioproduce.audit")
OLD = Lander("q-old", "/gone", 7, {"orders": {0: 100}})


def check(there: Found, wanted: CheckpointNote, topics: tuple[str, ...] | None = None) -> None:
    """See that the checkpoint `/c` can go on; by default with those topics alone that are wanted by name."""
    named = {*wanted.topics, *filter(None, [wanted.audit_topic])}
    check_checkpoint(there, wanted, "/c", named if topics is None else topics)


def checkpoint(*, planned: int = 3, committed: int = 3) -> Checkpoint:
    return Checkpoint("/c", "q", committed, planned, LocalFiles())


def found(
    state: Checkpoint | None = None,
    note: CheckpointNote | None = WANTED,
    landers: tuple[Lander, ...] = (),
    alive: tuple[str, ...] = (),
    planned: Mapping[str, Offsets] | None = None,
) -> Found:
    return Found(state, note if state is not None else None, landers, alive, planned or {})


@pytest.mark.parametrize("own", [-1, 2, 3])
def test_a_checkpoint_goes_on(own: int) -> None:
    there = found(checkpoint(), landers=(Lander("q", "/c", own, {"orders": {0: 5}}),), alive=("q",))
    check(there, WANTED)
    # Spark does not heed it: the checkpoint says where.
    assert starting_offsets(there, "lake", PARTITIONS, "/c") == "earliest"


def test_a_topic_more_is_no_harm() -> None:
    more = CheckpointNote("lake-1", ("orders", "payments"), is_pattern=False, audit_topic="aioproduce.audit")
    check(found(checkpoint()), more)


@pytest.mark.parametrize(
    ("note", "wanted", "state", "says"),
    [
        (None, WANTED, checkpoint(), "was not created by `land`"),
        (
            CheckpointNote("lake-2", ("orders",), False, None),
            WANTED,
            checkpoint(),
            "for another lake",
        ),
        (
            WANTED,
            CheckpointNote("lake-1", ("payments",), False, "aioproduce.audit"),
            checkpoint(),
            "also lands orders, and a topic cannot be removed",
        ),
        (
            WANTED,
            CheckpointNote("lake-1", ("orders",), False, "marks"),
            checkpoint(planned=4),
            r"micro-batch 4 of /c was begun with --topics orders --audit-topic aioproduce.audit",
        ),
        (
            CheckpointNote("lake-1", ("o.*",), True, None),
            WANTED,
            checkpoint(planned=4),
            r"begun with --topic-pattern o\.\* --audit-topic none",
        ),
    ],
    ids=["not ours", "another lake", "a topic less", "other marks", "a pattern"],
)
def test_a_checkpoint_that_is_not_for_this(
    note: CheckpointNote | None, wanted: CheckpointNote, state: Checkpoint, says: str
) -> None:
    with pytest.raises(CheckpointError, match=says):
        check(found(state, note), wanted)


def test_a_checkpoint_from_a_copy() -> None:
    there = found(checkpoint(), landers=(Lander("q", "/c", 9, {"orders": {0: 5}}),))
    with pytest.raises(CheckpointError, match="older than the lake, which has its batches up to 9, not 3"):
        check(there, WANTED)


def test_a_checkpoint_whose_topics_another_has_gone_on_with() -> None:
    mine, other = Lander("q", "/c", 3, {"orders": {0: 5}}), Lander("r", "/d", 0, {"orders": {0: 6}})
    with pytest.raises(
        CheckpointError, match="further into this lake by another query, with the checkpoint /d"
    ):
        check(found(checkpoint(), landers=(mine, other)), WANTED)


def test_a_checkpoint_whose_topics_another_is_about_to_go_on_with() -> None:
    # Restored, after another query was begun in its place and killed in its first batch.
    mine, other = Lander("q", "/c", 3, {"orders": {0: 5}}), Lander("r", "/d", -1, {})
    there = found(checkpoint(), landers=(mine, other), alive=("q", "r"), planned={"r": {"orders": {0: 6}}})
    with pytest.raises(CheckpointError, match="further into this lake by another query"):
        check(there, WANTED)


def test_an_empty_lake_begins_with_the_first_offset() -> None:
    assert starting_offsets(found(), "lake", PARTITIONS, "/c") == "earliest"
    assert starting_offsets(found(), "latest", PARTITIONS, "/c") == "latest"
    assert starting_offsets(found(), "earliest", PARTITIONS, "/c") == "earliest"


def test_a_lake_whose_checkpoint_is_gone_is_continued() -> None:
    told = starting_offsets(found(landers=(OLD,)), "lake", PARTITIONS, "/c")
    # -2 is Spark's word for the first offset there is.
    assert json.loads(told) == {"orders": {"0": 100, "1": -2}, "aioproduce.audit": {"0": -2}}


def test_a_lake_with_other_topics_only() -> None:
    other = Lander("q-old", "/gone", 7, {"payments": {0: 100}})
    assert starting_offsets(found(landers=(other,)), "lake", PARTITIONS, "/c") == "earliest"
    assert starting_offsets(found(landers=(other,), alive=("q-old",)), "lake", PARTITIONS, "/c") == "earliest"


@pytest.mark.parametrize("choice", ["earliest", '{"orders":{"0":99}}', '{"orders":{"0":-2}}'])
def test_nothing_is_landed_twice(choice: str) -> None:
    with pytest.raises(CheckpointError, match="would be landed again"):
        starting_offsets(found(landers=(OLD,)), choice, PARTITIONS, "/c")


def test_offsets_of_ones_own() -> None:
    told = starting_offsets(found(landers=(OLD,)), '{"orders":{"0":100,"1":-1}}', PARTITIONS, "/c")
    assert json.loads(told) == {"orders": {"0": 100, "1": -1}}


@pytest.mark.parametrize("choice", ["lake", "earliest", "latest"])
def test_another_query_that_lives_is_not_overtaken(choice: str) -> None:
    there = found(landers=(OLD,), alive=("q-old",))
    with pytest.raises(CheckpointError, match="orders is landed into this lake with the check") as raised:
        starting_offsets(there, choice, PARTITIONS, "/c")
    assert raised.value.path == "/gone"


def test_neither_a_name_nor_offsets() -> None:
    with pytest.raises(OptionError, match="must be lake, earliest, latest, or offsets as") as raised:
        starting_offsets(found(), "newest", PARTITIONS, "/c")
    assert raised.value.option == "--starting-offsets"


def test_a_checkpoint_without_a_batch_begins_as_a_new_one() -> None:
    # Killed between Spark's `metadata` and its first batch: from then on "earliest" would land all of it once more.
    there = found(checkpoint(planned=-1, committed=-1), landers=(OLD,))
    check(there, WANTED)
    told = starting_offsets(there, "lake", PARTITIONS, "/c")
    assert json.loads(told) == {"orders": {"0": 100, "1": -2}, "aioproduce.audit": {"0": -2}}
    assert starting_offsets(there, "latest", PARTITIONS, "/c") == "latest"
    with pytest.raises(CheckpointError, match="would be landed again"):
        starting_offsets(there, "earliest", PARTITIONS, "/c")
    with pytest.raises(CheckpointError, match="continue with that"):
        starting_offsets(found(there.checkpoint, landers=(OLD,), alive=("q-old",)), "lake", PARTITIONS, "/c")


def test_a_query_in_its_first_batch_is_not_overtaken() -> None:
    # It has said who it is, and nothing is landed yet: what it has planned tells.
    first = Lander("q-old", "/other", -1, {})
    there = found(landers=(first,), alive=("q-old",), planned={"q-old": {"orders": {0: 5, 1: 5}}})
    with pytest.raises(CheckpointError, match="orders is landed into this lake with the checkpoint /other"):
        starting_offsets(there, "lake", PARTITIONS, "/c")
    other = found(landers=(first,), alive=("q-old",), planned={"q-old": {"payments": {0: 5}}})
    assert starting_offsets(other, "lake", PARTITIONS, "/c") == "earliest"


@pytest.mark.parametrize("is_alive", [False, True])
@pytest.mark.parametrize("topics", [None, ("orders", "payments", "aioproduce.audit")])
def test_a_topic_that_another_query_has_landed_is_not_added(
    topics: tuple[str, ...] | None, *, is_alive: bool
) -> None:
    # Spark would begin it with its first offset.
    mine = Lander("q", "/c", 3, {"orders": {0: 5}, "aioproduce.audit": {0: 1}})
    other = Lander("q-old", "/gone", 7, {"payments": {0: 100}})
    more = CheckpointNote("lake-1", ("orders", "payments"), is_pattern=False, audit_topic="aioproduce.audit")
    there = found(checkpoint(), landers=(mine, other), alive=("q-old",) if is_alive else ())
    with pytest.raises(
        CheckpointError, match=r"payments is new to the checkpoint /c.*checkpoint /gone"
    ) as raised:
        check(there, more, topics)
    assert raised.value.path == "/gone"
    check(there, WANTED)


def test_a_first_batch_goes_on_where_an_older_query_had_ended() -> None:
    own = Lander("q", "/c", -1, {})
    there = found(
        checkpoint(planned=0, committed=-1),
        landers=(OLD, own),
        alive=("q",),
        planned={"q": {"orders": {0: 200, 1: 9}, "aioproduce.audit": {0: 0}}},
    )
    check(there, WANTED)
    further = found(
        there.checkpoint,
        landers=(Lander("q-old", "/gone", 9, {"orders": {0: 201}}), own),
        planned=there.planned,
    )
    with pytest.raises(CheckpointError, match="further into this lake by another query"):
        check(further, WANTED)
