"""The buffer pool in three textbook cases, with the classes that `await producer.send()` uses.

    python examples/buffer_pool.py

A pool of 10 MB grants 1 MB at a time: ten requests fit, and the eleventh waits. It times out in case 2, and is
served in case 3. The exit code is 1 if a case has another outcome.
"""

from __future__ import annotations

import asyncio
import sys

from aioproduce.core.batching.buffer_pool import BufferLease, BufferPool
from aioproduce.drivers.asyncio import AsyncioWaiter
from aioproduce.errors import BufferExhaustedError

MB = 1_000_000


async def allocate(pool: BufferPool, size: int, max_block: float) -> BufferLease:
    """Allocate memory as `send()` does: at once if it is free, else wait in line, at most `max_block` seconds."""
    lease = pool.try_allocate(size)
    if lease is not None:
        return lease
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    waiter = AsyncioWaiter()
    ticket = pool.enqueue(size, waiter.notify)
    try:
        if await waiter.wait(started_at + max_block):
            return pool.claim(ticket)
    finally:
        pool.abandon(
            ticket
        )  # no effect once claimed; else it releases the place in line and the memory gathered
    raise BufferExhaustedError(
        f"{size} bytes did not become free within {max_block} s",
        waited=loop.time() - started_at,
        needed=size,
        available=pool.available,
    )


def show(pool: BufferPool, what: str) -> None:
    print(f"  {what:<58} out {pool.outstanding / MB:4.0f} MB, free {pool.available / MB:4.0f} MB")


async def ten_fit() -> None:
    print("1. Ten requests of 1 MB fit into a pool of 10 MB.")
    pool = BufferPool(total=10 * MB, poolable_size=MB)
    leases = [await allocate(pool, MB, max_block=0) for _ in range(10)]
    show(pool, "ten leases, none of them waited")
    assert pool.outstanding == 10 * MB
    assert pool.available == 0
    for lease in leases:
        lease.release()
    show(pool, "all released")
    assert pool.outstanding == 0
    assert pool.available == 10 * MB


async def eleventh_times_out() -> None:
    print("2. The eleventh waits, and nothing is released in time.")
    pool = BufferPool(total=10 * MB, poolable_size=MB)
    leases = [await allocate(pool, MB, max_block=0) for _ in range(10)]
    waited = 0.0
    try:
        await allocate(pool, MB, max_block=0.2)
    except BufferExhaustedError as error:
        waited = error.waited
    show(pool, f"BufferExhaustedError after {waited:.1f} s")
    assert waited >= 0.2
    # The failed request left nothing behind: nothing waits, and all memory is released.
    assert pool.waiting == 0
    for lease in leases:
        lease.release()
    show(pool, "all released")
    assert pool.available == 10 * MB


async def eleventh_is_served() -> None:
    print("3. The eleventh waits, and one of the ten is released in time.")
    pool = BufferPool(total=10 * MB, poolable_size=MB)
    leases = [await allocate(pool, MB, max_block=0) for _ in range(10)]
    eleventh = asyncio.create_task(allocate(pool, MB, max_block=5))
    await asyncio.sleep(0.1)
    show(pool, f"{pool.waiting} waits")
    assert pool.waiting == 1
    assert not eleventh.done()
    leases.pop().release()
    leases.append(await eleventh)
    show(pool, "one was released, and the eleventh has it")
    assert pool.outstanding == 10 * MB
    assert pool.waiting == 0
    for lease in leases:
        lease.release()
    show(pool, "all released")
    assert pool.available == 10 * MB


async def main() -> None:
    await ten_fit()
    await eleventh_times_out()
    await eleventh_is_served()
    print("All three cases passed.")


if __name__ == "__main__":
    if not __debug__:
        sys.exit("this example checks itself with assert: run it without -O")
    asyncio.run(main())
