"""The queue of threads that wait for room in the hand-over.

Used by `Session` in the threads that send, and by `Pump` in the loop thread, which lets them in.

Invariants:

1. First come, first served: while threads are waiting, the hand-over accepts nothing from others.
2. No thread is woken for one free place. Threads are let in when the hand-over is half empty, as far as there is
   room: a woken thread then finds room for many records, and each wake-up costs two switches of the interpreter
   lock.
3. When a thread is let in, the loop thread itself adds the record, so that records keep the order of the queue.
4. A thread that leaves (timeout, Ctrl-C) gives up its place.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.hand_over import HandOver


@final
class _Place:
    """One waiting thread."""

    __slots__ = ("delivery", "is_in", "woken")

    def __init__(self, delivery: BlockingDelivery) -> None:
        self.delivery = delivery
        self.is_in = False
        self.woken = threading.Lock()
        self.woken.acquire()


@final
class Line:
    """Threads that wait until their record is in the hand-over.

    Args:
        hand_over: The hand-over that is full.
    """

    __slots__ = ("_hand_over", "_lock", "_places")

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        # Reentrant, because a signal handler may send while its thread holds the lock.
        self._lock = threading.RLock()
        self._places: deque[_Place] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def wait(self, delivery: BlockingDelivery, timeout: float) -> bool:
        """Wait until the record is in.

        Args:
            delivery: The record's delivery.
            timeout: Maximum seconds.

        Returns:
            Whether it is in; False after the timeout, or once the hand-over is shut.
        """
        place = _Place(delivery)
        try:
            with self._lock:
                if not self._hand_over.is_open:
                    return False  # nobody looks at the line any more
                self._places.append(place)
                self._hand_over.has_line = True
            # The loop thread may have emptied it meanwhile; then nothing else would make it look again.
            self._hand_over.tell()
            place.woken.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                if place in self._places:
                    self._places.remove(place)
                    self._hand_over.has_line = bool(self._places)
            if not place.is_in:
                # The next thread may have waited only for the one that left.
                self._hand_over.tell()
        return place.is_in

    def move(self) -> None:
        """Let threads in from the front, as far as there is room."""
        if not self._places or not self._hand_over.is_half_empty:
            return
        with self._lock:
            while self._places and self._hand_over.put(self._places[0].delivery, is_first=True):
                self._leave(is_in=True)
            self._hand_over.has_line = bool(self._places)

    def dissolve(self) -> None:
        """Wake all threads, because the hand-over is shut."""
        with self._lock:
            while self._places:
                self._leave(is_in=False)
            self._hand_over.has_line = False

    def _leave(self, *, is_in: bool) -> None:
        place = self._places.popleft()
        place.is_in = is_in
        place.woken.release()
