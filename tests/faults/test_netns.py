"""Lost packets, hosts that are switched off and partitions one way, in a network namespace: rows 2, 8, 9 and 13.

The scenarios and their oracle are in `netns_child`; here they are started, and what they tell is checked for the
fault having happened at all.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults import netns
from tests.faults.netns import run_scenario, why_not
from tests.faults.netns_link import NOBODY
from tests.faults.wire import KINDS
from tests.gate.marks import others_extended

every_kind = pytest.mark.parametrize("kind", KINDS)


async def verdict(name: str, kind: str) -> dict[str, Any]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    told = await asyncio.to_thread(run_scenario, name, kind)
    assert told["lost"] > 0
    assert told["carried"] > 0
    return told


@pytest.fixture
def not_asked_yet() -> Iterator[None]:
    """Look again for what the machine lacks, also after the test."""
    why_not.cache_clear()
    yield
    why_not.cache_clear()


@pytest.mark.usefixtures("not_asked_yet")
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "which", lambda tool, path: None if tool == "ip" else f"/usr/bin/{tool}")
        assert (why_not() or "").startswith("no ip(8) in ")
    why_not.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(netns, "_PROBE", "raise PermissionError('not allowed here')")
        reason = why_not() or ""
        # Where no namespace may be made at all, unshare says so before the probe runs.
        assert "CAP_NET_ADMIN" in reason or "tun" in reason


@pytest.mark.scenario(2, "N")
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_syn_black_hole() -> None:
    told = await verdict("syn_black_hole", "idempotent")
    # With all of them switched off, each was tried, and the error has a cause for each.
    assert all(told["attempts"][address] > 0 for address in NOBODY)
    assert {cause.rpartition(":")[0] for cause in told["causes"]} == set(NOBODY)
    assert all("socket.connection.setup.timeout.ms" in cause for cause in told["causes"].values())


@pytest.mark.scenario(8, "N")
@pytest.mark.parametrize(
    "kind",
    others_extended(
        KINDS, keep=["idempotent"], reason="needs a network namespace; one way of sending stays in the gate"
    ),
)
async def test_outage_shorter_than_the_delivery_time_out(kind: str) -> None:
    told = await verdict("short_outage", kind)
    assert told["acked"] == told["sent"]


@pytest.mark.scenario(8, "N")
@every_kind
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_two_outages_shorter_than_the_delivery_time_out(kind: str) -> None:
    told = await verdict("short_outages", kind)
    assert told["acked"] == told["sent"]


@pytest.mark.scenario(9, "N")
@every_kind
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_outage_longer_than_the_delivery_time_out(kind: str) -> None:
    told = await verdict("long_outage", kind)
    assert told["failed"] >= 100
    assert told["acked"] + told["failed"] == told["sent"]


@pytest.mark.scenario(13, "N")
@every_kind
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_a_fifth_of_all_packets_is_lost(kind: str) -> None:
    told = await verdict("loss", kind)
    assert told["acked"] == told["sent"]
    assert told["lost"] >= 50


@pytest.mark.scenario(13, "N")
@every_kind
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_nothing_gets_to_the_brokers(kind: str) -> None:
    told = await verdict("one_way_to_brokers", kind)
    assert told["acked"] == told["sent"]


@pytest.mark.scenario(13, "N")
@every_kind
@pytest.mark.extended("needs a network namespace; one outage stays in the gate")
async def test_nothing_comes_from_the_brokers(kind: str) -> None:
    """Without idempotence the retries are written again: what was written at first is in the log twice."""
    told = await verdict("one_way_to_client", kind)
    assert told["acked"] == told["sent"]
    assert (told["twice"] > 0) == (kind != "idempotent")
