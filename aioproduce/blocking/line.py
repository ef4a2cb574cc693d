"""The line of threads that wait for room in the hand-over.

Used by `Session` in the threads that send, and by `Pump` in the loop thread, which lets them in.

Invariants:

1. First come, first served: while anybody stands here the hand-over takes nothing from others.
2. Nobody is woken for one free place. The line moves when the hand-over is half empty, as far as there is room: a
   thread that is woken finds room for many records, and each wake-up costs two switches of the interpreter lock.
3. Who is let in is in: the loop thread puts the record where it belongs, so that the order is that of the line.
4. Who leaves (time-out, Ctrl-C) takes its place along.
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
    """One thread in the line."""

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
        hand_over: What is full.
    """

    __slots__ = ("_hand_over", "_lock", "_places")

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        # Again by the same thread: a signal's handler may send while its thread is in here.
        self._lock = threading.RLock()
        self._places: deque[_Place] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def wait(self, delivery: BlockingDelivery, timeout: float) -> bool:
        """Wait until the record is in.

        Args:
            delivery: The record's.
            timeout: Seconds at most.

        Returns:
            Whether it is; False after the time-out, and once the hand-over is shut.
        """
        place = _Place(delivery)
        try:
            with self._lock:
                if not self._hand_over.is_open:
                    return False  # nobody would look at the line any more
                self._places.append(place)
                self._hand_over.has_line = True
            # The loop thread may have emptied it since; then nothing else would make it look again.
            self._hand_over.tell()
            place.woken.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                if place in self._places:
                    self._places.remove(place)
                    self._hand_over.has_line = bool(self._places)
            if not place.is_in:
                # Who left may have been all that the next one waited for.
                self._hand_over.tell()
        return place.is_in

    def move(self) -> None:
        """Let in whoever fits, from the front."""
        if not self._places or not self._hand_over.is_half_empty:
            return
        with self._lock:
            while self._places and self._hand_over.put(self._places[0].delivery, is_first=True):
                self._leave(is_in=True)
            self._hand_over.has_line = bool(self._places)

    def dissolve(self) -> None:
        """Wake all of them; the hand-over is shut."""
        with self._lock:
            while self._places:
                self._leave(is_in=False)
            self._hand_over.has_line = False

    def _leave(self, *, is_in: bool) -> None:
        place = self._places.popleft()
        place.is_in = is_in
        place.woken.release()
