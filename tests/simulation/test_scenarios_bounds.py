"""Memory that is counted, while brokers stall with their sockets open and senders go on at full rate.

`faults/test_bounds.py` does the same on real sockets, for the memory that the process has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import BufferExhaustedError, DeliveryTimeoutError
from tests.simulation.scenario import Scenario, failure_of, in_modes

if TYPE_CHECKING:
    from tests.simulation.ledger import Entry

STALL = 60.0
SENDERS = 6
BUFFER = 64_000
SIZE = 1_000


@in_modes("idempotent", "plain")
@pytest.mark.parametrize("delivery_timeout_ms", [120_000, 8_000], ids=["kept", "given up"])
def test_memory_is_bounded_while_all_brokers_stall_for_a_minute(
    mode: str, side: str, delivery_timeout_ms: int
) -> None:
    """With the longer time-out the memory is full all the time; with the shorter one it goes round and round."""
    scene = Scenario(
        mode,
        side,
        {
            "buffer_memory": BUFFER,
            "batch_size": 4_000,
            "max_block_ms": 400,
            "request_timeout_ms": 5_000,
            "delivery_timeout_ms": delivery_timeout_ms,
        },
        partitions=SENDERS,
    )
    sent: list[Entry] = []

    def look() -> None:
        counted = scene.sender.pool.outstanding
        held = sum(len(entry.value) for entry in sent if entry.accepted_at is not None and not entry.outcomes)
        # What is told of as held is no less than what must be, and neither is more than was granted.
        assert held <= counted <= BUFFER

    async def send_until(partition: int, end: float) -> None:
        while scene.now < end:
            [entry] = await scene.send(partition, size=SIZE)
            sent.append(entry)
            look()

    async def look_all_the_time(end: float) -> None:
        while scene.now < end:
            look()
            await scene.sleep(0.01)

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.faults.stall(broker)
        end = scene.now + STALL
        tasks = [scene.side.spawn(send_until(number, end), f"sender {number}") for number in range(SENDERS)]
        tasks.append(scene.side.spawn(look_all_the_time(end), "look"))
        for task in tasks:
            await scene.side.join(task)
        refused = [entry for entry in sent if isinstance(entry.refusal, BufferExhaustedError)]
        accepted = [entry for entry in sent if entry.accepted_at is not None]
        # Each sender waits for max.block.ms all the time, but for the moments at which memory comes back.
        assert len(refused) > 0.8 * SENDERS * STALL / 0.4
        assert all(
            entry.answered_at - entry.offered_at < 0.45 for entry in sent if entry.answered_at is not None
        )
        for broker in range(3):
            scene.faults.resume(broker)
        await scene.side.flush()
        assert scene.sender.pool.outstanding == 0
        given_up = [entry for entry in accepted if isinstance(failure_of(entry), DeliveryTimeoutError)]
        goes_round = delivery_timeout_ms < STALL * 1000
        assert bool(given_up) is (len(accepted) > 2 * BUFFER / SIZE) is goes_round

    scene.play(story())
