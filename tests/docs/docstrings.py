"""Runs the examples of docstrings, with `await` at their top, on a cluster in memory.

1. `localhost:9092` is a FakeCluster of the example. The names of `given()` are there; each example has its own.
2. What an example prints is compared as `doctest` does it. A step without output may print anything.
3. An example that cannot run here is in `SHOWN`, with the reason. One that prints other figures is in `VARIES`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Unpack

import prometheus_client
import pyarrow
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette

import aioproduce
from aioproduce import BlockingProducer, PreparedTransaction, Producer, ProducerConfig
from aioproduce.compat.aiokafka import AIOKafkaProducer
from aioproduce.errors import NotStartedError
from aioproduce.integrations.service import ProducerService
from aioproduce.serializers import (
    JsonSerializer,
    Schema,
    SchemaRegistryClient,
    SerializingProducer,
    StringSerializer,
)
from aioproduce.testing import ClusterThread, FakeCluster, FakeSchemaRegistry
from aioproduce.testing.simulation import ScheduledFault, Simulation, random_faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

CHECK: Final = doctest.OutputChecker()
FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@dataclass(frozen=True)
class Example:
    """The examples of one docstring."""

    name: str
    steps: tuple[doctest.Example, ...]
    module: ModuleType


def modules() -> Iterator[ModuleType]:
    """Every module of the package, but those whose library is not installed."""
    for found in pkgutil.walk_packages(aioproduce.__path__, "aioproduce."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                yield importlib.import_module(found.name)


def documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Names and docstrings of a module, its classes and functions: those that it defines itself."""
    yield module.__name__, module.__doc__ or ""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__ or not (
            inspect.isclass(value) or inspect.isroutine(value)
        ):
            continue
        yield f"{module.__name__}.{name}", value.__doc__ or ""
        if inspect.isclass(value):
            for each, member in list(vars(value).items()):
                text = getattr(member, "__doc__", None)
                if isinstance(text, str) and ">>>" in text:
                    yield f"{module.__name__}.{name}.{each}", text


def examples() -> list[Example]:
    """All that there are."""
    parser = doctest.DocTestParser()
    found = []
    for module in modules():
        for name, text in documented(module):
            if ">>>" in text:
                found.append(Example(name, tuple(parser.get_examples(text, name)), module))
    return found


async def run(example: Example, folder: Path) -> None:
    """Run the steps in a folder; raise what one raises, or what it prints otherwise than the docstring says."""
    async with AsyncExitStack() as stack:
        names = await given(example, folder, stack)
        servers = names["cluster"].bootstrap_servers
        for step in example.steps:
            source = step.source.replace("localhost:9092", servers).replace("(9404)", "(0)")
            source = source.replace("port=8089", "port=0").replace("/run/app/kafka-metrics", str(folder))
            printed = await _step(source, example, names)
            if step.want and example.name not in VARIES:
                assert CHECK.check_output(step.want, printed, FLAGS), (
                    f"{example.name}: {step.source}expected {step.want!r}, printed {printed!r}"
                )


async def _step(source: str, example: Example, names: dict[str, Any]) -> str:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, example.name, "single", flags=flags, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, names)
        elif example.name.startswith(BLOCKING):
            await asyncio.to_thread(exec, code, names)
        else:
            exec(code, names)
    return printed.getvalue()


async def given(example: Example, folder: Path, stack: AsyncExitStack) -> dict[str, Any]:
    """The names that an example finds: its module's, and what the program around it would have."""
    monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("a line\n")
    (folder / "producer.properties").write_text("bootstrap.servers=localhost:9092\n")
    cluster = await stack.enter_async_context(
        FakeCluster(3, topics={"orders": 6, "payments": 1, "refunds": 1})
    )
    servers = cluster.bootstrap_servers
    names: dict[str, Any] = {**PROGRAM, **vars(example.module), "cluster": cluster}
    room = example.name.removeprefix("aioproduce.")
    if example.name.startswith(BLOCKING):
        names["producer"] = await asyncio.to_thread(BlockingProducer, servers)
        stack.push_async_callback(asyncio.to_thread, names["producer"].close)
        await asyncio.to_thread(names["producer"].start)
    elif room.startswith("serializers."):
        fake = stack.enter_context(FakeSchemaRegistry())
        fake.register("orders-value", '"string"')
        names["registry"] = await stack.enter_async_context(SchemaRegistryClient(fake.url))
        names["schema"] = Schema('"string"')
        text, objects = StringSerializer(), JsonSerializer()
        names["producer"] = await stack.enter_async_context(
            SerializingProducer(servers, key_serializer=text, value_serializer=objects)
        )
    elif room.startswith("testing.") and "simulation" not in room:
        names["cluster"] = thread = stack.enter_context(ClusterThread(topics={"orders": 6}))
        producer = await stack.enter_async_context(Producer(thread.bootstrap_servers))
        headers = [("trace", b"1")]
        value = b"42" if room.endswith("Produced") else b'{"id": 42}'
        await producer.send_and_wait("orders", value, b"customer-7", partition=3, headers=headers)
        names |= {"producer": producer, "run_the_program": run_the_program}
    elif "ransaction" in room:
        producer = await stack.enter_async_context(Producer(servers, transactional_id="orders-1"))
        names["producer"] = producer
        if room.endswith("Transaction.prepare"):
            names["txn"] = await producer.begin_transaction()
            await names["txn"].send("orders", b"42")
    elif room.startswith("compat.aiokafka"):
        names["producer"] = await stack.enter_async_context(AIOKafkaProducer(bootstrap_servers=servers))
    else:
        names["producer"] = await stack.enter_async_context(Producer(servers))
        names["service"] = ProducerService(names["producer"])
        await names["producer"].send_and_wait("orders", b"42")
    names["app"] = FastAPI()
    return names


async def nothing(*_: object) -> None:
    """What a program would do meanwhile."""


def run_the_program(servers: str) -> None:
    """Send what `ClusterThread`'s example looks for."""
    with BlockingProducer(servers) as producer:
        producer.send("orders", b"42", key=b"customer-7").result(30)


BLOCKING: Final = (
    "aioproduce.blocking",
    "aioproduce._native.blocking",
    "aioproduce._native.hand_over",
    "aioproduce.testing.simulation",
)
"""Examples that block, or run a loop of their own: they run in a thread."""

PROGRAM: Final[dict[str, Any]] = {
    "aioproduce": aioproduce,
    "asyncio": asyncio,
    "BlockingProducer": BlockingProducer,
    "ClusterThread": ClusterThread,
    "FakeCluster": FakeCluster,
    "FastAPI": FastAPI,
    "Annotated": Annotated,
    "Depends": Depends,
    "lines": [b"one", b"two"],
    "NotStartedError": NotStartedError,
    "Order": dict,
    "Placed": dict,
    "own_lifespan": None,
    "PreparedTransaction": PreparedTransaction,
    "Producer": Producer,
    "ProducerConfig": ProducerConfig,
    "prometheus_client": prometheus_client,
    "pyarrow": pyarrow,
    "random_faults": random_faults,
    "ScheduledFault": ScheduledFault,
    "SerializingProducer": SerializingProducer,
    "serve": nothing,
    "simulation": Simulation(seed=7, topics={"orders": 3}),
    "Starlette": Starlette,
    "Unpack": Unpack,
    "Any": Any,
    "work": nothing,
}
"""What the program around an example would have imported or made."""

VARIES: Final = {
    "aioproduce._native.blocking_delivery.BlockingDelivery": "an offset",
    "aioproduce._native.stats.Spread": "the last digit of a float, between the compiled and the interpreted build",
    "aioproduce._native.stopwatch.Latencies": "the last digit of a percentile: a bucket is 4 % wide",
    "aioproduce.blocking.deliveries.BlockingDeliveries": "offsets",
    "aioproduce.compat.aiokafka_batches.BatchBuilder": "a timestamp",
    "aioproduce.metrics.metric.MetricsSnapshot": "counts",
    "aioproduce.producer.bulk_calls.BulkCalls.send_batch": "how many lines there are",
    "aioproduce.producer.deliveries.Deliveries": "offsets",
}
"""Examples that run, and print other figures than they show: which."""

SHOWN: Final = {
    "aioproduce.compat.confluent.AIOProducer.produce": "needs a producer of that class; tests/compat has it",
    "aioproduce.integrations.faststream.PublishThrough": "needs a broker of FastStream; tests/integrations has it",
    "aioproduce.integrations.faststream.PublishThrough.suspended": "needs FastStream's test broker",
    "aioproduce.integrations.logging.KafkaLogHandler.shipping": "it would stay in the logging of the process",
    "aioproduce.producer.producer.Producer.client_instance_id": "FakeCluster gives ids only with a subscription",
    "aioproduce.reporters._otel_metrics.ProducerMeter": "needs a meter provider; tests/metrics has it",
    "aioproduce.reporters.prometheus.WorkersCollector": "needs a directory that prometheus_client's import reads",
    "aioproduce.serializers.protobuf.ProtobufSerializer": "needs a generated class; tests/serializers has it",
    "aioproduce.serializers.registry.SchemaRegistryClient": "its address is a registry of the reader's",
    "aioproduce.spark.columns.SinkColumns.of": "needs a session of Spark; tests/spark has it",
    "aioproduce.spark.datasource.register": "needs a session of Spark; tests/spark has it",
    "aioproduce.spark.order.check_row_order": "needs a session of Spark; tests/spark has it",
}
"""Examples that do not run here, and why."""
