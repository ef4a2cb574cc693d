"""The core's requests to the driver, as values: open, write to or abort a connection; run work in a thread.

Made by `core.cluster.broker_connection`, `core.cluster.offloads` and `core.batching.batch_compression`,
executed by a driver.
The driver pops them one by one, and never iterates over them: an executed effect may report a fact at once, and a
fact may append effects.

Invariants, on both sides of the seam:

1. A connection is known by its `connection_id`, which is never used again. `Connect` is its first effect.
2. For each `Connect` the driver reports `connection_lost` exactly once, sooner or later: when the attempt
   failed, when the peer or the network ended the connection, or when `Close` was executed. That fact frees the
   memory that `Send` passed out, so a driver that does not report it leaks memory.
3. Effects of one connection are executed in order. No effect of a connection comes after its
   `connection_lost`.
4. `Close` aborts: unsent bytes are dropped. A graceful close would wait for a stalled peer for ever.
5. After a `Send`, no other `Send` comes for that connection until the driver has reported `writable`: the
   transport holds none of its bytes any more. The driver reports it at once when all were written.
6. For each `Compress` the driver reports `compressed` or `compression_failed` exactly once, when no thread
   reads the records any more. Until then their memory is not reused, even if the batch has failed.
7. For each `Offload` the driver reports `offloaded` at most once, with the result or the exception. An offload that
   never ends blocks nothing, not even the close of the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    from aioproduce.compression import Codec
    from aioproduce.security.mechanism import Work

BatchT = TypeVar("BatchT")
"""The core's batches; this module knows nothing about them."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A piece of an outgoing request. Its owner changes or reuses it only as invariants 2 and 5 allow."""


@final
@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection.

    Attributes:
        connection_id: The new connection's identity.
        host: Name or address; a name is resolved each time, and all its addresses are tried (KIP-302).
        port: The port.
        timeout: Seconds that the core allows for the whole set-up (KIP-601). The core keeps the time: it
            emits `Close` when they have passed. The driver may divide them among the addresses.
        prepare: Blocking work to do first, in a thread; if it raises, the attempt has failed. `None`: no work.
    """

    connection_id: int
    host: str
    port: int
    timeout: float
    prepare: Callable[[], None] | None = None


class Send:
    """Write these buffers, in order, and do not join or copy them if that can be avoided.

    Attributes:
        connection_id: The connection to write to.
        buffers: The pieces of one whole request.
    """

    # No dataclass: a frozen one is made by Python code, and each request makes one.
    __slots__ = ("buffers", "connection_id")

    def __init__(self, connection_id: int, buffers: Sequence[Buffer]) -> None:
        self.connection_id: int = connection_id
        self.buffers: Sequence[Buffer] = buffers

    def __repr__(self) -> str:
        return f"Send(connection_id={self.connection_id}, buffers={self.buffers!r})"


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
        batch: The batch of the records. The driver names it when it reports the end, and does not look into it.
        codec: `codec.compress(records)` is the job.
        records: The bytes to read; the driver drops this view before it reports the end.
    """

    batch: BatchT
    codec: Codec
    records: memoryview


@final
@dataclass(frozen=True, slots=True)
class Offload:
    """Do some work of a login in another thread, or in a task of the loop.

    Attributes:
        ticket: The driver names it when it reports the end.
        work: The work. Each gets a thread of its own, because it may hang for ever.
    """

    ticket: int
    work: Work


Effect: TypeAlias = Connect | Send | Close
"""The effects on a connection."""
