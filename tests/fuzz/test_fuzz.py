"""The fuzz targets in CI: every input of the corpus as a plain call, and a short run of each under atheris.

The short run is bounded by executions, with a fixed seed, so that it is the same everywhere; it skips where atheris
has no wheel. `make fuzz` is the long one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.target import CORPUS, NAMES, MemoryBound, corpus_of, load
from tests.fuzz.targets.properties import reference
from tests.gate.marks import others_extended

RUNS = {"sender": 1_000, "tls_channel": 1_000, "fake_cluster": 2_000, "connection": 4_000}
"""A step of these is a whole life of an object; the decoders get `SHORT`."""
SHORT = 5_000


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_and_the_seeds(name: str) -> None:
    target = load(name)
    files = corpus_of(name)
    assert files, "an empty corpus proves nothing"
    for path in files:
        target.run(path.read_bytes())
    for seed in target.seeds():
        target.run(seed)


def test_no_corpus_without_a_target() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize(
    "name",
    others_extended(NAMES, keep=["properties"], reason="runs libFuzzer; each corpus stays in the gate"),
)
def test_a_short_run_under_atheris(name: str, tmp_path: Path) -> None:
    reason = campaign.missing()
    if reason is not None:
        pytest.skip(reason)
    runs = RUNS.get(name, SHORT)
    report = campaign.fuzz(name, tmp_path, runs=runs, seed=1)
    assert report.is_well, report.describe()
    assert report.runs >= runs
    assert report.edges > 30, "hardly anything was reached: is the package instrumented?"


def test_a_crash_is_told_with_what_causes_it(tmp_path: Path) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    (crashes / "crash-1").write_bytes(b"\x01\xff")
    lines = [
        "INFO: Seed: 1",
        "#20\tNEW    cov: 7 ft: 9 corp: 2/3b",
        "AssertionError: broken",
        "#64\tpulse  cov: 8 ft: 11",
    ]
    report = campaign._report("frames", lines, 1, crashes, 77)
    assert not report.is_well
    assert (report.runs, report.edges, report.features) == (64, 8, 11)
    assert "AssertionError: broken" in report.describe()
    assert "python -m tests.fuzz --replay frames 01ff" in report.describe()


def test_the_bound_on_memory_finds_what_is_out_of_proportion() -> None:
    with MemoryBound(10, factor=100, constant=1000):
        bytearray(1500)
    with (
        pytest.raises(AssertionError, match="bytes of memory for 10 bytes"),
        MemoryBound(10, factor=100, constant=1000),
    ):
        bytearray(5000)


def test_the_reference_of_the_properties_target_is_not_ours() -> None:
    # From the documentation of java.util.Properties.load().
    for line in (b"Truth = Beauty", b" Truth:Beauty", b"Truth\t\t\t:Beauty"):
        assert reference(line) == {"Truth": "Beauty"}
    assert reference(b"fruits  apple, banana, \\\n   pear\ncheeses\n") == {
        "fruits": "apple, banana, pear",
        "cheeses": "",
    }
    assert reference(b"\\:\\==x") == {":=": "x"}
