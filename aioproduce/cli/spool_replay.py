"""The run of `aioproduce spool replay`: dead letters are sent again, and removed when they are acknowledged.

Called by `spool`.

Invariants:

1. A dead letter leaves the table after its acknowledgement, and never before. If the process is killed between the
   two, the next replay sends it again, with the same id.
2. At most `_GROUP` dead letters are in memory.
3. A topic that cannot be sent to is tried once: its other dead letters fail with the same reason.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.cli.display import ProgressBar, hushed_warnings
from aioproduce.cli.exit_codes import ExitCode, exit_code_of
from aioproduce.cli.run import Run
from aioproduce.errors import InvalidRecordError, ProducerError
from aioproduce.spool.dead_letter_table import count_dead_letters, read_dead_letters, remove_dead_letters
from aioproduce.spool.topic_queue import ID_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproduce import DeliveryFuture
    from aioproduce.config import ProducerConfig
    from aioproduce.spool.dead_letter_table import DeadLetter
    from aioproduce.spool.queue_files import QueueFiles

_GROUP: Final = 500
_TOLD: Final = 10
_PICTURE: Final = 0.1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What to send again.

    Attributes:
        queues: The queues.
        topic: Only dead letters of this topic; all if None.
        ids: Only those with these ids; all, if there are none.
        to_topic: Where to, instead of each one's own topic.
        config: The producer's configuration.
        timeout: Seconds to wait for the cluster, and for acknowledgements after a signal.
    """

    queues: Sequence[QueueFiles]
    topic: str | None
    ids: Sequence[bytes]
    to_topic: str | None
    config: ProducerConfig
    timeout: float

    def total(self) -> int:
        """Return how many dead letters there are to send.

        Raises:
            sqlite3.Error: if a table cannot be read.
        """
        total = 0
        for queue in self.queues:
            if queue.has_dead_letters and self.ids:
                total += len(read_dead_letters(queue.dead_letters, topic=self.topic, ids=self.ids))
            elif queue.has_dead_letters:
                counts = count_dead_letters(queue.dead_letters)
                total += sum(counts.values()) if self.topic is None else counts.get(self.topic, 0)
        return total


@final
class ReplayRun(Run):
    """One run.

    Args:
        job: The job.
        announce: Called with a line for the user.

    Attributes:
        acknowledged: Records that the cluster acknowledged.
        failed: Records that it did not acknowledge, or that could not be sent.
        errors: How many of each error.
        problem: What ended the run early.
    """

    def __init__(self, job: ReplayJob, announce: Callable[[str], None]) -> None:
        super().__init__(job.config, job.to_topic or "", job.timeout, announce)
        self._job = job
        self._path = ""
        self._under_way: list[tuple[DeadLetter, DeliveryFuture]] = []
        self._closed_topics: dict[str, ProducerError] = {}
        self._stopped_with: ExitCode | None = None
        self.acknowledged: int = 0
        self.failed: int = 0
        self.errors: Counter[str] = Counter()
        self.problem: str | None = None

    async def _work(self) -> None:
        try:
            with hushed_warnings():
                await self._producer.check(self._timeout)
            for queue in self._job.queues:
                if queue.has_dead_letters:
                    self._path = queue.dead_letters
                    await self._replay()
        except ProducerError as error:
            self._stop(str(error), exit_code_of(error))
        except (sqlite3.Error, ValueError) as error:
            self._stop(f"{self._path} cannot be read: {error}", ExitCode.NOT_ACKNOWLEDGED)

    async def _replay(self) -> None:
        """Send the dead letters of one table, group after group."""
        after: DeadLetter | None = None
        while self.problem is None:
            letters = read_dead_letters(
                self._path, topic=self._job.topic, ids=self._job.ids, after=after, limit=_GROUP
            )
            if not letters:
                return
            after = letters[-1]
            for letter in letters:
                await self._send(letter)
            await self._producer.flush()
            self._settle()

    async def _send(self, letter: DeadLetter) -> None:
        topic = self._job.to_topic or letter.topic
        error = self._closed_topics.get(topic)
        if error is None:
            try:
                delivery = await self._producer.send(
                    topic,
                    letter.value,
                    letter.key,
                    timestamp=letter.timestamp,
                    headers=[*letter.headers, (ID_HEADER, letter.id)],
                )
            except InvalidRecordError as refusal:
                self._fail(letter, refusal)
                return
            except ProducerError as trouble:
                error = self._closed_topics[topic] = trouble
            else:
                self._under_way.append((letter, delivery))
                return
        self._fail(letter, error)

    def _fail(self, letter: DeadLetter, error: BaseException) -> None:
        self.failed += 1
        name = type(error).__name__
        self.errors[name] += 1
        if self.errors[name] <= _TOLD:
            self._announce(f"error: {letter.topic} {letter.id.hex()} stays a dead letter: {error}")

    def _settle(self) -> None:
        """Remove what is acknowledged, and count."""
        under_way, self._under_way = self._under_way, []
        acknowledged = []
        for letter, delivery in under_way:
            error = delivery.exception()
            if error is None:
                acknowledged.append(letter)
            else:
                self._fail(letter, error)
        self.acknowledged += len(acknowledged)
        try:
            remove_dead_letters(self._path, acknowledged)
        except sqlite3.Error as error:
            self._stop(
                f"{len(acknowledged)} records are acknowledged, and could not be removed from {self._path}: "
                f"{error}. A replay sends them again, with the same ids",
                ExitCode.NOT_ACKNOWLEDGED,
            )

    def _stop(self, problem: str, exit_code: ExitCode) -> None:
        if self.problem is None:
            self.problem = problem
            self._stopped_with = exit_code

    def _outstanding(self) -> int:
        return sum(not delivery.done() for _, delivery in self._under_way)

    def _end(self) -> None:
        if self._under_way:
            self._settle()

    def _failure(self) -> ExitCode | None:
        return ExitCode.NOT_ACKNOWLEDGED if self.failed else self._stopped_with

    def as_json(self) -> dict[str, Any]:
        """Return the summary for `--json`."""
        return {
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "errors": dict(self.errors),
            "stopped_by": self.problem,
            "signal": None if self.signal is None else self.signal.name,
            "exit_code": int(self.exit_code),
        }


@final
class ReplayProgress(ProgressBar):
    """The progress bar of a replay.

    Args:
        run: The run.
        total: The dead letters to send.
    """

    def __init__(self, run: ReplayRun, total: int) -> None:
        self._run = run
        super().__init__(
            "dead letters",
            total,
            ["{task.fields[acknowledged]:,} acked"],
            seconds=_PICTURE,
            acknowledged=0,
        )

    def _fields(self) -> dict[str, Any]:
        run = self._run
        return {
            "completed": run.acknowledged + run.failed,
            "acknowledged": run.acknowledged,
            "trouble": f"{run.failed:,} not sent" if run.failed else "",
        }
