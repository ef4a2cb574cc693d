"""`TopicAppender` compiled against itself interpreted, over any calls that the accumulator may make."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime

partition = st.integers(0, 5)
payload = st.none() | st.binary(max_size=30)
calls = st.one_of(
    st.tuples(st.just("count"), st.integers(0, 6)),
    st.tuples(st.just("open"), partition, st.integers(61, 200)),
    st.tuples(st.just("close"), partition),
    st.tuples(st.just("sticky"), st.integers(-1, 5), st.integers(-10, 100)),
    st.tuples(st.just("line"), st.lists(partition, max_size=4)),
    st.tuples(st.just("take")),
    st.tuples(
        st.just("append"),
        st.integers(-1, 7),
        st.integers(-1, 2**63 - 1),
        payload,
        payload,
        st.none() | st.lists(st.tuples(st.text(max_size=3), payload), max_size=2),
    ),
)


class Played:
    """One build, the batches that it was given, and what it answered."""

    def __init__(self, build: Any, key_rule: int) -> None:
        self.build = build
        self.appender = build.topic_appender.TopicAppender(key_rule)
        self.batches: list[tuple[Any, Any]] = []
        self.opened: set[int] = set()
        self.answers: list[object] = []

    def play(self, call: tuple[Any, ...]) -> None:
        name, *arguments = call
        if name == "count":
            self.appender.set_partition_count(*arguments)
        elif name == "open":
            number, size = arguments
            buffer = self.build.record_batch.RecordBatchBuffer(bytearray(size))
            result = self.build.delivery.BatchResult("topic", number, NoLoopRuntime())
            self.batches.append((buffer, result))
            self.opened.add(number)
            self.appender.open(number, buffer, result)
        elif name == "close":
            if arguments[0] in self.opened:
                self.appender.close(*arguments)
        elif name == "sticky":
            self.appender.set_sticky(*arguments)
        elif name == "line":
            self.appender.set_line(*arguments)
        elif name == "take":
            self.answers.append(self.appender.next_keyless())
            self.answers.append(self.appender.take_sticky_bytes())
        else:
            delivery = self.appender.append(*arguments)
            self.answers.append(delivery)

    def outcome(self) -> object:
        for number, (_, result) in enumerate(self.batches):
            result.succeed(1000 * number)
        answers = [answer if isinstance(answer, int | None) else answer.result() for answer in self.answers]  # type: ignore[attr-defined]
        return answers, [list(buffer.iter_records()) for buffer, _ in self.batches]


@settings(max_examples=200)
@given(key_rule=st.integers(0, 15), script=st.lists(calls, max_size=40))
def test_both_builds_do_the_same(key_rule: int, script: list[tuple[Any, ...]]) -> None:
    outcomes = []
    for build in BUILDS:
        played = Played(native_build(build), key_rule)
        for call in script:
            played.play(call)
        outcomes.append(played.outcome())
    assert outcomes[0] == outcomes[1]
