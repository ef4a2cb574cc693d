"""What the core asks of the driver, as values: open a connection, write these bytes, drop it; compress elsewhere.

Made by `core.cluster.broker_connection`, `core.cluster.offloads` and `core.batching.batch_compression`,
executed by a driver.
The driver takes them one by one (never by iterating: executing an effect may report a fact at once, and a fact
may append effects).

Invariants, on both sides of the seam:

1. A connection is known by its `connection_id`, which is never used again. `Connect` is its first effect.
2. For each `Connect` the driver reports `connection_lost` exactly once, sooner or later: when the attempt
   failed, when the peer or the network ended the connection, or when `Close` was executed. Memory that was
   handed out by `Send` comes back by that fact, so a driver that swallows it leaks.
3. Effects of one connection are executed in order. No effect of a connection comes after its
   `connection_lost`.
4. `Close` aborts: unsent bytes are thrown away. A polite close waits for a stalled peer for ever.
5. After a `Send`, no other `Send` comes for that connection until the driver has reported `writable`: none
   of its bytes is held by the transport any more. The driver reports it at once when all were written.
6. For each `Compress` the driver reports `compressed` or `compression_failed` exactly once, when no thread
   reads the records any more. Until then their memory is nobody else's, whatever became of the batch.
7. For each `Offload` the driver reports `offloaded` at most once, with the result or the exception. Nothing is held
   up by one that never ends, the close of the producer included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    from aioproduce.compression import Codec
    from aioproduce.security.mechanism import Work

BatchT = TypeVar("BatchT")
"""The core's batches, of which nothing is known down here."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A piece of a request on its way out. Its owner changes or reuses it only as invariant 2 and 5 allow."""


@final
@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection.

    Attributes:
        connection_id: The new connection's identity.
        host: Name or address; a name is resolved anew each time, and all its addresses are tried (KIP-302).
        port: The port.
        timeout: Seconds that the core allows for the whole set-up (KIP-601). The core keeps the time: it
            emits `Close` when they have passed. The driver may share them out among the addresses.
        prepare: What has to be done first, in a thread, since it blocks; if it raises, so has the attempt failed.
            `None`: nothing.
    """

    connection_id: int
    host: str
    port: int
    timeout: float
    prepare: Callable[[], None] | None = None


@final
@dataclass(frozen=True, slots=True)
class Send:
    """Write these buffers, in order, without joining or copying them where that can be avoided.

    Attributes:
        connection_id: The connection to write to.
        buffers: The pieces of one whole request.
    """

    connection_id: int
    buffers: Sequence[Buffer]


@final
@dataclass(frozen=True, slots=True)
class Close:
    """Abort the connection, or the attempt to open it, and report `connection_lost`.

    Attributes:
        connection_id: The connection to abort.
    """

    connection_id: int


@final
@dataclass(frozen=True, slots=True)
class Compress(Generic[BatchT]):
    """Compress records in another thread; jobs begin in the order of their effects.

    Attributes:
        batch: Whose records they are: the name under which the driver reports the end. Only the core looks into it.
        codec: `codec.compress(records)` is the job.
        records: What to read; to be let go of before the end is reported.
    """

    batch: BatchT
    codec: Codec
    records: memoryview


@final
@dataclass(frozen=True, slots=True)
class Offload:
    """Do something for a login in another thread, or in a task of the loop.

    Attributes:
        ticket: The name under which the driver reports the end.
        work: What is to be done. A thread of its own each: it may hang for ever.
    """

    ticket: int
    work: Work


Effect: TypeAlias = Connect | Send | Close
"""What concerns a connection."""
