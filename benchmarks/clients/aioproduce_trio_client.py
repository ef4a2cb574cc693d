"""Our client under trio: the same Producer, in the modes that trio can express. Left out without trio."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.clients import aioproduce_client as ours
from benchmarks.clients.measuring import AsyncMode, measure_async

if TYPE_CHECKING:
    from aioproduce import Producer
    from benchmarks.cases import Case, Outcome


async def gather(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop, then one handle for all deliveries."""
    from aioproduce import Deliveries

    send, topic = producer.send, case.topic
    return len(await Deliveries([await send(topic, value) for value in values]))


async def tasks(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """1,000 tasks of `send_and_wait`, in one nursery."""
    import trio

    number = min(int(case.options.get("tasks", 1000)), count)
    source, topic = iter(values), case.topic
    send_and_wait = producer.send_and_wait
    sent = 0

    async def one() -> None:
        nonlocal sent
        for value in source:
            await send_and_wait(topic, value)
            sent += 1

    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(one)
    return sent


_MODES: dict[str, tuple[int, AsyncMode[Any]]] = {
    "await-each": (400_000, ours.await_each),
    "dropped": (500_000, ours.dropped),
    "gather": (250_000, gather),
    "tasks": (100_000, tasks),
    "callback": (250_000, ours.callback),
    "send-many": (2_500_000, ours.send_many),
    "send-batch": (2_000_000, ours.send_batch),
}


class AioproduceTrioClient:
    """`aioproduce.Producer` under `trio.run()`."""

    name = "aioproduce/trio"
    loops = ("",)

    @property
    def modes(self) -> Mapping[str, int]:
        return {mode: rate for mode, (rate, _) in _MODES.items()}

    def unavailable(self) -> str | None:
        return None if find_spec("trio") else "trio is not installed"

    def version(self) -> str:
        return f"{version('aioproduce')} (trio {version('trio')})"

    def opened(self, case: Case, bootstrap_servers: str) -> AbstractAsyncContextManager[Producer]:
        """A producer with the case's settings."""
        return ours.opened(case, bootstrap_servers)

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        outcome: Outcome = _run(
            measure_async(case, ours.opened(case, bootstrap_servers), _MODES[case.mode][1])
        )
        return outcome

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        return None


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import trio

    async def main() -> Any:
        return await coroutine

    return trio.run(main)


CLIENT = AioproduceTrioClient()
