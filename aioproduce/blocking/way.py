"""One way of records from threads to the loop thread: the hand-over, the queue before it, the pump after it.

A `Session` has one for the Producer. Each transaction has its own, so that a record can only get into the
transaction in which it was handed over: its hand-over is shut before the transaction ends, and never opened again.

Invariants:

1. A shut way accepts nothing. Its records are accepted or refused, and its waiting threads are woken.
2. Threads that wait for deliveries are served until the session's end, not only until the end of their way.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.hand_over import HandOver
from aioproduce.blocking.line import Line
from aioproduce.blocking.pump import Pump
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import BufferExhaustedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.blocking.session import Session
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.producer import Producer
    from aioproduce.producer.transactions import Transaction

# Room in the hand-over: a few switches of the interpreter lock, of 5 ms each, at full speed.
_ROOM: Final = 8 * 2**20


@final
class Way:
    """A way of records; created in the loop thread.

    Args:
        session: The session.
        sending: The producer or transaction at its end; only for the loop thread, except for serializers and
            interceptors.
        why_shut: Returns the error for a caller that uses it after it is shut.
        on_refusal: Called with the error of each record that was handed over and did not get into a batch.

    Attributes:
        hand_over: The queue of records.
        line: Threads that wait for room in it.
        pump: Moves records from it into batches.
        sending: As passed.
        session: As passed.
    """

    __slots__ = ("__weakref__", "_config", "_why_shut", "hand_over", "line", "pump", "sending", "session")

    def __init__(
        self,
        session: Session,
        sending: Producer | Transaction[Any, Any],
        why_shut: Callable[[], BaseException],
        on_refusal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.session: Session = session
        self._why_shut = why_shut
        self._config = config = session.config
        self.sending: Producer | Transaction[Any, Any] = sending
        loop = asyncio.get_running_loop()
        self.hand_over: HandOver = HandOver(
            sending._life.appenders,
            lambda: loop.call_soon_threadsafe(self.pump.wake),
            lambda: loop.call_soon_threadsafe(self.pump.answer),
            session.raise_forked,
            session.check_may_wait,
            limit=min(_ROOM, config.buffer_memory),
            largest=min(config.batch_size, config.max_request_size, 2**15) // 2,
            is_plain=sending._interceptors is None and not sending._input.has_serializers,
        )
        self.line: Line = Line(self.hand_over)
        self.pump: Pump = Pump(sending._life, config.max_block, self.hand_over, self.line, on_refusal)

    def shut(self) -> None:
        """Accept nothing more, and wake the waiting threads."""
        self.hand_over.shut()
        self.line.dissolve()

    # -- records that the fast path does not accept ---

    def put(self, delivery: BlockingDelivery, timeout: float) -> None:
        """Hand over a record, waiting for room.

        Args:
            delivery: The record's delivery.
            timeout: Maximum seconds to wait.

        Raises:
            BufferExhaustedError: If there was no room in time.
            LoopThreadError: If there is no room, and this is the loop thread.
            ProducerStateError: If the way is shut.
        """
        if self.hand_over.put(delivery):
            return
        if not self.hand_over.is_open:
            raise self._why_shut()
        self.session.check_may_wait("send(), with no room in the buffer,")
        began_at = time.monotonic()
        if self.line.wait(delivery, timeout):
            return
        if not self.hand_over.is_open:
            raise self._why_shut()
        raise self._exhausted(delivery, time.monotonic() - began_at)

    def _exhausted(self, delivery: BlockingDelivery, waited: float) -> BaseException:
        _, key, value, *_ = delivery._record
        return BufferExhaustedError(
            f"no room became free within {waited:.3f} s (max.block.ms, or timeout=): "
            f"buffer.memory={self._config.buffer_memory} is held by records that are not acknowledged yet, and "
            "more are waiting for it. Send less, raise buffer.memory or max.block.ms, or check the brokers",
            waited=waited,
            needed=len(key or b"") + len(value or b""),
            available=0,
        )

    async def accept(self, delivery: BlockingDelivery, timeout: float) -> None:
        """Accept one record after the earlier ones of its thread, waiting for its topic; in the loop thread."""
        life = self.sending._life
        began_at = time.monotonic()
        await self.pump.behind(delivery.topic, timeout)
        life.check_running()
        left = max(timeout - (time.monotonic() - began_at), 0.0)
        record = SerializedRecord._make(delivery._record)
        accepted: DeliveryFuture = await life.admission.append_waiting(record, left)
        delivery._accept(accepted)

    async def send_many(
        self, topic: str, values: list[Any], keys: list[Any] | None, **settings: Any
    ) -> Deliveries:
        """Send records as `Producer.send_many()` does, after those that were handed over before."""
        await self.pump.behind(topic, self._config.max_block)
        return await self.sending.send_many(topic, values, keys, **settings)
