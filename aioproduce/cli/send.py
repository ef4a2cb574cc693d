"""The run of `aioproduce send`: from input to acknowledgement, or to the reason why not.

Called by `app` with everything checked that can be checked without a cluster.

Invariants:

1. No record is sent before the inputs, the cluster, the topic and the partition are known to be there.
2. No task, and for most records no callback, per record: a line costs a `send()` and an append to a list.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.cli.exit_codes import ExitCode
from aioproduce.cli.inputs import InputError, InputReader, LineSplitter
from aioproduce.cli.line_format import BadLineError, BlankLineError
from aioproduce.cli.run import Run
from aioproduce.cli.tally import Problem, Tally
from aioproduce.errors import InvalidRecordError, InvalidTopicError, PartitionOutOfRangeError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.cli.inputs import Input
    from aioproduce.cli.line_format import LineParser
    from aioproduce.config import ProducerConfig
    from aioproduce.records import Header

# Lines between two looks at what is settled; also what one failure is found within.
_GROUP_LINES: Final = 500
# With --rate: groups per second, so that the records are spread and not sent in bursts.
_PACES_PER_SECOND: Final = 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob:
    """What is to be sent where, and how.

    Attributes:
        topic: The topic.
        inputs: The inputs, in order.
        config: The producer's.
        parse: Line -> key and value; `None`: the line is the value.
        partition: Of all records, `None` lets the producer choose.
        headers: Of all records.
        skips: Whether what cannot be sent is skipped and counted, and failures likewise; else the first one ends
            the run.
        rate: Records per second at most.
        timeout: Seconds to wait for cluster and topic at the start, and for what is outstanding after a signal.
    """

    topic: str
    inputs: list[Input]
    config: ProducerConfig
    parse: LineParser | None
    partition: int | None
    headers: list[Header] | None
    skips: bool
    rate: float | None
    timeout: float


class _StoppedError(Exception):
    """The run ends here; what stopped it is in the tally."""


@final
class SendRun(Run):
    """One run.

    Args:
        job: What to do.
        announce: Called with a line for the user when a signal came.

    Attributes:
        tally: The counts.
        problem: What ended the run early, if anything but a record's failure did.
        is_bad_input: Whether that was the input, or what was asked for.
    """

    def __init__(self, job: SendJob, announce: Callable[[str], None]) -> None:
        super().__init__(job.config, job.topic, job.timeout, announce)
        self._job = job
        self._sending_since: float | None = None
        self.tally: Tally = Tally()
        self.problem: Problem | None = None
        self.is_bad_input: bool = False

    def _outstanding(self) -> int:
        return self.tally.outstanding

    def _end(self) -> None:
        self.tally.end()

    def _failure(self) -> ExitCode | None:
        if self.tally.failed or (self.problem is not None and not self.is_bad_input):
            return ExitCode.NOT_ACKNOWLEDGED
        return ExitCode.BAD_INPUT if self.is_bad_input else None

    # -- the work ---

    async def _work(self) -> None:
        try:
            self._check_partition(await self._check_destination())
            await self._pump()
        except _StoppedError:
            pass
        except InputError as error:
            self._stop(error, is_bad_input=True)
        except ProducerError as error:
            self._stop(error, is_bad_input=isinstance(error, (InvalidTopicError, PartitionOutOfRangeError)))
        # What is accepted is worth waiting for, whatever ended the run. `delivery.timeout.ms` bounds it.
        try:
            await self._producer.flush()
        except ProducerError as error:
            self._stop(error, is_bad_input=False)

    def _stop(
        self, error: Exception, *, is_bad_input: bool, source: str | None = None, line: int | None = None
    ) -> None:
        if self.problem is None:
            self.problem = Problem(source, line, type(error).__name__, str(error))
            self.is_bad_input = is_bad_input

    def _check_partition(self, count: int) -> None:
        job = self._job
        if job.partition is not None and job.partition >= count:
            raise PartitionOutOfRangeError(
                f"topic {job.topic!r} has {count} partition(s), 0 to {count - 1}, and no partition {job.partition}",
                topic=job.topic,
                partition=job.partition,
                partition_count=count,
            )

    async def _pump(self) -> None:
        splitter = LineSplitter(self._job.config.max_request_size)
        source: Input | None = None
        line_number = 1
        async for source_now, chunk in InputReader(self._job.inputs).chunks():
            if source_now is not source:
                source, line_number = source_now, 1
            self.tally.read_bytes += len(chunk)
            lines = splitter.feed(chunk) if chunk else splitter.finish()
            if splitter.overlong_size:
                self._reject(source.name, line_number, self._overlong(splitter.overlong_size))
                line_number += 1
            await self._send_lines(source.name, line_number, lines)
            line_number += len(lines)

    def _overlong(self, size: int) -> BadLineError:
        limit = self._job.config.max_request_size
        return BadLineError(
            f"has {size} bytes, more than max.request.size={limit}: raise it (-X max.request.size=...; the "
            "topic's max.message.bytes bounds it too), or split the line"
        )

    async def _send_lines(self, source: str, first_line: int, lines: list[bytes]) -> None:
        rate = self._job.rate
        size = _GROUP_LINES if rate is None else max(1, min(_GROUP_LINES, int(rate / _PACES_PER_SECOND)))
        for start in range(0, len(lines), size):
            await self._send_slice(source, first_line + start, lines[start : start + size])
            self.tally.settle()
            if self.tally.failed and not self._job.skips:
                raise _StoppedError
            if rate is not None:
                await self._pace(rate)
            else:
                await asyncio.sleep(0)  # send() gives the loop its turns, but lines that are rejected do not

    async def _send_slice(self, source: str, first_line: int, lines: list[bytes]) -> None:
        """Send some lines, in a new group after each that is rejected."""
        while lines:
            group = self.tally.open_group(source, first_line)
            try:
                await self._send_run(lines, group.deliveries)
                return
            except (BadLineError, InvalidRecordError) as error:
                position = len(group.deliveries)
                if isinstance(error, InvalidTopicError):
                    raise
                if not isinstance(error, BlankLineError):
                    self._reject(source, first_line + position, error)
            finally:
                self.tally.sent_bytes += sum(map(len, lines[: len(group.deliveries)]))
            lines = lines[position + 1 :]
            first_line += position + 1

    async def _send_run(self, lines: list[bytes], deliveries: list[Any]) -> None:
        """The hot loop: one pass per line."""
        job = self._job
        send, topic, parse, partition, headers = (
            self._producer.send,
            job.topic,
            job.parse,
            job.partition,
            job.headers,
        )
        latency = self.tally.latency
        number = self.tally.sent
        key: bytes | None = None
        for line in lines:
            if parse is None:
                value = line
            else:
                key, value = parse(line)
            on_delivery = None if number % latency.stride else latency.measure(number)
            deliveries.append(
                await send(topic, value, key, partition=partition, headers=headers, on_delivery=on_delivery)
            )
            number += 1

    def _reject(self, source: str, line: int, error: Exception) -> None:
        self.tally.reject(source, line, error)
        if not self._job.skips:
            self._stop(error, is_bad_input=True, source=source, line=line)
            raise _StoppedError

    async def _pace(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        if self._sending_since is None:
            self._sending_since = loop.time()
        # sleep(0) where it is behind: nothing is to be made up for in a burst that starves the loop.
        await asyncio.sleep(max(0.0, self._sending_since + self.tally.sent / rate - loop.time()))
