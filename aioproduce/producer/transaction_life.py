"""A producer's life as a transaction sees it: after every wait it is looked whether that is still open.

Made for each Transaction. A record that waited for memory, for a topic or for a turn of the loop must not slip into
the next transaction: everything that checks whether the producer runs checks that, too.
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
    """What sending needs of a life.

    Args:
        life: The producer's.
        check_open: Raises where the transaction is not open.

    Attributes:
        config: The producer's settings.
        driver: The event loop's side.
        sender: The core.
        admission: Lets records in, while the transaction is open.
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
        """As `ProducerLife` has them."""
        return self._life.appenders

    @property
    def is_over(self) -> bool:
        """As `ProducerLife` has it."""
        return self._life.is_over

    def check_callable(self) -> None:
        """Refuse a call at the wrong time, from the wrong place, or outside of the transaction."""
        self._life.check_callable()
        self._check_open()

    def check_place(self) -> None:
        """As `ProducerLife` has it."""
        self._life.check_place()

    def check_running(self) -> None:
        """Refuse what comes after the end of the producer, or of the transaction."""
        self._life.check_running()
        self._check_open()

    def wall_ms(self) -> int:
        """As `ProducerLife` has it."""
        return self._life.wall_ms()

    def count_refusal(self, error: BaseException, count: int = 1) -> None:
        """As `ProducerLife` has it."""
        self._life.count_refusal(error, count)

    def counting_refusals(self, count: int = 1) -> AbstractContextManager[None]:
        """As `ProducerLife` has it."""
        return self._life.counting_refusals(count)


@final
class OwnersLife:
    """What sending by a transactional Producer needs of a life: the open transaction, if the caller began it.

    Args:
        life: The producer's.
        owned: Gives the life of the transaction that the calling task began; raises where there is none.
    """

    __slots__ = ("_life", "_owned")

    def __init__(self, life: ProducerLife, owned: Callable[[], TransactionLife]) -> None:
        self._life = life
        self._owned = owned

    @property
    def admission(self) -> Admission:
        """That of the transaction."""
        return self._owned().admission

    @property
    def appenders(self) -> dict[str, TopicAppender]:
        """As `ProducerLife` has them."""
        return self._life.appenders

    @property
    def driver(self) -> Driver:
        """As `ProducerLife` has it."""
        return self._life.driver

    def check_callable(self) -> None:
        """Refuse whoever has no open transaction."""
        self._owned()

    def check_running(self) -> None:
        """Likewise, after a wait."""
        self._owned()

    def wall_ms(self) -> int:
        """As `ProducerLife` has it."""
        return self._life.wall_ms()

    def count_refusal(self, error: BaseException, count: int = 1) -> None:
        """As `ProducerLife` has it."""
        self._life.count_refusal(error, count)

    def counting_refusals(self, count: int = 1) -> AbstractContextManager[None]:
        """As `ProducerLife` has it."""
        return self._life.counting_refusals(count)
