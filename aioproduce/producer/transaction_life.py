"""A producer's life as a transaction sees it: each check of the producer also checks that the transaction is open.

Made for each Transaction. A record that waited for memory, for a topic or for a turn of the loop must not get into
the next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aioproduce.producer.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.config import ProducerConfig
    from aioproduce.core.sender import Sender
    from aioproduce.drivers.base import Driver
    from aioproduce.producer.life import ProducerLife


@final
class TransactionLife:
    """The part of a producer's life that sending in one transaction needs.

    Args:
        life: The producer's life.
        check_open: Raises if the transaction is not open.

    Attributes:
        config: The producer's settings.
        driver: The event loop's side.
        sender: The core.
        admission: Accepts records while the transaction is open.
    """

    __slots__ = ("_check_open", "_life", "admission", "config", "driver", "sender")

    def __init__(self, life: ProducerLife, check_open: Callable[[], None]) -> None:
        self._life = life
        self._check_open = check_open
        self.config: ProducerConfig = life.config
        self.driver: Driver = life.driver
        self.sender: Sender = life.sender
        self.admission: Admission = Admission(
            life.config, life.driver, life.sender, self.check_running, life.metrics
        )

    @property
    def appenders(self) -> dict[str, TopicAppender]:
        """See `ProducerLife`."""
        return self._life.appenders

    @property
    def is_over(self) -> bool:
        """See `ProducerLife`."""
        return self._life.is_over

    def check_callable(self) -> None:
        """Refuse a call in the wrong state, from another process or loop, or outside the transaction."""
        self._life.check_callable()
        self._check_open()

    def check_place(self) -> None:
        """See `ProducerLife`."""
        self._life.check_place()

    def check_running(self) -> None:
        """Refuse a call after the end of the producer or of the transaction."""
        self._life.check_running()
        self._check_open()

    def wall_ms(self) -> int:
        """See `ProducerLife`."""
        return self._life.wall_ms()

    def count_refusal(self, error: BaseException, count: int = 1) -> None:
        """See `ProducerLife`."""
        self._life.count_refusal(error, count)

    def counting_refusals(self, count: int = 1) -> AbstractContextManager[None]:
        """See `ProducerLife`."""
        return self._life.counting_refusals(count)


@final
class OwnersLife:
    """The part of a life that `send()` of a transactional Producer needs: that of the calling task's transaction.

    Args:
        life: The producer's life.
        owned: Returns the life of the transaction that the calling task began; raises if there is none.
    """

    __slots__ = ("_life", "_owned")

    def __init__(self, life: ProducerLife, owned: Callable[[], TransactionLife]) -> None:
        self._life = life
        self._owned = owned

    @property
    def admission(self) -> Admission:
        """The admission of the transaction."""
        return self._owned().admission

    @property
    def appenders(self) -> dict[str, TopicAppender]:
        """See `ProducerLife`."""
        return self._life.appenders

    @property
    def driver(self) -> Driver:
        """See `ProducerLife`."""
        return self._life.driver

    def check_callable(self) -> None:
        """Refuse a task without an open transaction."""
        self._owned()

    def check_running(self) -> None:
        """Refuse a task whose transaction ended during a wait."""
        self._owned()

    def wall_ms(self) -> int:
        """See `ProducerLife`."""
        return self._life.wall_ms()

    def count_refusal(self, error: BaseException, count: int = 1) -> None:
        """See `ProducerLife`."""
        self._life.count_refusal(error, count)

    def counting_refusals(self, count: int = 1) -> AbstractContextManager[None]:
        """See `ProducerLife`."""
        return self._life.counting_refusals(count)
