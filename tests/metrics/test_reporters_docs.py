"""The page on exporters: its examples are Python, what they import is there, and what it names is shown."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import prometheus_client
import pytest

from aioproduce import Producer
from aioproduce.reporters.prometheus import ProducerCollector
from aioproduce.testing import FakeCluster

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "metrics-export.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_compiles_and_imports_what_there_is(block: str) -> None:
    compile(block, "docs/how-to/metrics-export.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), {})


async def test_the_series_that_it_names_are_shown() -> None:
    async with FakeCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"v")
        registry = prometheus_client.CollectorRegistry()
        registry.register(ProducerCollector(producer))
        shown = {sample.name for family in registry.collect() for sample in family.samples}
    named = set(re.findall(r"kafka_producer_\w+(?={)|aioproduce_\w+_(?:seconds|bytes)(?=`)", PAGE))
    assert len(named) >= 8
    named.discard("aioproduce_worker_values_age_seconds")  # of the workers' collector
    assert {name if name.startswith("kafka") else f"{name}_count" for name in named} <= shown
