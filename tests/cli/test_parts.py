"""What a whole process is too coarse a test for: lines out of chunks, the tally, the missing extra."""

from __future__ import annotations

import subprocess
import sys
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce import RecordMetadata
from aioproduce.cli.inputs import LineSplitter
from aioproduce.cli.line_format import BadLineError, json_lines, keyed_lines
from aioproduce.cli.tally import SAMPLE_SIZE, LatencySample

METADATA = RecordMetadata("t", 0, 0, 0, -1, 1)


@given(chunks=st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"a\nb", b"\n\n"]), max_size=12))
def test_lines_do_not_depend_on_how_the_input_was_cut(chunks: list[bytes]) -> None:
    content = b"".join(chunks)
    splitter = LineSplitter(limit=10**6)

    lines = [line for chunk in chunks if chunk for line in splitter.feed(chunk)] + splitter.finish()

    expected = content.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    size=st.integers(min_value=1, max_value=7),
)
def test_a_line_above_the_limit_is_told_in_its_place(lines: list[bytes], size: int) -> None:
    limit = 12
    content = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter(limit)
    told: list[bytes | int] = []
    for start in range(0, len(content), size):
        found = splitter.feed(content[start : start + size])
        if splitter.overlong_size:
            told.append(splitter.overlong_size)
        told.extend(found)
        # Memory: no more than the limit is kept, whatever the line.
        assert sum(map(len, splitter._held)) <= limit

    assert told == [line if len(line) <= limit else len(line) for line in lines]


def test_keys_before_a_separator() -> None:
    parse = keyed_lines(b"::")

    assert parse(b"key::value::more") == (b"key", b"value::more")
    assert parse(b"::value") == (b"", b"value")
    assert parse(b"key::") == (b"key", b"")
    with pytest.raises(BadLineError, match="has no key separator '::'"):
        parse(b"key:value")


def test_a_dot_in_a_fields_name() -> None:
    line = b'{"a": {"b": "nested"}, "a.b": "flat"}'

    assert json_lines("a.b")(line) == (b"nested", line)
    assert json_lines("a\\.b")(line) == (b"flat", line)


def test_every_latency_of_a_small_run_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("aioproduce.cli.tally.time.monotonic", lambda: now[0])
    sample = LatencySample()
    callbacks = [sample.measure(number) for number in range(100)]
    for number, callback in enumerate(callbacks):
        now[0] = (number + 1) / 1000  # 1 to 100 ms
        callback(METADATA, None)

    assert sample.stride == 1
    assert sample.summary() == {"p50": 50.0, "p99": 99.0, "max": 100.0, "samples": 100}


def test_a_large_run_is_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("aioproduce.cli.tally.time.monotonic", lambda: now[0])
    sample = LatencySample()
    count = 10 * SAMPLE_SIZE
    for number in range(count):
        if number % sample.stride == 0:
            now[0] = 0.0
            callback = sample.measure(number)
            now[0] = number / 1000  # a latency that grows over the run: a biased sample would show
            callback(METADATA, None)

    summary = sample.summary()
    assert summary is not None
    assert SAMPLE_SIZE / 2 <= summary["samples"] <= SAMPLE_SIZE
    every = quantiles(range(count), n=100)
    assert summary["p50"] == pytest.approx(every[49], abs=2 * sample.stride)
    assert summary["p99"] == pytest.approx(every[98], abs=2 * sample.stride)


def test_failures_have_no_latency() -> None:
    sample = LatencySample()
    sample.measure(0)(METADATA, RuntimeError("not acknowledged"))

    assert sample.summary() is None


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; import aioproduce.cli; aioproduce.cli.main(['config'])"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr == (
        f"error: the command line needs {missing}, which is not installed: pip install 'aioproduce[cli]'\n"
    )


def test_importing_it_imports_neither() -> None:
    program = "import sys, aioproduce.cli; print({'typer', 'rich'} & set(sys.modules))"
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert outcome.stdout == "set()\n"
