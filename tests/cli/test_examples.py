"""The examples run, end well, and say what the README says of them."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.command import ENVIRONMENT, Outcome, finish

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run_example(name: str, *arguments: str) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), *arguments),
        stdout=PIPE,
        stderr=PIPE,
        cwd=EXAMPLES.parent,
        env=ENVIRONMENT | {"PYTHONPATH": str(EXAMPLES.parent)},
    )
    return await finish(process)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def figures(output: str) -> dict[str, str]:
    return dict(re.findall(r"│ (\S.*?) +│ +(\S.*?) │", output))


async def test_demo() -> None:
    outcome = await run_example("demo.py")

    assert outcome.code == 0, outcome.out + outcome.err
    shown = figures(outcome.out)
    assert shown["sent"] == shown["acknowledged"] == shown["read back"] == "11,000"
    assert shown["lost"] == shown["duplicated"] == shown["out of order"] == "0"
    per_partition = [int(shown[f"partition {number}"].replace(",", "")) for number in range(6)]
    assert sum(per_partition) == 11_000
    assert {"records/s", "p50 acknowledge latency", "p99 acknowledge latency"} <= shown.keys()
    assert "11,000 acked" in outcome.err  # the progress bar


@pytest.mark.extended("runs a demo as a process; the other demo stays in the gate")
async def test_demo_with_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "twice.txt"
    file.write_bytes(b"the same line\nthe same line\nanother")

    outcome = await run_example("demo.py", str(file))

    assert outcome.code == 0, outcome.out + outcome.err
    assert figures(outcome.out)["read back"] == "3"
    assert (await run_example("demo.py", str(tmp_path / "missing"))).code == 2


def test_the_demos_verdict_finds_what_is_wrong() -> None:
    compare = load(EXAMPLES / "demo.py").compare
    lines = [b"a", b"b", b"c", b"d"]

    right = compare(lines, {0: [b"a", b"c"], 1: [b"b", b"d"]})
    wrong = compare(lines, {0: [b"c", b"a", b"a"], 1: [b"d", b"e"]})

    assert (right.lost, right.duplicated, right.foreign, right.out_of_order) == (0, 0, 0, 0)
    assert (wrong.lost, wrong.duplicated, wrong.foreign, wrong.out_of_order) == (1, 1, 1, 1)
    assert wrong.read_back == 5


def test_the_demos_file_is_what_its_script_writes() -> None:
    script = load(EXAMPLES / "data" / "make_access_log.py")

    lines = list(script.lines())

    assert (EXAMPLES / "data" / "access_log.txt").read_text().splitlines() == lines
    assert len(set(lines)) == len(lines) == 11_000


async def test_buffer_pool() -> None:
    outcome = await run_example("buffer_pool.py")

    assert (outcome.code, outcome.err) == (0, "")
    assert "BufferExhaustedError after 0.2 s" in outcome.out
    assert "one was released, and the eleventh has it" in outcome.out


async def test_quickstart() -> None:
    outcome = await run_example("quickstart.py")

    assert (outcome.code, outcome.err) == (0, "")
    assert "10,000 records acknowledged" in outcome.out
    assert "told: [None]" in outcome.out
    assert "above max.request.size=1,048,576" in outcome.out


async def test_schema_registry() -> None:
    outcome = await run_example("schema_registry.py")

    assert (outcome.code, outcome.err) == (0, "")
    assert "1,000 orders acknowledged" in outcome.out
    assert "refused: the value serializer for topic 'orders-avro' failed" in outcome.out
    assert "with a price: not compatible" in outcome.out
    assert "refused: orders-avro-value: change the schema" in outcome.out
    assert "1,000 orders read back, of 3 customers" in outcome.out
