"""Answers and connections that are lost, cut, late or wrong, through the proxy: rows 3 to 7, 10, 14 and 15.

Each test lets a fault happen while records are sent without pause, three times or in three forms, and each time the
producer has to get more acknowledgements afterwards. The oracle is `Trial`.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aioproduce.wire.api import ApiKey
from tests.drivers.producing import until
from tests.faults.proxy import Act, Direction, FaultProxy, WireFault
from tests.faults.verdict import Promise
from tests.faults.wire import KINDS, Wire, behind_proxy

every_kind = pytest.mark.parametrize("kind", KINDS)


async def met(wire: Wire, fault: WireFault) -> None:
    """The fault has happened, and what it happened to is acknowledged."""
    await until(lambda: fault.is_spent)
    await wire.trial.caught_up()


def written_twice(wire: Wire) -> int:
    assert wire.verdict is not None
    return len(wire.verdict.duplicated)


@pytest.mark.scenario(3, "P")
@every_kind
async def test_reset_before_the_broker_reads(kind: str) -> None:
    """Once for everybody: only with a second request in flight, whose answer is lost by it, plainly twice."""
    async with behind_proxy(kind) as wire:
        if kind == "one-by-one":
            wire.promise = Promise.ONCE
        for _ in range(3):
            await met(wire, wire.proxy.reset_before(ApiKey.PRODUCE))


@pytest.mark.scenario(3, "P")
@every_kind
async def test_reset_while_it_connects_again(kind: str) -> None:
    async with behind_proxy(kind) as wire:
        for api in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            fault = wire.proxy.reset_before(api)
            wire.proxy.reset_links()
            await met(wire, fault)


@pytest.mark.scenario(3, "P")
@pytest.mark.parametrize("act", [Act.RESET_BEFORE, Act.RESET_AFTER, Act.CUT, Act.SWALLOW, Act.WRONG_ID])
async def test_the_first_request_of_each_api_is_lost(act: Act) -> None:
    """Nothing is known yet: versions, topic, producer id and the first sequence are asked for again."""
    faults = [
        WireFault(act, api, length=6)
        for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE)
    ]
    async with behind_proxy("idempotent", faults=faults, request_timeout_ms=150) as wire:
        for fault in faults:
            await met(wire, fault)


@pytest.mark.scenario(4, "P")
@every_kind
async def test_reset_after_the_append(kind: str) -> None:
    async with behind_proxy(kind) as wire:
        for _ in range(3):
            await met(wire, wire.proxy.reset_after(ApiKey.PRODUCE))
    # Without idempotence the broker cannot tell a retry from a new batch.
    assert (written_twice(wire) > 0) == (kind != "idempotent")


@pytest.mark.scenario(4, "P")
@every_kind
async def test_every_other_answer_is_lost(kind: str) -> None:
    async with behind_proxy(kind) as wire:
        for _ in range(10):
            await met(wire, wire.proxy.reset_after(ApiKey.PRODUCE, skip=1))


@pytest.mark.scenario(5, "P")
@pytest.mark.parametrize("is_reset", [False, True], ids=["FIN", "RST"])
@every_kind
async def test_answer_cut(kind: str, is_reset: bool) -> None:
    """Within the size, after it, within the correlation id, after it, and within the body."""
    async with behind_proxy(kind) as wire:
        for length in (0, 2, 4, 6, 8, 20):
            await met(wire, wire.proxy.cut_answer(ApiKey.PRODUCE, length=length, is_reset=is_reset))
    assert (written_twice(wire) > 0) == (kind != "idempotent")


@pytest.mark.scenario(6, "P")
@every_kind
async def test_answer_swallowed(kind: str) -> None:
    """With nothing behind it the request times out; an answer to the next one shows the gap at once."""
    async with behind_proxy(kind, request_timeout_ms=200) as wire:
        for _ in range(2):
            connections = wire.proxy.connections()
            await met(wire, wire.proxy.swallow_answer(ApiKey.PRODUCE))
            assert wire.proxy.connections() > connections
    assert (written_twice(wire) > 0) == (kind != "idempotent")


@pytest.mark.scenario(7, "P")
@every_kind
async def test_answer_later_than_the_request_time_out(kind: str) -> None:
    """The connection that is late is closed, and what the same broker answers on a new one counts."""
    async with behind_proxy(kind, request_timeout_ms=200) as wire:
        for _ in range(2):
            fault = wire.proxy.delay_answer(0.6, ApiKey.PRODUCE)
            await met(wire, fault)
            # Nobody but the client closes a connection here.
            await until(lambda: fault.links[0] not in wire.proxy.links)  # noqa: B023  # awaited in the loop
    assert (written_twice(wire) > 0) == (kind != "idempotent")


@pytest.mark.scenario(10, "P")
@every_kind
async def test_bytes_one_by_one(kind: str) -> None:
    async with behind_proxy(kind, request_timeout_ms=20_000) as wire:
        wire.promise = Promise.ONCE
        connections = wire.proxy.connections()
        wire.proxy.shape(slice_bytes=1)
        await wire.trial.acknowledged(200)
        wire.proxy.shape(slice_bytes=3)
        await wire.trial.acknowledged(200)
        wire.proxy.shape(slice_bytes=0)
        assert wire.proxy.connections() == connections
    assert written_twice(wire) == 0


@pytest.mark.scenario(10, "P")
@pytest.mark.parametrize("kind", ["idempotent", "plain"])
async def test_several_answers_in_one_piece(kind: str) -> None:
    async with behind_proxy(kind) as wire:
        wire.promise = Promise.ONCE
        connections = wire.proxy.connections()
        for count in (2, 5):
            # Their requests, too, come to the broker together.
            wire.proxy.shape(coalesce=count)
            wire.proxy.hold(directions=[Direction.TO_BROKER])
            await until(lambda: any(len(link.pending) > 2 for link in wire.proxy.links))
            wire.proxy.heal()
            await wire.trial.acknowledged(200)
        assert wire.proxy.connections() == connections
    assert written_twice(wire) == 0


@pytest.mark.scenario(14, "P")
@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "unnoticed"])
@every_kind
async def test_idle_connections_are_closed(
    kind: str, is_noticed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No error and nothing twice, also where the next request is on its way already."""
    async with behind_proxy(kind, is_sending=False) as wire:
        wire.promise = Promise.ONCE
        for _ in range(20):
            idle = set(wire.proxy.close_idle())
            assert idle
            if is_noticed:
                await until(lambda: idle.isdisjoint(wire.proxy.links))  # noqa: B023  # awaited in the loop
            await wire.trial.send(20)
            await wire.trial.settle()
    assert [each.getMessage() for each in caplog.records if each.levelno > logging.WARNING] == []


@pytest.mark.scenario(14, "P")
@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.METADATA], ids=lambda api: api.name)
@every_kind
async def test_connection_closed_after_each_answer(kind: str, api: ApiKey) -> None:
    async with behind_proxy(kind) as wire:
        fault = wire.proxy.close_after_answer(api)
        wire.proxy.reset_links()
        await wire.trial.acknowledged(100)
        assert fault.hits > 0
        fault.cancel()
    assert wire.trial.failed == {}


def misanswers(proxy: FaultProxy, api: ApiKey) -> dict[str, Callable[[], WireFault]]:
    return {
        "another correlation id": lambda: proxy.change_correlation_id(api),
        "negative length": lambda: proxy.announce_length(-1, api),
        "length 0": lambda: proxy.announce_length(0, api),
        "2 GB": lambda: proxy.announce_length(2**31 - 1, api),
        "half the body": lambda: proxy.garble_answer(struct.pack(">i", 4) + b"\0\0\0\1", api),
        "another protocol": lambda: proxy.garble_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n", api),
        "zeros": lambda: proxy.garble_answer(bytes(5000), api),
        "ones": lambda: proxy.garble_answer(b"\xff" * 5000, api),
    }


@pytest.mark.scenario(15, "P")
@pytest.mark.parametrize(
    "api", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS], ids=lambda api: api.name
)
@every_kind
async def test_wrong_answers(kind: str, api: ApiKey) -> None:
    """The connection is dropped each time, and nothing else."""
    async with behind_proxy(kind) as wire:
        for make in misanswers(wire.proxy, api).values():
            fault = make()
            if api is not ApiKey.PRODUCE:
                wire.proxy.reset_links()
            await met(wire, fault)
            await until(lambda: fault.links[0] not in wire.proxy.links)  # noqa: B023  # awaited in the loop


@pytest.mark.scenario(15, "P")
async def test_a_broker_that_only_talks_nonsense_is_asked_with_back_off() -> None:
    """The gaps between attempts double up to their bound, within KIP-580's jitter of 20 %.

    Without KIP-899: if all brokers are in back-off at once, it restarts with the bootstrap servers. They are
    behind the same ports here, and have back-offs of their own.
    """
    settings: dict[str, Any] = {
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 400,
        "metadata_recovery_strategy": "none",
    }
    async with behind_proxy("idempotent", **settings) as wire:
        proxy = wire.proxy
        fault = proxy.script(
            WireFault(Act.GARBAGE, ApiKey.API_VERSIONS, remaining=None, payload=b"\xff" * 100)
        )
        before = {broker: len(at) for broker, at in proxy.opened_at.items()}
        proxy.reset_links()
        await until(lambda: min(len(at) - before[each] for each, at in proxy.opened_at.items()) >= 5)
        gaps = {
            broker: [late - early for early, late in itertools.pairwise(at[before[broker] :])]
            for broker, at in proxy.opened_at.items()
        }
        fault.cancel()
        await wire.trial.acknowledged(30)
    for of_broker in gaps.values():
        for gap, back_off in zip(of_broker, (0.05, 0.1, 0.2, 0.4), strict=False):
            assert gap >= 0.8 * back_off - 0.001, gaps  # uvloop's clock counts milliseconds


@pytest.mark.scenario(4, "P")
@pytest.mark.scenario(5, "P")
@pytest.mark.scenario(6, "P")
@pytest.mark.scenario(15, "P")
@pytest.mark.parametrize("seed", range(3))
@every_kind
async def test_all_of_them_by_chance(kind: str, seed: int) -> None:
    """One in ten requests of any kind meets one of the faults above, for 500 acknowledgements."""
    faults = [
        WireFault(Act.RESET_BEFORE),
        WireFault(Act.RESET_AFTER),
        WireFault(Act.CUT, length=6),
        WireFault(Act.SWALLOW),
        WireFault(Act.DELAY, seconds=0.05),
        WireFault(Act.WRONG_ID),
        WireFault(Act.LENGTH, length=-1),
        WireFault(Act.CLOSE_AFTER),
    ]
    async with behind_proxy(kind, seed=seed, request_timeout_ms=200) as wire:
        chance = wire.proxy.by_chance(0.1, faults)
        await wire.trial.acknowledged(500)
        await until(lambda: len(chance.hits) == len(faults))
        wire.proxy.clear()
